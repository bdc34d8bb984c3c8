"""PettingZoo environments (optional dependency, extra ``rl``)."""
