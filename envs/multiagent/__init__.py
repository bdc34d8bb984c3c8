"""Placeholder docstring, see below."""
