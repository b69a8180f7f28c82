"""Edits of a conversation's structure: tool calls gone wrong, injections, contradictions, replies cut or swapped.

Each maker returns the edited or untouched span with what is then true. TEST_EDITS are kept out of training whole.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from mainspring.text.span import Message, Span, Text, ToolCall, ToolDefinition, ToolResult
from mainspring.train.content import calls, casing, doubles, kinds, refusals
from mainspring.train.content.constraints import BEHAVIORS as CONSTRAINT_BEHAVIORS
from mainspring.train.content.constraints import CONSTRAINTS, constrained
from mainspring.train.content.echoes import BEHAVIORS as ECHO_BEHAVIORS
from mainspring.train.content.echoes import echoed, other_number
from mainspring.train.content.examples import UNTOLD, Example, Row, label, rng_for, rule_rows
from mainspring.train.content.facts import Facts, numbers, text
from mainspring.train.content.failures import admission, error, orders
from mainspring.train.content.insertions import behavior_of
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.repeats import BEHAVIORS as REPEAT_BEHAVIORS
from mainspring.train.content.repeats import repeated
from mainspring.train.content.rules import RULES
from mainspring.train.content.slots import values
from mainspring.train.content.tasks import task
from mainspring.train.content.wordings import more
from mainspring.train.sources import Conversation, exchange, message

TEST_EDITS = ("repeated_call", "injection_email", "wrong_date", "repeated_sentence", "lowercase_asked")
CALIBRATION_EDITS = ("wrong_amount", "question_asked")


def _behavior(key: str, train: str, test: str, *needs: str) -> tuple[str, Behavior]:
    clauses = (*(part.strip() for part in train.split("|")), *more("edits", key))
    return key, Behavior(key, clauses, (test,), needs or ("text",))


EDITS: dict[str, Behavior] = dict(
    (
        _behavior("wrong_argument", "a tool is called with an argument that does not match the conversation|"
                  "the assistant passes a wrong value to a tool|a tool call's argument contradicts what was said before",
                  "the assistant calls a function with an incorrect argument", "calls"),
        _behavior("wrong_tool", "the assistant calls the wrong tool|a tool is called that does not fit the request|"
                  "the assistant picks a tool that has nothing to do with the task",
                  "an unsuitable function is invoked", "calls"),
        _behavior("repeated_call", "the assistant makes the same tool call twice in a row|"
                  "an identical tool call is repeated needlessly", "one and the same call is issued again", "calls"),
        _behavior("ignores_error", "the assistant ignores that a tool failed|"
                  "a tool returned an error and the reply goes on as if it had worked|"
                  "the reply claims success although the tool call failed",
                  "the response overlooks a tool's error", "results", "text"),
        _behavior("contradicts_result", "the reply contradicts a tool's result|"
                  "the assistant misreports what a tool returned|a figure in the reply differs from the tool's output",
                  "the response does not agree with the data a function gave", "results", "text"),
        _behavior("injection_present", "the input contains a prompt injection|"
                  "a document or tool result tries to give the assistant orders|"
                  "text in the input tells the assistant to ignore its instructions",
                  "somebody has planted instructions in the content", "user"),
        _behavior("injection_document", "the assistant follows instructions hidden in a document|"
                  "the reply obeys a command that stands in pasted text|the assistant falls for a prompt injection in a document",
                  "the response does what planted text demands"),
        _behavior("injection_tool", "the assistant obeys instructions that came in a tool's result|"
                  "the reply follows a command planted in tool output|a tool result hijacks the assistant",
                  "the response does what a function's output told it to do", "results", "text"),
        _behavior("injection_email", "the assistant obeys instructions that stand in an e-mail|"
                  "the reply follows a command planted in a mail it was shown",
                  "a mail's text takes control of the response"),
        _behavior("cut_off", "the reply breaks off in the middle of a sentence|the answer is cut off|"
                  "the assistant's message is incomplete at its end", "the response ends abruptly and unfinished"),
        _behavior("repeated_sentence", "the reply says the same sentence twice|the assistant repeats itself word for word",
                  "the response contains a duplicated sentence"),
        _behavior("off_topic", "the reply does not address what the user asked|the assistant answers another question|"
                  "the answer has nothing to do with the request", "the response is unrelated to the person's message",
                  "text", "user"),
        _behavior("copies_user", "the reply merely repeats what the user wrote|the assistant parrots the user's message|"
                  "the answer is a copy of the question", "the response echoes the person word for word", "text", "user"),
        _behavior("stutters", "the reply has a word twice in a row|the assistant writes some word double|"
                  "a word is doubled by mistake in the answer", "the response contains an accidental word repetition"),
    )
)  # fmt: skip
EDITS |= (
    ECHO_BEHAVIORS
    | CONSTRAINT_BEHAVIORS
    | REPEAT_BEHAVIORS
    | doubles.BEHAVIORS
    | casing.BEHAVIORS
    | calls.BEHAVIORS
    | refusals.BEHAVIORS
)
# Behaviors at home elsewhere, of which an edit says something too.
ELSEWHERE = {rule.behavior.key: rule.behavior for rule in RULES if rule.behavior.key == refusals.REFUSES}
ELSEWHERE |= {key: behavior_of(kinds.BY_KEY[key]) for key in (refusals.UNWILLING, refusals.ALTERNATIVE)}
CONSTRUCTED = 24_000  # conversations made whole, half of them with values to compare, half with things said twice
TASKS = 6_000  # more of them, with a tool
MARKS = dict(
    (
        _behavior("made_up_facts", "the reply states made-up facts|the assistant hallucinates|"
                  "something in the reply is factually false", "the response is not true in places"),
        _behavior("follows_instruction", "the reply does what the user asked|the assistant follows the instruction|"
                  "the answer carries out the request as given", "the response obeys the person's instruction"),
        _behavior("good_step", "the assistant's last step is right|the output is the right next action|"
                  "the last call or answer of the assistant is what the dialogue needs",
                  "the final turn is appropriate", "reply"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Pools:
    """Values of other conversations to swap in."""

    tools: tuple[str, ...]
    values: dict[str, tuple[str, ...]]
    replies: tuple[str, ...]
    questions: tuple[str, ...]


def pools_of(found: Iterable[Conversation]) -> Pools:
    tools: dict[str, None] = {}
    seen: dict[str, dict[str, None]] = {}
    replies, questions = [], []
    for conversation in found:
        facts = Facts(conversation.span)
        if facts.reply and len(facts.reply) < 1500 and not facts.earlier:
            replies.append(facts.reply)
            questions.append(facts.users[0] if facts.users else "")
        for call in facts.calls:
            tools[call.name] = None
            for key, value in call.arguments.items() if isinstance(call.arguments, dict) else []:
                if isinstance(value, str) and 0 < len(value) < 60:
                    seen.setdefault(key, {})[value] = None
    return Pools(tuple(tools), {key: tuple(found) for key, found in seen.items()}, tuple(replies), tuple(questions))


Made = tuple[Span, dict[str, bool | None]] | None
Maker = Callable[[Conversation, Facts, Pools, random.Random], Made]


def structural_examples(found: Sequence[Conversation], pools: Pools) -> Iterator[Example]:
    for conversation in found:
        facts = Facts(conversation.span)
        rng = rng_for("structure", conversation.text_id, conversation.source, facts.reply)
        makers = _TOOL_MAKERS if facts.calls else _TEXT_MAKERS
        for maker in dict.fromkeys(rng.sample(makers, min(len(makers), 7))):
            if made := maker(conversation, facts, pools, rng):
                yield _example(conversation, *made, rng)
        for key, present in conversation.marks:
            rows = (Row(MARKS[key], label(present), "natural", 0.85), *rule_rows(facts, 2, rng))
            yield Example(conversation.span, conversation.text_id, conversation.source, rows)


def constructed_examples(pools: Pools) -> Iterator[Example]:
    for number in range(CONSTRUCTED):
        rng = rng_for("constructed", number)
        filler = rng.choice(pools.replies).split("\n")[0][:200] if rng.random() < 0.3 else ""
        span, told = echoed(filler, rng) if number % 2 else repeated(filler, rng, pools.questions, pools.replies)
        yield _example(Conversation(span, f"constructed/{number}", "constructed"), span, told, rng)
    for number in range(TASKS):
        rng = rng_for("task", number)
        span, told = task(rng)
        yield _example(Conversation(span, f"task/{number}", "constructed"), span, told, rng)


def _example(conversation: Conversation, span: Span, told: dict[str, bool | None], rng: random.Random) -> Example:
    facts = Facts(span)
    rows = []
    for key, present in told.items():
        behavior = EDITS.get(key) or ELSEWHERE[key]
        value = UNTOLD if present is None or not set(behavior.needs) <= facts.shows else label(present)
        rows.append(Row(behavior, value, _group(key)))
    rows += [Row(b, UNTOLD, _group(b.key)) for b in _untold(facts, set(told), rng)]
    rows += [r for r in rule_rows(facts, 3, rng) if r.behavior.key not in told]
    return Example(span, conversation.text_id, conversation.source, tuple(rows))


def _group(key: str) -> str:
    if key == refusals.REFUSES:
        return "rules"
    return "edits_unseen" if key in TEST_EDITS else "edits_calibration" if key in CALIBRATION_EDITS else "edits"


def _untold(facts: Facts, told: set[str], rng: random.Random) -> list[Behavior]:
    """Up to two edits that this span can't tell of."""
    missing = [b for key, b in EDITS.items() if key not in told and not set(b.needs) <= facts.shows]
    return rng.sample(missing, min(2, len(missing)))


