"""What each modelled knob does, on a design where it matters: the mechanism and the direction."""

import numpy as np
import pytest
from ppa_runs import moves, report, run

from edagym.errors import FlowError

TNS = "finish__timing__setup__tns"
AREA = "finish__design__instance__area"
LENGTH = "finish__route__wirelength__estimated"


def test_abc_area_changes_the_mapping():
    speed, area = report("gcd", 250), report("gcd", 250, ABC_AREA="1")
    names = ("synth__design__instance__count", "synth__design__instance__area")
    assert all(speed.metrics[name] != area.metrics[name] for name in names)
    # On this design, as in the real flow, the recipe named "area" gives the larger netlist.
    assert area.die_area > speed.die_area
    assert area.total_power > speed.total_power


def test_lower_threshold_is_faster_and_hotter():
    slow, mid, fast = (report("gcd", 310, ASAP7_USE_VT=vt) for vt in ("RVT", "LVT", "SLVT"))
    assert slow.effective_period > mid.effective_period > fast.effective_period
    leakage = [r.metrics["finish__power__leakage__total"] for r in (slow, mid, fast)]
    assert leakage[0] < leakage[1] < leakage[2]
    assert fast.total_power > slow.total_power


def test_utilisation_shrinks_the_die_until_nothing_fits():
    loose, tight = report("gcd", 250), report("gcd", 250, CORE_UTILIZATION="70", PLACE_DENSITY="0.85")
    assert tight.die_area < 0.6 * loose.die_area
    assert tight.metrics["finish__design__instance__utilization"] > 0.7
    with pytest.raises(FlowError, match="infeasible") as error:
        run("gcd", 250, CORE_UTILIZATION="95", PLACE_DENSITY="0.9")
    assert error.value.field == "place"


def test_aspect_ratio_and_margin():
    base = run("gcd", 310)
    tall = run("gcd", 310, CORE_ASPECT_RATIO="2")
    x1, y1, x2, y2 = tall.placement.core
    assert (y2 - y1) / (x2 - x1) == pytest.approx(2, rel=0.1)
    assert report("gcd", 310, CORE_MARGIN="2").die_area > base.report.die_area


def test_density_spreads_the_cells():
    dense, thin = run("sub_64bit", 600, PLACE_DENSITY="0.8"), run("sub_64bit", 600, PLACE_DENSITY="0.35")
    spread = [float(np.std(r.placement.boxes[:, :2], axis=0).sum()) for r in (dense, thin)]
    assert spread[1] > 1.1 * spread[0]
    lengths = [r.report.metrics["globalplace__route__wirelength__estimated"] for r in (dense, thin)]
    assert lengths[1] > lengths[0]


def test_density_addon_starts_at_the_lowest_density():
    assert (
        report("gcd", 310, PLACE_DENSITY_LB_ADDON="0.02").metrics["globalplace__route__wirelength__estimated"]
        > report("gcd", 310, PLACE_DENSITY_LB_ADDON="0.6").metrics["globalplace__route__wirelength__estimated"]
    )


def test_shorter_clock_period_makes_repair_work_and_costs_power():
    tight, loose = report("gcd", 250), report("gcd", 360)
    assert tight.effective_period < loose.effective_period
    assert tight.total_power > loose.total_power
    assert tight.metrics[AREA] > loose.metrics[AREA]
    assert tight.metrics[TNS] < loose.metrics[TNS]


def test_slack_margin_is_aimed_for():
    base, more = report("gcd", 360), report("gcd", 360, SETUP_SLACK_MARGIN="40")
    assert more.effective_period < base.effective_period - 10
    assert more.metrics[AREA] > base.metrics[AREA]
    less = report("gcd", 310, SETUP_SLACK_MARGIN="-60")
    assert less.effective_period > report("gcd", 310).effective_period
    assert less.metrics[AREA] < report("gcd", 310).metrics[AREA]


def test_tns_percentage_leaves_endpoints_alone():
    every, worst = report("gcd", 200), report("gcd", 200, TNS_END_PERCENT="0")
    assert worst.metrics[TNS] < 1.05 * every.metrics[TNS]
    assert worst.metrics[AREA] < every.metrics[AREA]


@pytest.mark.parametrize(
    ("switch", "kind", "case"),
    [
        ("SKIP_PIN_SWAP", "swap", ("gcd", 225, {"ASAP7_USE_VT": "SLVT"})),
        ("SKIP_GATE_CLONING", "clone", ("adder_pipe_64bit", 150, {"ABC_AREA": "1"})),
        ("SKIP_BUFFERING", "buffer", ("gcd", 250, {})),
        ("SKIP_BUFFER_REMOVAL", "unbuffer", ("gcd", 280, {})),
    ],
)
def test_a_switch_takes_a_move_away(switch, kind, case):
    name, period, knobs = case
    with_move, without = report(name, period, **knobs), report(name, period, **knobs, **{switch: "1"})
    assert moves(with_move, kind) > 0
    assert moves(without, kind) == 0
    assert without.effective_period > with_move.effective_period


