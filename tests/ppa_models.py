"""Executable models of the PPA designs, written from their descriptions and not from their Verilog.

A model is a class with `step(**inputs) -> outputs before the clock edge`; combinational models are functions. Float
models use numpy's IEEE arithmetic.
"""

from __future__ import annotations

import binascii
from collections import deque

import numpy as np

M16, M32, M64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def adder32(A: int, B: int) -> dict[str, int]:
    return {"S": (A + B) & M32, "C32": (A + B) >> 32}


def sub_64bit(A: int, B: int) -> dict[str, int]:
    exact = signed(A, 64) - signed(B, 64)
    return {"result": exact & M64, "overflow": int(not -(1 << 63) <= exact < 1 << 63)}


def array_mult_16bit(a: int, b: int) -> dict[str, int]:
    return {"p": a * b}


def alu32(a: int, b: int, op: int) -> dict[str, int]:
    sa, sb, n = signed(a, 32), signed(b, 32), b & 31
    results = [
        a + b, a - b, a & b, a | b, a ^ b, ~(a | b), int(sa < sb), int(a < b),
        a << n, a >> n, sa >> n, b << 16, min(sa, sb), max(sa, sb), a & ~b, b,
    ]  # fmt: skip
    y = results[op] & M32
    exact = (sa + sb, sa - sb)[op] if op < 2 else 0
    carry = (a + b > M32, a >= b)[op] if op < 2 else False
    overflow = op < 2 and not -(1 << 31) <= exact < 1 << 31
    return {"y": y, "zero": int(y == 0), "negative": y >> 31, "carry": int(carry), "overflow": int(overflow)}


def flushed(bits: int) -> np.float32:
    """Return a float with subnormals flushed."""
    if (bits >> 23) & 255 == 0:
        bits &= 1 << 31
    return np.uint32(bits).view(np.float32)


def float_bits(value: np.float32) -> int:
    bits = int(value.view(np.uint32))
    if np.isnan(value):
        return 0x7FC00000
    return bits & (1 << 31) if (bits >> 23) & 255 == 0 else bits


def float_multiply(a: int, b: int) -> int:
    with np.errstate(all="ignore"):
        exact = np.float64(flushed(a)) * np.float64(flushed(b))
        bits = float_bits(np.float32(exact))
        if 0 < abs(exact) < 2.0**-126:
            # Rounding without subnormals: a 24-bit mantissa with an unbounded exponent, then the flush.
            bits = float_bits(np.float32(np.float64(np.float32(exact * 2.0**100)) * 2.0**-100))
            if abs(np.float64(np.float32(exact * 2.0**100)) * 2.0**-100) < 2.0**-126:
                bits &= 1 << 31
    return bits


def float_add(a: int, b: int) -> int:
    with np.errstate(all="ignore"):
        return float_bits(flushed(a) + flushed(b))


class Delayed:
    """A function of the inputs, some cycles later; zero under reset and until the first result."""

    reset = "rst"
    active = 1

    def __init__(self) -> None:
        self.pipe: deque[dict[str, int]] = deque()

    def step(self, **inputs: int) -> dict[str, int]:
        zero = dict.fromkeys(self.outputs, 0)
        if not self.pipe:
            self.pipe = deque([zero] * self.latency)
        out = self.pipe.popleft()
        if inputs.pop(self.reset) == self.active:
            self.pipe = deque([zero] * self.latency)
            # The resets that act at 0 are asynchronous.
            out = out if self.active else zero
        else:
            self.pipe.append(self.function(**inputs))
        return out


class FloatMulti(Delayed):
    latency, outputs = 3, ("z",)

    def function(self, a: int, b: int) -> dict[str, int]:
        return {"z": float_multiply(a, b)}


class FloatAdder(FloatMulti):
    def function(self, a: int, b: int) -> dict[str, int]:
        return {"z": float_add(a, b)}


