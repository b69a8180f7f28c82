"""Steps of a reply as Anthropic's messages show them: blocks, opened and closed in order, one open at a time."""

import json
from typing import Any

from mainspring.gateway.generation.chat_shape import new_id
from mainspring.gateway.generation.choice import Step
from mainspring.gateway.generation.run import Begun
from mainspring.gateway.generation.usage import anthropic_usage
from mainspring.text.reply.deltas import CallArguments, CallBegun, ContentText, Delta, ReasoningText

Json = dict[str, Any]
Event = tuple[str, Json]
REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "stop": "end_turn"}


class MessageBlocks:
    """Events of one message, and the message that they make: `content` grows with them."""

    def __init__(self, begun: Begun) -> None:
        self._begun = begun
        self.id = new_id("msg_")
        self.content: list[Json] = []
        self._open = ""
        self._arguments = ""
        self.stop_reason: str | None = None
        self.stop_sequence: str | None = None

    def start(self) -> Event:
        """How much of the prompt was cached is not known yet: the last usage says it."""
        usage = {"input_tokens": self._begun.prompt_tokens, "output_tokens": 0, "cache_read_input_tokens": 0,
                 "cache_creation_input_tokens": 0}  # fmt: skip
        return "message_start", {"message": self._message(usage, [])}

    def of_step(self, step: Step) -> list[Event]:
        events = [event for delta in step.deltas for event in self._of_delta(delta)]
        if step.finish is not None:
            events += self._close()
            self.stop_reason = REASONS[step.finish]
            if isinstance(step.stop, str):
                self.stop_reason, self.stop_sequence = "stop_sequence", step.stop
        return events

    def end(self) -> list[Event]:
        delta = {"stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence}
        return [("message_delta", {"delta": delta, "usage": self._usage()}), ("message_stop", {})]

    def whole(self) -> Json:
        return self._message(self._usage(), self.content)

    def _usage(self) -> dict[str, int]:
        return anthropic_usage(self._begun.prompt_tokens, self._begun.runs[0].tally)

    def _message(self, usage: dict[str, int], content: list[Json]) -> Json:
        return {
            "id": self.id, "type": "message", "role": "assistant", "model": self._begun.model, "content": content,
            "stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence, "usage": usage,
        }  # fmt: skip

    def _of_delta(self, delta: Delta) -> list[Event]:
        if isinstance(delta, ContentText):
            return [*self._in("text", {"text": ""}), self._delta({"type": "text_delta", "text": delta.text})]
        if isinstance(delta, ReasoningText):
            opened = self._in("thinking", {"thinking": "", "signature": ""})
            return [*opened, self._delta({"type": "thinking_delta", "thinking": delta.text})]
        if isinstance(delta, CallBegun):
            call = {"id": new_id("toolu_"), "name": delta.name, "input": {}}
            return [*self._close(), *self._in("tool_use", call)]
        if isinstance(delta, CallArguments):
            return [self._delta({"type": "input_json_delta", "partial_json": delta.text})]
        return self._close()

    def _in(self, kind: str, empty: Json) -> list[Event]:
        """A block of this kind is open behind these."""
        if self._open == kind:
            return []
        events = self._close()
        self._open, self._arguments = kind, ""
        self.content.append({"type": kind, **empty})
        block = {"type": kind, **empty}
        return [*events, ("content_block_start", {"index": len(self.content) - 1, "content_block": block})]

    def _delta(self, delta: Json) -> Event:
        block = self.content[-1]
        if delta["type"] == "input_json_delta":
            self._arguments += delta["partial_json"]
        else:
            name = "text" if delta["type"] == "text_delta" else "thinking"
            block[name] += delta[name]
        return "content_block_delta", {"index": len(self.content) - 1, "delta": delta}

    def _close(self) -> list[Event]:
        if not self._open:
            return []
        if self._open == "tool_use":
            self.content[-1]["input"] = _object(self._arguments)
        self._open = ""
        return [("content_block_stop", {"index": len(self.content) - 1})]


def _object(text: str) -> Json:
    """Arguments that were cut, or that the model wrote wrong, are shown as they stand."""
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {"arguments": text}
    return value if isinstance(value, dict) else {"arguments": value}
