"""Attempts step by step: what the agent said and did, and the layout after each step, as data for the page to draw.

An attempt is replayed in its environment, without budget, from the saved steps alone; flows are not run again. The page
draws the layout itself from polygons in integer database units, so that a step costs a few bytes.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edagym.baselines.report.clean import Cleaner
from edagym.baselines.report.runs import Arm, attempt_dir, gave_up, read_notes, read_trace, segments_of
from edagym.baselines.rollout import Env, make_env, suite_name
from edagym.envs.core.edit_env import MAX_BUDGET
from edagym.errors import EDAGymError, TaskError
from edagym.task_assets.drc.task import DRCTask
from edagym.task_assets.fet.task import FETTask
from edagym.task_assets.ppa.task import METRICS, UNITS, PPATask
from edagym.verifiers.verdict import Verdict

MAX_STEPS = 400
"""Steps shown of one attempt; of more, the last ones."""
MAX_SHAPES = 4000
"""Polygons drawn of a window of a DRC layout, nearest to the violations first."""
MAX_MARKS = 40
_SILENT = ("submit", "declare_infeasible", "run")
_CHECKS = ("verify", "check")
_OWN_OPTIONS = ("budget", "budget_factor", "stop_on_success", "rounds", "rounds_per")
_MINOR = ("FIN", "NSELECT", "PSELECT", "SLVT", "LVT", "SRAMDRC", "SRAMVT", "DUMMY")
"""DRC layers that cover whole cells: drawn only where a violated rule is about them."""

Payload = dict[str, Any]


class StepReader:
    """Makes the step-by-step data of attempts; keeps the environments that it replays in.

    Args:
        cleaner: Takes credentials and paths out of texts.
        tasks: Folders of tasks, for suites that are not where the run had them.
    """

    def __init__(self, cleaner: Cleaner, tasks: Sequence[str] = ()) -> None:
        self._cleaner = cleaner
        self._tasks = {suite_name(t): t for t in tasks}
        self._envs: dict[str, Env] = {}  # by source and options

    def read(self, arm: Arm, record: Mapping[str, Any]) -> Payload:
        """Return an attempt's data: ``steps``, ``notes``, ``texts``, ``checks``, ``scene`` and so on, JSON-ready."""
        trace = read_trace(arm, record)
        notes, broken = read_notes(arm, record)
        segments = segments_of(trace, notes)
        steps = [
            {"action": s["action"], "segment": i, **{k: s[k] for k in ("edit_error", "verdict", "group") if k in s}}
            for i, segment in enumerate(segments)
            for s in segment
        ]
        out: Payload = {"starts": len(segments), "faults": []}
        if trace is None:
            out["faults"].append("this attempt has no trace that can be read")
        if broken:
            out["faults"].append(f"{broken} lines of notes.jsonl cannot be read")
        frames: list[Any] = []
        try:
            env = self._env(arm, record)
            task = self._find(arm, record, env)
            env.reset(options={"task": task})
            out["objective"] = _text(getattr(env.view, "objective", ""))
            if not any(note["kind"] == "model" for note in notes):
                out["prompt"] = self._prompt(arm, record, task)
            with_start = [{"segment": 0}, *steps]
            frames, extra = _replay(env, task, with_start)
            out |= extra
        except (EDAGymError, KeyError, TypeError, ValueError, AttributeError) as e:
            said = str(e) if isinstance(e, EDAGymError) else f"{type(e).__name__}: {e}"
            out["faults"].append(f"no pictures: {said}")
        self._add_notes(out, steps, notes, segments)
        if frames:
            for step, frame in zip(steps, frames[1:]):
                step |= frame
            out["first"] = frames[0]
        out["left_out"] = max(len(steps) - MAX_STEPS, 0)
        out["steps"] = steps[-MAX_STEPS:]
        verdict = record.get("verdict")
        checks = verdict.get("checks") if isinstance(verdict, Mapping) else None
        out["checks"] = [c for c in _list(checks) if isinstance(c, Mapping)]
        return dict(self._cleaner.data(out))

    def _env(self, arm: Arm, record: Mapping[str, Any]) -> Env:
        """Return an environment without budget, with the options that the run had."""
        return self._make(arm, record["suite"], MAX_BUDGET)

    def _make(self, arm: Arm, suite: str, budget: int) -> Env:
        settings = arm.run.settings
        options = {**(settings.get("policy_env_options") or {}), **(settings.get("env_options") or {})}
        options = {k: v for k, v in options.items() if k not in _OWN_OPTIONS} | {"budget": budget}
        source = ({suite_name(str(s)): str(s) for s in settings.get("suites", ())} | self._tasks).get(suite, suite)
        key = json.dumps([source, options], sort_keys=True)
        if key not in self._envs:
            self._envs[key] = make_env(source, **options, stop_on_success=False)
        return self._envs[key]

    def _prompt(self, arm: Arm, record: Mapping[str, Any], task: Any) -> str:
        """Return the task as a language model would see it, with the attempt's own budget."""
        env = self._make(arm, record["suite"], min(max(int(record["budget"]), 2), MAX_BUDGET))
        env.reset(options={"task": task})
        return env.prompt

    def _find(self, arm: Arm, record: Mapping[str, Any], env: Any) -> Any:
        folder = attempt_dir(arm.run, record)
        own = None if folder is None else folder / "task.json"
        if own is not None and own.is_file():
            return FETTask.load(own)
        try:
            return env.find_task(record["task_id"])
        except TaskError:
            raise TaskError(f"task {record['task_id']} is not at hand") from None

    def _add_notes(
        self,
        out: Payload,
        steps: list[dict[str, Any]],
        notes: Sequence[Mapping[str, Any]],
        segments: Sequence[Sequence[Any]],
    ) -> None:
        """Put the notes beside the step that they led to, and every text of a prompt in once only."""
        texts: dict[str, int] = {}
        segment, offset = 0, 0
        listed: list[dict[str, Any]] = []
        for note in notes:
            at = note.get("step")
            inside = at if isinstance(at, int) and 0 <= at <= len(segments[segment]) else len(segments[segment])
            entry: dict[str, Any] = {"kind": note["kind"]}
            if note["kind"] == "model":
                entry |= {k: note[k] for k in ("role", "reply", "parsed", "error", "usage", "retries") if k in note}
                entry["messages"] = [self._message(m, texts) for m in _list(note.get("messages"))]
            else:
                entry["text"] = _text(note.get("text", ""))
                entry |= {k: v for k, v in note.items() if k not in ("n", "step", "kind", "text", "dropped")}
            if gave_up(note):
                inside = len(segments[segment])
                entry["gave_up"] = inside
                # It belongs to the new start.
                offset, segment, inside = offset + inside, segment + 1, 0
            listed.append({**entry, "step": offset + inside})
        out["texts"], out["notes"] = list(texts), listed

    def _message(self, message: Any, texts: dict[str, int]) -> list[Any]:
        if not isinstance(message, Mapping):
            return ["", texts.setdefault(self._cleaner.text(_text(message)), len(texts))]
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        said = "\n".join(_part(p) for p in parts if p is not None)
        return [_text(message.get("role", "")), texts.setdefault(self._cleaner.text(said), len(texts))]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _part(part: Any) -> str:
    """Return a part of a message as text; of an image there is its size only."""
    if isinstance(part, Mapping):
        if part.get("type") == "image":
            return f"[image, {part.get('bytes')} bytes, SHA-256 {_text(part.get('sha256'))[:12]}]"
        return _text(part.get("text", part.get("content", "")))
    return _text(part)


