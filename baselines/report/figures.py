"""Figures of a report as SVG: colours and fonts come from the page's style sheet, so they follow light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH = 520
_LABEL = 146
_RIGHT = 74
_ROW = 22
ARM_COLORS = 8
"""Colours of arms in the style sheet; more arms use them again."""
TRANSITIONS = {
    "passed": "passed",
    "resolved": "fewer kinds fail",
    "exchanged": "one fixed, one new",
    "same": "same kinds fail",
    "introduced": "more kinds fail",
}


def arm_class(index: int) -> str:
    """Return the style class that colours an arm."""
    return f"c{index % ARM_COLORS}"


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg class="fig" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def interval_dots(
    rows: Sequence[tuple[str, int, Mapping[str, float] | None, Mapping[str, float] | None]],
    label: str,
    *,
    low: float = 0.0,
    high: float = 1.0,
) -> str:
    """Return a dot plot in per cent: filled dots with 95 % intervals, hollow dots for a second value.

    Args:
        rows: Group, arm, value, second value; rows of one group stand together.
        label: What the figure shows, for readers of the page by ear.
        low: Left end of the axis.
        high: Right end.
    """
    left, right = _LABEL, WIDTH - _RIGHT
    for _, _, *values in rows:
        for v in values:
            if v is not None:
                low, high = min(low, v["low"], v["estimate"]), max(high, v["high"], v["estimate"])

    def x(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    parts: list[str] = []
    y, before = 10.0, None
    body: list[str] = []
    for group, arm, value, second in rows:
        if group != before:
            y += 8 if before is not None else 0
            body.append(_text(left - 12, y + _ROW / 2 + 4, _short(group, 16), "lab", "end"))
            before = group
        middle = y + _ROW / 2
        color = arm_class(arm)
        if second is not None:
            body.append(f'<circle class="ring {color}" cx="{x(second["estimate"]):.1f}" cy="{middle:.1f}" r="6"/>')
        if value is not None:
            a, b = x(value["low"]), x(value["high"])
            body.append(
                f'<line class="whisker {color}" x1="{a:.1f}" x2="{b:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
            )
            body.append(f'<circle class="dot {color}" cx="{x(value["estimate"]):.1f}" cy="{middle:.1f}" r="4.5"/>')
            body.append(_text(WIDTH - 2, middle + 4, f"{100 * value['estimate'] + 0.0:.1f}", "num", "end"))
        else:
            body.append(_text(WIDTH - 2, middle + 4, "–", "num", "end"))
        y += _ROW
    bottom = y + 4
    step = 0.25 if high - low <= 1.3 else 0.5 if high - low <= 3 else round((high - low) / 4) or 1
    tick = step * -(-low // step)
    while tick <= high + 1e-9:
        zero = " zero" if abs(tick) < 1e-9 else ""
        parts.append(f'<line class="grid{zero}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="6" y2="{bottom:.1f}"/>')
        parts.append(_text(x(tick), bottom + 15, f"{100 * tick:g}", "tick", "middle"))
        tick += step
    parts.append(_text(WIDTH - 2, bottom + 15, "%", "tick", "end"))
    return _svg(bottom + 22, [*parts, *body], label)


def stacked(rows: Sequence[tuple[str, Sequence[tuple[str, str, float]]]], label: str) -> str:
    """Return one bar per row, divided by counts, with the row's name above it.

    Args:
        rows: Name, and name, style class and count of every part.
        label: What the figure shows.
    """
    parts: list[str] = []
    y = 4.0
    for name, shares in rows:
        total = sum(n for _, _, n in shares)
        parts.append(_text(0, y + 12, _short(name, 60), "lab"))
        parts.append(_text(WIDTH, y + 12, f"{total:g}", "num", "end"))
        x = 0.0
        for part, kind, n in shares:
            width = WIDTH * n / total if total else 0.0
            if width <= 0:
                continue
            said = escape(f"{name}: {part}: {n:g} ({100 * n / total:.0f} %)")
            parts.append(
                f'<rect class="part {kind}" x="{x:.1f}" y="{y + 18:.1f}" width="{max(width - 1.5, 0.5):.1f}" '
                f'height="24" rx="2"><title>{said}</title></rect>'
            )
            if width > 22:
                parts.append(_text(x + width / 2 - 0.7, y + 34.5, f"{n:g}", f"in {kind}", "middle"))
            x += width
        if not total:
            parts.append(f'<rect class="none" x="0" y="{y + 18:.1f}" width="{WIDTH}" height="24" rx="2"/>')
        y += 54
    return _svg(max(y - 6, 20), parts, label)


def share_bars(rows: Sequence[tuple[str, Sequence[tuple[int, float, str]]]], label: str) -> str:
    """Return horizontal bars of shares, grouped: one group per name, one bar per arm.

    Args:
        rows: Name of the group, and arm, share in [0, 1] and text of every bar.
        label: What the figure shows.
    """
    parts: list[str] = []
    left, y = 0.0, 2.0
    for name, bars in rows:
        parts.append(_text(left, y + 12, _short(name.replace("_", " "), 60), "lab"))
        y += 18
        for arm, share, said in bars:
            width = max((WIDTH - 90) * share, 1.0)
            parts.append(
                f'<rect class="bar {arm_class(arm)}" x="0" y="{y:.1f}" width="{width:.1f}" height="11" rx="2"/>'
            )
            parts.append(_text(width + 6, y + 10.5, said, "tick"))
            y += 18
        y += 9
    return _svg(max(y, 20), parts, label)


def family_figures(family: Mapping[str, Any], place: Mapping[str, int]) -> list[tuple[str, str, str, str]]:
    """Return the figures of a family: title, caption, SVG, and what its key shows (arms, shares or transitions).

    Args:
        family: Numbers of the family.
        place: Arm -> its number, which colours it.
    """
    arms = list(family["arms"])
    rows = family["rows"]
    name = family["family"]
    found = []
    dots = [(r["level"], place[r["arm"]], r["strict"]["pass_1"], r["paper"]["pass_1"]) for r in rows]
    found.append(
        (
            "Success per level",
            "pass@1 with 95 % intervals of the task bootstrap: filled, strict; rings, the paper's contract.",
            interval_dots(dots, f"{name}: pass@1 per level and policy, per cent"),
            "arms",
        )
    )
    for score, title, caption, second in (
        ("nis", "NIS, and NIS of doing nothing", "Filled: NIS. Rings: what doing nothing scores.", "nis_nothing"),
        ("vrr", "Violation reduction rate", "VRR with 95 % intervals.", None),
    ):
        if score in family["scores"]:
            dots = [(r["level"], place[r["arm"]], r[score], r[second] if second else None) for r in rows]
            found.append((title, caption, interval_dots(dots, f"{name}: {title} per level and policy"), "arms"))
    shares = []
    for arm, counts in family["distribution"]["strict"].items():
        last = max(len(counts) - 1, 1)
        shares.append((arm, [(f"{i} of {last}", f"o{round(5 * i / last)}", n) for i, n in enumerate(counts)]))
    found.append(
        (
            "Tasks by number of successes",
            "Tasks whose attempts all have a verdict, from none solved (light) to all solved (dark), strict.",
            stacked(shares, f"{name}: tasks by number of successful attempts"),
            "shares",
        )
    )
    kinds: dict[str, float] = {}
    for arm in arms:
        for kind, n in family["symptoms"][arm].items():
            kinds[kind] = kinds.get(kind, 0.0) + n / max(family["failed_attempts"][arm], 1)
    if kinds:
        top = sorted(kinds, key=lambda kind: (-kinds[kind], kind))[:8]
        groups = []
        for kind in top:
            bars = []
            for arm in arms:
                n, total = family["symptoms"][arm].get(kind, 0), family["failed_attempts"][arm]
                if total:
                    bars.append((place[arm], n / total, f"{n} of {total}"))
            groups.append((kind, bars))
        found.append(
            (
                "What fails",
                "Failed attempts with each kind of check failed; kinds overlap. Strict checks are named so.",
                share_bars(groups, f"{name}: failure symptoms"),
                "arms",
            )
        )
    if any(sum(t.values()) for t in family["transitions"].values()):
        shares = [
            (arm, [(text, f"t-{key}", family["transitions"][arm][key]) for key, text in TRANSITIONS.items()])
            for arm in arms
            if sum(family["transitions"][arm].values())
        ]
        found.append(
            (
                "From one check to the next",
                "How the failed kinds change between consecutive verifier checks of an attempt.",
                stacked(shares, f"{name}: revision transitions"),
                "transitions",
            )
        )
    return found
