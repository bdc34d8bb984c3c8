"""Wrappers around the environments: action abstractions, other observations, reward shaping, recording."""
