"""Policies that search: they try moves on a copy of the layout and act on the best."""
