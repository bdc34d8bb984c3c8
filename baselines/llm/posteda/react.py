"""ReAct: reasoning and one tool call in turns (PostEDA-Bench, Appendix E.2), and its vision variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.posteda import prompts
from edagym.baselines.llm.posteda.agent import Action, Message, PostEDAPolicy, Steps
from edagym.baselines.llm.posteda.vision import MAX_PIXELS, picture_message, query_picture
from edagym.spaces.drc_actions import drc_action_from_json
from edagym.spaces.drc_queries import Query


class ReActPolicy(PostEDAPolicy):
    """One agent that thinks, acts and sees the result.

    Every action of a reply that holds several is carried out, and each is charged. Turns without an action cost a
    model call only.
    """

    name = "posteda-react"

    def episode(self) -> Steps:
        """Yield the agent's actions until it submits or the budget ends."""
        yield from self.converse(self.opening(prompts.REACT, prompts.ANSWER))

    def converse(self, messages: list[Message]) -> Steps:
        """Yield the actions of one conversation."""
        while True:
            results: list[Message] = []
            for action in self.ask_actions("agent", messages):
                yield self.dispatch(action)
                results.append(self.observation(action))
            messages += results

    def dispatch(self, action: Action) -> Action:
        """Return what the environment is given for an action."""
        return action

    def observation(self, action: Action) -> Message:
        """Return the message that tells the agent what its action led to."""
        return {"role": "user", "content": self.result(action)}


class VisionReActPolicy(ReActPolicy):
    """ReAct with a further action, ``vision_query``, that answers with a picture of the region (Appendix C.3).

    The environment sees a text query, so that charges and traces are those of one; the model sees the picture instead
    of the text: RGB JPEG, quality 85, at most 1,024 x 1,024 pixels, as a data URI.

    Args:
        model: See `PostEDAPolicy`.
        pixels: Width and height of the pictures, at most 1,024.
        **kwargs: See `PostEDAPolicy`.
    """

    name = "posteda-vision-react"
    families = ("drc",)

    def __init__(self, model: ModelSpec | Mapping[str, Any] | str, *, pixels: int = 768, **kwargs: Any) -> None:
        super().__init__(model, **kwargs)
        if not 64 <= pixels <= MAX_PIXELS:
            raise ValueError(f"pixels must be in 64..{MAX_PIXELS}, got {pixels!r}")
        self.pixels = pixels

    def settings(self) -> dict[str, Any]:
        """Return what a record states about the scaffold."""
        return {**super().settings(), "pixels": self.pixels}

    def episode(self) -> Steps:
        """Yield the agent's actions."""
        yield from self.converse(self.opening(prompts.REACT, prompts.VISION, prompts.ANSWER))

    def action_schema(self) -> dict[str, Any]:
        """Return the schema with ``vision_query`` beside ``query``."""
        forms = super().action_schema()["anyOf"]
        (query,) = (f for f in forms if f["properties"]["op"]["const"] == "query")
        vision = {**query, "properties": {**query["properties"], "op": {"const": "vision_query"}}}
        return {"anyOf": [*forms, vision]}

    def dispatch(self, action: Action) -> Action:
        """Return the text query of a vision query."""
        return {**action, "op": "query"} if action["op"] == "vision_query" else action

    def observation(self, action: Action) -> Message:
        """Return a picture for a vision query, text for the rest."""
        if action["op"] != "vision_query" or self._info["edit_error"]:
            return super().observation(action)
        query = drc_action_from_json(self.dispatch(action))
        assert isinstance(query, Query)  # the environment has just answered it
        jpeg, caption = query_picture(self._attempt.layout, self._attempt.task_view, query, self.pixels)
        return picture_message(f"Result of vision_query: {caption}\nUnits left: {self.units}\n", jpeg)
