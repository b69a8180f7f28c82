"""Steps of a reply as chat completions show them: chunks of a stream, or messages of one answer."""

import secrets
from typing import Any

from mainspring.gateway.generation.choice import Step
from mainspring.gateway.generation.logprobs import chat_logprobs
from mainspring.gateway.generation.run import Begun
from mainspring.text.reply.deltas import CallArguments, CallBegun, ContentText, Delta, ReasoningText

Json = dict[str, Any]


def new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)


class ChatChunks:
    """Chunks of one request: same id and time throughout; the first of each choice gives the role, the last the reason
    why it ended."""

    def __init__(self, begun: Begun, *, with_usage: bool) -> None:
        self._begun = begun
        self._head: Json = {
            "id": new_id("chatcmpl-"), "object": "chat.completion.chunk", "created": begun.created,
            "model": begun.model, "system_fingerprint": begun.fingerprint,
        }  # fmt: skip
        self._more: Json = {"usage": None} if with_usage else {}
        self._seen: set[int] = set()

    def of_step(self, step: Step) -> list[Json]:
        found: list[Json] = []
        if step.index not in self._seen:
            self._seen.add(step.index)
            found.append(self._chunk(step.index, {"role": "assistant", "content": ""}))
        logprobs = None
        if step.tokens and self._begun.call.writing.logprobs >= 0:
            logprobs = chat_logprobs(step.tokens, self._begun.ready[0].bundle.tokenizer)
        for delta in step.deltas:
            if (shown := shown_of(delta)) is not None:
                found.append(self._chunk(step.index, shown, logprobs))
                logprobs = None
        if step.finish is not None:
            found.append(self._chunk(step.index, {}, logprobs, step.finish, step.stop))
        elif logprobs is not None:
            found.append(self._chunk(step.index, {}, logprobs))
        return found

    def of_usage(self, usage: Json) -> Json:
        return {**self._head, "choices": [], "usage": usage}

    def _chunk(
        self, index: int, delta: Json, logprobs: Json | None = None, finish: str | None = None,
        stop: str | int | None = None,
    ) -> Json:  # fmt: skip
        choice: Json = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        if stop is not None:
            choice["stop_reason"] = stop
        return {**self._head, "choices": [choice], **self._more}


def shown_of(delta: Delta) -> Json | None:
    """`delta` of a chunk; None for what a client is not told."""
    if isinstance(delta, ContentText):
        return {"content": delta.text}
    if isinstance(delta, ReasoningText):
        return {"reasoning": delta.text, "reasoning_content": delta.text}
    if isinstance(delta, CallBegun):
        function = {"name": delta.name, "arguments": ""}
        call = {"index": delta.index, "id": new_id("call_"), "type": "function", "function": function}
        return {"tool_calls": [call]}
    if isinstance(delta, CallArguments):
        return {"tool_calls": [{"index": delta.index, "function": {"arguments": delta.text}}]}
    return None


class ChatMessage:
    """One choice of an answer that comes whole."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[Json] = []
        self.tokens: list[Any] = []
        self.finish: str | None = None
        self.stop: str | int | None = None

    def take(self, step: Step) -> None:
        for delta in step.deltas:
            if isinstance(delta, ContentText):
                self.content.append(delta.text)
            elif isinstance(delta, ReasoningText):
                self.reasoning.append(delta.text)
            elif isinstance(delta, CallBegun):
                function = {"name": delta.name, "arguments": ""}
                self.calls.append({"id": new_id("call_"), "type": "function", "function": function})
            elif isinstance(delta, CallArguments):
                self.calls[delta.index]["function"]["arguments"] += delta.text
        self.tokens += step.tokens
        if step.finish is not None:
            self.finish, self.stop = step.finish, step.stop

    def message(self) -> Json:
        content = "".join(self.content)
        message: Json = {
            "role": "assistant", "content": content if content or not self.calls else None, "refusal": None,
        }  # fmt: skip
        if self.reasoning:
            message["reasoning"] = message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = self.calls
        return message


def chat_answer(begun: Begun, messages: list[ChatMessage], usage: Json) -> Json:
    choices: list[Json] = []
    for index, message in enumerate(messages):
        choice: Json = {
            "index": index, "message": message.message(), "logprobs": None, "finish_reason": message.finish,
        }  # fmt: skip
        if begun.call.writing.logprobs >= 0:
            choice["logprobs"] = chat_logprobs(message.tokens, begun.ready[0].bundle.tokenizer)
        if message.stop is not None:
            choice["stop_reason"] = message.stop
        choices.append(choice)
    return {
        "id": new_id("chatcmpl-"), "object": "chat.completion", "created": begun.created, "model": begun.model,
        "system_fingerprint": begun.fingerprint, "choices": choices, "usage": usage,
    }  # fmt: skip