# -- replays -----------------------------------------------------------------------------------------------------------


def _replay(env: Any, task: Any, steps: Sequence[Mapping[str, Any]]) -> tuple[list[Payload], Payload]:
    """Return what is seen at the start and after each step, and what all of them share."""
    if isinstance(task, FETTask):
        scene: Any = _FETScene(env)
    elif isinstance(task, DRCTask):
        scene = _DRCScene(env)
    elif isinstance(task, PPATask):
        scene = _Design(env, task)
    else:
        return [], {}
    frames = [scene.frame(None)]
    segment = 0
    for step in steps[1:]:
        if step["segment"] != segment:
            segment = step["segment"]
            env.reset(options={"task": task})
        op = step["action"].get("op")
        if op not in (*_SILENT, *_CHECKS) and not env.ended:
            env.step_any(step["action"])
        elif op in _CHECKS:
            scene.check()
        frames.append(scene.frame(step))
    return frames, scene.shared()


def _failing(verdict: Verdict) -> list[list[Any]]:
    """Return the failed checks that have a place: id and box, um."""
    return [[c.id, list(c.where)] for c in verdict.failed("strict") if c.where is not None][:MAX_MARKS]


class _Scene:
    """Polygons, each kept once; frames point to them."""

    def __init__(self) -> None:
        self._polygons: dict[tuple[tuple[tuple[int, int], ...], ...], int] = {}

    def _index(self, rings: Iterable[Sequence[tuple[int, int]]]) -> int:
        return self._polygons.setdefault(tuple(tuple(ring) for ring in rings), len(self._polygons))

    def _flat(self) -> list[list[list[int]]]:
        return [[[v for point in ring for v in point] for ring in polygon] for polygon in self._polygons]


