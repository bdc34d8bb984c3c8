"""The `edagym` command: thin faces on functions that a notebook can call.

Exit codes: 0 pass, 1 fail, 2 bad input, 3 tool error. Results go to standard output (`--json`: as JSON), progress bars
and errors to standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from edagym import __version__
from edagym.cli import (
    bench,
    demo,
    drc,
    evaluate,
    flow,
    generate,
    import_posteda,
    listing,
    report,
    rescore,
    rollout,
    show,
    sweep,
    train,
    verify,
)
from edagym.cli.common import BAD_INPUT, FAIL, TOOL_ERROR
from edagym.errors import EDAGymError, ToolError

_COMMANDS = (
    listing,
    show,
    verify,
    drc,
    flow,
    sweep,
    rollout,
    evaluate,
    rescore,
    report,
    train,
    generate,
    import_posteda,
    bench,
    demo,
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="edagym",
        description="Reinforcement-learning environments for physical chip and device design.",
        epilog="Exit codes: 0 pass, 1 fail, 2 bad input, 3 tool error.",
    )
    parser.add_argument("--version", action="version", version=f"edagym {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; default: those of the process.

    Returns:
        The exit code.
    """
    args = build_parser().parse_args(argv)
    try:
        code = args.run(args)
        sys.stdout.flush()
        return int(code)
    except BrokenPipeError:
        # The reader (`| head`) has gone. Python would complain once more at exit when it flushes: give it nowhere to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAIL
    except ToolError as e:
        print(f"edagym: tool error: {e}", file=sys.stderr)
        return TOOL_ERROR
    except (EDAGymError, OSError) as e:
        print(f"edagym: {e}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("edagym: interrupted", file=sys.stderr)
        return 130
