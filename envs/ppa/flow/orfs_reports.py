"""Logs and reports of OpenROAD-flow-scripts as numbers: ``logs/*.json``, ``6_finish.rpt`` and ``synth_stat.txt``.

Lengths are um, times ps, powers W, as the ASAP7 platform prints them. What is missing, cut short or no number raises a
`ToolError` that names file and fault; nothing is guessed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edagym.errors import ToolError

MAX_REPORT_BYTES = 256_000_000
"""Largest log or report that is read, bytes."""
NO_LIMIT = 1e30
"""From this magnitude on a number stands for "none": the timing engine's infinity."""
GROUPS = ("Sequential", "Combinational", "Clock", "Macro", "Pad")

_RULE = re.compile(r"={20,}")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
# Metrics that were never measured come out as C++ prints them, which is no JSON.
_BARE = re.compile(r"(:\s*)[-+]?(?:nan|inf|infinity)(?:\([^)]*\))?(?=\s*[,}\]])", re.IGNORECASE)
_PERIOD = re.compile(r"^(\S+) period_min = (\S+)", re.MULTILINE)
_SLACK = re.compile(rf"^\s*({_NUMBER})\s+slack \((?:MET|VIOLATED)\)", re.MULTILINE)
_STAGE = re.compile(rf"\s({_NUMBER})\s+({_NUMBER}) ([v^]) (\S+) \((\S+)\)\s*$")
_CHIP_AREA = re.compile(r"^\s*Chip area for (top )?module '\\?(.+)': (\S+)\s*$", re.MULTILINE)
_SEQUENTIAL = re.compile(rf"^\s*of which used for sequential elements: ({_NUMBER})", re.MULTILINE)
_CELLS = re.compile(r"^\s*(?:(\d+)\s+\S+\s+cells|Number of cells:\s+(\d+))\s*$", re.MULTILINE)


@dataclass(frozen=True)
class FinishReport:
    """What ``6_finish.rpt`` states.

    Attributes:
        periods: Clock -> smallest period that it could run at, ps, in file order; empty if no path is constrained.
        tns: Total negative slack, ps.
        wns: Worst negative slack, ps; 0 if every path is met.
        worst_slack: Worst slack, ps.
        power: Group of `GROUPS` or ``"Total"`` -> internal, switching, leakage, total, W.
        critical_path: One line per stage of the worst setup path, then its slack.
    """

    periods: Mapping[str, float]
    tns: float
    wns: float
    worst_slack: float
    power: Mapping[str, tuple[float, float, float, float]]
    critical_path: tuple[str, ...] = ()

    @property
    def effective_period(self) -> float:
        """Largest `periods` over all clocks, ps: the design works at no smaller one in every clock domain."""
        return max(self.periods.values(), default=math.nan)

    @property
    def first_period(self) -> float:
        """The first of `periods`, ps: what the public benchmark's harness takes for the effective period."""
        return next(iter(self.periods.values()), math.nan)


@dataclass(frozen=True)
class SynthReport:
    """What ``synth_stat.txt`` states.

    Attributes:
        top: Name of the module.
        area: Its area ("Chip area"), um2.
        cells: Number of cells.
        sequential_area: Part of the area that flip-flops and latches take, um2; None if it is not stated.
    """

    top: str
    area: float
    cells: int
    sequential_area: float | None = field(default=None)


def read_text(path: Path) -> str:
    """Return a log's or report's text.

    Raises:
        ToolError: If it is not there, cannot be read, or is larger than `MAX_REPORT_BYTES`.
    """
    try:
        size = path.stat().st_size
        if size > MAX_REPORT_BYTES:
            raise ToolError("a report is too big", field=str(path), value=size, allowed=MAX_REPORT_BYTES)
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as e:
        raise ToolError(f"{path}: cannot be read ({e.strerror})", field=path.name) from None