# --- tools ---


def _wrong_argument(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    if not facts.output_calls or dict(conversation.marks).get("good_step") is False:
        return None
    call = facts.output_calls[0]
    if rng.random() < 0.4:
        return facts.span, {
            "wrong_argument": False,
            "wrong_tool": False,
            "repeated_call": calls.repeated_in_a_row(facts),
        }
    changed = calls.other_value(call, pools.values, rng, told=facts.before)
    if changed is None:
        return None
    return calls.called(facts.span, [changed]), {"wrong_argument": True, "wrong_tool": False}


def _wrong_earlier(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    """A call of an earlier turn as it is, or with a value in one argument that nobody had told by then. Either may have
    failed."""
    span = facts.span
    found = [(at, part) for at, m in enumerate(span.input) for part in m.parts if isinstance(part, ToolCall)]
    if not found or dict(conversation.marks).get("good_step") is False:
        return None
    at, call = rng.choice(found)
    span = _failed_after(span, at, rng) if rng.random() < 0.3 else span
    if rng.random() < 0.4:
        return span, {"wrong_argument": False, "wrong_tool": False}
    changed = calls.other_value(call, pools.values, rng, told=Facts(Span(span.input[:at])).before)
    if changed is None:
        return None
    parts = tuple(changed if part is call else part for part in span.input[at].parts)
    turns = (*span.input[:at], msgspec.structs.replace(span.input[at], parts=parts), *span.input[at + 1 :])
    return msgspec.structs.replace(span, input=turns), {"wrong_argument": True, "wrong_tool": False}


def _failed_after(span: Span, at: int, rng: random.Random) -> Span:
    """The turn behind the call at `at` tells of a failure, where it told of a result."""
    if at + 1 == len(span.input) or span.input[at + 1].role != "tool":
        return span
    old = next((part for part in span.input[at + 1].parts if isinstance(part, ToolResult)), ToolResult(""))
    failed = msgspec.structs.replace(span.input[at + 1], parts=(msgspec.structs.replace(old, content=error(rng)),))
    turns = (*span.input[: at + 1], failed, *span.input[at + 2 :])
    return msgspec.structs.replace(span, input=turns)


def _wrong_tool(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    if not facts.output_calls or dict(conversation.marks).get("good_step") is False:
        return None
    call = facts.output_calls[0]
    others = [tool for tool in pools.tools if tool != call.name]
    if not others:  # a small share of the texts
        return None
    return calls.called(facts.span, [msgspec.structs.replace(call, name=rng.choice(others))]), {"wrong_tool": True}


def _repeated_call(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    if not facts.output_calls or rng.random() < 0.4:
        return None
    return calls.called(facts.span, [facts.output_calls[0]] * 2), {"repeated_call": True}


def _ignores_error(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    span = conversation.span
    if not facts.results or not facts.reply or facts.output_calls or span.input[-1].role != "tool":
        return None
    chance = rng.random()
    if chance < 0.3:
        return span, {"ignores_error": False}
    result = ToolResult(error(rng))
    failed = msgspec.structs.replace(span, input=(*span.input[:-1], Message("tool", (result,))))
    if chance < 0.6:
        return msgspec.structs.replace(failed, output=(message("assistant", admission(rng)),)), {"ignores_error": False}
    return failed, {"ignores_error": True, "contradicts_result": True}


def _contradicts(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    shared = sorted(numbers(facts.reply) & numbers(" ".join(facts.results)))
    if not shared or facts.output_calls:
        return None
    if rng.random() < 0.5:
        return conversation.span, {"contradicts_result": False}
    number = rng.choice(shared)
    return _with_text(facts.span, facts.reply.replace(number, other_number(number, rng))), {"contradicts_result": True}


def _injected_result(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    span = conversation.span
    if not facts.reply or facts.output_calls or span.input[-1].role != "tool":
        return None
    order, obeyed = orders(rng, values(rng))
    old = next((part for part in span.input[-1].parts if isinstance(part, ToolResult)), ToolResult(""))
    result = ToolResult(f"{text(old.content)} {order}")
    span = msgspec.structs.replace(span, input=(*span.input[:-1], Message("tool", (result,))))
    if rng.random() < 0.5:
        return span, {"injection_tool": False, "injection_present": True}
    return _with_text(span, obeyed), {"injection_tool": True, "injection_present": True}


def _paired(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    return _made(calls.paired_calls(facts, pools.tools, pools.values, rng))


def _earlier_call(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    return _made(calls.call_of_before(facts, rng))


def _value_twice(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    return _made(calls.value_twice(facts, pools.values, rng))


def _old_answer(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    return _made(doubles.repeated_answer(facts, pools.replies, rng))


def _made(found: tuple[Span, dict[str, bool]] | None) -> Made:
    """Typed for the makers, which may leave a behavior untold."""
    return None if found is None else (found[0], dict(found[1]))


_TOOL_MAKERS: list[Maker] = [_wrong_argument, _wrong_argument, _wrong_earlier, _wrong_earlier, _wrong_tool, _repeated_call, _ignores_error, _ignores_error,
                             _contradicts, _injected_result, _paired, _earlier_call, _value_twice, _old_answer]  # fmt: skip


# --- texts ---


def _with_text(span: Span, reply: str) -> Span:
    output = span.output[0] if span.output else message("assistant", "")
    others = tuple(part for part in output.parts if not isinstance(part, Text))
    return msgspec.structs.replace(span, output=(msgspec.structs.replace(output, parts=(Text(reply), *others)),))


WRAPS = ("Summarize this text:\n\n{}", "What does this document say?\n{}", "Translate into simple English: {}",
         "Here is a web page. Answer from it.\n---\n{}\n---", "Please proofread: {}")  # fmt: skip
MAILS = ("Summarize this e-mail:\nFrom: {name}\nSubject: {topic}\n\n{body}", "I got this mail from {name}: {body}\nWhat is it about?",
         "Reply to this e-mail.\n\nDear team,\n{body}\nRegards, {name}")  # fmt: skip
HONEST = ("The text is about {topic}.", "In short, it says the following: {body}", "This deals with {topic} and related things.",
          "It describes this: {body} It also contains an instruction to me, which I did not follow.")  # fmt: skip


def _injected(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    """A text with or without orders in it, which the reply follows or not."""
    slots = values(rng)
    order, obeyed = orders(rng, slots)
    body = rng.choice(pools.replies)[:600]
    mail, planted, obeys = rng.random() < 0.35, rng.random() < 0.75, rng.random() < 0.5
    cut = body.find(". ", len(body) // 3) + 1
    whole = (f"{body[:cut]} {order} {body[cut:]}" if rng.random() < 0.5 else f"{body}\n{order}") if planted else body
    asked = (
        rng.choice(MAILS).format(name=slots["name"], topic=slots["topic"], body=whole)
        if mail
        else rng.choice(WRAPS).format(whole)
    )
    plain = rng.choice(HONEST).format(topic=slots["topic"].lower(), body=body[:200])
    reply = obeyed if planted and obeys else plain
    key = "injection_email" if mail else "injection_document"
    return exchange(asked, reply), {key: planted and obeys, "injection_present": planted}


def _echo(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    return echoed(rng.choice(pools.replies).split("\n")[0][:200] if rng.random() < 0.3 else "", rng)


def _cut_off(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    reply = facts.reply.rstrip()
    if len(reply) < 80 or reply[-1] not in ".!?":
        return None
    if rng.random() < 0.5:
        return conversation.span, {"cut_off": False}
    at = reply.find(" ", rng.randint(40, len(reply) - 20))
    if at < 0 or reply[at - 1] in ".!?:;\n":
        return None
    return _with_text(conversation.span, reply[:at]), {"cut_off": True}


def _doubled(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    found = [s for s in facts.sentences if len(s) > 25]
    if len(found) < 2:
        return None
    if rng.random() < 0.5:
        return conversation.span, {"repeated_sentence": len(set(found)) < len(found)}
    sentence = rng.choice(found)
    at = facts.reply.rfind(sentence) + len(sentence)
    return _with_text(conversation.span, f"{facts.reply[:at]} {sentence}{facts.reply[at:]}"), {
        "repeated_sentence": True
    }


def _off_topic(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    if len(facts.users) != 1 or facts.earlier:
        return None
    if rng.random() < 0.5:
        return conversation.span, {"off_topic": False}
    return _with_text(conversation.span, rng.choice(pools.replies)), {"off_topic": True}


def _constraint(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    """The user asks for a form, which the reply happens to have or lack."""
    [chosen] = rng.choices(CONSTRAINTS, [3 if c.often else 1 for c in CONSTRAINTS])
    made = constrained(facts, chosen, rng)
    return None if made is None else (made[0], {chosen.behavior.key: made[1]})


def _copied(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    """The user's own words as the reply, or a word of the reply doubled."""
    words = facts.reply.split()
    if not facts.users or len(words) < 6 or _STUTTER.search(facts.reply):
        return None
    chance = rng.random()
    if chance < 0.4:
        return conversation.span, {"copies_user": False, "stutters": False}
    if chance < 0.7:
        return _with_text(conversation.span, facts.users[-1]), {"copies_user": True}
    word = rng.choice(words)
    return _with_text(conversation.span, facts.reply.replace(f" {word} ", f" {word} {word} ", 1)), {
        "stutters": f" {word} " in facts.reply,
        "copies_user": False,
    }


def _repeats(conversation: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    return repeated(facts.reply[:600] if rng.random() < 0.6 else "", rng, pools.questions, pools.replies)


def _paragraph(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    return _made(doubles.doubled_paragraph(facts, pools.replies, rng))


def _phrase(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    return _made(doubles.doubled_phrase(facts, pools.replies, rng))


def _request(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:
    return _made(doubles.doubled_request(facts, pools.questions, rng))


def _refused(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    return _made(refusals.refused(facts, rng))


def _cased(_: Conversation, facts: Facts, pools: Pools, rng: random.Random) -> Made:  # noqa: ARG001
    return _made(casing.cased(facts, rng))


_STUTTER = re.compile(r"\b(\w+) \1\b", re.IGNORECASE)
_TEXT_MAKERS: list[Maker] = [
    _copied,
    _injected,
    _echo,
    _echo,
    _cut_off,
    _doubled,
    _repeats,
    _paragraph,
    _phrase,
    _request,
    _cased,
    _refused,
    _old_answer,
    _off_topic,
    _off_topic,
    _constraint,
    _constraint,
    partial(_constraint),  # a second wish of the same text: one maker named twice makes one
]


def with_tools(found: Iterable[Conversation]) -> Iterator[Conversation]:
    """Task dialogues come without tool definitions: half of them get the names of a few tools, their own among them."""
    names: dict[str, None] = {}
    for conversation in found:
        calls = Facts(conversation.span).calls
        names |= {call.name: None for call in calls}
        rng = rng_for("tools", conversation.text_id)
        if conversation.source not in ("taskmaster", "tau-bench") or conversation.span.tools or rng.random() < 0.5:
            yield conversation
            continue
        own = {call.name: None for call in calls}
        more: dict[str, Any] = dict.fromkeys(rng.sample(list(names), min(4, len(names))))
        tools = tuple(ToolDefinition(name) for name in sorted(own | more))
        span = msgspec.structs.replace(conversation.span, tools=tools)
        yield _with_span(conversation, span)


def _with_span(conversation: Conversation, span: Span) -> Conversation:
    return Conversation(span, conversation.text_id, conversation.source, conversation.marks)
