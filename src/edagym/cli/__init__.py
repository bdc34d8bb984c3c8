"""The `edagym` command."""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    raise SystemExit("not built yet")
