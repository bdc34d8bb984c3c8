"""Import of the public PostEDA-Bench DRC tasks: folders with layout, sign-off report, prompt and metadata.

The layout of a task is kept byte by byte; the report gives the violations, `info.json` the counts and the budget. What
the benchmark does not state, the bounds on repairs, is derived from the extent of the violations.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tqdm import tqdm

from edagym.envs.drc.geometry import value_box
from edagym.errors import TaskError
from edagym.task_assets.drc.task import BUDGETS, LEVELS, DRCTask, Limits, PlainMarker, RoiUm, Violation
from edagym.verifiers.drc import DRCLayout, full_check, load_table
from edagym.verifiers.drc.guards import derive_limits

REPORT = "6_drc_count.rpt"

_NUMBER = r"\s*(-?[0-9.]+(?:e-?[0-9]+)?)\.um\s*"
_ROI = re.compile(rf"^\s*roi_box\s*=\s*box\({','.join([_NUMBER] * 4)}\)", re.MULTILINE)
_FOLDER = re.compile(r"q([0-9]{1,6})")


def import_posteda(folder: str | Path, *, markers: bool = False, progress: bool = False) -> list[DRCTask]:
    """Read the DRC tasks of a copy of the public benchmark.

    Args:
        folder: The benchmark's root, its ``drc_bench`` folder, or one task's folder.
        markers: Check every layout and store its flat markers, so that an environment's reset runs no check (seconds
            to minutes for the large layouts). The engine's counts are recorded as ``metadata["engine_counts"]``.
        progress: Show a progress bar.

    Returns:
        The tasks: essential before reasoning, by level and number. Their ids are those of the benchmark, e.g.
        ``"posteda/Essential-L1/q3"``.

    Raises:
        TaskError: If the folder holds no DRC task or a file is missing or malformed; the message names it.
    """
    found = _task_folders(Path(folder))
    if not found:
        raise TaskError(
            "no DRC tasks there",
            field="folder",
            value=str(folder),
            allowed="one with drc_bench/drc_essential/L1/q1 ...",
        )
    return [
        _read_task(path, suite, level, number, markers)
        for path, suite, level, number in tqdm(found, desc="tasks", disable=not progress)
    ]


def _task_folders(root: Path) -> list[tuple[Path, str, str, int]]:
    places = [_place(p) for base in (root, root / "drc_bench") for p in base.glob("drc_*/L*/q*")]
    if (root / "info.json").is_file():
        places.append(_place(root.resolve()))
    return sorted({p for p in places if p is not None}, key=lambda p: p[1:])


def _place(path: Path) -> tuple[Path, str, str, int] | None:
    """Return folder, suite, level and number, or None where the names are no task's."""
    suite, level, number = path.parent.parent.name.removeprefix("drc_"), path.parent.name, _FOLDER.fullmatch(path.name)
    if suite not in ("essential", "reasoning") or level not in LEVELS or number is None:
        return None
    return (path, suite, level, int(number[1]))


def _read_task(path: Path, suite: str, level: str, number: int, markers: bool) -> DRCTask:
    info = _info(path / "info.json")
    violations = read_report(path / REPORT)
    roi = _roi(path / "drc.lydrc")
    counts = Counter(v.rule for v in violations)
    if dict(counts) != info["init_error_types"]:
        raise TaskError(f"{path}: report and info.json differ", field="init_error_types", value=dict(counts))
    layout = DRCLayout.from_gds(path / "top_cell.gds")
    if layout.top.name != info["init_cell_name"]:
        raise TaskError(f"{path}: another top cell than info.json says", field="top", value=layout.top.name)
    gds = (path / "top_cell.gds").read_bytes()
    metadata: dict[str, Any] = {
        "source": "PostEDA-Bench",
        "licence": "CC BY 4.0",
        "folder": "/".join(path.parts[-3:]),
        "prompt": _text(path / "prompt.txt"),
    }
    found: tuple[PlainMarker, ...] | None = None
    if markers:
        found, metadata["engine_counts"] = baseline(layout, roi)
    return DRCTask(
        id=f"posteda/{suite.capitalize()}-{level}/q{number}",
        suite=suite,
        level=level,
        gds=gds,
        top=info["init_cell_name"],
        counts=dict(info["init_error_types"]),
        violations=violations,
        roi=roi,
        budget=info.get("num_iterations", BUDGETS[level]),
        limits=_limits(violations, layout.dbu),
        markers=found,
        steps=info.get("steps_by_human"),
        metadata=metadata,
    )


