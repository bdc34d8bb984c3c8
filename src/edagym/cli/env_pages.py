"""Reference pages of the environment ids, made from docstrings, spaces, the registry and recorded results."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edagym.cli.listing import FAMILIES, IdRow, id_table

_STATED = re.compile(r"^(?:\([\d, a-z_]*\) ?)?(?:u?int\d+|float\d+|Discrete\(\d+\)|MultiBinary\(\d+\))?[,:.;]? *")
_CONSTANT = re.compile(r"`(?:[a-z_.]+\.)?([A-Z][A-Z_]+)`")
_ARTICLE = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \w+)*): ?(?P<text>.*)$")
_HEADER = re.compile(r"^(?P<name>(?:Keys|The keys|Args|Returns|Raises|Attributes)\b.*):$")


def section(docstring: str, title: str) -> dict[str, str]:
    """Return the articles of a Google-style docstring's section: name -> text.

    Args:
        docstring: The docstring.
        title: First word of the section's header, or, for sections of keys, ``"Keys"`` (or ``"The keys"``).
    """
    found: dict[str, str] = {}
    inside, name, indent = False, "", 0
    for line in inspect.cleandoc(docstring).splitlines():
        header = _HEADER.match(line)
        if header:
            first = header["name"]
            inside = first.split()[0] == title or (title == "Keys" and first.startswith("The keys"))
            name = ""
            continue
        if not inside or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            inside = False
            continue
        indent = indent or depth
        article = _ARTICLE.match(line.strip()) if depth == indent else None
        if article:
            name = article["names"]
            found[name] = article["text"].strip()
        elif name:
            found[name] += " " + line.strip()
    return found


def prose(docstring: str) -> str:
    """Return a docstring's text before its first section, as Markdown."""
    kept = []
    for line in inspect.cleandoc(docstring).splitlines():
        if _HEADER.match(line):
            break
        kept.append(line)
    return "\n".join(kept).strip()


def keys(sources: Iterable[Any]) -> dict[str, str]:
    """Return what docstrings of spaces say about their keys; one line may be about several keys."""
    found: dict[str, str] = {}
    for source in sources:
        for names, text in section(source.__doc__ or "", "Keys").items():
            for name in names.split(", "):
                found[name] = text
    return found


def _family(name: str) -> tuple[list[Any], list[Any]]:
    """Return the objects whose docstrings describe the keys of a family's actions and observations."""
    if name == "FET":
        from edagym.envs.fet.observation import observation_space as fet
        from edagym.spaces.actions import EditSpace
        from edagym.spaces.contours import ContourSpace
        from edagym.spaces.layout import LayoutSpace
        from edagym.spaces.task import TaskSpace

        return [EditSpace], [ContourSpace, LayoutSpace, TaskSpace, fet]
    if name == "DRC":
        from edagym.envs.drc.observation import observation_space as drc
        from edagym.spaces.drc_actions import DRCActionSpace

        return [DRCActionSpace], [drc]
    from edagym.envs.ppa.observation import observation_space as ppa
    from edagym.spaces.knobs import KnobSpace
    from edagym.spaces.ppa_actions import PPAActionSpace
    from edagym.spaces.reports import ReportSpace

    return [PPAActionSpace], [KnobSpace, ReportSpace, ppa]


def space_text(space: Any) -> str:
    """Return a key's space in short: ``Discrete(7)``, ``float32 (20, 128, 2) in [-1000, 1000]``."""
    from gymnasium.spaces import Box

    if not isinstance(space, Box):
        return str(space)
    low, high = (f"{v.flat[0]:g}" if v.size and (v == v.flat[0]).all() else "…" for v in (space.low, space.high))
    return f"{space.dtype} {tuple(space.shape)} in [{low}, {high}]"


def space_table(space: Any, sources: Sequence[Any]) -> str:
    """Return a Dict space as a Markdown table of keys, spaces and meanings, and the names that it mentions.

    Args:
        space: The space.
        sources: Objects whose docstrings describe its keys.

    Raises:
        KeyError: If a key is not described.
    """
    meanings = keys(sources)
    lines = ["| key | space | meaning |", "|---|---|---|"]
    for key, part in space.spaces.items():
        # The docstrings give shape and type too: the space column has them.
        text = _markdown(_STATED.sub("", meanings[key])).replace("|", "\\|")
        lines.append(f"| `{key}` | {space_text(part)} | {text} |")
    mentioned = dict.fromkeys(name for text in meanings.values() for name in _CONSTANT.findall(text))
    lists = []
    for name in mentioned:
        for source in sources:
            value = getattr(inspect.getmodule(source), name, None)
            if isinstance(value, tuple) and all(isinstance(v, str) for v in value):
                lists.append(f"- `{name}`: {', '.join(repr(v) if v == '' else v for v in value)}")
                break
    return "\n".join([*lines, "", *lists]).rstrip()


