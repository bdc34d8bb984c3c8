"""The deck backend: run a real KLayout with a rule deck and compare its report with ours."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edagym.errors import ToolError, ToolTimeout
from edagym.verifiers.drc.graph import compile_table
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.lyrdb import ImportedReport, read_lyrdb
from edagym.verifiers.drc.markers import Marker
from edagym.verifiers.drc.report import CheckReport

# Names under which decks take the layout and the report file.
DEFAULT_VARIABLES = {
    "in_gds": "{layout}",
    "input": "{layout}",
    "report_file": "{report}",
    "report": "{report}",
    "output": "{report}",
}


@dataclass(frozen=True)
class DeckBackend:
    """A `klayout` program with a rule deck.

    Attributes:
        deck: The deck (``.lydrc`` or ``.drc``).
        klayout: The program: a path or a name on the search path.
        variables: Deck variables (``-rd name=value``); ``{layout}`` and ``{report}`` are replaced by the file names.
        timeout: Time limit in seconds.
    """

    deck: Path
    klayout: str = "klayout"
    variables: Mapping[str, str] = field(default_factory=lambda: DEFAULT_VARIABLES)
    timeout: float = 1800.0

    def run(self, layout: DRCLayout) -> ImportedReport:
        """Check a layout with the deck.

        Raises:
            ToolError: If the program or the deck is missing, the program fails or writes no readable report.
            ToolTimeout: If it runs past the time limit.
        """
        program = shutil.which(self.klayout)
        if program is None:
            raise ToolError("no such program", field="klayout", value=self.klayout)
        if not Path(self.deck).is_file():
            raise ToolError("no such rule deck", field="deck", value=str(self.deck))
        with tempfile.TemporaryDirectory(prefix="edagym-deck-") as folder:
            gds, report = Path(folder) / "layout.gds", Path(folder) / "report.lyrdb"
            layout.write_gds(gds)
            command = [program, "-b"]
            for name, value in self.variables.items():
                command += ["-rd", f"{name}={value.format(layout=gds, report=report)}"]
            command += ["-r", str(Path(self.deck).resolve())]
            try:
                done = subprocess.run(
                    command,
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=self.timeout,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise ToolTimeout("the rule deck ran too long", field="timeout", value=self.timeout) from None
            except OSError as e:
                raise ToolError(f"klayout did not start ({e.strerror})", field="klayout", value=program) from None
            if done.returncode != 0:
                tail = " ".join((done.stderr or done.stdout).split())[-500:]
                raise ToolError(
                    f"klayout failed with code {done.returncode}: {tail}", field="deck", value=str(self.deck)
                )
            if not report.is_file():
                raise ToolError("the rule deck wrote no report", field="variables", value=dict(self.variables))
            try:
                return read_lyrdb(report)
            except Exception as e:
                raise ToolError(f"the rule deck's report can't be read ({e})") from None


@dataclass(frozen=True, slots=True)
class DeckComparison:
    """Where two reports differ.

    Attributes:
        counts: Rules with different counts: (ours, the deck's).
        only_ours: Items (rule, cell with variant, geometry) that only we report.
        only_deck: Items that only the deck reports.
    """

    counts: dict[str, tuple[int, int]]
    only_ours: tuple[tuple[str, str, str], ...]
    only_deck: tuple[tuple[str, str, str], ...]

    @property
    def agree(self) -> bool:
        """Whether the two report the same items."""
        return not (self.counts or self.only_ours or self.only_deck)


def compare(report: CheckReport, deck: ImportedReport) -> DeckComparison:
    """Compare our report with a deck's, item by item: rule, cell, variant and geometry."""
    dbu = report.layout.dbu
    unordered = {o.rule: o.unordered for o in compile_table(report.table, dbu).outputs}
    ours: Counter[tuple[str, str, str]] = Counter()
    for i in report.items:
        ours[i.rule, i.qualified_cell, _key(i.marker, unordered.get(i.rule, False), dbu)] += 1
    theirs: Counter[tuple[str, str, str]] = Counter()
    for item in deck.items:
        flag = unordered.get(item.rule, False)
        theirs[item.rule, item.qualified_cell, _key(item.marker(dbu), flag, dbu)] += 1
    numbers = deck.counts()
    rules = [r for r in dict.fromkeys((*report.counts, *numbers)) if report.counts.get(r, 0) != numbers.get(r, 0)]
    counts = {r: (report.counts.get(r, 0), numbers.get(r, 0)) for r in rules}
    return DeckComparison(counts, tuple(sorted((ours - theirs).elements())), tuple(sorted((theirs - ours).elements())))


def _key(marker: Marker, unordered: bool, dbu: float) -> str:
    """Return a geometry text in which the directions of edges don't matter."""
    if marker.kind == "polygon":
        return marker.text(dbu)
    rings = [min(r, r[2:] + r[:2]) for r in marker.rings]
    if unordered or marker.symmetric:
        rings.sort()
    return Marker(marker.rule, marker.kind, tuple(rings), marker.symmetric).text(dbu)