def read_metrics(folder: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Read the metrics of all stages.

    A key that occurs more than once keeps its last value, as the flow's own tools have it. Numbers that were not
    measured (nan, infinities, the timing engine's 1e30) are left out.

    Args:
        folder: Folder with one ``*.json`` per stage.

    Returns:
        Metric -> value, and platform property (``run__flow__platform__time_units``) -> text.

    Raises:
        ToolError: If a file is no JSON object of numbers and texts, e.g. cut short.
    """
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        for key, value in _json_object(path).items():
            if isinstance(value, str):
                texts[key] = value
            elif value is None:
                numbers.pop(key, None)
            elif isinstance(value, bool) or not isinstance(value, int | float):
                raise ToolError(f"{path}: a metric is no number", field=key, value=value)
            elif _is_measured(value):
                numbers[key] = float(value)
            else:
                numbers.pop(key, None)
    return numbers, texts


def _json_object(path: Path) -> dict[str, object]:
    text = read_text(path)
    try:
        data = json.loads(_BARE.sub(r"\1null", text))
    except (ValueError, RecursionError) as e:
        raise ToolError(f"{path}: not JSON, cut short? ({e})", field=path.name) from None
    if not isinstance(data, dict):
        raise ToolError(f"{path}: not a JSON object", field=path.name, value=type(data).__name__)
    return data


def _is_measured(value: float) -> bool:
    try:
        return math.isfinite(value) and abs(value) < NO_LIMIT
    except OverflowError:
        return False


def clock_periods(text: str) -> dict[str, float]:
    """Return clock -> ``period_min``, ps, of a finish report, in file order; clocks without a number are left out."""
    found: dict[str, float] = {}
    for clock, value in _PERIOD.findall(text):
        if re.fullmatch(_NUMBER, value) and _is_measured(float(value)):
            found[clock] = float(value)
    return found


def parse_finish(text: str, source: str = "6_finish.rpt") -> FinishReport:
    """Read a finish report.

    Args:
        text: Its text.
        source: Name of the file, for messages.

    Raises:
        ToolError: If a section is missing, which is what a file that was cut short looks like, or holds no number.
    """
    sections = _sections(text)
    periods = _section(sections, "report_clock_min_period", source)
    for line in periods.splitlines():
        match = _PERIOD.match(line)
        if line.strip() and (match is None or not re.fullmatch(_NUMBER, match[2])):
            raise ToolError(f"{source}: no period in section report_clock_min_period", field=source, value=line)
    return FinishReport(
        clock_periods(periods),
        _labelled(sections, "report_tns", "tns max", source),
        _labelled(sections, "report_wns", "wns max", source),
        _labelled(sections, "report_worst_slack", "worst slack max", source),
        _power(_section(sections, "report_power", source), source),
        _critical_path(_section(sections, "report_checks -path_delay max", source)),
    )


def _sections(text: str) -> dict[str, str]:
    """Return title without the stage's name -> text of each section."""
    found: dict[str, str] = {}
    lines = text.splitlines()
    title = ""
    body: list[str] = []
    i = 0
    while i < len(lines):
        # A title stands between a line of equals signs and one of dashes.
        if _RULE.fullmatch(lines[i].strip()) and i + 2 < len(lines) and lines[i + 2].startswith("-----"):
            if title:
                found[title] = "\n".join(body)
            title, body = lines[i + 1].strip().partition(" ")[2], []
            i += 3
        else:
            body.append(lines[i])
            i += 1
    if title:
        found[title] = "\n".join(body)
    return found


def _section(sections: Mapping[str, str], title: str, source: str) -> str:
    if title not in sections:
        raise ToolError(f"{source}: a section is missing, cut short?", field=source, value=title)
    return sections[title]


def _labelled(sections: Mapping[str, str], title: str, label: str, source: str) -> float:
    body = _section(sections, title, source)
    match = re.search(rf"^{label} (\S+)\s*$", body, re.MULTILINE)
    if match is None:
        raise ToolError(f"{source}: no number in section {title}", field=source, value=body.strip()[:80])
    return _number(match[1], source, title)


def _number(word: str, source: str, where: str) -> float:
    # Without any constrained path the worst slack is the engine's infinity, in words or digits.
    if re.fullmatch(r"[-+]?(inf|infinity|INF)", word):
        return math.copysign(math.inf, -1 if word.startswith("-") else 1)
    if not re.fullmatch(_NUMBER, word):
        raise ToolError(f"{source}: not a number in {where}", field=source, value=word)
    return float(word)


def _power(body: str, source: str) -> dict[str, tuple[float, float, float, float]]:
    found: dict[str, tuple[float, float, float, float]] = {}
    for line in body.splitlines():
        words = line.split()
        if words and words[0] in (*GROUPS, "Total"):
            if len(words) != 6 or not words[5].endswith("%"):
                raise ToolError(f"{source}: a row of the power table is cut short", field=source, value=line.strip())
            values = [_number(word, source, "the power table") for word in words[1:5]]
            if not all(_is_measured(v) for v in values):
                raise ToolError(f"{source}: not a power", field=source, value=line.strip())
            found[words[0]] = (values[0], values[1], values[2], values[3])
    if "Total" not in found:
        raise ToolError(f"{source}: the power table has no total, cut short?", field=source)
    return found


def _critical_path(body: str) -> tuple[str, ...]:
    """Return the stages of the path with the least slack: there is one path per clock group."""
    worst: tuple[float, str] | None = None
    for path in re.split(r"^(?=Startpoint: )", body, flags=re.MULTILINE):
        slack = _SLACK.search(path)
        if slack is not None and (worst is None or float(slack[1]) < worst[0]):
            worst = (float(slack[1]), path)
    if worst is None:
        return ()
    lines = []
    for row in worst[1].splitlines():
        if "data arrival time" in row:
            break
        stage = _STAGE.search(row)
        if stage is not None:
            delay, arrival, edge, pin, cell = stage.groups()
            lines.append(f"{pin} ({cell}) {'fall' if edge == 'v' else 'rise'} delay {delay} arrival {arrival}")
    return (*lines, f"slack {worst[0]:.2f}")


def parse_synth(text: str, source: str = "synth_stat.txt") -> SynthReport:
    """Read a synthesis report; of several modules the top counts, which comes last.

    Args:
        text: Its text.
        source: Name of the file, for messages.

    Raises:
        ToolError: If area or number of cells is missing or no number.
    """
    areas = list(_CHIP_AREA.finditer(text))
    if not areas:
        raise ToolError(f"{source}: no chip area, cut short?", field=source)
    chosen = next((a for a in reversed(areas) if a[1]), areas[-1])
    area = _number(chosen[3], source, "the chip area")
    if not (_is_measured(area) and area >= 0):
        raise ToolError(f"{source}: not an area", field=source, value=chosen[3])
    counts = _CELLS.findall(text[: chosen.start()])
    if not counts:
        raise ToolError(f"{source}: no number of cells", field=source)
    sequential = _SEQUENTIAL.match(text, chosen.end() + 1)
    return SynthReport(
        chosen[2], area, int(counts[-1][0] or counts[-1][1]), float(sequential[1]) if sequential else None
    )
