"""Reports of evaluation runs."""
