"""Registration of every environment id with Gymnasium: string entry points and JSON keyword arguments only."""

from __future__ import annotations


def register_all() -> None:
    """Register every id; calling it again changes nothing."""
