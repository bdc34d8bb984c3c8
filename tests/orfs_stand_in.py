"""A stand-in for OpenROAD-flow-scripts: a checkout with a `make` that writes logs and reports in the real format.

The numbers are invented and hang together: worst slack = period - effective period, the power table adds up.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

PERIOD = 300.0
SLACK, TNS = -12.345, -40.5
POWER = (6.5e-05, 3.25e-05, 2.5e-08)
STAGES = ("1_synth", "2_1_floorplan", "3_3_place_gp", "3_5_place_dp", "4_1_cts", "5_2_route", "6_report")
PATH = """\
Startpoint: _1_ (rising edge-triggered flip-flop clocked by {clock})
Endpoint: sum[4] (output port clocked by {clock})
Path Group: {clock}
Path Type: max

Fanout     Cap    Slew   Delay    Time   Description
-----------------------------------------------------------------------------
                  0.00    0.00    0.00   clock {clock} (rise edge)
                 10.00    0.00   20.00 ^ _1_/CLK (DFFHQNx1_ASAP7_75t_R)
     2    1.10   20.00   30.00   50.00 v _1_/QN (DFFHQNx1_ASAP7_75t_R)
                                         _n1_ (net)
     1    0.50    9.00   15.50   65.50 ^ _2_/Y (INVx1_ASAP7_75t_R)
                                         sum[4] (net)
                  9.00    0.00   65.50 ^ sum[4] (out)
                                 65.50   data arrival time

                  0.00  300.00  300.00   clock {clock} (rise edge)
                                300.00   data required time
-----------------------------------------------------------------------------
                                {slack:.2f}   slack ({verdict})

"""


def section(title: str, body: str) -> str:
    return f"\n{'=' * 74}\nfinish {title}\n{'-' * 74}\n{body}"


def finish_report(clocks: dict[str, float] | None = None, slack: float = SLACK, tns: float = TNS) -> str:
    """Return a finish report; `clocks` maps a clock to its smallest period, ps."""
    clocks = {"core_clock": PERIOD - slack} if clocks is None else clocks
    verdict = "VIOLATED" if slack < 0 else "MET"
    periods = "".join(f"{c} period_min = {p:.2f} fmax = {1e6 / p if p else 1e30:.2f}\n" for c, p in clocks.items())
    easy = PATH.format(clock="easy_clock", slack=slack + 100, verdict="MET")
    rows = {"Sequential": 0.25, "Combinational": 0.5, "Clock": 0.25, "Macro": 0.0, "Pad": 0.0}
    table = "".join(
        f"{name:<20} " + " ".join(f"{share * p:10.2e}" for p in (*POWER, sum(POWER))) + f" {100 * share:5.1f}%\n"
        for name, share in rows.items()
    )
    total = f"{'Total':<20} " + " ".join(f"{p:10.2e}" for p in (*POWER, sum(POWER))) + " 100.0%\n"
    return "".join(
        (
            section("report_tns", f"tns max {tns:.2f}\n"),
            section("report_wns", f"wns max {min(slack, 0):.2f}\n"),
            section("report_worst_slack", f"worst slack max {slack:.2f}\n"),
            section("report_clock_min_period", periods),
            section("report_checks -path_delay min", PATH.format(clock="core_clock", slack=-200.0, verdict="VIOLATED")),
            section(
                "report_checks -path_delay max", easy + PATH.format(clock="core_clock", slack=slack, verdict=verdict)
            ),
            section("setup_violation_count", "setup violation count 3\n"),
            section("report_power", f"Group  Internal  Switching  Leakage  Total\n{table}{'-' * 64}\n{total}"),
            f"{'':20}      66.6%      33.3%       0.0%\n",
        )
    )


def stage_metrics(stage: str) -> dict[str, object]:
    """Return what a stage's JSON file holds."""
    if stage == "2_1_floorplan":
        return {"run__flow__platform__time_units": "1ps", "floorplan__design__core__area": 90.25}
    if stage == "5_2_route":
        return {"detailedroute__route__drc_errors": 0, "detailedroute__route__wirelength": 512}
    if stage == "6_report":
        return {
            "finish__timing__setup__tns": TNS,
            "finish__timing__setup__ws": SLACK,
            "finish__power__internal__total": POWER[0],
            "finish__power__switching__total": POWER[1],
            "finish__power__leakage__total": POWER[2],
            "finish__power__total": sum(POWER),
            "finish__design__die__area": 110.25,
            "finish__design__core__area": 90.25,
            "finish__timing__drv__max_fanout_limit": 1e30,
        }
    return {"flow__warnings__count": 1, "flow__errors__count": 0}


SYNTH_STAT = """\

20. Printing statistics.

=== adder ===

        +----------Local Count, excluding submodules.
        |        +-Local Area, excluding submodules.
        |        |
       30        - wires
       25   12.345 cells
       20   10.000   INVx1_ASAP7_75t_R
        5    2.345   DFFHQNx1_ASAP7_75t_R

   Chip area for module '\\adder': 12.345000
     of which used for sequential elements: 2.345000 (19.00%)
"""


def run(arguments: list[str], plan: dict) -> int:
    """Be `make`.

    Args:
        arguments: The command line.
        plan: ``stop``: name of the stage to stop at; ``say``: what to print there; ``code``: exit status; ``hang``:
            whether to start a child and wait; ``files``: path (relative to reports or logs of the design) -> text, None
            to leave it out; ``record``: file to write the command line and environment to.
    """
    import os
    import subprocess

    given = dict(a.split("=", 1) for a in arguments if "=" in a)
    if plan.get("record"):
        Path(plan["record"]).write_text(json.dumps({"arguments": arguments, "environment": dict(os.environ)}))
    tail = "asap7/adder/base"
    logs, reports = (Path(given["WORK_HOME"], kind, tail) for kind in ("logs", "reports"))
    files: dict[str, str | None] = {"reports/synth_stat.txt": SYNTH_STAT, "reports/6_finish.rpt": finish_report()}
    files |= {f"logs/{s}.json": json.dumps(stage_metrics(s), indent=1) for s in STAGES}
    files |= plan.get("files", {})
    for stage in STAGES:
        print(f"Running {stage.split('_', 1)[1]}.tcl, stage {stage}", flush=True)
        if stage == plan.get("stop"):
            print(plan.get("say", ""), flush=True)
            if plan.get("hang"):
                child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                Path(plan["hang"]).write_text(f"{os.getpid()} {child.pid}")
                time.sleep(600)
            print(f"make: *** [Makefile:9: {logs}/{stage}.log] Error {plan.get('code', 1)}")
            return int(plan.get("code", 2))
        for path, text in files.items():
            kind, name = path.split("/")
            last = "1_synth" if name == "synth_stat.txt" else "6_report" if kind == "reports" else name[:-5]
            if last == stage and text is not None:
                folder = logs if kind == "logs" else reports
                folder.mkdir(parents=True, exist_ok=True)
                folder.joinpath(name).write_text(text)
    return 0


def install(bin_folder: Path, checkout: Path, plan: Path) -> None:
    """Write a checkout and a `make` that follows a plan, a JSON file."""
    checkout.joinpath("flow").mkdir(parents=True)
    checkout.joinpath("flow/Makefile").write_text("# stands in for the flow's\n")
    bin_folder.mkdir()
    make = bin_folder / "make"
    make.write_text(
        f"#!{sys.executable} -S\n"
        "import json, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from orfs_stand_in import run\n"
        f"sys.exit(run(sys.argv[1:], json.load(open({str(plan)!r}))))\n"
    )
    make.chmod(0o755)
