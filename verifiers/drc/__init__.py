"""The DRC engine: rule tables, full and incremental checks, attribution to cells, reports."""

from edagym.verifiers.drc.check import full_check
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Marker, MarkerStore
from edagym.verifiers.drc.report import CheckReport
from edagym.verifiers.drc.rules import RuleTable, load_table

__all__ = ["CheckReport", "DRCLayout", "Marker", "MarkerStore", "RuleTable", "full_check", "load_table"]