class FixedPointAdder(Delayed):
    latency, outputs = 2, ("c", "saturated")

    def function(self, a: int, b: int) -> dict[str, int]:
        def value(bits: int) -> int:
            return -(bits & 0x7FFFFFFF) if bits >> 31 else bits

        total = value(a) + value(b)
        size = min(abs(total), 0x7FFFFFFF)
        return {"c": int(total < 0) << 31 | size, "saturated": int(abs(total) > 0x7FFFFFFF)}


class BoothMult(Delayed):
    latency, outputs = 2, ("p",)

    def function(self, a: int, b: int) -> dict[str, int]:
        return {"p": signed(a, 16) * signed(b, 16) & M32}


class BarrelShifter(Delayed):
    latency, outputs = 1, ("result",)

    def function(self, data: int, amount: int, mode: int) -> dict[str, int]:
        value = (data << amount, data >> amount, signed(data, 32) >> amount, data >> amount | data << (32 - amount))[
            mode
        ]
        return {"result": value & M32}


class MultiPipe(Delayed):
    latency, outputs, reset, active = 5, ("mul_out", "mul_en_out"), "rst_n", 0

    def function(self, mul_en_in: int, mul_a: int, mul_b: int) -> dict[str, int]:
        return {"mul_en_out": mul_en_in, "mul_out": mul_a * mul_b * mul_en_in}


class AdderPipe(Delayed):
    """Compared only where o_en is set; what the result holds otherwise is a matter of the pipeline's stages."""

    latency, outputs, reset, active = 4, ("o_en",), "rst_n", 0

    def function(self, i_en: int, adda: int, addb: int) -> dict[str, int]:
        return {"o_en": 1, "result": adda + addb} if i_en else {"o_en": 0}


class Multi16:
    """After 17 cycles of start: done for one cycle with the product of the operands of the first of them."""

    def __init__(self) -> None:
        self.run, self.product, self.fresh = 0, 0, False

    def step(self, rst_n: int, start: int, ain: int, bin: int) -> dict[str, int]:
        out = {"done": int(self.run == 17 and self.fresh)} if self.run else {"done": 0}
        if out["done"]:
            out["yout"] = self.product
        self.fresh = False
        if not rst_n:
            out = {"done": 0}
        if not rst_n or not start:
            self.run = 0
        else:
            if self.run == 0:
                self.product = ain * bin
            self.fresh = self.run == 16
            self.run = min(17, self.run + 1)
        return out


class Crc32:
    def __init__(self) -> None:
        self.frame = b""

    def step(self, rst: int, init: int, valid: int, data: int) -> dict[str, int]:
        out = {"crc": binascii.crc32(self.frame)}
        if rst or init:
            self.frame = b""
        elif valid:
            self.frame += data.to_bytes(4, "little")
        return out


class SequenceDetector:
    def __init__(self) -> None:
        self.seen = "-----"

    def step(self, rst: int, **inputs: int) -> dict[str, int]:
        out = {"match": int(self.seen == "10011")}
        self.seen = "-----" if rst else self.seen[1:] + str(inputs["in"])
        return out


