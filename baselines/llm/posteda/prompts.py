"""The words that the post-EDA scaffolds add to a task's own prompt: roles, success criterion, form of the answer.

Actions are described by the task's prompt alone (`describe()` of the action space), so that nothing here can drift from
what the parser takes. The roles follow PostEDA-Bench, Appendix E.5 and E.6; the words are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

ENGINEER = {
    "drc": "You are a physical design engineer. You repair the design rule violations of a layout with layout tools: "
    "queries, edits and a sign-off check. You have succeeded when a check finds no violation and the circuit is as it "
    "was.",
    "ppa": "You are a physical design engineer. You bring a design to its targets for performance, power and area with "
    "the tools of an RTL-to-layout flow: reading, editing, running, reporting. You have succeeded when a run meets "
    "every target and the design still does what it did.",
}

ANSWER = (
    'Answer with one JSON object {"thought": "...", "action": {...}}: first think, in a few sentences, about what is '
    "known and what follows from it; then give one of the actions that the task lists."
)

REACT = "You work in turns: you think, give one action, and see its result before the next turn."

VISION = (
    'One more action can be taken: {"op": "vision_query", ...} with the fields of query. It costs the same and answers '
    "with a picture of the region, the asked layers in full colour and the queried geometry in red."
)

PROPOSER = (
    "You work together with a critic, who sees every action that you propose before it is carried out and may send it "
    "back with a reason. Propose one action at a time."
)

CRITIC = (
    "You are the critic of a colleague who proposes one action at a time. Check the proposal against the task and "
    "against what the tools have answered so far: does it name things that exist, does it serve the goal, does it "
    "break something else, is it worth its cost? Only what you agree to is carried out.\n"
    'Answer with one JSON object {"reason": "...", "verdict": "accept" | "revise" | "reject", "action": {...} or '
    'null}. With "revise" give the corrected action; with "reject" the proposal goes back with your reason.'
)

REFLECT = (
    "This trial is over and the goal was not reached. The task starts anew from its original state, and nothing but "
    "your words is carried over. In at most ten sentences: what was tried, what did the tools answer, what was the "
    "mistake, and what should the next trial do, in which order? Answer in plain text."
)

CANDIDATE = (
    "Propose candidate {number} of {total} for the next action. Only one of them will be carried out, after a judge "
    "has scored them.{others}"
)

JUDGE = (
    "You are a judge. A colleague has several candidates for the next action. Score each from 0 (harmful or useless) "
    "to 10 (certainly a step towards the goal), by the task and by what the tools have answered so far.\n"
    'Answer with one JSON object {"reason": "...", "scores": [...]}, one number for each candidate in order.'
)

SEARCH_SPACE = (
    "You set up an automatic search. Name the parameters that a Bayesian optimiser is to vary for this task, with a "
    "range or a list of values and a default for each. The optimiser runs the flow 18 times, so choose few parameters "
    "that matter and ranges that can pay off.\n"
    "A parameter is a variable of FlowVariables.md or `clock_period` (ps). Give `low` and `high` for numbers, "
    "`choices` (texts) for anything else; what does not apply is null.\n"
    'Answer with one JSON object {"thought": "...", "parameters": [{"name": "...", "low": 0.4, "high": 0.9, '
    '"choices": null, "default": "0.6"}, ...]}.'
)

UNREADABLE = "Your answer could not be read: {error}. Nothing was carried out. Give one JSON object as described."


def trial_note(trial: int, trials: int, units: int, lessons: Sequence[str]) -> str:
    """Return what the agent of a trial is told about its trials, with the reflections on earlier ones."""
    text = f"You have {trials} trials from the same start. This is trial {trial}; it may spend {units} units."
    if lessons:
        text += " What you noted after earlier trials:\n" + "\n".join(f"- {lesson}" for lesson in lessons)
    return text
