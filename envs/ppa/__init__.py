"""PPA environments: reach power, performance and area targets by turning knobs, constraints and RTL."""
