"""The FET verifier: design rules, structure, input preservation, and strict device and netlist checks."""
