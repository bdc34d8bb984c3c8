"""Geometry behind the reference constructor: curves along a flake, stations on them, chains of devices, wires.

Coordinates are floating-point micrometres throughout; only the last step (`shapes.snap`) goes to the 1 nm grid.
"""
