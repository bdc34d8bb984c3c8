"""Scaffolds of the DRC and PPA families."""
