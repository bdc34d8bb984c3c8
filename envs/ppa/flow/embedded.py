"""`EmbeddedFlow`: RTL to report in one process: synthesis, floorplan, placement, clock tree, repair, timing, power.

The stages and their order are those of OpenROAD-flow-scripts, and so are the names of the metrics. All that a knob does
comes from the stage that it belongs to; a knob that no stage models gives a warning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from edagym.envs.ppa.flow import buffering, cts
from edagym.envs.ppa.flow.backend import FlowResult, Placement
from edagym.envs.ppa.flow.constraints import Clock, Constraints, PortDelay
from edagym.envs.ppa.flow.floorplan import ROW, SITE, Floorplan, make_floorplan
from edagym.envs.ppa.flow.legalise import legalise
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.place import place
from edagym.envs.ppa.flow.power import PowerReport, power
from edagym.envs.ppa.flow.repair import Repair, RepairOptions
from edagym.envs.ppa.flow.sta import Timing
from edagym.envs.ppa.flow.synth import SynthOptions, synthesise
from edagym.envs.ppa.flow.wires import Places
from edagym.errors import FlowError
from edagym.task_assets.ppa.config import FlowConfig, parse_config
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.sdc import Constraints as SDC
from edagym.task_assets.ppa.sdc import FalsePath, parse_sdc
from edagym.task_assets.ppa.technology import load_technology
from edagym.verifiers.ppa import yosys
from edagym.verifiers.ppa.report import PPAReport

FLOW_VERSION = 1
"""Counts up whenever a stage gives other numbers; part of `EmbeddedFlow.engine`."""
MAX_CELLS = 150_000
"""Largest netlist that is implemented."""
CRITICAL_WEIGHT = 3.0
"""Extra weight of the most critical net in timing-driven placement."""
CRITICAL_SHARE = 0.1
"""Share of nets, worst first, that timing-driven placement makes heavier."""


@dataclass
class Stages:
    """CPU time per stage of one run, s."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a stage."""
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start


class EmbeddedFlow:
    """The embedded flow as a `FlowBackend`.

    Args:
        cache: Whether synthesis results are kept and looked up.
        timeout_s: Wall-clock limit of synthesis, seconds.

    Attributes:
        stages: CPU time per stage of the latest run.
    """

    name = "embedded"

    def __init__(self, cache: bool = True, timeout_s: float = yosys.TIMEOUT_S) -> None:
        self.cache, self.timeout_s = cache, timeout_s
        self.stages = Stages()

    @property
    def engine(self) -> str:
        """Versions that the numbers depend on."""
        return f"edagym-flow {FLOW_VERSION}, {yosys.engine()}"

    def run(self, design: DesignFiles) -> FlowResult:
        """Run the whole flow; see `FlowBackend.run`."""
        self.stages = Stages()
        config = parse_config(design.one(".mk")[1])
        sdc = parse_sdc(design.one(".sdc")[1])
        if config.value("CORNER") != "BC":
            message = "the embedded flow has tables of one corner only"
            raise FlowError(message, field="CORNER", value=config.value("CORNER"), allowed="BC")
        vts = config.names("ASAP7_USE_VT")
        with self.stages.stage("synth"):
            options = SynthOptions(config.design_name, vts[0], config.flag("ABC_AREA"))
            result = synthesise(design.sources, options, cache=self.cache, timeout_s=self.timeout_s)
            netlist = result.netlist(load_technology())
        cells = sum(result.counts.values())
        if cells > MAX_CELLS:
            raise FlowError("too many cells for the embedded flow", field="floorplan", value=cells, allowed=MAX_CELLS)
        constraints, notes = timing_constraints(sdc, netlist)
        implementation = Implementation(netlist, result.area, config, constraints, self.stages)
        implementation.run()
        warnings = (*config.embedded_warnings(), *sdc.warnings(), *notes, *implementation.warnings)
        return implementation.result(self.engine, tuple(dict.fromkeys(warnings)))


