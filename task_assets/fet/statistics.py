"""Published statistics of the 128-task suite against those of the shipped suite.

Every figure is computed from the task files themselves. A *gated* line must hold, else the suite is not the published
one in structure; a *reported* line is printed for comparison: it depends on the full public image set, or is a
correlation that the paper calls descriptive.
"""

from __future__ import annotations

import json
import re
import statistics as st
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.spatial import ConvexHull
from scipy.stats import spearmanr

from edagym.task_assets.fet.contours.library import ring_area, tier_of
from edagym.task_assets.fet.manifest import load_manifest
from edagym.task_assets.fet.suite import load_task, task_ids
from edagym.task_assets.fet.task import FETTask, Rule, TaskView

TOKENIZER = "pre-tokens of a GPT-4-style split"
_TOKEN = re.compile(r"[^\r\n\w]?[^\W\d_]+|\d{1,3}| ?[^\s\w]+[\r\n]*|_|\s*[\r\n]+|\s+")


def count_tokens(text: str) -> int:
    """Return the length of a text in tokens of `TOKENIZER`.

    A deterministic stand-in that needs no downloaded vocabulary: runs of letters with one leading mark or space, digits
    in groups of up to three, runs of punctuation, white space. A byte-pair vocabulary splits rare words further, so
    this is a lower bound of what such a tokenizer counts; task texts are mostly digits, where both agree.
    """
    return len(_TOKEN.findall(text))


@dataclass(frozen=True, slots=True)
class Marginal:
    """One published statistic and what the shipped suite has.

    Attributes:
        name: What is counted.
        source: Where the paper prints it.
        target: The published value.
        achieved: The shipped suite's value; None where the shipped data cannot tell.
        gated: Whether it must hold.
        met: Whether it holds under `rule`; None where nothing is compared.
        rule: How target and achieved are compared.
    """

    name: str
    source: str
    target: Any
    achieved: Any
    gated: bool
    met: bool | None
    rule: str = "equal"

    @property
    def status(self) -> str:
        """``"gated"`` or ``"reported"``."""
        return "gated" if self.gated else "reported"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {"status": self.status, **{name: getattr(self, name) for name in self.__slots__ if name != "gated"}}


def gate_missed(lines: Iterable[Marginal]) -> tuple[Marginal, ...]:
    """Return the gated lines that do not hold."""
    return tuple(line for line in lines if line.gated and not line.met)


class _Lines(list[Marginal]):
    """A list of marginals with one method per kind of comparison."""

    def equal(self, name: str, source: str, target: Any, achieved: Any) -> None:
        self.append(Marginal(name, source, target, achieved, True, target == achieved))

    def near(self, name: str, source: str, target: float, achieved: float, *, tolerance: float, rule: str) -> None:
        self.append(Marginal(name, source, target, achieved, True, abs(achieved - target) <= tolerance, rule))

    def inside(self, name: str, source: str, target: tuple[float, float], values: Sequence[float]) -> None:
        found = (min(values), max(values))
        self.append(
            Marginal(name, source, target, found, True, target[0] <= found[0] <= found[1] <= target[1], "inside")
        )

    def reported(self, name: str, source: str, target: Any, achieved: Any = None, digits: int | None = None) -> None:
        known = target is not None and achieved is not None
        met = target == (achieved if digits is None else round(achieved, digits)) if known else None
        self.append(Marginal(name, source, target, achieved, False, met, "none" if met is None else "for comparison"))


# -- quantities of one task ----------------------------------------------------------------------------------------


def rules_of(task: FETTask) -> tuple[Rule, ...]:
    """Return the rules that Table 1 counts: visible rules, hidden criteria and completeness, without derived ones."""
    return (*task.drc_rules, *task.structural, *task.completeness)


