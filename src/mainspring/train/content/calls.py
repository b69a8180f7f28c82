"""Calls of tools side by side: two tools, one tool with two values, a call of before, one value in two places."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from mainspring.text.span import Span, ToolCall
from mainspring.train.content.facts import Facts
from mainspring.train.content.phrasing import worded

BEHAVIORS = {
    b.key: b
    for b in (
        worded("two_tools", "the output calls two different tools|the assistant calls two tools at once|"
            "in its last message the agent invokes more than one tool|two functions are called side by side at the end|"
            "the final turn has calls to two separate tools|the model reaches for two tools in one go|"
            "the last step consists of calls of different functions|the bot combines two tools in a single turn",
            "one turn invokes a pair of distinct functions", "calls"),
        worded("two_values", "the output calls one tool with different arguments|the same tool is called twice at the end, with other values|"
            "the last message asks one tool for two things|the agent uses one function on two inputs in the same turn|"
            "the final calls share their tool but not their arguments|the model queries a single tool two times, each with another value|"
            "one tool, two sets of arguments: so the last step|the bot calls a function again with a changed value in one go",
            "one turn invokes a function with distinct inputs", "calls"),
        worded("earlier_call", "the assistant makes a call that it had made earlier|the last tool call was made before with the same arguments|"
            "the output asks a tool for what it has been asked already|the agent calls again what it called in a former turn|"
            "an earlier tool call comes back unchanged in the final message|the model does a lookup it has already done|"
            "the last call is a copy of a previous turn's call|the bot runs an old call anew",
            "the final turn reissues an invocation of before", "calls"),
        worded("same_value_twice", "two arguments of a tool call have the same value|one value is passed to a tool in two places|"
            "a call gives two fields one and the same value|the agent fills two parameters alike|"
            "the last call has a value that stands in it twice|two of the call's parameters are equal|"
            "the model uses one value for two arguments|the bot repeats a value within its call",
            "an invocation has identical inputs in two slots", "calls"),
    )
}  # fmt: skip


def paired_calls(facts: Facts, tools: Sequence[str], values: dict[str, tuple[str, ...]], rng: random.Random) -> tuple[Span, dict[str, bool]] | None:  # fmt: skip
    """The output's call alone, beside a call of another tool, or beside the same tool's with another value."""
    calls = facts.output_calls
    if len(calls) != 1:
        return None
    [call] = calls
    chance = rng.random()
    if chance < 0.34:
        return facts.span, {"two_tools": False, "two_values": False}
    if chance < 0.67:
        others = [tool for tool in tools if tool != call.name]
        second = msgspec.structs.replace(call, name=rng.choice(others)) if others else None
    else:
        second = other_value(call, values, rng)
    if second is None:
        return None
    found = [call, second]
    rng.shuffle(found)
    return called(facts.span, found), {"two_tools": chance < 0.67, "two_values": chance >= 0.67}


def call_of_before(facts: Facts, rng: random.Random) -> tuple[Span, dict[str, bool]] | None:
    """The output's call as it is, or an earlier one's in its place."""
    earlier = facts.calls[: len(facts.calls) - len(facts.output_calls)]
    if not earlier or len(facts.output_calls) != 1:
        return None
    call = rng.choice(earlier) if rng.random() < 0.5 else facts.output_calls[0]
    return called(facts.span, [call]), {"earlier_call": shown(call) in map(shown, earlier)}


def value_twice(facts: Facts, values: dict[str, tuple[str, ...]], rng: random.Random) -> tuple[Span, dict[str, bool]] | None:  # fmt: skip
    """One argument takes another's value, or one from elsewhere."""
    if len(facts.output_calls) != 1 or not isinstance(arguments := facts.output_calls[0].arguments, dict):
        return None
    keys = [key for key, value in arguments.items() if isinstance(value, str) and len(value) > 2 and key in values]
    told = {str(value).lower() for value in arguments.values()}
    if len(keys) < 2 or len(told) < len(arguments):
        return None
    first, second = rng.sample(keys, 2)
    present = rng.random() < 0.5
    value = arguments[first] if present else rng.choice(values[second])
    if not present and value.lower() in told:
        return None
    call = msgspec.structs.replace(facts.output_calls[0], arguments={**arguments, second: value})
    return called(facts.span, [call]), {"same_value_twice": present}


def shown(call: ToolCall) -> str:
    """Alike for calls that differ in the order of their arguments alone."""
    arguments = call.arguments
    return f"{call.name} {arguments if isinstance(arguments, str) else json.dumps(arguments, sort_keys=True)}"


def repeated_in_a_row(facts: Facts) -> bool:
    return any(left == right for left, right in pairwise(map(shown, facts.calls)))


def other_value(
    call: ToolCall, values: dict[str, tuple[str, ...]], rng: random.Random, *, told: str = ""
) -> ToolCall | None:
    """The call with another value in one argument, none that stands in `told`."""
    if not isinstance(call.arguments, dict):
        return None
    keys = [key for key, value in call.arguments.items() if isinstance(value, str) and key in values]
    if not keys:
        return None
    key = rng.choice(keys)
    other = rng.choice(values[key])
    if other.lower() in told.lower() or other.lower() == call.arguments[key].lower():
        return None
    return msgspec.structs.replace(call, arguments={**call.arguments, key: other})


def called(span: Span, calls: Sequence[ToolCall]) -> Span:
    """The span with these calls in its output for those it had."""
    output = span.output[0]
    kept = tuple(part for part in output.parts if not isinstance(part, ToolCall))
    return msgspec.structs.replace(span, output=(msgspec.structs.replace(output, parts=(*kept, *calls)),))