def page(row: IdRow, results: Mapping[str, Any]) -> str:
    """Return the page of an id as Markdown.

    Args:
        row: The id.
        results: Its recorded results: policy -> what was measured (see docs/results.json).
    """
    import gymnasium as gym

    from edagym.envs.core import edit_env

    spec = gym.spec(row.id)
    env = gym.make(row.id, disable_env_checker=True).unwrapped
    cls = type(env)
    bases: list[Any] = [c for c in cls.__mro__ if c.__module__.startswith("edagym.envs") and c.__doc__]
    own = [c for c in bases if c.__module__ == cls.__module__]
    arguments: dict[str, str] = {}
    for base in bases:
        for names, text in section(base.__doc__, "Args").items():
            for name in names.split(", "):
                if not name.startswith("*"):
                    arguments.setdefault(name, text)
    taken = _parameters(cls)
    action_docs, observation_docs = _family(row.id.split("-")[0])
    tasks = "endless" if row.tasks is None else str(row.tasks)
    kwargs = ", ".join(f"{k}={v!r}" for k, v in spec.kwargs.items())
    made = f'gym.make("{row.id}")' if not kwargs else f'gym.make("{row.id}")  # {kwargs}'
    parts = [
        f"# {row.id}",
        f"{row.about[0].upper()}{row.about[1:]}. Tasks: {tasks}. Entry point: `{spec.entry_point}`.",
        f"```python\nimport gymnasium as gym\nimport edagym\n\nenv = {made}\n```",
        "## Description",
        "\n\n".join(_markdown(prose(c.__doc__)) for c in reversed(own)),
        "## Arguments",
        _list({name: text for name, text in arguments.items() if name in taken}),
        "## Actions",
        _markdown(prose(action_docs[0].__doc__)),
        space_table(env.action_space, action_docs),
        "## Observations",
        *(_markdown(prose(source.__doc__)).partition("\n\n")[2] for source in observation_docs[-1:]),
        space_table(env.observation_space, observation_docs),
        "## Reward",
        _markdown(inspect.cleandoc(_reward_doc())),
        "## End of an episode",
        _markdown(_ending(edit_env.__doc__ or "")),
        "## Results",
        _results(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parameters(cls: type) -> set[str]:
    """Return the keyword arguments that a class takes, along its bases while they pass ``**kwargs`` on."""
    names: set[str] = set()
    for base in cls.__mro__:
        if "__init__" not in base.__dict__:
            continue
        parameters = inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {"self"}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    # Endless environments take neither.
    return names - ({"suite", "tasks"} if cls.__name__.endswith("TrainEnv") else set())


def _reward_doc() -> str:
    from edagym.envs.core.reward import SparseReward

    return (
        f"Default: {prose(SparseReward.__doc__ or '')} After a tool failure it is NaN: drop such episodes. "
        "`reward` takes any function of verdicts; `edagym.wrappers` has shaped ones."
    )


def _ending(docstring: str) -> str:
    return "\n\n".join(inspect.cleandoc(docstring).split("\n\n")[2:])


def _markdown(text: str) -> str:
    """Return docstring text as Markdown: double backquotes become single ones."""
    return text.replace("``", "`")


def _list(items: Mapping[str, str]) -> str:
    return "\n".join(f"- `{name}`: {_markdown(text)}" for name, text in items.items())


def _results(results: Mapping[str, Any]) -> str:
    if not results:
        return "None recorded."
    lines = ["| policy | attempts | paper | strict | command |", "|---|---|---|---|---|"]
    for policy, r in results.items():
        cells = [_rate(r[c]) for c in ("paper", "strict")]
        lines.append(f"| {policy} | {r['attempts']} | {cells[0]} | {cells[1]} | `{r['command']}` |")
    return "\n".join(lines)


def _rate(rate: Mapping[str, float]) -> str:
    return f"{100 * rate['mean']:.1f} % [{100 * rate['low']:.1f}, {100 * rate['high']:.1f}]"


def write_pages(out: Path, results_file: Path | None = None, progress: Callable[[Any], Any] = iter) -> list[Path]:
    """Write a page per id and an index.

    Args:
        out: Folder.
        results_file: JSON file: id -> policy -> ``{"attempts", "paper", "strict", "command"}``; rates as
            ``{"mean", "low", "high"}``.
        progress: Wraps the ids in a progress bar.

    Returns:
        The files, index first.
    """
    results = json.loads(results_file.read_text(encoding="utf-8")) if results_file is not None else {}
    out.mkdir(parents=True, exist_ok=True)
    rows = id_table()
    index = ["# Environments", ""]
    for family in FAMILIES:
        index += [f"## {family}", "", "| id | tasks | what |", "|---|---|---|"]
        for r in rows:
            if r.id.startswith(family):
                index.append(f"| [{r.id}]({r.id}.md) | {r.tasks if r.tasks is not None else 'endless'} | {r.about} |")
        index.append("")
    written = [out / "README.md"]
    written[0].write_text("\n".join(index).rstrip() + "\n", encoding="utf-8")
    for row in progress(rows):
        written.append(out / f"{row.id}.md")
        written[-1].write_text(page(row, results.get(row.id, {})), encoding="utf-8")
    return written
