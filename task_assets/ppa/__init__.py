"""PPA task data: technology, knob table, RTL designs, task folders, and the dataclasses that load them."""
