"""`edagym show`: a task in words, as a picture, as a prompt; the gallery of the suite."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edagym.cli.common import PASS, add_json_flag, emit, find_task, out_dir
from edagym.cli.show_drc import is_drc, show_drc
from edagym.errors import TaskError


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "show",
        help="show a task, its picture or prompt, or the gallery of all tasks",
        description="Show a task (what an agent may know of it), draw it, or draw the gallery of the suite.",
    )
    parser.add_argument(
        "task",
        metavar="TASK",
        nargs="?",
        help="task id, e.g. L2/case_12 or Essential-L2/q3, or a task file (*.json) or folder (DRC)",
    )
    parser.add_argument("--svg", metavar="OUT", help="write the picture as SVG")
    parser.add_argument("--png", metavar="OUT", help="write the picture as PNG")
    parser.add_argument("--layout", metavar="GDS", help="draw this layout, its violations marked")
    parser.add_argument("--reference", action="store_true", help="draw the recorded reference layout")
    parser.add_argument("--prompt", metavar="SCAFFOLD", choices=("C0", "C1", "C2"), help="print the prompt text")
    parser.add_argument("--gallery", metavar="DIR", help="draw the contours of all tasks, one page per level")
    parser.add_argument("--references", action="store_true", help="with --gallery: draw the references over them")
    parser.add_argument("--level", action="append", metavar="L", help="with --gallery: only this level (repeatable)")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    _refuse_stray_options(args)
    if args.gallery:
        return _gallery(args)
    if is_drc(args.task):
        return show_drc(args)
    task = find_task(args.task)
    view = task.view()
    text, data = _text(args, view)
    files = _pictures(args, task, view)
    if files:
        data["files"] = files
        text = "\n".join([text.rstrip("\n"), *(f"wrote {f}" for f in files)])
    emit(args, data, text)
    return PASS


def _refuse_stray_options(args: argparse.Namespace) -> None:
    """Raise `TaskError` for options that would be passed over in silence."""
    drawn = args.svg or args.png
    if args.gallery:
        if args.task or drawn or args.layout or args.reference or args.prompt:
            raise TaskError("a gallery shows all tasks", field="--gallery", allowed="--references, --level, --json")
    elif args.references or args.level:
        raise TaskError("an option of the gallery", field="--references, --level", allowed="with --gallery DIR")
    elif not args.task:
        raise TaskError("nothing to show", field="TASK", allowed="a task id or file, or --gallery DIR")
    elif args.layout and args.reference:
        raise TaskError("one layout at a time", field="--layout, --reference", allowed="one of the two")
    elif (args.layout or args.reference) and not drawn:
        raise TaskError("a layout is drawn", field="--layout, --reference", allowed="with --svg OUT or --png OUT")


def _text(args: argparse.Namespace, view: Any) -> tuple[str, dict[str, Any]]:
    from edagym.envs.fet.prompt import render_prompt, render_task_text

    if args.prompt:
        prompt = render_prompt(view, args.prompt)
        return prompt, {"task": view.id, "scaffold": args.prompt, "prompt": prompt}
    return f"{view.id}\n{render_task_text(view)}", {"task": view.id, **asdict(view)}


def _pictures(args: argparse.Namespace, task: Any, view: Any) -> list[str]:
    if not (args.svg or args.png):
        return []
    from PIL import Image

    from edagym.envs.fet.gallery import reference_layout
    from edagym.envs.fet.viewer import render_image, render_svg
    from edagym.verifiers.fet import verify
    from edagym.verifiers.fet.layout import FETLayout

    verdict = None
    if args.layout:
        layout = FETLayout.read_gds(args.layout, task.layers)
        verdict = verify(layout, task)
    elif args.reference:
        layout = reference_layout(task)
    else:
        layout = FETLayout.from_task(task)
    if args.svg:
        Path(args.svg).write_text(render_svg(view, layout, verdict=verdict), encoding="utf-8")
    if args.png:
        try:
            Image.fromarray(render_image(view, layout, verdict=verdict)).save(args.png, format="PNG", optimize=True)
        except OSError as e:
            raise TaskError(f"cannot write picture {args.png}: {e}") from e
    return [f for f in (args.svg, args.png) if f]


def _gallery(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from edagym.envs.fet.gallery import make_gallery

    files = make_gallery(
        out_dir(args.gallery),
        references=args.references,
        levels=args.level,
        progress=lambda ids: tqdm(ids, desc="gallery", unit="task", leave=False),
    )
    emit(args, {"files": [str(f) for f in files]}, "\n".join(f"wrote {f}" for f in files))
    return PASS
