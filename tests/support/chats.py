"""Chats asked of a served gateway, whole and as events, and what a client puts together of them."""

from typing import Any

from support.gateway import Served
from support.writing import events_of, unchunked

HI = [{"role": "user", "content": "Hi"}]

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"},
                                                                                     "days": {"type": "integer"}}}},
}  # fmt: skip

CALL = (
    "<think>\n\n</think>\n\nI look.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call><|im_end|>"
)

PATH = "/v1/chat/completions"


async def asked(s: Served, **fields: Any) -> Any:
    reply = await s.post(PATH, {"messages": HI, **fields})
    assert reply.status == 200, reply.body
    return reply.json


async def streamed(s: Served, **fields: Any) -> list[Any]:
    """Chunks, [DONE] last."""
    reply = await s.post(PATH, {"messages": HI, "stream": True, **fields})
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].startswith("text/event-stream")
    return [data for _, data in events_of(unchunked(reply.body))]


def merged(chunks: list[Any], index: int = 0) -> dict[str, Any]:
    """What a client puts together of one choice's chunks."""
    found: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "finish": None, "logprobs": []}
    for chunk in chunks:
        for choice in chunk["choices"] if isinstance(chunk, dict) else ():
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            found["content"] += delta.get("content") or ""
            found["reasoning"] += delta.get("reasoning_content") or ""
            assert delta.get("reasoning") == delta.get("reasoning_content")
            for call in delta.get("tool_calls", ()):
                entry = found["calls"].setdefault(call["index"], {"arguments": ""})
                entry |= {key: call[key] for key in ("id", "type") if key in call}
                entry["name"] = call["function"].get("name", entry.get("name"))
                entry["arguments"] += call["function"]["arguments"]
            found["finish"] = choice["finish_reason"] or found["finish"]
            found["logprobs"] += (choice["logprobs"] or {}).get("content", [])
    return found
