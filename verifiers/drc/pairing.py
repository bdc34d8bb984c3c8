"""Anchors: which device and label of one netlist is which of another, and what that says about their nets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial import cKDTree

from edagym.verifiers.drc.netlist import CLASSES, DRAIN, GATE, SOURCE, WAY_OUT, Label, Netlist
from edagym.verifiers.verdict import BBox

FindingKind = Literal[
    "open",
    "short",
    "conductor_lost",
    "device_lost",
    "device_added",
    "device_changed",
    "device_resized",
    "label_lost",
    "label_added",
]
FINDING_KINDS: tuple[FindingKind, ...] = (
    "open",
    "short",
    "conductor_lost",
    "device_lost",
    "device_added",
    "device_changed",
    "device_resized",
    "label_lost",
    "label_added",
)

_SUPPLY = re.compile(r"(?i:VDD|VSS|VCC|VEE|GND)\w*")

MOVE_TOLERANCE_UM = 0.06
"""A device or label may move this far, um, and is still taken for the same one (about one gate pitch)."""
MAX_RESIZE = 0.5
"""Largest allowed relative change of a gate's length or width: repairs may widen an active area by a fin or two."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference between the circuits of two layouts.

    Attributes:
        kind: What happened.
        message: One sentence.
        where: Bounding box (x1, y1, x2, y2) in um, where one is known.
    """

    kind: FindingKind
    message: str
    where: BBox | None = None


class Pairing:
    """Which device and label of one netlist is which of the other.

    Args:
        before: The original's netlist.
        after: The netlist to compare.
        steps: Displacements (dx, dy), in database units, that anchors may have made with an instance.
    """

    def __init__(self, before: Netlist, after: Netlist, steps: Sequence[tuple[int, int]]) -> None:
        self.before, self.after = before, after
        a, b = _device_keys(before), _device_keys(after)
        _, i, j = np.intersect1d(a, b, assume_unique=True, return_indices=True)
        self.exact = np.stack([i, j], axis=1)
        lost = np.setdiff1d(np.arange(len(a)), i)
        added = np.setdiff1d(np.arange(len(b)), j)
        self.moved, self.lost, self.added = _pair_moved(before, after, lost, added, steps)
        places = {label: k for k, label in enumerate(after.labels)}
        self.exact_labels = [(k, places[label]) for k, label in enumerate(before.labels) if label in places]
        kept = {before.labels[k] for k, _ in self.exact_labels}
        gone = [k for k, label in enumerate(before.labels) if label not in kept]
        new = [k for k, label in enumerate(after.labels) if label not in kept]
        self.moved_labels, self.lost_labels, self.added_labels = _pair_labels(before, after, gone, new, steps)

    def kept_in_place(self) -> list[Finding]:
        """Return what is wrong with anchors of certain identity: another class, a label without its conductor."""
        before, after = self.before, self.after
        findings: list[Finding] = []
        for i, _ in self._changed_class():
            where = _device_box(before, i)
            kind = CLASSES[before.device_class[i]].lower()
            text = f"the transistor at {_at(where)} changed from {kind}-type to the other type"
            findings.append(Finding("device_changed", text, where))
        for i, j in (*self.exact_labels, *self.moved_labels):
            if before.label_nets[i] >= 0 > after.label_nets[j]:
                text = "no conductor is left under the label {}"
                findings.append(_label_finding("label_lost", text, before.labels[i], before.dbu))
        return findings

    def _changed_class(self) -> list[tuple[int, int]]:
        places = {tuple(self.after.device_xy[j]): j for j in self.added}
        found = ((i, places.get(tuple(self.before.device_xy[i]))) for i in self.lost)
        return [(i, j) for i, j in found if j is not None]

    def could_have_moved(self) -> bool:
        """Return whether as many devices of each class, and as many labels of each text, were added as were lost."""
        before, after = self.before, self.after
        devices = [sorted(n.device_class[k].tolist()) for n, k in ((before, self.lost), (after, self.added))]
        labels = [
            sorted(n.labels[i][:2] for i in k) for n, k in ((before, self.lost_labels), (after, self.added_labels))
        ]
        return devices[0] == devices[1] and labels[0] == labels[1]

    def lost_and_added(self) -> list[Finding]:
        """Return devices and labels that only one side has."""
        before, after = self.before, self.after
        findings: list[Finding] = []
        changed = self._changed_class()
        for i in sorted({*self.lost} - {i for i, _ in changed}):
            where = _device_box(before, i)
            kind = CLASSES[before.device_class[i]].lower()
            findings.append(Finding("device_lost", f"lost the {kind}-type transistor at {_at(where)}", where))
        for j in sorted({*self.added} - {j for _, j in changed}):
            where = _device_box(after, j)
            kind = CLASSES[after.device_class[j]].lower()
            findings.append(Finding("device_added", f"a new {kind}-type transistor at {_at(where)}", where))
        for k in self.lost_labels:
            findings.append(_label_finding("label_lost", "lost the label {}", before.labels[k], before.dbu))
        for k in self.added_labels:
            findings.append(_label_finding("label_added", "a new label {}", after.labels[k], after.dbu))
        return findings

    def resized(self, exact: bool = False) -> list[Finding]:
        """Return devices whose channel changed by more than `MAX_RESIZE` or, `exact`, at all."""
        pairs = np.concatenate([self.exact, self.moved])
        old, new = self.before.device_size[pairs[:, 0]], self.after.device_size[pairs[:, 1]]
        change = np.abs(new - old) > (0.0 if exact else MAX_RESIZE) * old + 1e-6
        findings = []
        for k in np.flatnonzero(change.any(axis=1)):
            where = _device_box(self.before, pairs[k, 0])
            (l0, w0), (l1, w1) = old[k].tolist(), new[k].tolist()
            text = f"the transistor at {_at(where)} was {l0:.3g} x {w0:.3g} um (channel) and is {l1:.3g} x {w1:.3g} um"
            findings.append(Finding("device_resized", text, where))
        return findings

    def opens_and_shorts(self, exact_only: bool) -> list[Finding]:
        """Return nets that fell apart or ran together, judged by anchors that stayed in place or by all."""
        pairs = self._net_pairs(exact_only)
        findings: list[Finding] = []
        kinds: tuple[Literal["open", "short"], ...] = ("open", "short")
        for column, kind in enumerate(kinds):
            nets, counts = np.unique(pairs[:, column], return_counts=True)
            for net in nets[counts > 1]:
                parts = pairs[pairs[:, column] == net][:, 1 - column]
                if kind == "open" or not self._one_supply(parts):
                    findings.append(self._split(kind, parts, int(net)))
        return findings

    def _net_pairs(self, exact_only: bool) -> np.ndarray:
        """All pairs (net before, net after) that share an anchor."""
        devices = self.exact if exact_only else np.concatenate([self.exact, self.moved])
        labels = self.exact_labels if exact_only else [*self.exact_labels, *self.moved_labels]
        old, new = self.before.device_nets[devices[:, 0]], self.after.device_nets[devices[:, 1]]
        label_pairs = np.array(
            [(self.before.label_nets[i], self.after.label_nets[j]) for i, j in labels], dtype=np.int32
        ).reshape(-1, 2)
        label_pairs = label_pairs[(label_pairs >= 0).all(axis=1)]
        sides = (SOURCE, DRAIN)
        straight = [np.stack([old[:, t], new[:, t]], axis=1) for t in (GATE, *sides)]
        # Source and drain are interchangeable: an edit elsewhere may make the extractor name them the other way round.
        likely = _majority(np.concatenate([*straight, label_pairs]))
        score, swapped_score = (
            np.sum([_agree(likely, old[:, t], new[:, u]) for t, u in zip(sides, others)], axis=0)
            for others in (sides, sides[::-1])
        )
        new = np.where((swapped_score > score)[:, None], new[:, ::-1], new)
        pairs = [np.stack([old[:, t], new[:, t]], axis=1) for t in (GATE, *sides)]
        return np.unique(np.concatenate([*pairs, label_pairs]), axis=0)

    def _one_supply(self, nets: np.ndarray) -> bool:
        """Return whether all these nets of the original carry the same supply's name: they are joined off the block."""
        names = [{label[0] for label, net in zip(self.before.labels, self.before.label_nets) if net == k} for k in nets]
        supplies = [{text.upper() for text in found if _SUPPLY.fullmatch(text)} for found in names]
        return len(supplies[0]) == 1 and all(found == supplies[0] for found in supplies)

    def _split(self, kind: Literal["open", "short"], parts: np.ndarray, net: int) -> Finding:
        """Describe a net that fell apart, or that several nets became."""
        whole, pieces = (self.before, self.after) if kind == "open" else (self.after, self.before)
        boxes = [_net_box(pieces, int(p)) for p in parts]
        # The smallest part is the one that was cut off, or the one that ran into the other.
        where = min((b for b in boxes if b is not None), key=_box_area, default=None)
        if kind == "open":
            text = f"{_net_name(whole, net)} is open: it is in {len(parts)} parts"
        else:
            text = "short between " + " and ".join(_net_name(pieces, int(p)) for p in parts[:4])
            text += f" and {len(parts) - 4} more" if len(parts) > 4 else ""
        return Finding(kind, text, where)


