"""The Gymnasium environments, one sub-package per task family."""
