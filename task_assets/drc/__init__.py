"""DRC tasks: the process, a cell library of our own and a generator of legal blocks (PostEDA-Bench, Section 3.1)."""
