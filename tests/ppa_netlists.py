"""Small netlists and random edits for the tests of the PPA engines."""

from edagym.envs.ppa.flow.constraints import simple
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.synth import SynthOptions, synthesise
from edagym.task_assets.ppa.technology import load_technology

PIPELINE = """
module pipeline (input clk, input reset, input [7:0] a, b, input select, output reg [8:0] y, output flag);
  reg [7:0] p, q;
  wire [8:0] sum = select ? p + q : p - q;
  always @(posedge clk)
    if (reset) begin p <= 0; q <= 0; y <= 0; end
    else begin p <= a ^ {b[3:0], b[7:4]}; q <= b & ~y[7:0]; y <= sum; end
  assign flag = (a == b) | y[8];
endmodule
"""
ADDER = "module adder (input [15:0] a, b, output [16:0] s); assign s = a + b; endmodule\n"


def mapped(text, top, **options):
    """Return a new netlist of a design."""
    return synthesise({"a.v": text}, SynthOptions(top, **options)).netlist()


def constraints_of(netlist, period=200.0, io_fraction=0.2):
    """Return one clock at the port `clk` (virtual without it), and port delays."""
    ports = tuple(zip(netlist.port_name, netlist.port_input, strict=True))
    return simple(period, ports, "clk" if "clk" in netlist.port_name else None, io_fraction)


def chain(*names, vt="RVT"):
    """Return a netlist: port `a`, cells of one input in a row, port `y`."""
    tech = load_technology()
    netlist = Netlist("chain", tech)
    netlist.buses = {"a": (-1, -1), "y": (-1, -1)}
    net = netlist.add_net("a")
    netlist.add_port("a", net, is_input=True)
    for i, name in enumerate(names):
        inst = netlist.add_instance(f"u{i}", tech.find(name, vt).index)
        netlist.move_pin(netlist.inst_pin[inst], net)
        net = netlist.add_net(f"n{i}")
        netlist.move_pin(netlist.output_pins(inst)[0], net)
    netlist.add_port("y", net, is_input=False)
    netlist.forget()
    return netlist


def random_edit(netlist, rng):
    """Do one random legal edit of those that timing repair does."""
    kind = rng.choice(["size", "size", "threshold", "buffer", "unbuffer", "swap", "clone", "wire"])
    insts = list(netlist.instances())
    inst = int(rng.choice(insts))
    master = netlist.master(inst)
    outputs = [netlist.pin_net[pin] for pin in netlist.output_pins(inst) if netlist.pin_net[pin] >= 0]
    if kind == "size":
        netlist.swap_master(inst, int(rng.choice(master.sizes)))
    elif kind == "threshold":
        netlist.swap_master(inst, master.variants[str(rng.choice(sorted(master.variants)))])
    elif kind == "buffer" and outputs:
        net = int(rng.choice(outputs))
        sinks = netlist.net_sinks[net]
        if sinks:
            taken = rng.choice(sinks, size=int(rng.integers(1, len(sinks) + 1)), replace=False).tolist()
            buffer = netlist.insert_buffer(net, taken, netlist.technology["BUFx2"].index)
            netlist.set_wire(netlist.pin_net[netlist.output_pins(buffer)[0]], float(rng.uniform(0, 10)))
    elif kind == "unbuffer":
        buffers = [i for i in insts if netlist.master(i).kind == "buf"]
        if buffers:
            netlist.remove_buffer(int(rng.choice(buffers)))
    elif kind == "swap" and master.symmetric:
        first, second = rng.choice(master.symmetric[0], size=2, replace=False).tolist()
        netlist.swap_pins(netlist.inst_pin[inst] + first, netlist.inst_pin[inst] + second)
    elif kind == "clone" and len(outputs) == 1 and not master.register and master.n_inputs:
        sinks = netlist.net_sinks[outputs[0]]
        if len(sinks) > 1:
            netlist.clone_gate(inst, rng.choice(sinks, size=len(sinks) // 2, replace=False).tolist())
    elif kind == "wire":
        net = int(rng.choice(list(netlist.nets())))
        length = float(rng.uniform(0, 20))
        netlist.set_wire(net, length, {pin: length * float(rng.uniform(0, 1)) for pin in netlist.net_sinks[net]})