def _device_keys(netlist: Netlist) -> np.ndarray:
    """Class and place of every device as one sortable value."""
    keys = np.empty(len(netlist.device_class), dtype=[("c", np.int64), ("x", np.int64), ("y", np.int64)])
    keys["c"], keys["x"], keys["y"] = netlist.device_class, *netlist.device_xy.T
    return keys


def _pair_moved(
    before: Netlist, after: Netlist, lost: np.ndarray, added: np.ndarray, steps: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, list[int], list[int]]:
    """Pair devices that are not where they were: moved with an instance, else the mutually nearest of a class."""
    pairs: list[tuple[int, int]] = []
    free_before, free_after = set(lost.tolist()), set(added.tolist())
    places = {(int(after.device_class[j]), *after.device_xy[j].tolist()): j for j in added.tolist()}
    for dx, dy in steps:
        for i in sorted(free_before):
            x, y = before.device_xy[i].tolist()
            j = places.get((int(before.device_class[i]), x + 2 * dx, y + 2 * dy))
            if j is not None and j in free_after:
                pairs.append((i, j))
                free_before.discard(i)
                free_after.discard(j)
    reach = 2 * MOVE_TOLERANCE_UM / before.dbu
    for kind in range(len(CLASSES)):
        a = [i for i in sorted(free_before) if before.device_class[i] == kind]
        b = [j for j in sorted(free_after) if after.device_class[j] == kind]
        for m, n in _mutually_nearest(before.device_xy[a], after.device_xy[b], reach):
            pairs.append((a[m], b[n]))
            free_before.discard(a[m])
            free_after.discard(b[n])
    return np.array(pairs, dtype=np.int64).reshape(-1, 2), sorted(free_before), sorted(free_after)


