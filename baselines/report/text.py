"""A report as Markdown and as CSV: the numbers of `edagym.baselines.report.summary`, as the page writes them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from edagym.baselines.report.figures import TRANSITIONS
from edagym.baselines.report.summary import Numbers, percent
from edagym.baselines.tables import CRITERIA, SCORES

DASH = "–"
Table = tuple[str, list[str], list[list[str]]]
"""Title, header, rows."""


def tables(numbers: Numbers) -> list[Table]:
    """Return every table of a report as texts, in the order of the page."""
    found: list[Table] = []
    for family in numbers["families"]:
        found.append(level_table(family))
        if family["differences"]:
            found.append(difference_table(family))
        if any(sum(t.values()) for t in family["transitions"].values()):
            rows = [[arm, *(str(t[key]) for key in TRANSITIONS)] for arm, t in family["transitions"].items()]
            found.append((f"{family['family']}: from one check to the next", ["policy", *TRANSITIONS.values()], rows))
    found += [loss_table(numbers), use_table(numbers)]
    return found


def level_table(family: Mapping[str, Any]) -> Table:
    """Return success per level and arm, per cent with 95 % intervals."""
    rows = family["rows"]
    k = max(row["k"] for row in rows)
    measures = [("pass_1", "pass@1")]
    measures += [("pass_k", f"pass@{k}"), ("all_k", f"all-{k}")] if k > 1 else []
    measures += [("floor", "pass@1 floor")] if any(row["unfinished"] or row["crashed"] for row in rows) else []
    header = ["level", "policy", "tasks", "attempts", "scored"]
    header += [f"{criterion} {title}" for criterion in reversed(CRITERIA) for _, title in measures]
    header += [SCORES[s] for s in family["scores"]]
    out = []
    for row in rows:
        cells = [row["level"], row["arm"], *(str(row[name]) for name in ("tasks", "attempts", "scored"))]
        cells += [percent(row[criterion][name]) for criterion in reversed(CRITERIA) for name, _ in measures]
        cells += [percent(row[s]) for s in family["scores"]]
        out.append(cells)
    return (f"{family['family']}: success per level", header, out)


def difference_table(family: Mapping[str, Any]) -> Table:
    """Return paired differences over common tasks, in points of per cent."""
    measures = [m for m in ("strict", "paper", "vrr", "nis") if any(d[m] for d in family["differences"])]
    titles = {"strict": "strict pass@1", "paper": "paper pass@1", **SCORES}
    header = ["policy", "minus", "common tasks", *(titles[m] for m in measures)]
    rows = [
        [d["second"], d["first"], str(d["tasks"]), *(percent(d[m], sign=True) for m in measures)]
        for d in family["differences"]
    ]
    return (f"{family['family']}: paired differences", header, rows)


def loss_table(numbers: Numbers) -> Table:
    """Return attempts without a verdict, by cause, with their own denominator."""
    header = ["policy", "run", "attempts", "scored", "missing", "unfinished", "crashed", "causes", "retried"]
    rows = []
    for a in numbers["arms"]:
        share = f"{a['missing']} ({100 * a['missing'] / a['attempts']:.1f} %)"
        causes = ", ".join(f"{kind}: {n}" for kind, n in a["errors"].items()) or DASH
        rows.append(
            [
                a["label"],
                a["run"],
                str(a["attempts"]),
                str(a["scored"]),
                share,
                str(a["unfinished"]),
                str(a["crashed"]),
                causes,
                str(a["infra_retries"]),
            ]
        )
    return ("Lost attempts", header, rows)


def use_table(numbers: Numbers) -> Table:
    """Return what the policies used: budget, model calls, tokens, cost."""
    header = ["policy", "budget used", "refused", "unreadable", "infeasible", "calls", "call retries"]
    header += ["prompt tokens", "reply tokens", "cost"]
    rows = []
    for a in numbers["arms"]:
        cost = DASH if a["cost"] is None else f"{a['cost']:.4f}"
        if a["cost"] is not None and a["costed"] < a["attempts"]:
            cost += f" ({a['costed']} of {a['attempts']} attempts)"
        declared = f"{a['infeasible']} ({a['infeasible_passing']} passing)" if a["infeasible"] else "0"
        counts = (a["model_calls"], a["model_retries"], a["prompt_tokens"], a["completion_tokens"])
        used = DASH if a["charged"] is None else f"{a['charged']:.1f}"
        rows.append(
            [a["label"], used, str(a["refused"]), str(a["unreadable"]), declared, *(f"{n:,}" for n in counts), cost]
        )
    return ("Use of resources", header, rows)


def markdown(numbers: Numbers, notes: Sequence[str] = ()) -> str:
    """Return a report as Markdown."""
    lines = ["# EDAGym report", ""]
    lines += [f"- run {_md(r['run'])}: {r['records']} attempts" for r in numbers["runs"]]
    lines += [f"- {_md(note)}" for note in notes]
    lines += [f"- not read: {_md(f['run'])}: {_md(f['message'])}" for f in numbers["faults"]]
    for title, header, rows in tables(numbers):
        lines += ["", f"## {_md(title)}", "", f"| {' | '.join(map(_md, header))} |", "|" + "---|" * len(header)]
        lines += [f"| {' | '.join(map(_md, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    """Return a text on one line in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&])", r"\\\1", " ".join(text.split()))


def csv_text(numbers: Numbers) -> str:
    """Return the measures as CSV, one per line: family, level, policy, measure, estimate, low, high and counts.

    Estimates are shares, not per cent, in full precision.
    """
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(["family", "level", "policy", "measure", "estimate", "low", "high", "tasks", "attempts", "scored", "k"])

    def line(start: Sequence[str], measure: str, value: Mapping[str, float] | None, counts: Sequence[Any]) -> None:
        numbers = ["", "", ""] if value is None else [repr(float(value[n])) for n in ("estimate", "low", "high")]
        write([*map(_cell, start), measure, *numbers, *counts])

    for family in numbers["families"]:
        for row in family["rows"]:
            start = (family["family"], row["level"], row["arm"])
            counts = [row[name] for name in ("tasks", "attempts", "scored", "k")]
            for criterion in CRITERIA:
                for name in ("pass_1", "pass_k", "all_k", "floor"):
                    line(start, f"{criterion}_{name}", row[criterion][name], counts)
            for score in family["scores"]:
                line(start, score, row[score], counts)
        for d in family["differences"]:
            for measure in ("strict", "paper", "vrr", "nis"):
                if d[measure] is not None:
                    start = (family["family"], "all", f"{d['second']} minus {d['first']}")
                    line(start, f"difference_{measure}", d[measure], [d["tasks"], "", "", ""])
    return out.getvalue()


def _cell(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
