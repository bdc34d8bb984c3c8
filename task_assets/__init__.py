"""Task data (JSON, GDS) and the dataclasses that load them. The ground floor: imports nothing above it."""
