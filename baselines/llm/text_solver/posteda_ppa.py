"""Choice of flow variables from text alone: targets in the prompt, the configuration, the reference page, run results.

What a variable does is read from the words of the reference page. Each missed metric has a ladder of changes; the one
with the largest gap takes its next step, then the flow is run.
"""

from __future__ import annotations

import re
from typing import Any

from .posteda_step import Action, Step

METRICS = ("effective period", "power", "area")
_NUMBER = r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"


class Tuner:
    """Knows targets, configuration and results so far, and says what could be done next.

    Args:
        prompt: The task's prompt.
        steps: What has been done.
        first: Changes to begin with.
    """

    def __init__(self, prompt: str, steps: list[Step], first: list[Action]) -> None:
        self.prompt, self.steps, self.first = prompt, steps, first
        self.values, self.targets = read_targets(prompt)
        self.config_path = (re.findall(r"configuration \(`([^`]+)`\)", prompt) or ["config/config.mk"])[0]
        bounds = re.search(r"clock period may be " + _NUMBER + " to " + _NUMBER + " ps", prompt)
        self.period_bounds = (float(bounds[1]), float(bounds[2])) if bounds else (1.0, 1e6)
        locked = re.search(r"Locked are those that name the design(.*)\.$", prompt, re.MULTILINE)
        self.locked = re.findall(r"\b[A-Z][A-Z0-9_]+\b", locked[1]) if locked else []
        self.config: dict[str, str] = {}
        self.page = ""
        self.period = 0.0
        self.changed = False
        for step in steps:
            self._follow(step)

    def _follow(self, step: Step) -> None:
        op = step.action["op"]
        if step.refused:
            return
        if op == "read_file":
            for name, value in re.findall(r"^export (\w+)\s*\??:?=\s*([^#\n]*)", step.outcome, re.MULTILINE):
                self.config.setdefault(name, value.strip())
            period = re.search(r"^set clk_period " + _NUMBER, step.outcome, re.MULTILINE)
            if period:
                self.period = self.period or float(period[1])
            if "| name | values | default | effect |" in step.outcome:
                self.page = step.outcome
        elif op == "set_knob":
            self.config[step.action["name"]] = step.action["value"]
            self.changed = True
        elif op == "set_period":
            self.period = float(step.action["period"])
            self.changed = True
        elif op == "run":
            self.changed = False
            for name in METRICS:
                match = re.search(rf"^{name}: {_NUMBER}", step.outcome, re.MULTILINE)
                if match:
                    self.values[name] = float(match[1])

    def gaps(self) -> dict[str, float]:
        """Return the missed metrics with their relative gaps, largest first."""
        gaps = {m: self.values[m] / t - 1.0 for m, t in self.targets.items() if m in self.values}
        return dict(sorted(((m, g) for m, g in gaps.items() if g > 0), key=lambda item: -item[1]))

    def options(self) -> list[Action]:
        """Return what could be done next, best first; never empty."""
        done = [s.action for s in self.steps]
        out: list[Action] = [a for a in self.first if a not in done]
        for command in (f"cat {self.config_path} config/*.sdc", "cat FlowVariables.md"):
            read = {"op": "read_file", "command": command}
            if read not in done and not self.first:
                out.append(read)
        steps = [a for metric in self.gaps() for a in self.ladder(metric) if a not in done]
        if self.changed:
            return [*out, {"op": "run"}, *steps, {"op": "submit"}]
        return [*out, *steps, {"op": "report"}, {"op": "submit"}]

    def ladder(self, metric: str) -> list[Action]:
        """Return changes that the reference page promises to help a metric, gentle ones first."""
        out: list[Action] = []
        gap = 1.0 + self.gaps()[metric]
        if metric == "area":
            for name in self.named("smaller die"):
                utilization = float(self.config.get(name) or 50.0)
                out += [self.set(name, f"{min(utilization * gap * f, 90.0):.4g}") for f in (1.02, 1.05)]
            out.append(self.set("ABC_AREA", "0" if self.config.get("ABC_AREA") == "1" else "1"))
        elif metric == "power":
            if self.period:
                slower = min(self.period * gap * 1.01, self.period_bounds[1])
                out.append({"op": "set_period", "period": float(f"{slower:.6g}")})
            out += [self.set(name, "100") for name in self.named("save power")]
            out += [self.set(name, self.speed(name, -1)) for name in self.named("more power")]
        else:
            cells = [self.set(name, self.speed(name, 1)) for name in self.named("more power")]
            wires = [self.set(name, "0.8") for name in self.named("longer wires")]
            # Faster cells cost power: the second time, shorter wires come first.
            again = any(s.action.get("name") == a["name"] for s in self.steps for a in cells)
            out += wires + cells if again else cells + wires
            if self.period:
                faster = max(self.period / gap, self.period_bounds[0])
                out.append({"op": "set_period", "period": float(f"{faster:.6g}")})
            out += [self.set(name, "20") for name in self.named("goes on beyond zero slack")]
            out += [self.set(name, self.speed(name, 2)) for name in self.named("more power")]
        return [a for a in out if a.get("name") not in self.locked]

    def named(self, words: str) -> list[str]:
        """Return the variables whose effect, in the reference page, has certain words."""
        rows = re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\|([^|]*)\|", self.page, re.MULTILINE)
        return [name for name, effect in rows if words in effect and "no effect" not in effect]

    def speed(self, name: str, by: int) -> str:
        """Return the choice of a variable some steps faster (or slower) than the present one."""
        row = re.search(rf"^\| `{name}` \| one or several of ([^|]*) \|", self.page, re.MULTILINE)
        choices = [c.strip() for c in row[1].split(",")] if row else ["RVT", "LVT", "SLVT"]
        now = (self.config.get(name) or choices[0]).split()[0]
        at = choices.index(now) if now in choices else 0
        return choices[min(max(at + by, 0), len(choices) - 1)]

    @staticmethod
    def set(name: str, value: str) -> Action:
        """Return the action that sets a variable."""
        return {"op": "set_knob", "name": name, "value": value}


