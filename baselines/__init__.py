"""Policies and the harness that runs them."""