def _pair_labels(
    before: Netlist, after: Netlist, gone: list[int], new: list[int], steps: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """As `_pair_moved`, for labels; only equal texts on the same conductor are paired."""
    pairs: list[tuple[int, int]] = []
    places = {after.labels[k]: k for k in new}
    rest: list[int] = []
    for i in gone:
        text, conductor, x, y = before.labels[i]
        moved = ((text, conductor, x + dx, y + dy) for dx, dy in steps)
        j = next((places.pop(label) for label in moved if label in places), None)
        if j is None:
            rest.append(i)
        else:
            pairs.append((i, j))
    free = sorted(places.values())
    reach = MOVE_TOLERANCE_UM / before.dbu
    for i in list(rest):
        text, conductor, x, y = before.labels[i]
        near = [
            (abs(after.labels[j][2] - x) + abs(after.labels[j][3] - y), j)
            for j in free
            if after.labels[j][:2] == (text, conductor)
        ]
        if near and min(near)[0] <= reach:
            j = min(near)[1]
            pairs.append((i, j))
            rest.remove(i)
            free.remove(j)
    return pairs, rest, free


def _mutually_nearest(a: np.ndarray, b: np.ndarray, reach: float) -> list[tuple[int, int]]:
    if not len(a) or not len(b):
        return []
    distance, to_b = cKDTree(b).query(a, distance_upper_bound=reach)
    _, to_a = cKDTree(a).query(b, distance_upper_bound=reach)
    return [(i, int(j)) for i, j in enumerate(to_b) if np.isfinite(distance[i]) and to_a[j] == i]


def _majority(pairs: np.ndarray) -> dict[int, int]:
    """For each net before, the net after with which it shares most anchors."""
    unique, counts = np.unique(pairs, axis=0, return_counts=True)
    order = np.argsort(counts, kind="stable")
    return {int(g): int(m) for g, m in unique[order]}


def _agree(likely: dict[int, int], old: np.ndarray, new: np.ndarray) -> np.ndarray:
    return np.array([likely[g] for g in old.tolist()], dtype=np.int64).reshape(-1) == new


# -- words ---------------------------------------------------------------------------------------------------------


def _at(where: BBox) -> str:
    return f"({(where[0] + where[2]) / 2:.4g}, {(where[1] + where[3]) / 2:.4g}) um"


def _device_box(netlist: Netlist, i: int) -> BBox:
    x, y = netlist.device_xy[i] * (netlist.dbu / 2)
    half_l, half_w = netlist.device_size[i] / 2
    # Gate lines of standard cells run in y.
    x1, y1, x2, y2 = (round(float(v), 6) for v in (x - half_l, y - half_w, x + half_l, y + half_w))
    return (x1, y1, x2, y2)


def _label_finding(kind: FindingKind, text: str, label: Label, dbu: float) -> Finding:
    name, conductor, x, y = label
    where = (x * dbu, y * dbu, x * dbu, y * dbu)
    return Finding(kind, text.format(f"{name!r} of {conductor} at {_at(where)}"), where)


def _anchor_places(netlist: Netlist, net: int) -> tuple[np.ndarray, list[Label]]:
    """Centres (um) of the devices on a net, and its labels."""
    devices = (netlist.device_nets == net).any(axis=1)
    labels = [netlist.labels[k] for k in np.flatnonzero(netlist.label_nets == net)]
    return netlist.device_xy[devices] * (netlist.dbu / 2), labels


def _net_box(netlist: Netlist, net: int) -> BBox | None:
    places, labels = _anchor_places(netlist, net)
    points = [*places.tolist(), *((x * netlist.dbu, y * netlist.dbu) for _, _, x, y in labels)]
    if not points:
        return None
    xs, ys = zip(*points)
    x1, y1, x2, y2 = (round(v, 6) for v in (min(xs), min(ys), max(xs), max(ys)))
    return (x1, y1, x2, y2)


def _net_name(netlist: Netlist, net: int) -> str:
    places, labels = _anchor_places(netlist, net)
    # Labels of cells, too, lie on nets: of A, Y and clk the one that is on the fewest nets says most.
    texts = {text for text, _, _, _ in labels if not text.startswith(WAY_OUT)}
    spread = {
        text: len({int(n) for label, n in zip(netlist.labels, netlist.label_nets) if label[0] == text})
        for text in texts
    }
    if texts:
        return f"net {min(texts, key=lambda text: (spread[text], text))}"
    if len(places):
        return "the net of the transistor at ({:.4g}, {:.4g}) um".format(*places[0])
    return "a net without devices"


def _box_area(box: BBox) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
