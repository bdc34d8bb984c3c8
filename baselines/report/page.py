"""The page of a report: one HTML file that asks nobody for anything. Every text of a run is escaped."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from edagym.baselines.report.figures import TRANSITIONS, arm_class, family_figures
from edagym.baselines.report.summary import Numbers, percent
from edagym.baselines.report.text import Table, difference_table, level_table, loss_table, use_table

_NOTES = {
    "FET": "2D-FET-Bench: transistor layouts on flakes.",
    "DRC": "Post-EDA: repair of design-rule violations.",
    "PPA": "Post-EDA: performance, power and area of a flow.",
    "Other": "Tasks of unknown family.",
}


@cache
def _asset(name: str) -> str:
    return (files("edagym.baselines") / "report" / name).read_text(encoding="utf-8")


def pack(data: Any) -> str:
    """Return JSON-like data as base64 of gzip: bounded, free of markup, and equal bytes for equal data."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("utf-8"), 9, mtime=0)).decode("ascii")


def page(
    numbers: Numbers, index: Mapping[str, Any], traces: Mapping[int, str], notes: Sequence[str], *, title: str
) -> str:
    """Return a report as HTML.

    Args:
        numbers: `edagym.baselines.report.summary.summarise`.
        index: Arms and rows of the list of attempts.
        traces: Row of an attempt -> its packed steps.
        notes: Sentences on what was left out.
        title: The page's title.
    """
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = [_overview(numbers, notes, title)]
    sections += [_family(family, numbers) for family in numbers["families"]]
    sections += [_resources(numbers), _attempts()]
    links = [(f["family"].lower(), f["family"]) for f in numbers["families"]]
    links += [("resources", "Losses and cost"), ("attempts", "Attempts")]
    nav = "".join(f'<a href="#{key}">{escape(text)}</a>' for key, text in links)
    data = "".join(f'<script type="text/plain" id="trace-{i}">{text}</script>\n' for i, text in traces.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#attempts">Skip to the attempts</a>
<header class="bar"><div class="wrap">
<span class="brand">EDAGym <small>report</small></span>
<nav aria-label="Sections">{nav}</nav>
<button class="btn" type="button" id="theme">Auto</button>
</div></header>
<main class="wrap">
{"".join(sections)}
</main>
<footer><div class="wrap">{_footer(numbers)}</div></footer>
{_VIEWER}
<script type="text/plain" id="index">{pack(index)}</script>
{data}<script>{script}</script>
</body>
</html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# -- sections ----------------------------------------------------------------------------------------------------------


def _overview(numbers: Numbers, notes: Sequence[str], title: str) -> str:
    arms, total = numbers["arms"], sum(r["records"] for r in numbers["runs"])
    runs = len(numbers["runs"])
    lead = (
        f"{total:,} attempts of {len(arms)} polic{'y' if len(arms) == 1 else 'ies'} in {runs} run{'s' * (runs != 1)}. "
    )
    lead += (
        "Rates are means over tasks with 95 % intervals of the task bootstrap; attempts that the infrastructure lost "
    )
    lead += "are in no rate and counted apart."
    cards = []
    for family in numbers["families"]:
        for row in family["rows"]:
            if row["level"] == "all":
                cards.append(_card(family, row, next(a["color"] for a in arms if a["label"] == row["arm"])))
    faults = "".join(f"<li>{escape(f['run'])}: {escape(f['message'])}</li>" for f in numbers["faults"][:20])
    if len(numbers["faults"]) > 20:
        faults += f"<li>and {len(numbers['faults']) - 20} more</li>"
    notice = f'<div class="notice" role="note"><b>Not read</b><ul>{faults}</ul></div>' if faults else ""
    left = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    privileged = [a["label"] for a in arms if a["privileged"]]
    if privileged:
        said = f"Knows hidden criteria, so it is no entry of a comparison: {', '.join(privileged)}."
        left += f'<p class="note">{escape(said)}</p>'
    return (
        f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>{left}{notice}'
        f'<div class="cards">{"".join(cards)}</div>'
    )


def _card(family: Mapping[str, Any], row: Mapping[str, Any], arm: int) -> str:
    strict, paper = row["strict"]["pass_1"], row["paper"]["pass_1"]
    big = "–" if strict is None else f"{100 * strict['estimate'] + 0.0:.1f}<small>%</small>"
    between = "no verdict" if strict is None else percent(strict).partition(" ")[2]
    facts = [("paper's contract", percent(paper).partition(" ")[0] + (" %" if paper else ""))]
    facts += [("tasks", str(row["tasks"])), ("scored attempts", f"{row['scored']} of {row['attempts']}")]
    for score, name in (("vrr", "VRR"), ("nis", "NIS"), ("nis_nothing", "NIS of doing nothing")):
        if row[score]:
            facts.append((name, percent(row[score]).partition(" ")[0] + " %"))
    listed = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in facts)
    return (
        f'<div class="panel card {arm_class(arm)}"><div class="who"><b>{escape(row["arm"])}</b>'
        f'<span class="fam">{escape(family["family"])}</span></div><div class="big">{big}</div>'
        f'<div class="ci">strict pass@1 <span>{escape(between)}</span></div><dl>{listed}</dl></div>'
    )


