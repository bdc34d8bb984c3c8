"""Program of the child process in which Yosys or ABC runs; `edagym.verifiers.ppa.yosys` starts it by path.

It imports nothing of the project, so that it starts in about a tenth of a second, and is not meant to be imported. Its
only argument is a JSON object: ``tool`` (``"yosys"`` or ``"abc"``), ``commands``, ``memory_mb``, ``cpu_s``, ``site``
(folder that holds the engine's package). The working folder is its scratch folder.

Before a command runs, the process gives up what the tools don't need: memory and file size are limited, the network is
taken away (its own network namespace), and files outside the scratch folder, the engine and the system's libraries are
closed (Landlock). The last two are Linux services that a kernel may lack; they are a second wall behind the check of
the sources.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import sys

_READ = (1 << 0) | (1 << 2) | (1 << 3)  # execute, read file, read folder
_ALL_FILE_RIGHTS = (1 << 13) - 1  # every file right of Landlock's first version
_TCP_RIGHTS = (1 << 0) | (1 << 1)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system call numbers, equal on all architectures
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache")
_MAX_FILE_BYTES = 2 << 30


def _limit(memory_mb: int, cpu_s: int) -> None:
    size = memory_mb << 20
    for what, value in ((resource.RLIMIT_AS, size), (resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (value, value))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))


def _confine(engine: str) -> None:
    """Close the network and all files that the tools don't need, as far as this kernel can."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # end with the parent
    libc.unshare(_NEW_USER | _NEW_NETWORK)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    rights = _ALL_FILE_RIGHTS | ((1 << 13) if version >= 2 else 0) | ((1 << 14) if version >= 3 else 0)
    attributes = struct.pack("=QQ", rights, _TCP_RIGHTS)[: 16 if version >= 4 else 8]
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return
    places = [(os.getcwd(), rights), ("/dev/null", (1 << 1) | (1 << 2)), (engine, _READ)]
    for path, allowed in places + [(path, _READ) for path in _SYSTEM]:
        if not os.path.exists(path):
            continue
        if not os.path.isdir(path):
            allowed &= (1 << 0) | (1 << 1) | (1 << 2)
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed, handle), 0)
        os.close(handle)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges, which Landlock asks for
    libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def main() -> None:
    """Run the request."""
    request = json.loads(sys.argv[1])
    sys.path.insert(0, request["site"])
    engine = os.path.join(request["site"], "pyosys")
    if request["tool"] == "abc":
        _limit(request["memory_mb"], request["cpu_s"])
        _confine(engine)
        binary = os.path.join(engine, "yosys-abc")
        os.execv(binary, [binary, "-c", "; ".join(request["commands"])])
    from pyosys import libyosys

    _limit(request["memory_mb"], request["cpu_s"])
    _confine(engine)
    design = libyosys.Design()
    for command in request["commands"]:
        libyosys.run_pass(command, design)
    ctypes.CDLL(None).fflush(None)  # the log is in the C library's buffers
    # The engine's own teardown takes as long as a small synthesis.
    os._exit(0)


if __name__ == "__main__":
    main()