def baseline(
    layout: DRCLayout, roi: RoiUm | None, rules: str = "asap7"
) -> tuple[tuple[PlainMarker, ...], dict[str, int]]:
    """Check a layout.

    Args:
        layout: The layout.
        roi: Region of interest in um, or None.
        rules: Name of the rule table.

    Returns:
        All flat markers, and the number of violations per rule (in the region of interest).
    """
    report = full_check(layout, load_table(rules), roi=roi)
    return plain_markers(report.markers), report.counts


def plain_markers(markers: Any) -> tuple[PlainMarker, ...]:
    """Return a marker store as the plain data that a task carries."""
    counts = Counter(markers)
    return tuple((m.rule, m.kind, m.rings, m.symmetric, n) for m, n in counts.items())


def _limits(violations: Sequence[Violation], dbu: float) -> Limits:
    """Return the bounds on repairs: the benchmark states none."""
    boxes = [value_box(value) for item in violations for value in item.values]
    found = [tuple(round(v / dbu) for v in box) for box in boxes]
    return derive_limits(found, dbu, {item.rule for item in violations}, load_table())  # type: ignore[arg-type]


def read_report(path: str | Path) -> tuple[Violation, ...]:
    """Read a sign-off report (KLayout's report database, XML).

    Raises:
        TaskError: If the file is missing or no report; the message names it.
    """
    try:
        root = ElementTree.fromstring(Path(path).read_bytes())
    except (OSError, ElementTree.ParseError) as e:
        raise TaskError(f"{path}: not a readable report ({e})") from None
    if root.tag != "report-database":
        raise TaskError(f"{path}: not a report", field="root", value=root.tag, allowed="report-database")
    descriptions = {_word(c, "name"): _word(c, "description") for c in root.findall("categories/category")}
    placements: dict[str, tuple[str | None, str | None]] = {}
    for cell in root.findall("cells/cell"):
        variant = _word(cell, "variant")
        name = _word(cell, "name") + (f":{variant}" if variant else "")
        ref = cell.find("references/ref")
        placements[name] = (None, None) if ref is None else (_word(ref, "parent"), _word(ref, "trans"))
    items = []
    for item in root.findall("items/item"):
        rule, cell_name = _word(item, "category").strip("'"), _word(item, "cell")
        values = tuple((v.text or "").strip() for v in item.findall("values/value"))
        parent, trans = placements.get(cell_name, (None, None))
        base = cell_name.partition(":")[0]
        items.append(Violation(rule, descriptions.get(rule, ""), base, values, parent, trans))
    return tuple(items)


def _word(element: ElementTree.Element, name: str) -> str:
    return (element.findtext(name) or "").strip()


def _info(path: Path) -> dict[str, Any]:
    text = _text(path)
    try:
        info = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise TaskError(f"{path}: not JSON ({e})") from None
    counts = info.get("init_error_types") if isinstance(info, dict) else None
    if not isinstance(counts, dict) or not all(type(n) is int and n > 0 for n in counts.values()) or not counts:
        raise TaskError(f"{path}: no initial counts", field="init_error_types", value=counts)
    for name, kind in (("init_cell_name", str), ("num_iterations", int), ("steps_by_human", int)):
        if not isinstance(info.get(name, kind()), kind) or (kind is str and name not in info):
            raise TaskError(f"{path}: malformed", field=name, value=info.get(name), allowed=kind.__name__)
    return info


def _roi(path: Path) -> RoiUm | None:
    """Return the region of interest that a task's own deck states, or None where there is no deck."""
    if not path.is_file():
        return None
    match = _ROI.search(_text(path))
    if match is None:
        return None
    x1, y1, x2, y2 = (float(v) for v in match.groups())
    return (x1, y1, x2, y2)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise TaskError(f"{path}: cannot be read ({e})") from None
