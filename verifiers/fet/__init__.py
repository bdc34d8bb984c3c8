"""The FET verifier: design rules, structure, input preservation, and strict device and netlist checks."""

from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.verifier import FETVerifier, verify

__all__ = ["FETLayout", "FETVerifier", "verify"]
