"""OpenAI chat completions: request and response, the request's keys beside `choices` or `response`, bare messages.

In bare messages the last one is the output if the assistant wrote it; otherwise the call has no answer yet.
Fine-tuning rows (`{messages}`, `{conversations: [{from, value}]}`) and legacy completions (`prompt`) read alike.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._messages import are_messages, is_message, read_messages
from mainspring.text.formats._pairs import pair, peek
from mainspring.text.formats._reading import Reading, join
from mainspring.text.formats._values import read_choices, read_output_value, read_request, take_finish
from mainspring.text.span import Json, ReadSpan

NAME = "openai-chat"
_INPUT_KEYS = ("messages", "conversations", "conversation")


def matches(data: Json) -> bool:
    if isinstance(data, list):
        first = data[0] if data else None
        return is_message(first) or (len(data) == 1 and are_messages(first))
    request, response = peek(data)
    answered = "choices" in request or response is not None
    return any(isinstance(request.get(key), list | str | dict) for key in _INPUT_KEYS) or (
        "prompt" in request and answered
    )


def read(data: Json) -> ReadSpan:
    if isinstance(data, list):
        r = Reading(NAME)
        r.input += read_messages(r, data, "")
        r.split_answer()
        return r.done()
    if not isinstance(data, dict):
        raise SpanError("neither messages nor a request with messages")
    r = Reading(NAME, "messages")
    found = pair(r, data)
    used = found.outer if found.response is not None else (*found.outer, "choices", "finish_reason")
    read_request(r, found.request, found.request_where, used if found.request is data else ())
    r.root = join(found.request_where, "messages")
    if found.request is not data:
        r.unread(data, "", used)
    if found.response is not None:
        read_output_value(r, found.response, found.response_where)
    elif data.get("choices") is not None:
        read_choices(r, data["choices"], "choices")
        take_finish(r, data)
    else:
        r.split_answer()
    return r.done()
