"""The user gives a few values and the reply repeats them, one of them perhaps wrong."""

import random
from dataclasses import dataclass

from mainspring.text.span import Span
from mainspring.train.content import changed
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.slots import values
from mainspring.train.content.wordings import more
from mainspring.train.sources import exchange


@dataclass(frozen=True)
class Echo:
    behavior: Behavior
    told: tuple[str, ...]
    repeated: tuple[str, ...]
    slots: tuple[str, ...]  # that differ where the reply is wrong


def _of(key: str, train: str, test: str, told: str, repeated: str, slots: str) -> Echo:
    split = (tuple(part.strip() for part in text.split("|")) for text in (train, told, repeated))
    clauses, first, second = split
    return Echo(Behavior(key, (*clauses, *more("edits", key)), (test,), ("text",)), first, second, tuple(slots.split()))


def _sort(sort: changed.Sort) -> Echo:
    behavior = Behavior(sort.key, changed.clauses(sort), (changed.unseen(sort),), ("text",))
    told, repeated = (tuple(t.replace("{v}", f"{{{sort.key}}}") for t in texts) for texts in (sort.told, sort.repeated))
    return Echo(behavior, told, repeated, (sort.key,))


ECHOES: tuple[Echo, ...] = (
    _of("wrong_name", "the reply gets a name wrong|the assistant calls somebody by another name than the input gives|"
        "a name in the reply differs from the one in the conversation", "the response confuses a person's name",
        "My name is {name}. Can you note that?|Hi, this is {name} speaking.|Please write a note to {name}.",
        "Noted, {name}.|Hello {name}, nice to meet you.|Dear {name}, here is a short note for you.", "name"),
    _of("wrong_number", "the reply gets a number wrong|the assistant repeats a number from the input with a mistake|"
        "a number in the reply differs from the one the user gave", "the response contradicts a figure in the input",
        "My order number is {long}.|The account ends in {long}.|Please look up ticket {long}.",
        "I have found number {long}.|Your entry {long} is in our system.|Number {long} is still open.", "long"),
    _of("wrong_date", "the reply gets a date wrong|the assistant names another date than the user did",
        "the response contradicts the day given in the input",
        "I arrive on {month} {day}.|Book it for {month} {day}.|The meeting is on {month} {day}.",
        "So the date is {month} {day}.|I have put down {month} {day}.|See you on {month} {day}.", "month day"),
    _of("wrong_city", "the reply gets a place wrong|the assistant names another city than the user did|"
        "a city in the reply differs from the one in the conversation", "the response confuses the place",
        "I live in {city}.|I want to travel to {city}.|Our office is in {city}.",
        "{city} is noted.|Then {city} it is.|I have found several offers for {city}.", "city"),
    _of("wrong_amount", "the reply gets a sum of money wrong|the assistant names another price than was given",
        "the response contradicts the amount in the input",
        "It cost {num} dollars.|I paid {num} dollars for it.|My budget is {num} dollars.",
        "So {num} dollars in all.|With {num} dollars you can get that.|The sum is {num} dollars.", "num"),
    _of("wrong_product", "the reply mixes up the product|the assistant speaks of another article than the user|"
        "a product in the reply differs from the one the user named", "the response is about the wrong item",
        "My {product} is broken.|I ordered a {product}.|I have a question about the {product}.",
        "What is wrong with the {product}?|The {product} is on its way.|I see your {product} here.", "product"),
    _of("wrong_year", "the reply gets a year wrong|the assistant names another year than the user did|"
        "a year in the reply differs from the one in the conversation", "the response mistakes the year given",
        "I was born in {year}.|The house was built in {year}.|We moved here in {year}.",
        "I see, {year}.|So it was in {year}.|{year} is on record.", "year"),
    _of("wrong_company", "the reply gets a company's name wrong|the assistant names another firm than the user did|"
        "a firm in the reply differs from the one in the conversation", "the response confuses the business",
        "I work for {company}.|I bought it from {company}.|We have a contract with {company}.",
        "{company} is known to us.|So it is about {company}.|I have put down {company}.", "company"),
    _of("wrong_time", "the reply gets the hour wrong|the assistant names another time than the user did|"
        "a time of day in the reply differs from the one in the conversation", "the response mistakes the hour given",
        "I can come at {hour} o'clock.|Call me at {hour} o'clock.|The train leaves at {hour} o'clock.",
        "{hour} o'clock is fine.|I have noted {hour} o'clock.|So at {hour} o'clock.", "hour"),
    *map(_sort, changed.SORTS),
)  # fmt: skip
# Echoes whose fault makes another one true as well: of that one nothing is said then.
INCLUDES = {
    "wrong_number": {
        "wrong_amount", "wrong_year", "wrong_date", "wrong_time", "wrong_phone_number", "wrong_room", "wrong_age",
        "wrong_weight", "wrong_size", "wrong_street", "wrong_booking_code", "wrong_flight", "wrong_score", "wrong_version",
    },
    "wrong_date": {"wrong_month"},
    "wrong_month": {"wrong_date"},
    "wrong_name": {"wrong_company"},
    "wrong_city": {"wrong_country", "wrong_street"},
    "wrong_product": {"wrong_vehicle", "wrong_dish", "wrong_drink", "wrong_instrument"},
}  # fmt: skip
BEHAVIORS = {echo.behavior.key: echo.behavior for echo in ECHOES}


def other_number(number: str, rng: random.Random) -> str:
    while (other := "".join(rng.choice("123456789") if c.isdigit() else c for c in number)) == number:
        pass
    return other


def echoed(filler: str, rng: random.Random) -> tuple[Span, dict[str, bool | None]]:
    slots, other = _slots(rng), _slots(rng)
    other["long"] = other_number(slots["long"], rng)
    chosen = rng.sample(ECHOES, rng.randint(1, 3))
    faulty = rng.choice(chosen) if rng.random() < 0.5 else None
    if faulty and all(other[name] == slots[name] for name in faulty.slots):
        faulty = None
    wrong = slots | ({name: other[name] for name in faulty.slots} if faulty else {})
    asked = " ".join(rng.choice(echo.told).format(**slots) for echo in chosen)
    said = " ".join(rng.choice(echo.repeated).format(**wrong) for echo in chosen)
    unclear = {key for key, others in INCLUDES.items() if faulty and faulty.behavior.key in others}
    told: dict[str, bool | None] = {e.behavior.key: e is faulty for e in chosen if e.behavior.key not in unclear}
    return exchange(asked, f"{said} {filler}".strip()), told


def _slots(rng: random.Random) -> dict[str, str]:
    sorts = {sort.key: sort.draw(rng) for sort in changed.SORTS}
    return values(rng) | sorts | {"long": str(rng.randint(10_000, 9_999_999)), "hour": str(rng.randint(1, 12))}