def _family(family: Mapping[str, Any], numbers: Numbers) -> str:
    name = family["family"]
    place = {a["label"]: a["color"] for a in numbers["arms"]}
    key = "".join(f'<span class="{arm_class(place[a])}"><i class="sw"></i>{escape(a)}</span>' for a in family["arms"])
    keys = {
        "arms": key if len(family["arms"]) > 1 else "",
        "shares": "",
        "transitions": "".join(f'<span class="t-{k}"><i class="sw"></i>{v}</span>' for k, v in TRANSITIONS.items()),
    }
    drawn = []
    for title, caption, svg, kind in family_figures(family, place):
        legend = f'<div class="key">{keys[kind]}</div>' if keys[kind] else ""
        drawn.append(
            f'<figure class="panel"><figcaption><h3>{escape(title)}</h3><p>{escape(caption)}</p></figcaption>'
            f"{svg}{legend}</figure>"
        )
    parts = [_level_html(family, place)]
    parts.append(f'<div class="figures">{"".join(drawn)}</div>')
    if family["differences"]:
        parts.append('<h3 class="sub">Paired differences, in points of per cent</h3>')
        parts.append(_plain_table(difference_table(family), left=2))
        note = "Over common tasks, both resampled together (paired task bootstrap). An interval without 0 is a "
        note += "difference that these tasks show."
        other = max(d["other_tasks"] for d in family["differences"])
        note += f" {other} tasks of one name differ between runs and are left out." if other else ""
        parts.append(f'<p class="note">{note}</p>')
    return (
        f'<section id="{escape(name.lower())}" aria-label="{escape(name)}"><div class="head"><h2>{escape(name)}</h2>'
        f"<p>{escape(_NOTES.get(name, ''))}</p></div>{''.join(parts)}</section>"
    )


def _level_html(family: Mapping[str, Any], place: Mapping[str, int]) -> str:
    title, header, rows = level_table(family)
    n = sum(h.startswith("strict ") for h in header)
    start = 5
    groups = '<th class="lev"></th><th colspan="4"></th>' + "".join(
        f'<th colspan="{n}" scope="colgroup" class="sep">{name}</th>' for name in ("Strict", "Paper’s contract")
    )
    extra = len(header) - start - 2 * n
    groups += f'<th colspan="{extra}" scope="colgroup" class="sep">Scores</th>' if extra else ""
    edges = {start, start + n, start + 2 * n}
    head = "".join(
        f'<th scope="col" class="{("l stick lev", "l pol")[i] if i < 2 else "sep" if i in edges else ""}">'
        f"{escape(h.removeprefix('strict ').removeprefix('paper '))}</th>"
        for i, h in enumerate(header)
    )
    body, before = [], None
    for row in rows:
        total = row[0] == "all" or not row[0].rpartition("-")[2][1:].isdigit()
        if row[0] != before:  # on narrow screens the level stands above its rows instead of beside them
            body.append(
                f'<tr class="lv" aria-hidden="true"><th colspan="{len(row)}"><span>{escape(row[0])}</span></th></tr>'
            )
        cells = []
        for i, cell in enumerate(row):
            if i == 0:
                shown = escape(cell) if cell != before else f'<span class="vh">{escape(cell)}</span>'
                cells.append(f'<th scope="row" class="stick lev">{shown}</th>')
            elif i == 1:
                cells.append(f'<td class="l pol {arm_class(place[cell])}"><i class="sw"></i>{escape(cell)}</td>')
            else:
                cells.append(f'<td class="{"sep" if i in edges else ""}">{_figure(cell) if i >= start else cell}</td>')
        body.append(f"<tr{' class=sum' if total else ''}>{''.join(cells)}</tr>")
        before = row[0]
    return _scroll(
        title,
        f'<table class="levels" data-table="{escape(title)}"><caption class="vh">{escape(title)}, per cent, '
        "95 % intervals</caption>"
        f'<thead><tr class="groups">{groups}</tr><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>',
    )


def _figure(cell: str) -> str:
    """Return ``"62.3 [55.5, 69.2]"`` with the interval in small print."""
    estimate, _, interval = cell.partition(" ")
    low = f' <span class="i">{escape(interval)}</span>' if interval else ""
    return f'<span class="e">{escape(estimate)}</span>{low}'


def _plain_table(table: Table, left: int = 1) -> str:
    title, header, rows = table
    head = "".join(
        f'<th scope="col" class="{"l " if i < left else ""}{"stick" if i == 0 else ""}">{escape(h)}</th>'
        for i, h in enumerate(header)
    )
    body = []
    for row in rows:
        cells = [f'<th scope="row" class="stick">{escape(row[0])}</th>']
        cells += [f'<td class="{"l" if i < left else ""}">{escape(c)}</td>' for i, c in enumerate(row[1:], 1)]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return _scroll(
        title,
        f'<table data-table="{escape(title)}"><caption class="vh">{escape(title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>",
    )


