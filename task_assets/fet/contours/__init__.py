"""Flake contours: shipped real ones, the pipeline that extracts them, and the procedural flake model."""

from edagym.task_assets.fet.contours.flake_model import procedural_contour
from edagym.task_assets.fet.contours.library import TIERS, Contour, load_library, tier_of
from edagym.task_assets.fet.contours.report import ContourReport, generate_contours

__all__ = ["TIERS", "Contour", "ContourReport", "generate_contours", "load_library", "procedural_contour", "tier_of"]
