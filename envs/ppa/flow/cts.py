"""Clock tree: flip-flops in groups of neighbours, a buffer per group, buffers above them up to the root.

Few flip-flops hang on a tree of one level, whose groups halve the plane until each has at most fifteen; many are
clustered first and get a level between. The drive of the buffers follows the clock's load: what the real flow built for
the public benchmark's designs (BUFx2 for 6 flip-flops, BUFx4 for 35 and 70, BUFx8 and BUFx16f for 191 and 360).
"""

from __future__ import annotations

from collections.abc import Sequence

from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.wires import Places

GROUP = 15
"""Most flip-flops behind a leaf buffer of a one-level tree."""
CLUSTER = 16
"""The same in a tree with clusters."""
FEW = 200
"""Number of flip-flops above which they are clustered and a level is put between root and leaves."""
BRANCH = 16
"""Most buffers behind a buffer."""
DRIVES = ((8.0, "BUFx2", "BUFx2"), (80.0, "BUFx4", "BUFx4"), (300.0, "BUFx8", "BUFx16f"))
"""Up to which load of all clock pins (fF) which buffers are taken: upper levels, leaves."""
LARGEST = ("BUFx16f", "BUFx24")


def build_tree(netlist: Netlist, places: Places, vt: str, cluster_size: int = 50) -> list[int]:
    """Put buffers into every clock net.

    Args:
        netlist: Changed in place; a clock net is one that an input port drives and that clocks registers.
        places: Places of the flip-flops; the buffers are placed at the middle of what they drive.
        vt: Threshold voltage of the buffers.
        cluster_size: ``CTS_CLUSTER_SIZE``: most flip-flops behind one leaf buffer.

    Returns:
        The new instances.
    """
    made: list[int] = []
    for net in clock_nets(netlist):
        made += _tree(netlist, places, net, vt, cluster_size)
    return made


def clock_nets(netlist: Netlist) -> list[int]:
    """Return the nets from an input port to the clock pins of registers."""
    found = []
    for net in netlist.nets():
        driver = netlist.net_driver[net]
        if driver < 0 or netlist.pin_inst[driver] >= 0:
            continue
        if any(_is_clock_pin(netlist, pin) for pin in netlist.net_sinks[net]):
            found.append(net)
    return found


def _is_clock_pin(netlist: Netlist, pin: int) -> bool:
    inst = netlist.pin_inst[pin]
    if inst < 0:
        return False
    register = netlist.master(inst).register
    return register is not None and pin - netlist.inst_pin[inst] == register.clock


def _tree(netlist: Netlist, places: Places, net: int, vt: str, cluster_size: int) -> list[int]:
    netlist.set_clock(net)
    sinks = [pin for pin in netlist.net_sinks[net] if _is_clock_pin(netlist, pin)]
    load = sum(max(netlist.master(netlist.pin_inst[p]).cap[p - netlist.inst_pin[netlist.pin_inst[p]]]) for p in sinks)
    upper, leaf = next(((u, b) for most, u, b in DRIVES if load <= most), LARGEST)
    technology = netlist.technology
    upper_master, leaf_master = technology.find(upper, vt).index, technology.find(leaf, vt).index
    limit = max(min(GROUP if len(sinks) <= FEW else CLUSTER, cluster_size), 1)
    root = netlist.insert_buffer(net, sinks, upper_master, name=f"clkbuf_0_{netlist.net_name[net]}")
    places.put_between(root, sinks)
    made = [root]
    trunk = netlist.pin_net[netlist.output_pins(root)[0]]
    points = [places.at(pin) for pin in sinks]
    groups = split(points, limit, even=len(sinks) > FEW)
    if len(groups) == 1:
        return made
    leaves = []
    for i, group in enumerate(groups):
        pins = [sinks[k] for k in group]
        buffer = netlist.insert_buffer(trunk, pins, leaf_master, name=f"clkbuf_leaf_{i}_{netlist.net_name[net]}")
        places.put_between(buffer, pins)
        leaves.append(buffer)
    made += leaves
    level = 1
    while len(sinks) > FEW or len(leaves) > BRANCH:
        points = [(places.x[i], places.y[i]) for i in leaves]
        upper_groups = split(points, BRANCH)
        if len(upper_groups) == 1:
            break
        above = []
        for i, group in enumerate(upper_groups):
            pins = [netlist.inst_pin[leaves[k]] for k in group]
            name = f"clkbuf_{level}_{i}_{netlist.net_name[net]}"
            buffer = netlist.insert_buffer(trunk, pins, upper_master, name=name)
            places.put_between(buffer, pins)
            above.append(buffer)
        made += above
        leaves, level = above, level + 1
    return made


def split(points: Sequence[tuple[float, float]], limit: int, *, even: bool = False) -> list[list[int]]:
    """Part points by their longer extent, again and again, until no part has more than `limit`.

    Args:
        points: Places, nm.
        limit: Most points of a part.
        even: Part in the ratio that leads to the fewest parts; otherwise in halves.

    Returns:
        Indices into `points`, part by part.
    """
    parts: list[list[int]] = []
    stack = [list(range(len(points)))]
    while stack:
        part = stack.pop()
        if len(part) <= limit:
            parts.append(part)
            continue
        xs, ys = [points[i][0] for i in part], [points[i][1] for i in part]
        axis = 0 if max(xs) - min(xs) >= max(ys) - min(ys) else 1
        part.sort(key=lambda i: (points[i][axis], points[i][1 - axis], i))
        count = -(-len(part) // limit)
        cut = -(-len(part) * (count // 2) // count) if even else (len(part) + 1) // 2
        stack += [part[cut:], part[:cut]]
    return parts