def difficulty_score(task: FETTask) -> int:
    """Return the integer difficulty composite, a reconstruction that yields all 128 published classes.

    Points for transistors, flakes, tier, materials, layers and a tight window are added up; `difficulty_class` cuts the
    sum into D1 to D4. The paper gives no formula (its class was revised after results were known).
    """
    transistors = task.metadata["transistors"] or 1
    layers = len(task.required_layers)
    materials = len({r.material for r in task.regions})
    return (
        sum(transistors >= limit for limit in (2, 4, 9))
        + sum(len(task.regions) >= limit for limit in (2, 4, 6))
        + int(task.metadata["tier"][1]) - 1
        + materials - 1
        + (layers >= 3) + (layers >= 4)
        + (2 if task.metadata["tight_window"] else 0)
    )  # fmt: skip


def difficulty_class(score: int) -> str:
    """Return D1 (score up to 2), D2 (up to 5), D3 (up to 8) or D4."""
    return f"D{1 + sum(score > limit for limit in (2, 5, 8))}"


def specification(task: FETTask) -> str:
    """Return a key that is equal for tasks which differ in geometry only."""
    rules = [repr(r) for r in rules_of(task)]
    layers = [repr(spec) for spec in task.layers]
    materials = [r.material for r in task.regions]
    return json.dumps([task.architecture, layers, task.design_order, rules, materials, bool(task.metadata["holes"])])


def _solidity(hull: Sequence[tuple[float, float]]) -> float:
    return round(ring_area(hull) / float(ConvexHull(hull).volume), 4)


def _extent(task: FETTask) -> float:
    """Return the longer side of the box around all flakes, um."""
    xs, ys = zip(*(p for r in task.regions for p in r.hull))
    return max(max(xs) - min(xs), max(ys) - min(ys))


# -- the list ------------------------------------------------------------------------------------------------------

_TABLE_3: dict[str, tuple[str, list[int], list[int], list[int], int, float, float]] = {
    # group: share %, L1-L4, D1-D4, G1-G3, holes, median flakes, median transistors
    "top_gated_base": ("43.0", [8, 14, 15, 18], [12, 18, 19, 6], [18, 19, 18], 0, 2.0, 3.0),
    "probes": ("14.8", [0, 12, 4, 3], [13, 6, 0, 0], [12, 4, 3], 15, 1.0, 1.0),
    "gate_contact": ("14.1", [0, 2, 9, 7], [9, 6, 3, 0], [18, 0, 0], 0, 2.0, 2.0),
    "repeated_circuits": ("14.1", [0, 0, 7, 11], [0, 6, 9, 3], [2, 11, 5], 0, 3.0, 9.0),
    "three_material": ("9.4", [0, 6, 5, 1], [0, 0, 7, 5], [3, 7, 2], 0, 5.0, 6.0),
    "scene_constraint": ("4.7", [0, 5, 1, 0], [1, 2, 3, 0], [0, 5, 1], 0, 2.0, 2.5),
}

_TABLE_1 = {
    # kind: tasks, rules, median rules among these tasks
    "min_width": (127, 132, 1),
    "min_spacing": (128, 128, 1),
    "min_separation": (127, 132, 1),
    "min_enclosure": (69, 69, 1),
    "must_not_overlap": (127, 132, 1),
    "must_touch_boundary": (5, 8, 1),
    "must_overlap": (128, 368, 2),
    "must_cross": (127, 189, 1),
    "transistor_count": (127, 369, 2),
    "circuit_spec": (26, 26, 1),
    "layer_not_empty": (128, 363, 3),
}

_FIGURE_8C: dict[str, dict[str, float]] = {
    "regions": {"transistors": 0.85},
    "layers": {"transistors": 0.27, "regions": 0.23},
    "rules": {"transistors": 0.72, "regions": 0.85, "layers": 0.51},
    "vertices": {"transistors": 0.77, "regions": 0.91, "layers": 0.19, "rules": 0.77},
    "min solidity": {"transistors": -0.35, "regions": -0.33, "layers": -0.13, "rules": -0.27, "vertices": -0.50},
    "area": {
        "transistors": 0.64, "regions": 0.79, "layers": 0.08, "rules": 0.64, "vertices": 0.83, "min solidity": -0.19,
    },
    "tokens": {
        "transistors": 0.82, "regions": 0.95, "layers": 0.37, "rules": 0.89, "vertices": 0.95, "min solidity": -0.41,
        "area": 0.80,
    },
    "coordinates": {
        "transistors": 0.77, "regions": 0.91, "layers": 0.19, "rules": 0.77, "vertices": 1.0, "min solidity": -0.50,
        "area": 0.83, "tokens": 0.95,
    },
    "D score": {
        "transistors": 0.83, "regions": 0.85, "layers": 0.45, "rules": 0.89, "vertices": 0.84, "min solidity": -0.56,
        "area": 0.65, "tokens": 0.89, "coordinates": 0.84,
    },
}  # fmt: skip


