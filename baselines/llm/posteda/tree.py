"""Tree-of-Thought: candidates, a judge, snapshots and backtracking (PostEDA-Bench, Appendix E.6)."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.posteda import prompts
from edagym.baselines.llm.posteda.agent import THOUGHT, Action, Message, PostEDAPolicy, Steps, canonical, read_object
from edagym.baselines.policies import Bookmark
from edagym.errors import PolicyError
from edagym.spaces.json_schema import closed_object

MAX_SCORE = 10.0


@dataclass
class Node:
    """A state of the tree.

    Attributes:
        number: In order of creation; the root is 0.
        mark: Where to return to.
        messages: The conversation of its path.
        depth: Actions from the root.
        verified: Whether the path holds a check or run that completed.
        score: The judge's score of the action that led here.
        distance: Distance from the goal after the path's last check or run.
        stalled: Whether it is not worth going on from here.
        tried: The actions that were ever candidates here, as text.
    """

    number: int
    mark: Bookmark
    messages: list[Message]
    depth: int
    verified: bool
    score: float
    distance: float
    stalled: bool = False
    tried: list[str] = field(default_factory=list)

    @property
    def rank(self) -> tuple[bool, int, float]:
        """What decides which node is handed in, beside success, which ends the episode."""
        return (self.verified, self.depth, self.score)


Branch = tuple[float, int, Node, Action]
"""(minus score, order, parent, action): an entry of the queue."""


class TreeOfThoughtPolicy(PostEDAPolicy):
    """Samples candidate actions, lets a judge score them, carries out the best, and backtracks where a path stalls.

    A path stalls when an action is refused, a run fails, a check or run brings the state no nearer to the goal, or it
    is `max_depth` deep. Then the best-scored candidate that was left anywhere in the tree is carried out from its own
    parent's snapshot. Going back is free; what was spent stays spent. At the end the best node is handed in: one with a
    completed check or run before one without, deeper before shallower, then by the judge's score. The last unit is
    spent on the best node's own path only, because the environment judges where it ends.

    Args:
        model: See `PostEDAPolicy`.
        breadth: Candidates per node.
        max_depth: Deepest path, actions.
        **kwargs: See `PostEDAPolicy`.

    Raises:
        ValueError: If an argument is out of range.
    """

    name = "posteda-tree-of-thought"

    def __init__(
        self, model: ModelSpec | Mapping[str, Any] | str, *, breadth: int = 3, max_depth: int = 16, **kwargs: Any
    ) -> None:
        super().__init__(model, **kwargs)
        if not (1 <= breadth <= 8 and max_depth >= 1):
            raise ValueError(f"breadth must be in 1..8 and max_depth at least 1, got {breadth!r} and {max_depth!r}")
        self.breadth, self.max_depth = breadth, max_depth

    @property
    def agents(self) -> int:
        """One call per candidate, and the judge's."""
        return self.breadth + 1

    def settings(self) -> dict[str, Any]:
        """Return what a record states about the scaffold."""
        return {**super().settings(), "breadth": self.breadth, "max_depth": self.max_depth}

    def episode(self) -> Steps:
        """Yield the actions of the search."""
        messages = self.opening(prompts.REACT, prompts.ANSWER)
        start = self._family.distance(self._info)
        root = Node(0, self._attempt.snapshot(), messages, 0, False, 0.0, start)
        self._at = self._best = root
        self._queue: list[Branch] = []
        self._made = self._queued = 0
        node = root
        while True:
            branch = None
            if not node.stalled:
                branch = self._expand(node)
            elif not self._queue:
                # Nothing is left anywhere: think again where the search stands best.
                if self._best.depth >= self.max_depth:
                    return
                branch = self._expand(self._best)
            if branch is None:
                if not self._queue:
                    continue  # no readable candidate: ask again, as long as there are calls
                branch = heapq.heappop(self._queue)
            score, _, parent, action = branch
            if action["op"] == "submit" or (self.units == 1 and parent is not self._best):
                return
            self._go(parent)
            yield action
            node = self._grown(parent, action, -score)

    def hand_in(self) -> None:
        """Return to the best node."""
        self._go(self._best)

    def _expand(self, node: Node) -> Branch | None:
        """Add a node's candidates to the queue, and take its best one out again."""
        candidates = self._candidates(node)
        if not candidates:
            return None
        own: list[Branch] = []
        for action, score in zip(candidates, self._scores(node, candidates), strict=True):
            self._queued += 1
            own.append((-score, self._queued, node, action))
        own.sort(key=lambda branch: branch[:2])
        for branch in own[1:]:
            # To give up is no alternative to come back to.
            if branch[3]["op"] != "submit":
                heapq.heappush(self._queue, branch)
        return own[0]

    def _candidates(self, node: Node) -> list[Action]:
        """Return the different actions that the model newly proposes at a node."""
        found: dict[str, Action] = {}
        for number in range(1, self.breadth + 1):
            others = "".join(f"\n- {text}" for text in (*node.tried, *found))
            others = f" Propose something else than:{others}" if others else ""
            text = prompts.CANDIDATE.format(number=number, total=self.breadth, others=others)
            messages = [*node.messages, {"role": "user", "content": text}]
            for action in self.ask_actions("candidate", messages)[:1]:
                if canonical(action) not in node.tried:
                    found.setdefault(canonical(action), action)
        node.tried += found
        return list(found.values())

    def _scores(self, node: Node, candidates: list[Action]) -> list[float]:
        """Return the judge's scores; all 0 if its answer cannot be read."""
        listed = "\n".join(f"{i}. {json.dumps(a)}" for i, a in enumerate(candidates, 1))
        past = "\n".join(str(m["content"]) for m in node.messages[2:] if m["role"] == "user")
        text = f"{past or 'Nothing has been done yet.'}\nCandidates:\n{listed}\n"
        messages = [*self.opening(prompts.JUDGE), {"role": "user", "content": text}]
        n = len(candidates)
        score = {"type": "number", "minimum": 0, "maximum": MAX_SCORE}
        schema = closed_object(reason=THOUGHT, scores={"type": "array", "items": score, "minItems": n, "maxItems": n})
        try:
            scores = self.ask("judge", messages, schema, lambda reply: read_scores(reply, n))
        except PolicyError:
            scores = [0.0] * n
        self._attempt.note("judge", text=listed, scores=scores, node=node.number)
        return scores

    def _go(self, node: Node) -> None:
        """Restore a node's state, if the environment is elsewhere; free of charge."""
        if self._at is not node:
            _, self._info = self._attempt.restore(node.mark)
            self._attempt.note("restore", text=f"back to node {node.number}", node=node.number)
            self._at = node

    def _grown(self, parent: Node, action: Action, score: float) -> Node:
        """Return the node that an action led to."""
        family, info = self._family, self._info
        messages = [
            *parent.messages,
            {"role": "assistant", "content": json.dumps({"thought": "", "action": action})},
            {"role": "user", "content": self.result(action)},
        ]
        self._made += 1
        refused = family.failed(action, info)
        distance, verified = parent.distance, family.verified(action, info)
        stuck = False
        if verified:
            distance = family.distance(info)
            stuck = distance >= parent.distance
        depth = parent.depth + 1
        node = Node(
            self._made,
            self._attempt.snapshot(),
            messages,
            depth,
            parent.verified or verified,
            score,
            distance,
            stalled=refused or stuck or depth >= self.max_depth,
        )
        self._at = node
        # A refused action leads nowhere: its node is no deeper than its parent.
        if not refused and node.rank > self._best.rank:
            self._best = node
        return node


def read_scores(text: str, n: int) -> list[float]:
    """Return the `n` scores of a judge's reply, cut to 0..10; raises `PolicyError`."""
    scores = read_object(text, "scores")["scores"]
    if not isinstance(scores, list) or len(scores) != n:
        raise PolicyError("one score per candidate is needed", field="scores", value=scores, allowed=n)
    if any(isinstance(s, bool) or not isinstance(s, int | float) or s != s for s in scores):  # NaN
        raise PolicyError("scores are numbers", field="scores", value=scores)
    return [float(min(max(s, 0.0), MAX_SCORE)) for s in scores]
