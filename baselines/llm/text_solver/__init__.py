"""A model for tests that computes its replies by geometry from the prompt text alone.

``python server.py --port 0`` is a process of its own that speaks the chat-completions protocol on a loopback port. It
knows nothing but the messages that it receives: nothing in this folder imports another part of the project. What it
solves shows that the prompts carry what a model needs.
"""