def suite_statistics(
    task_text: Callable[[TaskView], str], tasks: Sequence[FETTask] | None = None
) -> tuple[Marginal, ...]:
    """Return every published marginal with the suite's own value.

    Args:
        task_text: Renders a task's text for the token statistics (`edagym.envs.fet.prompt.render_task_text`).
        tasks: Tasks to measure; default: the shipped suite.
    """
    tasks = tuple(tasks) if tasks is not None else tuple(load_task(i) for i in task_ids())
    lines = _Lines()
    _labels(lines, tasks)
    _groups(lines, tasks)
    _demand(lines, tasks)
    _layers_and_rules(lines, tasks)
    _scenes_and_lineage(lines, tasks)
    tokens = [count_tokens(task_text(t.view())) for t in tasks]
    _geometry(lines, tasks)
    lines.near(
        "task text tokens: median", "Section 4", 616, st.median(tokens), tolerance=0.15 * 616, rule="within 15 %"
    )
    lines.inside("task text tokens: range", "Section 4", (224, 1990), tokens)
    _correlations(lines, tasks, tokens)
    _sources(lines, tasks)
    return tuple(lines)


def _labels(lines: _Lines, tasks: Sequence[FETTask]) -> None:
    meta = [t.metadata for t in tasks]
    lines.equal("tasks", "abstract", 128, len(tasks))
    for label, counts in {
        "level": {"L1": 8, "L2": 39, "L3": 41, "L4": 40},
        "difficulty": {"D1": 35, "D2": 38, "D3": 41, "D4": 14},
        "tier": {"G1": 53, "G2": 46, "G3": 29},
    }.items():
        for value, target in counts.items():
            lines.equal(f"{label} {value}", "Tables 3, 12", target, sum(m[label] == value for m in meta))
    lines.equal("circuit tasks", "Tables 4, 12", 26, sum(t.circuit is not None for t in tasks))
    lines.equal("tasks without a circuit", "Tables 4, 12", 102, sum(t.circuit is None for t in tasks))
    lines.equal("tasks with holes", "Tables 4, 12", 15, sum(any(r.holes for r in t.regions) for t in tasks))
    lines.equal(
        "tasks whose difficulty class follows from the score", "Appendix M", 128,
        sum(difficulty_class(difficulty_score(t)) == t.metadata["difficulty"] for t in tasks),
    )  # fmt: skip


