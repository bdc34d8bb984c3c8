"""Tasks as reward functions: batches of texts, errors attributed, the environment's own verdicts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from drc_cases import block_task

from edagym.baselines.llm.reward import ChatEpisode, TextReward
from edagym.baselines.policies import reference_edits
from edagym.baselines.rollout import make_env
from edagym.errors import PolicyError, TaskError, ToolTimeout
from edagym.spaces.actions import action_to_json
from edagym.spaces.drc_edits import drc_edit_to_json


def fet_reply(task_id: str) -> str:
    from edagym.task_assets.fet.suite import load_task

    return json.dumps([action_to_json(e) for e in reference_edits(load_task(task_id))])


def test_a_batch_in_order_agrees_with_the_environment():
    reward = TextReward("FET-L1")
    a, b = reward.env.task_ids[:2]
    good = fet_reply(a)
    texts = [
        f"Here it is:\n```json\n{good}\n```",
        good,
        "I cannot draw.",
        json.dumps(json.loads(good)[:1]),
        '[{"op": "x"}]',
    ]
    ids = [a, b, a, a, b]
    found = reward(prompts=[None] * 5, completions=texts, task_id=ids, completion_ids=None)
    assert found[0] == 1.0
    for text, task_id, score, value in zip(texts, ids, reward.scores, found):
        assert score.reward == value
        env = make_env("FET-L1")
        env.reset(options={"task": task_id})
        if "op" in text:
            env.step_any(json.loads(text.split("```json\n")[-1].split("\n```")[0]))
        info = env.step_any({"op": "submit"})[4]
        assert value == float(info["is_success"])
        assert (score.paper_success, score.strict_success) == (
            env.verdict.paper_success,
            env.verdict.strict_success,
        )
    assert [s.error_type for s in reward.scores] == ["", reward.scores[1].error_type, "PolicyError", "", "EditError"]
    assert reward.scores[2].error.startswith("no action in the reply")
    assert reward.scores[4].refused == 1
    assert reward.scores[3].failed
    assert reward.__name__ == "edagym_fet_l1"


def test_partial_rewards_rank_failures():
    reward = TextReward("FET-L1", partial=0.5)
    task_id = reward.env.task_ids[0]
    edits = json.loads(fet_reply(task_id))
    more, less, none = reward(completions=[json.dumps(edits[:-1]), json.dumps(edits[:1]), "?"], task_id=[task_id] * 3)
    assert 0.5 > more >= less > none == 0.0
    with pytest.raises(ValueError, match="partial"):
        TextReward("FET-L1", partial=1.0)


def test_messages_as_completions():
    reward = TextReward("FET-L1")
    task_id = reward.env.task_ids[0]
    parts = [{"type": "text", "text": fet_reply(task_id)}]
    said = [[{"role": "assistant", "content": fet_reply(task_id)}], [{"role": "assistant", "content": parts}]]
    assert reward(completions=said, task_id=[task_id] * 2) == [1.0, 1.0]


def test_a_tool_failure_has_no_reward(monkeypatch):
    reward = TextReward("FET-L1")
    task_id = reward.env.task_ids[0]

    def fail():
        raise ToolTimeout("the engine did not answer")

    monkeypatch.setattr(reward.env, "_run_verifier", fail)
    assert reward(completions=["[]"], task_id=[task_id]) == [None]
    assert reward.scores[0].error_type == "ToolTimeout"
    assert "did not answer" in reward.scores[0].error


def test_bad_calls():
    reward = TextReward("FET-L1")
    with pytest.raises(TaskError, match="one task per completion"):
        reward(completions=["x"], task_id=[])
    with pytest.raises(TaskError, match="no such task"):
        reward(completions=["x"], task_id=["L1/case_999"])
    with pytest.raises(TaskError, match="endless"):
        TextReward("FET-Train")


def test_rows_are_a_dataset():
    rows = TextReward("FET-L1").rows()
    assert [r["task_id"] for r in rows] == list(TextReward("FET-L1").env.task_ids)
    assert all(r["prompt"][0]["role"] == "user" and "Answer with" in r["prompt"][0]["content"] for r in rows)


def test_drc_tasks():
    reward = TextReward("DRC-Essential-L1")
    task_id = reward.env.task_ids[0]
    reward.env.reset(options={"task": task_id})
    edits = [drc_edit_to_json(e) for e in reference_edits(reward.env.task)]
    assert reward(completions=[json.dumps(edits), "[]"], task_id=[task_id] * 2) == [1.0, 0.0]
    (row,) = reward.rows([task_id])
    assert "as a JSON list" in row["prompt"][0]["content"]


def test_an_episode_in_turns():
    episode = ChatEpisode("FET-L1", "L1/case_1")
    assert episode.reward is None
    answer = episode.reply("Well.")
    assert answer is not None
    assert "no action in the reply" in answer["content"]
    answer = episode.reply(json.dumps(json.loads(fet_reply("L1/case_1"))[:1]))
    assert answer is not None
    assert "Budget left" in answer["content"]
    assert [m["role"] for m in episode.messages] == ["user", "assistant", "user", "assistant", "user"]
    clear = [{"op": "clear", "layer": layer.name} for layer in episode.env.view.editable_layers]
    assert episode.reply(json.dumps([*clear, *json.loads(fet_reply("L1/case_1"))])) is None
    assert episode.done
    assert (episode.reward, episode.unreadable) == (1.0, 1)
    with pytest.raises(PolicyError, match="over"):
        episode.reply("More.")


def test_rollout_of_a_drc_task():
    task = block_task()
    replies = iter([json.dumps({"op": "check"}), json.dumps({"op": "submit"})])

    async def ask(messages: list[dict]) -> str:
        assert messages[-1]["role"] == "user"
        return next(replies)

    episode = ChatEpisode("DRC-Essential-L2", "Essential-L2/q1", tasks=[task])
    messages, reward = asyncio.run(episode.rollout(ask))
    assert reward == 0.0
    assert "violation" in messages[2]["content"].lower() or "---" in messages[2]["content"]


@pytest.mark.slow
def test_grpo_trainer(tmp_path: Path):
    """One real step of TRL's trainer with a tiny random model; skipped where TRL is not installed."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    datasets = pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {chr(i): i - 28 for i in range(32, 127)} | {"<pad>": 0, "<eos>": 1, "<unk>": 2, "\n": 3}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    config = transformers.GPT2Config(vocab_size=len(vocabulary), n_positions=8192, n_embd=16, n_layer=1, n_head=2)
    reward = TextReward("FET-L1")
    calls: list[int] = []

    def counted(completions, task_id, **kwargs):
        found = reward(completions, task_id=task_id)
        calls.append(len(found))
        return found

    settings = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=8,
        max_steps=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    # With a fingerprint given: making one pickles Arrow tables, which not every pair of library versions can.
    table = datasets.table.InMemoryTable.from_pylist(reward.rows()[:2])
    trainer = trl.GRPOTrainer(
        model=transformers.GPT2LMHeadModel(config),
        reward_funcs=counted,
        args=settings,
        train_dataset=datasets.Dataset(table, fingerprint="rows"),
        processing_class=tokenizer,
    )
    trainer.train()
    assert calls == [2]
    assert all(s.error_type == "PolicyError" for s in reward.scores)