def read_targets(prompt: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return values and targets that a prompt states, by metric."""
    values: dict[str, float] = {}
    targets: dict[str, float] = {}
    for line in prompt.splitlines():
        for name in METRICS:
            now = re.search(rf"\b{name}: now {_NUMBER}", line) or re.search(rf"\b{name}, now {_NUMBER}", line)
            most = re.search(r"at most " + _NUMBER, line)
            if now:
                values[name] = float(now[1])
            if now and most:
                targets[name] = float(most[1])
    return values, targets


def search_space(prompt: str, page: str, config: str) -> list[dict[str, Any]]:
    """Return the parameters of a search: what the page says matters, around the present configuration."""
    tuner = Tuner(prompt, [Step({"op": "read_file", "command": ""}, config + "\n" + page)], [])
    tuner.page = page

    def row(
        name: str, low: float | None, high: float | None, choices: list[str] | None, default: str
    ) -> dict[str, Any]:
        return {"name": name, "low": low, "high": high, "choices": choices, "default": default}

    rows = []
    for name in tuner.named("smaller die"):
        now = float(tuner.config.get(name) or 50.0)
        rows.append(row(name, max(now * 0.7, 5.0), min(now * 1.6, 90.0), None, f"{now:g}"))
    for name in tuner.named("longer wires"):
        rows.append(row(name, 0.4, 0.95, None, tuner.config.get(name) or "0.6"))
    for name in tuner.named("more power"):
        rows.append(row(name, None, None, ["RVT", "LVT", "SLVT"], tuner.config.get(name) or "RVT"))
    for name in tuner.named("save power"):
        rows.append(row(name, 0.0, 100.0, None, tuner.config.get(name) or "0"))
    low, high = tuner.period_bounds
    rows.append(row("clock_period", low, high, None, f"{tuner.period or (low + high) / 2:g}"))
    return [r for r in rows if r["name"] not in tuner.locked]