def _groups(lines: _Lines, tasks: Sequence[FETTask]) -> None:
    for group, (share, levels, classes, tiers, holes, flakes, transistors) in _TABLE_3.items():
        members = [t for t in tasks if t.metadata["group"] == group]

        def by(label: str, letter: str, n: int, of: Sequence[FETTask] = members) -> list[int]:
            return [sum(t.metadata[label] == f"{letter}{k}" for t in of) for k in range(1, n + 1)]

        lines.equal(f"{group}: tasks", "Tables 2, 3", sum(levels), len(members))
        lines.equal(f"{group}: share, %", "Table 2", share, f"{100 * len(members) / len(tasks):.1f}")
        lines.equal(f"{group}: L1 to L4", "Table 3", levels, by("level", "L", 4))
        lines.equal(f"{group}: D1 to D4", "Table 3", classes, by("difficulty", "D", 4))
        lines.equal(f"{group}: G1 to G3", "Table 3", tiers, by("tier", "G", 3))
        lines.equal(f"{group}: holes", "Table 3", holes, sum(any(r.holes for r in t.regions) for t in members))
        lines.equal(f"{group}: median flakes", "Table 2", flakes, float(st.median(len(t.regions) for t in members)))
        asked = [t.metadata["transistors"] for t in members if t.metadata["transistors"]]
        lines.equal(f"{group}: median transistors", "Table 2", transistors, float(st.median(asked)))
    architectures = Counter(t.architecture for t in tasks if t.metadata["group"] == "gate_contact")
    for name, target in {"local_back_gated": 10, "edge_contacted": 4, "dual_gated": 4}.items():
        lines.equal(f"gate_contact: {name}", "Appendix F", target, architectures[name])
    probes = Counter(t.metadata["probe_kind"] for t in tasks)
    lines.equal("hole probes", "Table 2", 15, probes["hole"])
    lines.equal("architecture probes", "Table 2", 4, probes["architecture"])
    others = {t.metadata["tier"] for t in tasks if t.architecture != "top_gated"}
    lines.equal("tiers of tasks that are not top-gated", "Appendix F", ["G1"], sorted(others))


def _demand(lines: _Lines, tasks: Sequence[FETTask]) -> None:
    asked = {t.id: t.metadata["transistors"] for t in tasks}
    counts = [n for n in asked.values() if n]
    for low, high, target in ((1, 1, 29), (2, 4, 52), (5, 9, 26), (10, 24, 20)):
        lines.equal(
            f"tasks with {low} to {high} transistors", "Figure 5", target, sum(low <= n <= high for n in counts)
        )
    lines.equal("tasks without a count", "Appendix F", ["L2/case_30"], [i for i, n in asked.items() if not n])
    lines.equal("transistors: median", "Section 4", 3, st.median(counts))
    lines.equal("transistors: range", "Section 4", (1, 24), (min(counts), max(counts)))
    per_flake = {t.id: [n for n in t.demand if n] for t in tasks}
    lines.equal(
        "tasks whose flake demands add up to the total", "Appendix H", 127,
        sum(sum(per_flake[i]) == n for i, n in asked.items() if n),
    )  # fmt: skip
    largest = {i: max(n) for i, n in per_flake.items() if n}
    lines.equal("largest demand of a flake is at most 8", "Appendix F", True, max(largest.values()) <= 8)
    lines.equal("tasks with a flake that needs more than one", "Section 6.2", 59, sum(n > 1 for n in largest.values()))
    for low, high, one, more in ((2, 4, 26, 26), (5, 9, 10, 16), (10, 24, 3, 17)):
        of = [largest[i] for i, n in asked.items() if n and low <= n <= high]
        lines.equal(
            f"{low} to {high} transistors: one per flake, more", "Section 6.2", (one, more),
            (sum(n == 1 for n in of), sum(n > 1 for n in of)),
        )  # fmt: skip
    flakes = [len(t.regions) for t in tasks]
    lines.equal("flakes placed", "Section 4", 370, sum(flakes))
    lines.equal("flakes per task: median", "Section 4", 2, st.median(flakes))
    lines.equal("flakes per task: range", "Section 4", (1, 10), (min(flakes), max(flakes)))
    for low, high, target in (
        (1, 1, 49), (2, 10, 79), (2, 3, 39), (4, 5, 23), (6, 10, 17), (2, 2, 25), (3, 4, 29), (5, 10, 25),
    ):  # fmt: skip
        lines.equal(
            f"tasks with {low} to {high} flakes", "Section 4, Table 12, Figure 5", target,
            sum(low <= n <= high for n in flakes),
        )  # fmt: skip