class TrafficLight:
    def __init__(self) -> None:
        self.phase, self.left, self.pressed = "main green", 0, False

    def step(self, rst: int, car_waits: int, button: int, green_time: int, yellow_time: int) -> dict[str, int]:
        colour = {"green": 1, "yellow": 2}
        main = colour[self.phase.split()[1]] if self.phase.startswith("main") else 4
        side = colour[self.phase.split()[1]] if self.phase.startswith("side") else 4
        out = {"main_light": main, "side_light": side, "walk": int(self.phase == "walking"), "remaining": self.left}
        pressed, phase = self.pressed, self.phase
        self.pressed = bool(button) or (pressed and phase != "walking")
        if rst:
            self.__init__()  # type: ignore[misc]
        elif self.left:
            self.left -= 1
        elif phase != "main green" or car_waits or pressed:
            self.phase, self.left = {
                "main green": ("main yellow", yellow_time),
                "main yellow": ("red", 3),
                "red": ("walking", green_time // 2) if pressed else ("side green", green_time),
                "side green": ("side yellow", yellow_time),
                "walking": ("clearing", 7),
                "side yellow": ("main green", green_time),
                "clearing": ("main green", green_time),
            }[phase]
        return out


class Core:
    """RV32E subset from the architecture manual's tables; `mem_addr` counts during loads and stores only."""

    def __init__(self) -> None:
        self.x, self.pc = [0] * 16, 0

    def step(self, rst: int, instruction: int, mem_rdata: int) -> dict[str, int]:
        i = instruction
        out = {"pc": self.pc, "mem_read": 0, "mem_write": 0}
        op, rd, f3, rs1, rs2 = i & 127, i >> 7 & 15, i >> 12 & 7, i >> 15 & 15, i >> 20 & 15
        a, b = self.x[rs1], self.x[rs2]
        imm = signed(i >> 20, 12)
        known = True
        value, target = None, (self.pc + 4) & M32
        if op == 0x37:
            value = i & 0xFFFFF000
        elif op == 0x17:
            value = self.pc + (i & 0xFFFFF000)
        elif op == 0x6F:
            offset = signed((i >> 31) << 20 | (i >> 12 & 255) << 12 | (i >> 20 & 1) << 11 | (i >> 21 & 1023) << 1, 21)
            value, target = self.pc + 4, self.pc + offset
        elif op == 0x67 and f3 == 0:
            value, target = self.pc + 4, a + imm & ~1
        elif op == 0x63 and f3 not in (2, 3):
            offset = signed((i >> 31) << 12 | (i >> 7 & 1) << 11 | (i >> 25 & 63) << 5 | (i >> 8 & 15) << 1, 13)
            sa, sb = signed(a, 32), signed(b, 32)
            if {0: a == b, 1: a != b, 4: sa < sb, 5: sa >= sb, 6: a < b, 7: a >= b}[f3]:
                target = self.pc + offset
        elif op == 0x03 and f3 == 2:
            value = mem_rdata
            out |= {"mem_read": 1, "mem_addr": (a + imm) & M32}
        elif op == 0x23 and f3 == 2:
            out |= {"mem_write": 1, "mem_addr": (a + signed((i >> 25) << 5 | i >> 7 & 31, 12)) & M32, "mem_wdata": b}
        elif op == 0x13 or (op == 0x33 and not i >> 25 & 1):
            right = b if op == 0x33 else imm & M32
            n = right & 31
            sa, sr = signed(a, 32), signed(right, 32)
            minus = op == 0x33 and i >> 30 & 1
            value = [
                a - right if minus else a + right, a << n, int(sa < sr), int(a < right), a ^ right,
                sa >> n if i >> 30 & 1 else a >> n, a | right, a & right,
            ][f3]  # fmt: skip
        else:
            known = False
        runs = known and not rst
        out["illegal"] = int(not known and not rst)
        if not runs:
            out |= {"mem_read": 0, "mem_write": 0}
            out.pop("mem_addr", None)
            out.pop("mem_wdata", None)
        if rst:
            self.pc = 0
        elif not runs:
            self.pc = self.pc + 4 & M32
        else:
            self.pc = target & M32 & ~1
            if value is not None and rd:
                self.x[rd] = value & M32
        return out


MODELS = {
    "multi_16bit": Multi16,
    "float_multi": FloatMulti,
    "float_adder": FloatAdder,
    "fixed_point_adder": FixedPointAdder,
    "booth_mult_16bit": BoothMult,
    "barrel_shifter": BarrelShifter,
    "multi_pipe_8bit": MultiPipe,
    "adder_pipe_64bit": AdderPipe,
    "crc32": Crc32,
    "sequence_detector": SequenceDetector,
    "traffic_light": TrafficLight,
    "rv32_core": Core,
}
FUNCTIONS = {
    "adder32": adder32,
    "sub_64bit": sub_64bit,
    "array_mult_16bit": array_mult_16bit,
    "alu32": alu32,
}