def timing_constraints(sdc: SDC, netlist: Netlist) -> tuple[Constraints, list[str]]:
    """Return constraints as the timing engine takes them, and what is left out, one sentence each.

    Raises:
        FlowError: If a clock's port is no input of the design.
    """
    inputs = [n for n, is_input in zip(netlist.port_name, netlist.port_input, strict=True) if is_input]
    outputs = [n for n, is_input in zip(netlist.port_name, netlist.port_input, strict=True) if not is_input]
    for port in sdc.clock_ports:
        if port not in inputs:
            raise FlowError("a clock enters by a port that the design does not have", field="constraints", value=port)
    cut_in: set[str] = set()
    cut_out: set[str] = set()
    exclusive: set[tuple[str, str]] = set()
    notes = []
    for cut in sdc.false_paths:
        if not _apply_cut(cut, sdc, (inputs, outputs), (cut_in, cut_out), exclusive):
            notes.append("a set_false_path that is neither from inputs, to outputs nor between clocks is not modelled")
    arrivals = sdc.delays("input", inputs, outputs)
    needs = sdc.delays("output", inputs, outputs)
    return (
        Constraints(
            tuple(Clock(c.name, c.period, c.port or None) for c in sdc.clocks),
            tuple(PortDelay(p, c, d) for p, (c, d) in arrivals.items() if p not in cut_in and p in inputs),
            tuple(PortDelay(p, c, d) for p, (c, d) in needs.items() if p not in cut_out and p in outputs),
            frozenset(exclusive),
            sdc.max_fanout,
        ),
        notes,
    )


def _apply_cut(
    cut: FalsePath,
    sdc: SDC,
    ports: tuple[Sequence[str], Sequence[str]],
    cuts: tuple[set[str], set[str]],
    exclusive: set[tuple[str, str]],
) -> bool:
    """Enter a path exception; returns False if it has a form that is not modelled."""
    start, end = cut.start, cut.end
    if cut.through is not None:
        return False
    if start is not None and end is not None and start.kind == end.kind == "clocks":
        names = [c.name for c in sdc.clocks]
        exclusive.update((a, b) for a in start.names or names for b in end.names or names)
        return True
    if start is not None and end is None and start.kind in ("inputs", "ports"):
        cuts[0].update(start.select(*ports, sdc.clock_ports))
        return True
    if end is not None and start is None and end.kind in ("outputs", "ports"):
        cuts[1].update(end.select(*ports, sdc.clock_ports))
        return True
    return False


