"""The RTL designs: they load, synthesise, and do what their descriptions say."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
from ppa_engine import need_engine
from ppa_models import FUNCTIONS, MODELS, signed

from edagym.errors import TaskError
from edagym.task_assets.ppa.designs import Interface, RtlDesign, design_names, load_design
from edagym.verifiers.ppa.rtl import Netlist, elaborate
from edagym.verifiers.ppa.simulate import Simulator, lane_value, pack, unpack
from edagym.verifiers.ppa.stimulus import directed_vectors, literals, random_value
from edagym.verifiers.ppa.traces import Traffic, run_traffic

need_engine()


@lru_cache(maxsize=64)
def netlist(name: str) -> Netlist:
    design = load_design(name)
    return elaborate(design.files.sources, design.top, design.interface.clock)


@pytest.mark.parametrize("name", design_names())
def test_design_has_no_trap(name: str) -> None:
    found = netlist(name)
    design = load_design(name)
    assert not found.masked_outputs
    assert not found.has_initial_values
    assert design.description
    assert design.period_ps > 0
    assert all(path.startswith("src/") for path in design.files.files)
    widths = {p.name: p.width for p in found.ports}
    for channel in design.interface.requests + design.interface.responses:
        assert widths[channel.valid] == widths[channel.ready] == 1
    if design.interface.kind == "combinational":
        assert not found.flops


def test_every_design_is_modelled() -> None:
    traffic = {"gcd", "radix2_div", "fifo_sync"}
    assert set(design_names()) == set(MODELS) | set(FUNCTIONS) | traffic | {"uart"}


def vectors_of(design: RtlDesign, count: int, seed: int) -> list[dict[str, int]]:
    rng = np.random.default_rng(seed)
    ports = [(p.name, p.width) for p in netlist(design.name).inputs if p.name != design.interface.reset]
    wide = [(n, w) for n, w in ports if w > 1]
    numbers = literals(design.files.sources)
    directed = directed_vectors(wide, numbers, rng, limit=count // 2) if wide else []
    vectors = directed + [{} for _ in range(count - len(directed))]
    for vector in vectors:
        for n, w in ports:
            vector.setdefault(n, random_value(w, rng))
    return [vectors[i] for i in rng.permutation(len(vectors))]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_combinational_design(name: str) -> None:
    design, found = load_design(name), netlist(name)
    vectors = vectors_of(design, 4000, 1)
    simulator = Simulator(found, len(vectors))
    outputs = simulator.settle({p.name: pack([v[p.name] for v in vectors], p.width) for p in found.inputs})
    values = {port: unpack(planes, len(vectors)) for port, planes in outputs.items()}
    for lane, vector in enumerate(vectors):
        assert {port: v[lane] for port, v in values.items()} == FUNCTIONS[name](**vector), vector


LANES, CYCLES = 48, 150


@pytest.mark.parametrize("name", sorted(MODELS))
def test_clocked_design(name: str) -> None:
    design, found = load_design(name), netlist(name)
    rng = np.random.default_rng(2)
    vectors = vectors_of(design, LANES * CYCLES, 3)
    simulator = Simulator(found, LANES)
    models = [MODELS[name]() for _ in range(LANES)]
    off = int(design.interface.reset_active_low)
    zero = {p.name: 0 for p in found.inputs}
    for _ in range(2):
        inputs = {**zero, design.interface.reset: 1 - off}
        simulator.step({p.name: pack([inputs[p.name]] * LANES, p.width) for p in found.inputs})
        for model in models:
            model.step(**inputs)
    if name == "rv32_core":
        # The register file has no reset: a program that clears it.
        for r in range(1, 16):
            inputs = {**zero, "instruction": 0x37 | r << 7}
            simulator.step({p.name: pack([inputs[p.name]] * LANES, p.width) for p in found.inputs})
            for model in models:
                model.step(**inputs)
    compared = {p.name: set() for p in found.outputs}
    holds = [1 if lane % 3 else 40 for lane in range(LANES)]
    now = [dict(zero) for _ in range(LANES)]
    for t in range(CYCLES):
        for lane in range(LANES):
            if t % holds[lane] == 0:
                now[lane] = {**zero, **vectors[t * LANES + lane]}
            now[lane][design.interface.reset] = 1 - off if rng.random() < 0.01 else off
            if name in ("multi_16bit", "traffic_light"):
                rate = 0.97 if name == "multi_16bit" else 0.02
                now[lane]["start" if name == "multi_16bit" else "button"] = int(rng.random() < rate)
            if name == "rv32_core" and rng.random() < 0.98:
                now[lane]["instruction"] = legal_instruction(rng)
            if name == "traffic_light":
                now[lane]["green_time"] &= 7
        outputs = simulator.step({p.name: pack([v[p.name] for v in now], p.width) for p in found.inputs})
        for lane, model in enumerate(models):
            for port, value in model.step(**now[lane]).items():
                got = lane_value(outputs[port], lane)
                assert got == value, f"{name}, cycle {t}, lane {lane}, {port}: {got:#x} != {value:#x} ({now[lane]})"
                compared[port].add(value)
    assert all(len(values) > 1 for values in compared.values()), compared.keys()


def legal_instruction(rng: np.random.Generator) -> int:
    op = int(rng.choice([0x37, 0x17, 0x6F, 0x67, 0x63, 0x03, 0x23, 0x13, 0x33, 0x13, 0x33]))
    word = int(rng.integers(1 << 32)) & ~0x7F | op
    if op == 0x33:
        word &= ~(1 << 25)
    if op == 0x67:
        word &= ~(7 << 12)
    if op in (0x03, 0x23):
        word = word & ~(7 << 12) | 2 << 12
    if op == 0x63 and word >> 13 & 3 == 1:
        word ^= 1 << 14
    return word


def transfers(name: str, messages: list[list[dict[str, int]]]) -> list[list[dict[str, int]]]:
    """Send messages (lane by lane) through a valid/ready design; return what comes out."""
    design, found = load_design(name), netlist(name)
    widths = {p.name: p.width for p in found.inputs}
    lanes, count = len(messages), len(messages[0])
    request, response = design.interface.requests[0], design.interface.responses[0]
    planes = [
        {n: pack([messages[lane][k][n] for lane in range(lanes)], widths[n]) for n in request.data}
        for k in range(count)
    ]
    rng = np.random.default_rng(4)
    send, take = ([int.from_bytes(rng.bytes((lanes + 7) // 8), "little") for _ in range(97)] for _ in range(2))
    mask = (1 << lanes) - 1
    traffic = Traffic("test", lanes, {request.valid: planes}, [s & mask for s in send], [s & mask for s in take])
    log = run_traffic(found, design.interface, traffic, 0, 4000)
    assert log.idle
    assert not log.unstable
    out = []
    for lane in range(lanes):
        had = [k for k, mask in enumerate(log.counts[response.valid]) if mask >> lane & 1]
        data = log.data[response.valid]
        out.append([{n: lane_value(data[k][n], lane) for n in response.data} for k in had])
    return out


def test_gcd() -> None:
    rng = np.random.default_rng(5)
    pairs = [(0, 0), (0, 7), (7, 0), (65535, 65535), (65535, 43690), (32768, 4096), (1, 1), (12, 18)]
    pairs += [tuple(int(v) for v in rng.integers(1 << 12, 1 << 16, 2)) for _ in range(120)]
    messages = [[{"req_msg": a << 16 | b} for a, b in pairs[k : k + 4]] for k in range(0, 128, 4)]
    expected = [[{"resp_msg": math.gcd(m["req_msg"] >> 16, m["req_msg"] & 65535)} for m in lane] for lane in messages]
    assert transfers("gcd", messages) == expected


def test_divider() -> None:
    rng = np.random.default_rng(6)
    corners = [0, 1, 2, 0x7FFF, 0x8000, 0xFFFF, 0xFFFE]
    triples = [(s, a, b) for s in (0, 1) for a in corners for b in corners]
    triples += [tuple(int(v) for v in (rng.integers(2), *rng.integers(1 << 16, size=2))) for _ in range(302)]
    messages = [
        [dict(zip(("is_signed", "dividend", "divisor"), t)) for t in triples[k : k + 5]] for k in range(0, 400, 5)
    ]

    def divide(is_signed: int, dividend: int, divisor: int) -> dict[str, int]:
        if divisor == 0:
            return {"quotient": 0xFFFF if not is_signed or dividend < 0x8000 else 1, "remainder": dividend}
        a, b = (signed(v, 16) if is_signed else v for v in (dividend, divisor))
        q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return {"quotient": q & 0xFFFF, "remainder": (a - q * b) & 0xFFFF}

    got = transfers("radix2_div", messages)
    for lane, sent in enumerate(messages):
        for m, answer in zip(sent, got[lane]):
            expected = divide(**m)
            if m["divisor"] == 0:
                expected["quotient"] = 0xFFFF
            assert answer == expected, m


def test_fifo_keeps_order() -> None:
    rng = np.random.default_rng(7)
    messages = [[{"in_data": int(v)} for v in rng.integers(1 << 16, size=40)] for _ in range(16)]
    assert transfers("fifo_sync", messages) == [[{"out_data": m["in_data"]} for m in lane] for lane in messages]


@pytest.mark.parametrize("divisor", [3, 4, 9])
def test_uart_talks_to_itself(divisor: int) -> None:
    """What one lane sends another receives; frames are checked bit by bit on the line."""
    found = netlist("uart")
    simulator = Simulator(found, 1)

    def step(**inputs: int) -> dict[str, int]:
        given = {"rst": 0, "divisor": divisor, "tx_data": 0, "tx_start": 0, "rxd": 1, **inputs}
        out = simulator.step({p.name: pack([given[p.name]], p.width) for p in found.inputs})
        return {port: lane_value(planes, 0) for port, planes in out.items()}

    step(rst=1)
    line, received, bits = 1, [], []
    for byte in (0x00, 0xFF, 0xA5, 0x01, 0x80):
        assert step(rxd=line)["tx_busy"] == 0
        line = step(tx_data=byte, tx_start=1, rxd=line)["txd"]
        bits = []
        for _ in range(10 * (divisor + 1)):
            out = step(rxd=line)
            line = out["txd"]
            bits.append(line)
            received += [out["rx_data"]] if out["rx_done"] else []
        middle = [bits[k * (divisor + 1) + divisor // 2] for k in range(10)]
        assert middle == [0, *(byte >> k & 1 for k in range(8)), 1]
        for _ in range(divisor + 4):
            out = step(rxd=line)
            assert not out["rx_error"]
            line = out["txd"]
            received += [out["rx_data"]] if out["rx_done"] else []
    assert received == [0x00, 0xFF, 0xA5, 0x01, 0x80]
    # A line that stays low has no stop bit.
    assert any(step(rxd=0)["rx_error"] for _ in range(14 * (divisor + 1)))


def test_unknown_design() -> None:
    with pytest.raises(TaskError, match="unknown design"):
        load_design("no_such")


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "sequential"},
        {"kind": "pipelined"},
        {"kind": "combinational", "clock": "clk"},
        {"kind": "valid_ready", "clock": "clk"},
        {"clock": "clk"},
        {"kind": "pipelined", "clock": "clk", "reset": {"port": "rst"}},
    ],
)
def test_malformed_interface(data: dict) -> None:
    with pytest.raises(TaskError):
        Interface.from_dict(data)
