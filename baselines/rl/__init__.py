"""Reinforcement learning: presets, training, checkpoints as policies."""
