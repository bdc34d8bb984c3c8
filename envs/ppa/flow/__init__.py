"""RTL-to-report flows: the embedded one and the adapter to OpenROAD-flow-scripts."""