class Implementation:
    """One netlist on its way through the physical stages.

    Args:
        netlist: Mapped netlist; changed in place.
        synth_area: Its area after synthesis, um2.
        config: Knobs.
        constraints: Clocks and port delays.
        stages: Where times are noted.
    """

    def __init__(
        self, netlist: Netlist, synth_area: float, config: FlowConfig, constraints: Constraints, stages: Stages
    ) -> None:
        self.netlist = netlist
        self.config = config
        self.constraints = constraints
        self.stages = stages
        self.warnings: list[str] = []
        self.metrics: dict[str, float] = {}
        self.vts = config.names("ASAP7_USE_VT")
        self.clock_ports = [c.source for c in constraints.clocks if c.source is not None]
        with stages.stage("floorplan"):
            utilization = config.optional("CORE_UTILIZATION")
            self.plan = make_floorplan(
                synth_area,
                utilization,
                config.number("CORE_ASPECT_RATIO"),
                config.number("CORE_MARGIN"),
                config.box("DIE_AREA"),
                config.box("CORE_AREA"),
            )
        self.places = Places(netlist, self.plan)
        self.metrics["synth__design__instance__area"] = synth_area
        self.metrics["synth__design__instance__count"] = sum(1 for _ in netlist.instances())
        self.timing: Timing
        self.power: PowerReport
        self.repair: Repair

    def run(self) -> None:
        """Run all stages."""
        config = self.config
        with self.stages.stage("floorplan"):
            buffering.one_tie_per_load(self.netlist)
            self._area_metrics("floorplan")
        with self.stages.stage("place"):
            self._place()
        with self.stages.stage("cts"):
            cts.build_tree(self.netlist, self.places, self.vts[0], int(config.number("CTS_CLUSTER_SIZE")))
            self.places.route(self.netlist.nets())
            self.timing = Timing(self.netlist, self.constraints, propagated=True)
            self._timing_metrics("cts")
        with self.stages.stage("repair"):
            self._repair()
        with self.stages.stage("legalise"):
            self._legalise()
            self.timing.refresh()
        with self.stages.stage("power"):
            self.power = power(self.timing)
        self._area_metrics("finish")
        self._timing_metrics("finish")

    # -- placement -----------------------------------------------------------------------------------------------------

    def _place(self) -> None:
        config, netlist, places = self.config, self.netlist, self.places
        timing_driven = config.flag("GPL_TIMING_DRIVEN")
        if timing_driven:
            # As in the real flow: buffers of the mapper are in the placer's way and come back where timing needs them.
            buffering.remove_buffers(netlist)
        buffering.buffer_ports(
            netlist,
            self.vts[0],
            self.clock_ports,
            inputs=not config.flag("DONT_BUFFER_INPUTS"),
            outputs=not config.flag("DONT_BUFFER_OUTPUTS"),
        )
        for net in cts.clock_nets(netlist):
            netlist.set_clock(net)
        insts = list(netlist.instances())
        self._check_room(insts)
        graph = places.hypergraph(insts)
        density = self._density(graph.widths)
        centres = place(graph, self.plan, density)
        self._take(insts, centres)
        if timing_driven:
            timing = Timing(netlist, self.constraints)
            weights = _critical_weights(timing.net_slacks())
            timing.close()
            self._take(insts, place(places.hypergraph(insts, weights), self.plan, density, centres))
        if self.constraints.max_fanout is not None:
            buffering.limit_fanout(netlist, places, self.constraints.max_fanout, self.vts[0])
        buffering.limit_load(netlist, places, self.vts[0])
        places.route(netlist.nets())
        self._area_metrics("globalplace")
        self.metrics["globalplace__route__wirelength__estimated"] = places.length()

    def _density(self, widths: np.ndarray) -> float:
        """Return the target density: as asked, or the lowest possible plus a share of the rest."""
        addon = self.config.optional("PLACE_DENSITY_LB_ADDON")
        if addon is None:
            return self.config.number("PLACE_DENSITY")
        lowest = float(widths.sum()) / max(_free_sites(self.plan), 1)
        return lowest + addon * (1 - lowest)

    def _check_room(self, insts: Sequence[int]) -> None:
        used = int(self.places.widths(insts).sum())
        if used > _free_sites(self.plan):
            raise FlowError(
                "placement infeasible: the cells do not fit into the core",
                field="place",
                value=f"utilisation {used / max(_free_sites(self.plan), 1):.1%}",
                allowed="at most 100 %",
            )

    def _take(self, insts: Sequence[int], centres: np.ndarray) -> None:
        places = self.places
        rows = centres.tolist()
        for inst, (x, y) in zip(insts, rows, strict=False):
            places.put(inst, x, y)
        for port, (x, y) in enumerate(rows[len(insts) :]):
            places.port_x[port], places.port_y[port] = x, y
        places.route(self.netlist.nets())

    # -- repair --------------------------------------------------------------------------------------------------------

    def _repair(self) -> None:
        config = self.config
        options = RepairOptions(
            setup_margin=config.number("SETUP_SLACK_MARGIN"),
            hold_margin=config.number("HOLD_SLACK_MARGIN"),
            tns_percent=config.number("TNS_END_PERCENT"),
            pin_swap=not config.flag("SKIP_PIN_SWAP"),
            cloning=not config.flag("SKIP_GATE_CLONING"),
            buffering=not config.flag("SKIP_BUFFERING"),
            buffer_removal=not config.flag("SKIP_BUFFER_REMOVAL"),
            vt_swap=not config.flag("SKIP_VT_SWAP"),
            critical_vt_swap=not config.flag("SKIP_CRIT_VT_SWAP"),
            last_gasp=not config.flag("SKIP_LAST_GASP"),
            vts=self.vts,
            recover_power=config.number("RECOVER_POWER"),
        )
        self.repair = Repair(self.netlist, self.places, self.timing, options)
        if not config.flag("SKIP_CTS_REPAIR_TIMING"):
            self.repair.setup()
        self.repair.recover_power()
        self.repair.hold()

    def _legalise(self) -> None:
        insts = list(self.netlist.instances())
        self._check_room(insts)
        widths = self.places.widths(insts)
        corners = legalise(widths, self.places.centres(insts), self.plan)
        centres = corners + np.column_stack([widths * SITE / 2, np.full(len(insts), ROW / 2)])
        for inst, (x, y) in zip(insts, centres.tolist(), strict=True):
            self.places.put(inst, x, y)
        self.places.route(self.netlist.nets())

    # -- results -------------------------------------------------------------------------------------------------------

    def _area_metrics(self, stage: str) -> None:
        area = self.netlist.area() + self.plan.tap_cells * 2 * SITE * ROW / 1e6
        self.metrics[f"{stage}__design__instance__area"] = area
        self.metrics[f"{stage}__design__instance__count"] = (
            sum(1 for _ in self.netlist.instances()) + self.plan.tap_cells
        )
        self.metrics[f"{stage}__design__instance__utilization"] = area / self.plan.core_area

    def _timing_metrics(self, stage: str) -> None:
        slacks = self.timing.endpoint_slacks()
        worst = float(slacks.min(initial=np.inf))
        if np.isfinite(worst):
            self.metrics[f"{stage}__timing__setup__ws"] = worst
            self.metrics[f"{stage}__timing__setup__wns"] = min(worst, 0.0)
        self.metrics[f"{stage}__timing__setup__tns"] = float(np.minimum(slacks, 0.0).sum())
        self.metrics[f"{stage}__timing__drv__setup_violation_count"] = int((slacks < 0).sum())

    def result(self, engine: str, warnings: tuple[str, ...]) -> FlowResult:
        """Return report and pictures of a finished implementation."""
        netlist, places, watts = self.netlist, self.places, self.power
        metrics = self.metrics
        metrics["finish__design__die__area"] = self.plan.die_area
        metrics["finish__design__core__area"] = self.plan.core_area
        metrics["finish__power__internal__total"] = watts.internal
        metrics["finish__power__switching__total"] = watts.switching
        metrics["finish__power__leakage__total"] = watts.leakage
        metrics["finish__power__total"] = watts.total
        metrics["finish__route__wirelength__estimated"] = places.length()
        hold = self.timing.hold_slacks()
        if np.isfinite(hold).any():
            metrics["finish__timing__hold__ws"] = float(hold.min())
        metrics["finish__timing__drv__hold_violation_count"] = int((hold < 0).sum())
        for kind, count in sorted(self.repair.counts.items()):
            metrics[f"repair__{kind}__count"] = count
        period = self.timing.effective_period()
        report = PPAReport(
            "embedded",
            engine,
            round(period, 3),
            watts.total,
            self.plan.die_area,
            {name: round(value, 6) if abs(value) > 1e-2 else value for name, value in metrics.items()},
            warnings,
        )
        slacks = self.timing.endpoint_slacks()
        return FlowResult(
            report,
            tuple(self.timing.describe(self.timing.path())),
            np.sort(slacks[np.isfinite(slacks)]),
            self._placement(netlist, places),
        )

    def _placement(self, netlist: Netlist, places: Places) -> Placement:
        insts = list(netlist.instances())
        centres = places.centres(insts) / 1000
        half = np.column_stack([places.widths(insts) * SITE / 2000, np.full(len(insts), ROW / 2000)])
        plan: Floorplan = self.plan
        return Placement(
            _um(plan.die),
            _um(plan.core),
            tuple(netlist.inst_name[i] for i in insts),
            tuple(netlist.master(i).name for i in insts),
            np.hstack([centres - half, centres + half]),
            self.timing.inst_slacks()[insts],
        )


def _critical_weights(slacks: np.ndarray) -> list[float]:
    """Return net weights: 1, and up to `CRITICAL_WEIGHT` more for the nets with the least slack."""
    weights = np.ones(len(slacks))
    finite = np.isfinite(slacks)
    if finite.any():
        worst = float(slacks[finite].min())
        edge = float(np.quantile(slacks[finite], CRITICAL_SHARE))
        if edge > worst:
            share = np.clip((edge - slacks) / (edge - worst), 0.0, 1.0)
            weights += np.where(finite, CRITICAL_WEIGHT * share, 0.0)
    return [float(w) for w in weights]


def _free_sites(plan: Floorplan) -> int:
    return plan.rows * plan.sites - plan.tap_cells * 2


def _um(box: tuple[int, int, int, int]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = (v / 1000 for v in box)
    return (x1, y1, x2, y2)
