"""Architecture: import order, what an import loads, completeness of the package list, wheel, foreign folders."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]

# Lowest first; a module may import from its own layer and from those before it.
LAYERS = ("errors", "task_assets", "spaces", "verifiers", "envs", "wrappers", "baselines", "cli")

# Runs as a program where edagym cannot be imported: its modules name each other relatively, and nothing else of ours.
STAND_ALONE = "text_solver"


def sources() -> dict[str, Path]:
    """Dotted module name -> file, for every module of the distribution."""
    found = {}
    for package, folder in SETUPTOOLS["package-dir"].items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def imports(path: Path) -> set[str]:
    """Absolute names that a module imports anywhere in it, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level == 1 and path.parent.name == STAND_ALONE:
                continue
            assert node.level == 0, f"{path}: relative import"
            names.add(str(node.module))
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def layer(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "edagym" and len(parts) > 1 and parts[1] in LAYERS else None


@pytest.mark.parametrize("module", sorted(sources()))
def test_import_order(module):
    own = layer(module)
    if own is None:  # the root package, which only registers
        return
    for name in imports(sources()[module]):
        other = layer(name)
        if other is not None:
            assert LAYERS.index(other) <= LAYERS.index(own), f"{module} imports {name}"


def test_the_order_is_not_vacuous():
    seen = {(layer(m), layer(n)) for m, p in sources().items() for n in imports(p)}
    assert {("envs", "verifiers"), ("verifiers", "task_assets"), ("baselines", "envs"), ("cli", "baselines")} <= seen


@pytest.mark.parametrize("module", ["edagym", "edagym.registry"])
def test_the_root_imports_only_gymnasium(module):
    allowed = set(sys.stdlib_module_names) | {"gymnasium", "edagym"}
    names = imports(sources()[module])
    assert {n.split(".")[0] for n in names} <= allowed
    assert {n for n in names if n.startswith("edagym.")} <= {
        f"edagym.registry{x}" for x in ("", ".register_all", ".ENVIRONMENTS")
    }


def test_verifiers_do_not_know_gymnasium():
    for module, path in sources().items():
        if layer(module) in ("errors", "task_assets", "verifiers"):
            assert not any(n.split(".")[0] == "gymnasium" for n in imports(path)), module


def run_python(code: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_is_cheap(tmp_path):
    code = (
        "import sys, edagym, gymnasium\n"
        "heavy = ('klayout', 'torch', 'shapely', 'scipy', 'pettingzoo', 'pygame', 'stable_baselines3')\n"
        "print(sorted(m for m in heavy if m in sys.modules), 'FET-L2-v0' in gymnasium.registry)"
    )
    assert run_python(code, tmp_path) == "[] True"


def test_the_environment_needs_no_torch(tmp_path):
    code = (
        "import sys, gymnasium as gym\n"
        "env = gym.make('edagym:FET-L1-v0'); env.reset(seed=0); env.step(env.action_space.sample())\n"
        "print(sorted(m for m in ('torch', 'pettingzoo', 'pygame') if m in sys.modules))"
    )
    assert run_python(code, tmp_path) == "[]"


def test_from_the_repository_root():
    """Folders of the checkout (envs, spaces, ...) do not shadow the installed package."""
    assert run_python("import edagym.envs, edagym.spaces; print(edagym.envs.__name__)", ROOT) == "edagym.envs"


def test_package_list_is_complete():
    packages = {m for m, p in sources().items() if p.name == "__init__.py"}
    assert packages == set(SETUPTOOLS["packages"])
    for module, path in sources().items():
        assert (path.parent / "__init__.py").is_file(), f"{module} lies outside every package"


def test_one_version():
    import edagym

    assert edagym.__version__ == PYPROJECT["project"]["version"]


_USE = """
import multiprocessing, pathlib, sys
import gymnasium as gym
import edagym

def reset(name):
    return gym.make(name).reset(seed=0)[1]["task_id"]

if __name__ == "__main__":
    assert pathlib.Path(edagym.__file__).is_relative_to(sys.argv[1]), edagym.__file__
    from edagym.task_assets.fet.suite import load_reference, load_task, task_ids
    assert len([load_task(t) for t in task_ids()]) == 128
    assert load_reference("L1/case_1")["edits"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        names = ["edagym:FET-L1-v0", "edagym:FET-Train-v0"]
        assert pool.map(reset, names) == [reset(n) for n in names]
    from edagym.baselines.rollout import rollout, summarise
    print(summarise(rollout("FET-L1", "reference", progress=False))["strict_passed"])
"""


def test_wheel(tmp_path):
    """A wheel built from a clean copy, installed into an empty folder, works with its data and in spawned workers."""
    copy = tmp_path / "copy"
    copy.mkdir()
    keep = ["pyproject.toml", *PYPROJECT["project"]["license-files"], PYPROJECT["project"]["readme"]]
    for name in keep:
        shutil.copy(ROOT / name, copy / name)
    for folder in {p.split("/")[0] for p in SETUPTOOLS["package-dir"].values()}:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path / "dist", copy], check=True)
    (wheel,) = (tmp_path / "dist").glob("edagym-*.whl")
    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    script = tmp_path / "use.py"
    script.write_text(_USE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script, site],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "8"
