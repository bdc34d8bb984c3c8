"""FET tasks: dataclasses, circuit templates, contour library and the 128-task suite (2D-FET-Bench V2)."""

from edagym.task_assets.fet.circuits import CircuitSpec, Stack, stacks
from edagym.task_assets.fet.task import FETTask, LayerSpec, Region, Rule, TaskView

__all__ = ["CircuitSpec", "FETTask", "LayerSpec", "Region", "Rule", "Stack", "TaskView", "stacks"]
