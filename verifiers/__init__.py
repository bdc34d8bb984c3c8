"""Verifiers: pure functions from a layout and a task to a `Verdict`. No Gymnasium, no randomness, no agent."""
