"""Every post-EDA scaffold completes a task of its family against the text-only solver, over HTTP."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from posteda_models import make_env, notes, run

from edagym.baselines.llm.posteda.critic import ProposerCriticPolicy
from edagym.baselines.llm.posteda.orfs_agent import ORFSAgentPolicy
from edagym.baselines.llm.posteda.react import ReActPolicy, VisionReActPolicy
from edagym.baselines.llm.posteda.reflexion import ReflexionPolicy
from edagym.baselines.llm.posteda.tree import TreeOfThoughtPolicy
from edagym.envs.drc.env import DRCEnv

pytest.importorskip("openai")

SOLVER = Path(__file__).parent.parent / "baselines" / "llm" / "text_solver"
BOTH = [ReActPolicy, ProposerCriticPolicy, ReflexionPolicy, TreeOfThoughtPolicy]


@pytest.fixture(scope="module")
def spec():
    """A model spec of a solver process of its own."""
    command = [sys.executable, str(SOLVER / "server.py"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield {"model": "text-solver", "base_url": json.loads(process.stdout.readline())["base_url"], "retries": 0}
        finally:
            process.kill()


def suite_env(policy):
    """The shipped DRC tasks, under both criteria's stricter one."""
    return DRCEnv("DRC-Essential-L1", on_tool_error="raise", **policy.env_options)


@pytest.mark.parametrize("kind", [*BOTH, VisionReActPolicy])
def test_scaffolds_repair_a_layout(kind, spec):
    policy = kind(spec)
    env = make_env("drc", policy)
    attempt, info, actions = run(env, policy)
    assert info["is_success"], actions
    assert info["charged"] <= 8
    assert all(n["parsed"] for n in notes(attempt, "model"))
    assert len(notes(attempt, "model")) <= policy.call_budget
    kinds = {"critique": ProposerCriticPolicy, "judge": TreeOfThoughtPolicy}
    for note, owner in kinds.items():
        assert bool(notes(attempt, note)) == (kind is owner)


@pytest.mark.parametrize("task", ["Essential-L1/q10", "Essential-L1/q11"])
def test_a_shipped_task_is_repaired_under_the_strict_criterion(task, spec):
    policy = ReActPolicy(spec)
    env = suite_env(policy)
    env.reset(options={"task": task})
    _, info, _ = run_on(env, policy, task)
    assert info["is_success"]
    assert env.verdict.strict_success


def run_on(env, policy, task):
    class Fixed:
        def __getattr__(self, name):
            return getattr(env, name)

        def reset(self, seed=None):
            return env.reset(seed=seed, options={"task": task})

    return run(Fixed(), policy)


@pytest.mark.parametrize("kind", [*BOTH, ORFSAgentPolicy])
def test_scaffolds_reach_the_targets_of_a_design(kind, spec):
    if kind is ORFSAgentPolicy:
        pytest.importorskip("sklearn")
    policy = kind(spec)
    env = make_env("ppa", policy)
    attempt, info, actions = run(env, policy)
    assert all(n["parsed"] for n in notes(attempt, "model"))
    assert info["is_success"], actions
    assert info["charged"] <= (18 if kind is ORFSAgentPolicy else 16)
    assert len(notes(attempt, "model")) <= policy.call_budget


def test_reflexion_fails_once_and_carries_its_reflection_over(spec):
    # Five units a trial are too few to read, change twice and run twice; the second trial begins with the changes.
    policy = ReflexionPolicy(spec, split=True)
    env = make_env("ppa", policy, budget=10)
    attempt, info, _ = run(env, policy)
    (reflection,) = notes(attempt, "reflection")
    assert "Begin with:" in reflection["text"]
    second = [n for n in notes(attempt, "model") if n["n"] > reflection["n"]]
    assert "Begin with:" in second[0]["messages"][0]["content"]
    assert json.loads(second[0]["reply"])["action"] == json.loads(
        reflection["text"].splitlines()[1].removeprefix("Begin with: ")
    )
    assert info["is_success"]


def test_the_solver_knows_only_the_text(spec):
    # Without the list of violations it has nothing to repair, without the page on the variables nothing to choose.
    for name in ("posteda", "posteda_drc", "posteda_ppa"):
        tree = ast.parse((SOLVER / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            assert not any(n.startswith("edagym") for n in names)
    policy = ReActPolicy(spec)
    ask = policy._chat.ask

    def censored(messages, **kwargs):
        hidden = [
            {**m, "content": m["content"].replace("edge-pair", "...").replace("polygon:", "...:")} for m in messages
        ]
        return ask([{**m, "content": m["content"].split("--- M1")[0]} for m in hidden], **kwargs)

    policy._chat.ask = censored
    _, info, actions = run(make_env("drc", policy), policy)
    assert not info["is_success"]
    assert actions == ["submit"] or actions[-1] == {"op": "submit"}