class _FETScene(_Scene):
    """Flakes and layers; database units of 1 nm."""

    def __init__(self, env: Any) -> None:
        from edagym.envs.fet.viewer import layer_styles, region_rings

        super().__init__()
        self._env = env
        view = env.view
        self._styles = {n: s for n, s in layer_styles(view).items() if view.layer(n).editable}
        styles = layer_styles(view)
        self._regions = [
            {
                "name": region.name,
                "material": region.material,
                "color": styles[region.material].color,
                "demand": demand,
                "rings": [[round(v) for p in ring for v in p] for ring in region_rings(region)],
            }
            for region, demand in zip(view.regions, view.demand)
        ]
        # An agent's layers above the flakes are drawn above them; what lies below, below.
        order = [entry.lstrip("@") for entry in view.design_order]
        lowest = min((i for i, n in enumerate(order) if not view.layer(n).editable), default=0)
        self._below = [n for i, n in enumerate(order) if i < lowest]
        self._marks: list[list[Any]] = []

    def check(self) -> None:
        self._marks = _failing(self._env.peek())

    def frame(self, step: Mapping[str, Any] | None) -> Payload:
        layout = self._env.layout
        shapes = []
        for name in self._styles:
            polygons = [
                [[(p.x, p.y) for p in poly.each_point_hull()]]
                + [[(p.x, p.y) for p in poly.each_point_hole(i)] for i in range(poly.holes())]
                for poly in layout.region(name).each()
            ]
            shapes.append(sorted(self._index(rings) for rings in polygons))
        frame: Payload = {"shapes": shapes}
        if step is not None and step["action"].get("op") in _CHECKS and self._marks:
            frame["marks"] = self._marks
        return frame

    def shared(self) -> Payload:
        points = [v for region in self._regions for v in region["rings"][0]]
        points += [v for polygon in self._flat() for v in polygon[0]]
        xs, ys = points[::2], points[1::2]
        margin = round(0.05 * max(max(xs) - min(xs), max(ys) - min(ys)) + 400)
        return {
            "scene": {
                "dbu": 0.001,
                "bounds": [min(xs) - margin, min(ys) - margin, max(xs) + margin, max(ys) + margin],
                "regions": self._regions,
                "below": self._below,
                "layers": [
                    {"name": n, "color": s.color, "alpha": s.alpha, "note": s.note} for n, s in self._styles.items()
                ],
                "polygons": self._flat(),
            }
        }


class _DRCScene(_Scene):
    """The window around the violations that the task starts with; the layout's database units."""

    def __init__(self, env: Any) -> None:
        from edagym.envs.drc.viewer import view_window
        from edagym.verifiers.drc import load_table

        super().__init__()
        self._env = env
        self._table = load_table(env.task.rules)
        layout = env.layout
        self._dbu = layout.dbu
        self._window = view_window(env.placed_violations, layout)
        self._used: set[int] = set()
        rules = self._table.rules
        asked = {n for v in env.placed_violations if v.rule in rules for n in rules[v.rule].layers}
        self._layers = [n for n in self._table.layers if n not in _MINOR or n in asked]

    def check(self) -> None:
        if not self._env.ended:
            self._env.step_any({"op": "check"})

    def frame(self, step: Mapping[str, Any] | None) -> Payload:
        from edagym.envs.drc.queries import shapes_near

        found = shapes_near(self._env.layout, self._table, self._window, self._window, self._layers)[:MAX_SHAPES]
        shapes: list[list[int]] = [[] for _ in self._layers]
        for s in found:
            shapes[self._layers.index(s.layer)].append(self._index([[self._clamp(p) for p in s.points]]))
        for i, row in enumerate(shapes):
            row.sort()
            if row:
                self._used.add(i)
        marks = [[v.rule, [round(c * self._dbu, 6) for c in v.box]] for v in self._env.placed_violations[:MAX_MARKS]]
        return {"shapes": shapes, **({"marks": marks} if marks else {})}

    def _clamp(self, point: tuple[int, int]) -> tuple[int, int]:
        """Move a point far outside the window next to it; right for Manhattan outlines."""
        x1, y1, x2, y2 = self._window
        mx, my = (x2 - x1) // 4, (y2 - y1) // 4
        return (min(max(point[0], x1 - mx), x2 + mx), min(max(point[1], y1 - my), y2 + my))

    def shared(self) -> Payload:
        from edagym.envs.drc.viewer import layer_color

        return {
            "scene": {
                "dbu": self._dbu,
                "bounds": list(self._window),
                "regions": [],
                "below": [],
                "layers": [
                    {
                        "name": n,
                        "color": layer_color(n),
                        "alpha": 0.8 if n.startswith("V") else 0.55,
                        "note": n,
                        "used": i in self._used,
                    }
                    for i, n in enumerate(self._layers)
                ],
                "polygons": self._flat(),
                "clip": True,
            }
        }


class _Design:
    """The files of a PPA design: what each step changed in them, and the targets."""

    def __init__(self, env: Any, task: PPATask) -> None:
        self._env, self._task = env, task
        self._before: Mapping[str, str] = task.design.files

    def check(self) -> None:
        """Do nothing: runs are not repeated."""

    def frame(self, step: Mapping[str, Any] | None) -> Payload:
        now = self._env.layout.files
        diff = _diff(self._before, now)
        self._before = now
        return {"diff": diff} if diff else {}

    def shared(self) -> Payload:
        return {
            "design": {
                "diff": _diff(self._task.design.files, self._env.layout.files),
                "initial": {m: self._task.initial[m] for m in METRICS if m in self._task.initial},
                "targets": {m: self._task.targets[m] for m in METRICS if m in self._task.targets},
                "units": {m: UNITS[m] for m in METRICS},
            }
        }


def _diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the changes of all files as a unified diff."""
    lines: list[str] = []
    for path in sorted({*before, *after}):
        a, b = before.get(path, ""), after.get(path, "")
        if a != b:
            lines += difflib.unified_diff(a.splitlines(), b.splitlines(), path, path, lineterm="", n=2)
    return "\n".join(lines)