def _layers_and_rules(lines: _Lines, tasks: Sequence[FETTask]) -> None:
    layers = [len(t.required_layers) for t in tasks]
    for low, high, target in ((1, 2, 57), (3, 3, 36), (4, 5, 35)):
        lines.equal(
            f"tasks with {low} to {high} required layers", "Figure 5", target, sum(low <= n <= high for n in layers)
        )
    lines.equal("required layers: median", "Section 4", 3, st.median(layers))
    lines.equal("required layers: range", "Section 4", (1, 5), (min(layers), max(layers)))
    for role, target in {"via": 69, "pad cover": 32, "dielectric": 2}.items():
        lines.equal(
            f"tasks with a {role} layer", "Appendices C, G, L", target, sum(bool(t.layers_of(role)) for t in tasks)
        )
    kinds = [Counter(r.kind for r in rules_of(t)) for t in tasks]
    for kind, (n_tasks, n_rules, median) in _TABLE_1.items():
        having = [c[kind] for c in kinds if c[kind]]
        lines.equal(f"{kind}: tasks", "Table 1", n_tasks, len(having))
        lines.equal(f"{kind}: rules", "Table 1", n_rules, sum(having))
        lines.equal(f"{kind}: median of tasks that have it", "Table 1", median, st.median(having))
    rules = [c.total() for c in kinds]
    lines.equal("rules: total", "Table 1", 1916, sum(rules))
    lines.equal("rules per task: median", "Section 4", 14, st.median(rules))
    lines.equal("rules per task: range", "Section 4", (3, 26), (min(rules), max(rules)))
    groups = Counter(specification(t) for t in tasks)
    lines.equal("specification groups", "Appendix A", 104, len(groups))
    lines.equal("largest specification group", "Table 6", 9, max(groups.values()))


def _scenes_and_lineage(lines: _Lines, tasks: Sequence[FETTask]) -> None:
    material = Counter(r.material for t in tasks for r in t.regions)
    lines.equal("flakes labelled MoSe2 or WSe2", "Appendices F, L", 170, material["MoSe2"] + material["WSe2"])
    lines.equal("flakes labelled graphene", "Appendix L", 200, material["graphene"])
    three = [t for t in tasks if len({r.material for r in t.regions}) == 3]
    lines.equal("tasks with three material labels", "Table 2", 12, len(three))
    lines.equal(
        "groups of tasks with three material labels", "Appendix F", ["three_material"],
        sorted({t.metadata["group"] for t in three}),
    )  # fmt: skip
    factors = Counter(t.metadata["tight_window"] for t in tasks)
    for factor, target in {0.30: 10, 0.35: 2, 0.55: 1}.items():
        lines.equal(f"tight windows at {factor:.2f}", "Appendix F", target, factors[factor])
    lines.equal(
        "tight windows in tasks of several flakes", "Appendix F", 13,
        sum(bool(t.metadata["tight_window"]) and len(t.regions) > 1 for t in tasks),
    )  # fmt: skip
    shown = next(t for t in tasks if t.id == "L3/case_8")
    limits = {r.kind: r.min_um for r in shown.drc_rules if r.min_um}
    lines.equal(
        "L3/case_8: demand, contact and gate layer, limits, tight window", "Section 3, Figure 1",
        [(2, 2, 2), 2, 4, 1.0, 0.1, 0.2, True],
        [
            shown.demand, shown.layers_of("contact")[0].gds_layer, shown.layers_of("gate electrode")[0].gds_layer,
            limits["min_width"], limits["min_spacing"], limits["min_separation"], bool(shown.metadata["tight_window"]),
        ],
    )  # fmt: skip
    by_id = {t.id: t for t in tasks}
    lines.equal(
        "L1/case_1 and L3/case_12 have vias", "Appendix K, Table 10", True,
        all(by_id[i].layers_of("via") for i in ("L1/case_1", "L3/case_12")),
    )  # fmt: skip
    lineage = Counter(t.metadata["lineage"] for t in tasks)
    for name, target in {"v1_structure": 97, "restructured": 16, "new_hole_probe": 15}.items():
        lines.equal(f"lineage {name}", "Section 4", target, lineage[name])
    base = [t for t in tasks if t.metadata["group"] == "top_gated_base"]
    lines.equal("controls in the base group", "Appendix F", 4, sum(t.metadata["control"] for t in base))
    core = sum(t.metadata["group"] in ("top_gated_base", "probes") for t in tasks)
    lines.equal("core and probes", "Appendix L", 74, core)


