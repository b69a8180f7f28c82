"""Tasks done with a tool: what the user told, the call made of it, how it ended and what is said of that vary on their own.

The sources' calls are of a coffee bar, a cinema and a search box: whether an argument fits what was said would be learned
of these alone.
"""

import json
import random
import re
from collections.abc import Sequence

from mainspring.text.span import Message, Span, ToolCall, ToolDefinition, ToolResult
from mainspring.train.content.changed import SORTS, Sort
from mainspring.train.content.failures import admission, error
from mainspring.train.sources import message

# Name of the tool, what is asked for, what is said when it is done.
TASKS = (
    ("book_table", "Please book a table for us.", "Your table is booked."),
    ("reserve_room", "I need a room for the night.", "The room is reserved."),
    ("rent_vehicle", "I'd like to rent something to get around.", "Your rental is confirmed."),
    ("send_parcel", "Can you send a parcel for me?", "The parcel is on its way."),
    ("create_invoice", "Write an invoice, please.", "The invoice has been made."),
    ("open_ticket", "Open a ticket for this.", "I have opened a ticket."),
    ("schedule_meeting", "Set up a meeting.", "The meeting is in everybody's calendar."),
    ("update_profile", "My details have changed, please update them.", "Your profile is up to date."),
    ("transfer_money", "Please make a transfer.", "The money has been sent."),
    ("order_flowers", "I want to order flowers.", "The flowers will be delivered."),
    ("buy_tickets", "Get me tickets, please.", "Your tickets are ready."),
    ("add_contact", "Add a new contact.", "The contact has been added."),
    ("set_reminder", "Remind me of something.", "You will be reminded."),
    ("file_claim", "I want to report damage.", "Your claim has been filed."),
    ("register_guest", "Please register a guest.", "The guest is on the list."),
    ("change_plan", "I'd like to change my plan.", "Your plan was changed."),
    ("report_outage", "Something is out of order here.", "The fault has been reported."),
    ("make_appointment", "I'd like to see somebody about this.", "You have an appointment."),
    ("log_hours", "Log my hours.", "Your hours are in the system."),
    ("find_course", "Look for a course for me.", "There is one that fits, and I have put you down for it."),
    ("print_badge", "Print a badge.", "The badge is at the front desk."),
    ("place_order", "I'd like to order something.", "Your order has been placed."),
    ("search_offers", "What offers are there?", "I found a good one and saved it for you."),
    ("hire_helper", "We need somebody to help us.", "A helper will come."),
    ("start_return", "I want to send something back.", "The return label is in your inbox."),
    ("plan_route", "How do I get there?", "I have planned the route."),
    ("create_account", "I need an account.", "Your account is ready."),
    ("share_document", "Share the document with the others.", "The document has been shared."),
    ("request_quote", "What would that cost?", "A quote is on its way to you."),
    ("enroll_member", "I'd like to join.", "Welcome, you are a member now."),
)  # fmt: skip
# Tools that would serve as well: no wrong ones.
_LIKE = {
    frozenset((tool, other))
    for tool, others in {
        "search_offers": "request_quote find_course buy_tickets", "create_account": "enroll_member register_guest",
        "open_ticket": "report_outage file_claim start_return make_appointment", "create_invoice": "request_quote",
        "schedule_meeting": "make_appointment set_reminder", "place_order": "order_flowers buy_tickets search_offers",
        "update_profile": "change_plan add_contact", "report_outage": "file_claim", "send_parcel": "start_return",
        "enroll_member": "find_course register_guest", "add_contact": "register_guest", "hire_helper": "make_appointment",
    }.items()
    for other in others.split()
}  # fmt: skip
# What is so, but isn't wanted, and what is a request by itself.
_ASIDE = re.compile(r"closed on|was there in|I lost|broke down|came by|Forward|needs help|Deliver|Write to|Call me")
# Errors that blame a value: the call may be right.
_BLAMES = re.compile(
    r"invalid|malformed|out of range|in the past|parameter|unknown|match|not found|no such|not exist", re.I
)
_ASKS = (
    "What should I know?",
    "Sure. Anything else?",
    "Of course, tell me more.",
    "Happy to. What are the details?",
    "Go on.",
)
_SYSTEM = (
    "You help with bookings and orders.",
    "Use the tools for what the user asks.",
    "You are an assistant with tools.",
)
_COUNTS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNTED = (
    "We are {v}.",
    "It is for {v} people.",
    "There will be {v} of us.",
    "For {v}, please.",
    "Count {v} persons.",
)
_IDS = ("id", "reference", "number", "case", "key")
Argument = tuple[str, str, str, str]  # key, value, what the user says, what a reply may say


