"""The DRC environment family: tasks on ASAP7 layouts, injected violations and their repairs (PostEDA-Bench, 3.1)."""