def _geometry(lines: _Lines, tasks: Sequence[FETTask]) -> None:
    hulls = [(t, r.hull) for t in tasks for r in t.regions]
    areas = [round(ring_area(h), 1) for _, h in hulls]
    solidities = [_solidity(h) for _, h in hulls]
    vertices = [len(h) for _, h in hulls]
    where = "Section 4, Figure 2"
    lines.near("flake area, um2: median", where, 150.6, st.median(areas), tolerance=0.05 * 150.6, rule="within 5 %")
    lines.inside("flake area, um2: range", where, (26.5, 796.7), areas)
    lines.near("flake solidity: median", where, 0.86, st.median(solidities), tolerance=0.01, rule="within 0.01")
    lines.inside("flake solidity: range", where, (0.31, 1.0), solidities)
    lines.equal("flake vertices: median", where, 13, st.median(vertices))
    lines.inside("flake vertices: range", where, (4, 51), vertices)
    tiers = Counter(tier_of(s) == t.metadata["tier"] for (t, _), s in zip(hulls, solidities))
    lines.equal("flakes of their task's tier", "Section 4", 370, tiers[True])
    lines.equal("distinct contours", "Section 4", 347, len({c["id"] for t in tasks for c in t.metadata["contours"]}))


def _correlations(lines: _Lines, tasks: Sequence[FETTask], tokens: Sequence[int]) -> None:
    rows: dict[str, list[float]] = {
        "transistors": [t.metadata["transistors"] or 0 for t in tasks],
        "regions": [len(t.regions) for t in tasks],
        "layers": [len(t.required_layers) for t in tasks],
        "rules": [len(rules_of(t)) for t in tasks],
        "vertices": [sum(len(r.hull) for r in t.regions) for t in tasks],
        "min solidity": [min(_solidity(r.hull) for r in t.regions) for t in tasks],
        "area": [sum(ring_area(r.hull) for r in t.regions) for t in tasks],
        "tokens": list(tokens),
        "coordinates": [sum(len(ring) for r in t.regions for ring in (r.hull, *r.holes)) for t in tasks],
        "D score": [difficulty_score(t) for t in tasks],
    }
    counted = [i for i, n in enumerate(rows["transistors"]) if n]
    for a, others in _FIGURE_8C.items():
        for b, target in others.items():
            x, y = rows[a], rows[b]
            if b == "transistors":  # the one task without a count is left out
                x, y = [x[i] for i in counted], [y[i] for i in counted]
            rho = float(spearmanr(x, y).statistic)
            lines.reported(f"Spearman {b} / {a}", "Figure 8c", target, round(rho, 4), digits=2)


def _sources(lines: _Lines, tasks: Sequence[FETTask]) -> None:
    contours = [c for t in tasks for c in t.metadata["contours"]]
    real = [c for c in contours if c["source"] != "procedural"]
    lines.reported("distinct flake ids", "Section 4", 352, len({c["id"] for c in contours}))
    lines.reported("distinct source-image keys (real contours)", "Appendix F", 317, len({c["image"] for c in real}))
    lines.reported("distinct image names", "Appendix F", 290)
    lines.reported("source-image groups, largest", "Table 6", (82, 17))
    lines.reported("image or specification groups, largest", "Table 6", (61, 31))
    lines.reported("contour pool: all, G3, G2, G1", "Section 4, Appendix F", (3220, 644, 1313, 1263))
    lines.reported("hole pool: records, 60 to 800 um2, eligible, stored", "Appendix F", (65, 50, 26, 15))
    widths = {e.id: e.scene_width_um for e in load_manifest().entries}
    fitting = sum(widths[t.id][0] <= _extent(t) <= widths[t.id][1] for t in tasks)
    lines.reported("scenes as wide as their published scale bar suggests", "Appendix M", 128, fitting)
    kinds = Counter(c["source"] for c in contours)
    for source in ("mask", "micrograph", "procedural"):
        lines.reported(f"placements from {source} contours", "none: ours", None, kinds[source])