def task(rng: random.Random) -> tuple[Span, dict[str, bool | None]]:
    """A call in the output or in an earlier turn, its arguments those told or one of them another, and what is true of it."""
    name, request, done = rng.choice(TASKS)
    found = [_told(sort, rng) for sort in rng.sample(SORTS, rng.randint(1, 3))]
    if rng.random() < 0.35:
        found[0] = _count(rng)
    arguments = {key: value for key, value, _, _ in found}
    said = " ".join(text for _, _, text, _ in found)
    told: dict[str, bool | None] = {"wrong_tool": rng.random() < 0.12}
    if told["wrong_tool"]:
        name = rng.choice([tool for tool, _, _ in TASKS if tool != name and {tool, name} not in _LIKE])
    elif rng.random() < 0.5:
        arguments = _wrong(arguments, said, rng)
        told["wrong_argument"] = True
    else:
        told["wrong_argument"] = False
    turns = _asked(request, said, rng)
    call = Message("assistant", (ToolCall(name, arguments),))
    tools = _tools(name, tuple(arguments), rng) if rng.random() < 0.5 else ()
    if rng.random() < 0.4:
        return Span(turns, (call,), tools), told
    result, reply, ignored = _outcome(found, done, rng)
    told["ignores_error"] = ignored
    if ignored or (reply.startswith(done) and not told["wrong_tool"] and not told["wrong_argument"]):
        told["contradicts_result"] = (
            ignored  # an admission may name another cause, a claim another value than the call's
        )
    turns = (*turns, call, Message("tool", (ToolResult(result),)))
    return Span(turns, (message("assistant", reply),), tools), told


def _told(sort: Sort, rng: random.Random) -> Argument:
    value = sort.draw(rng)
    told = rng.choice([text for text in sort.told if not _ASIDE.search(text)]).format(v=value)
    return _key(sort), value, told, rng.choice(sort.repeated).format(v=value)


def _key(sort: Sort) -> str:
    return re.sub(r"\W", "_", sort.noun)


def _count(rng: random.Random) -> Argument:
    """A number as a word, in digits in the call."""
    at = rng.randrange(len(_COUNTS))
    said = rng.choice(_COUNTED).format(v=_COUNTS[at] if rng.random() < 0.7 else at + 2)
    return "people", str(at + 2), said, f"It is for {_COUNTS[at]}."


def _wrong(arguments: dict[str, str], said: str, rng: random.Random) -> dict[str, str]:
    """Another value in place of a told one; now and then an argument beside them, of which nobody spoke."""
    sorts = {_key(sort): sort for sort in SORTS}
    key = rng.choice(list(arguments))
    if rng.random() < 0.15:
        key = rng.choice([other for other in sorts if other not in arguments])
    while True:
        other = str(rng.randint(2, 14)) if key == "people" else sorts[key].draw(rng)
        if other != arguments.get(key) and other.lower() not in said.lower():
            return {**arguments, key: other}


def _asked(request: str, said: str, rng: random.Random) -> tuple[Message, ...]:
    chance = rng.random()
    turns: tuple[Message, ...]
    if chance < 0.3:
        turns = (message("user", request), message("assistant", rng.choice(_ASKS)), message("user", said))
    else:
        turns = (message("user", f"{request} {said}" if chance < 0.7 else f"{said} {request}"),)
    return (message("system", rng.choice(_SYSTEM)), *turns) if rng.random() < 0.25 else turns


def _tools(name: str, keys: Sequence[str], rng: random.Random) -> tuple[ToolDefinition, ...]:
    others = rng.sample([other for other, _, _ in TASKS if other != name], rng.randint(0, 2))
    named = {key: {"type": "string"} for key in keys}
    found = [ToolDefinition(name, parameters={"type": "object", "properties": named}), *map(ToolDefinition, others)]
    rng.shuffle(found)
    return tuple(found)


def _outcome(found: Sequence[Argument], done: str, rng: random.Random) -> tuple[str, str, bool]:
    """(the tool's result, the reply, whether it passes over a failure). A value that it takes up is the one told."""
    claim = f"{done} {rng.choice(found)[3]}" if rng.random() < 0.5 else done
    if rng.random() < 0.55:
        good = {"status": rng.choice(("ok", "done", "created", "accepted"))}
        if rng.random() < 0.6:
            good[rng.choice(_IDS)] = f"{rng.choice('ABCDEFGHK')}{rng.randint(100, 99999)}"
        return json.dumps(good), claim, False
    result = error(rng)
    while _BLAMES.search(result):
        result = error(rng)
    ignored = rng.random() < 0.5
    return result, claim if ignored else admission(rng), ignored
