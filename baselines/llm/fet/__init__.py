"""The five scaffolds of 2D-FET-Bench V2: whole-layout and layer-wise language-model agents."""

from edagym.baselines.llm.fet.layers import ExpeL4Policy, React4Policy, Reflexion4Policy
from edagym.baselines.llm.fet.whole import PlanExecutePolicy, React3Policy

__all__ = ["ExpeL4Policy", "PlanExecutePolicy", "React3Policy", "React4Policy", "Reflexion4Policy"]