def test_last_gasp_works_on_the_worst_path():
    base = report("gcd", 250, ABC_AREA="1")
    assert report("gcd", 250, ABC_AREA="1", SKIP_LAST_GASP="1").effective_period > base.effective_period


def test_skipping_the_repair_after_the_clock_tree_leaves_the_slack():
    base, skipped = report("gcd", 250), report("gcd", 250, SKIP_CTS_REPAIR_TIMING="1")
    assert skipped.effective_period > base.effective_period + 20
    assert not any(moves(skipped, kind) for kind in ("size", "buffer", "clone", "swap", "unbuffer"))


def test_threshold_swaps_need_several_thresholds_and_their_switches():
    both = {"ASAP7_USE_VT": "RVT SLVT"}
    one = report("gcd", 250)
    swapped = report("gcd", 250, **both)
    only_last = report("gcd", 250, **both, SKIP_VT_SWAP="1")
    none = report("gcd", 250, **both, SKIP_VT_SWAP="1", SKIP_CRIT_VT_SWAP="1")
    assert moves(swapped, "vt") > 0
    assert moves(none, "vt") == 0
    assert none.effective_period == one.effective_period
    assert swapped.effective_period < one.effective_period
    assert only_last.effective_period < one.effective_period
    masters = run("gcd", 250, **both).placement.masters
    assert {name.rsplit("_", 1)[1] for name in masters} == {"R", "SL"}


def test_power_recovery_trades_spare_slack_for_power():
    base, half, full = (report("gcd", 360, RECOVER_POWER=share) for share in ("0", "50", "100"))
    assert moves(base, "recover") == 0
    assert 0 < moves(half, "recover") < moves(full, "recover")
    assert base.total_power > half.total_power > full.total_power
    assert full.effective_period < base.effective_period + 5


def test_power_recovery_uses_a_higher_threshold():
    base, full = (report("gcd", 360, ASAP7_USE_VT="SLVT RVT", RECOVER_POWER=share) for share in ("0", "100"))
    leakage = [r.metrics["finish__power__leakage__total"] for r in (base, full)]
    assert leakage[1] < 0.5 * leakage[0]


def test_timing_driven_placement_helps_the_endpoints():
    driven, not_driven = report("gcd", 280), report("gcd", 280, GPL_TIMING_DRIVEN="0")
    assert driven.metrics[TNS] > not_driven.metrics[TNS]
    assert driven.effective_period < not_driven.effective_period


def test_cluster_size_gives_more_leaves_and_more_clock_power():
    base, small = run("gcd", 310), run("gcd", 310, CTS_CLUSTER_SIZE="3")
    leaves = [sum(name.startswith("clkbuf_leaf") for name in r.placement.names) for r in (base, small)]
    assert leaves == [4, 16]


def test_fan_out_limit_buffers_wide_nets():
    from ppa_runs import design

    from edagym.envs.ppa.flow.embedded import EmbeddedFlow

    files = design("gcd", 310, SKIP_CTS_REPAIR_TIMING="1")
    path, text = files.one(".sdc")
    limited = EmbeddedFlow().run(files.replaced(path, text + "set_max_fanout 6 [current_design]\n")).report
    base = report("gcd", 310, SKIP_CTS_REPAIR_TIMING="1")
    assert (
        limited.metrics["globalplace__design__instance__count"] > base.metrics["globalplace__design__instance__count"]
    )
    assert limited.metrics[AREA] > base.metrics[AREA]


def test_ports_without_buffers():
    base = run("gcd", 310)
    bare = {kind: run("gcd", 310, **{f"DONT_BUFFER_{kind}S": "1"}) for kind in ("INPUT", "OUTPUT")}
    for kind, made in bare.items():
        stem = kind.lower()
        assert sum(name.startswith(stem) for name in base.placement.names) > 10
        assert not any(name.startswith(stem) for name in made.placement.names)
        assert made.report.metrics[AREA] < base.report.metrics[AREA]


def test_hold_margin_adds_delay():
    base, more = (report("adder_pipe_64bit", 200, HOLD_SLACK_MARGIN=margin) for margin in ("0", "15"))
    assert moves(more, "hold") > moves(base, "hold") > 0
    assert more.metrics["finish__timing__hold__ws"] > base.metrics["finish__timing__hold__ws"]
