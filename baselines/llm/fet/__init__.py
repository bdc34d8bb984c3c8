"""Scaffolds of the FET family."""