def _scroll(title: str, table: str) -> str:
    return f'<div class="panel scroll" tabindex="0" role="region" aria-label="{escape(title)}">{table}</div>'


def _resources(numbers: Numbers) -> str:
    return (
        '<section id="resources" aria-label="Losses and cost"><div class="head"><h2>Losses and cost</h2></div>'
        '<h3 class="sub">Attempts without a verdict</h3>'
        f"{_plain_table(loss_table(numbers), left=2)}"
        '<p class="note">Missing: a tool, a model server or a worker failed, also after retries. Unfinished: the '
        "policy ran out of its own time. Crashed: a fault in the policy’s code. Shares are of all attempts.</p>"
        '<h3 class="sub">What the policies used</h3>'
        f"{_plain_table(use_table(numbers))}"
        '<p class="note">Budget used: mean over attempts with a verdict. Unreadable: replies that are no action; they '
        "are charged and told to the policy. Infeasible: attempts that ended by declaring the task infeasible.</p>"
        "</section>"
    )


def _attempts() -> str:
    columns = [("task", "task", "l stick"), ("arm", "policy", "l"), ("suite", "suite", "l"), ("attempt", "no.", "")]
    columns += [("outcome", "outcome", "l"), ("failed", "error or first failed check", "l"), ("charged", "charged", "")]
    columns += [("tokens", "tokens", ""), ("score", "VRR/NIS", "")]
    head = "".join(
        f'<th scope="col" class="{kind}" aria-sort="none"><button type="button" class="sort" data-key="{key}">{text}'
        "</button></th>"
        for key, text, kind in columns
    )
    selects = (("arm", "Policy"), ("suite", "Suite"), ("level", "Level"), ("outcome", "Outcome"), ("error", "Error"))
    filters = "".join(f'<label for="f-{key}">{text}<select id="f-{key}"></select></label>' for key, text in selects)
    return (
        '<section id="attempts" aria-label="Attempts"><div class="head"><h2>Attempts</h2>'
        "<p>Open one to go through it step by step.</p></div>"
        '<noscript><p class="notice">The list and the viewer need JavaScript; the tables above do not.</p></noscript>'
        '<div class="panel"><div class="filters" role="search" aria-label="Filter attempts"><label for="search">Search '
        '<input id="search" type="search" placeholder="task, check, message" autocomplete="off"></label>'
        f'{filters}</div><div class="count"><span id="count" role="status"></span>'
        '<button class="link" type="button" id="clear">Clear filters</button></div>'
        '<div class="scroll" tabindex="0" role="region" aria-label="List of attempts"><table id="list">'
        f'<caption class="vh">Attempts</caption><thead><tr>{head}</tr></thead><tbody></tbody></table></div>'
        '<div class="more" id="more" hidden><button class="btn" type="button">Show more</button></div></div></section>'
    )


_VIEWER = """<dialog id="viewer" aria-labelledby="v-title" tabindex="-1">
<div class="vhead"><h2 id="v-title"></h2><span class="meta" id="v-meta"></span>
<span class="tools"><button class="btn icon" type="button" id="v-before" aria-label="Previous attempt">↑</button>
<button class="btn icon" type="button" id="v-after" aria-label="Next attempt">↓</button>
<button class="btn" type="button" id="v-close">Close</button></span></div>
<div class="vbody"><div class="vleft"><div class="panel stage" id="v-stage"></div>
<div class="legend" id="v-legend"></div>
<div class="stepper" role="group" aria-label="Steps">
<button class="btn icon" type="button" id="v-first" aria-label="Start">⇤</button>
<button class="btn icon" type="button" id="v-prev" aria-label="Previous step">←</button>
<input type="range" id="v-range" min="0" max="0" value="0" aria-label="Step">
<button class="btn icon" type="button" id="v-next" aria-label="Next step">→</button>
<button class="btn icon" type="button" id="v-last" aria-label="Last step">⇥</button>
<button class="btn" type="button" id="v-check">Next check</button>
<output id="v-at" for="v-range" aria-live="polite"></output></div>
<p class="hint"><kbd>←</kbd> <kbd>→</kbd> step · <kbd>Home</kbd> <kbd>End</kbd> ends · <kbd>c</kbd> next check ·
<kbd>p</kbd> <kbd>n</kbd> attempts · <kbd>Esc</kbd> close · drag to move, <kbd>Ctrl</kbd> and wheel to zoom</p></div>
<div class="vright"><div id="v-step" aria-live="polite"></div><div id="v-checks"></div></div></div>
</dialog>"""


def _footer(numbers: Numbers) -> str:
    versions: dict[str, set[str]] = {}
    for arm in numbers["arms"]:
        for name, version in arm["versions"].items():
            versions.setdefault(name, set()).add(version)
    listed = ", ".join(f"{name} {' / '.join(sorted(found))}" for name, found in sorted(versions.items()))
    runs = ", ".join(f"{r['run']} ({r['records']} attempts)" for r in numbers["runs"])
    return f"<p>Runs: {escape(runs)}. {'Made with ' + escape(listed) + '.' if listed else ''}</p>"
