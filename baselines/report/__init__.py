"""Reports of evaluations: one self-contained page, Markdown and CSV, from the run folders alone."""

from edagym.baselines.report.build import Report, build_report

__all__ = ["Report", "build_report"]
