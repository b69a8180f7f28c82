"""One small span in every known format, all with the user's and the assistant's words."""

import json
from typing import Any

USER, ANSWER = "Where is my parcel?", "At https://example.org/p."
_TURNS = [{"role": "user", "content": USER}]
_REPLY = {"role": "assistant", "content": ANSWER}

EXAMPLES: dict[str, Any] = {
    "langfuse": {"langfuse.observation.input": json.dumps(_TURNS), "langfuse.observation.output": ANSWER},
    "otel": {
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": USER}]}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}],
    },
    "otel-events": {
        "attributes": {"gen_ai.system": "x"},
        "events": [
            {"name": "gen_ai.user.message", "attributes": {"content": USER}},
            {"name": "gen_ai.choice", "attributes": {"index": 0, "message": _REPLY}},
        ],
    },
    "otel-flat": {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": USER,
        "gen_ai.completion.0.content": ANSWER,
    },
    "openinference": {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": USER,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": ANSWER,
    },
    "vercel-ai": {"ai.prompt": json.dumps({"messages": _TURNS}), "ai.response.text": ANSWER},
    "respan": {"log_type": "chat", "prompt_messages": _TURNS, "completion_message": _REPLY},
    "openai-responses": {
        "input": _TURNS,
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}],
    },
    "anthropic": {"system": "Be kind.", "messages": _TURNS, "content": [{"type": "text", "text": ANSWER}]},
    "openai-chat": [*_TURNS, _REPLY],
    "span-01": {"span": {"input": _TURNS, "output": _REPLY}},
    "text": f"User: {USER}\nAssistant: {ANSWER}",
}
