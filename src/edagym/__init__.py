"""EDAGym: Gymnasium environments for physical chip and device design.

Importing `edagym` registers every environment id. It is cheap: neither KLayout nor torch is loaded.
"""

from edagym.registry import ENVIRONMENTS, register_all

__version__ = "0.1.0"
__all__ = ["ENVIRONMENTS", "__version__", "register_all"]

register_all()
