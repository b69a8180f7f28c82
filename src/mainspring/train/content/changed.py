"""Values of many sorts that a user gives and a reply takes up: what each sort is called, its values, how it is said.

A network that is to see that a value was changed has to compare; sorts by the dozen keep it from learning a few names.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

NAMED = (
    "the reply gets the {n} wrong",
    "the assistant names another {n} than the user did",
    "the {n} in the reply differs from the one in the input",
    "the {n} that the user gave comes back as a different one",
    "the bot mixes up the {n}",
    "the {n} was changed on its way from the input into the answer",
    "the user says one {n} and the assistant another",
    "there is a mistake about the {n} in the message",
    "the model does not keep to the {n} it was told",
    "the agent swaps the {n} for something else",
    "the answer speaks of a {n} that the user never mentioned in place of the real one",
    "the AI's {n} is not the user's {n}",
)
UNSEEN = "the response contradicts the {n} the person stated"
Draw = Callable[[random.Random], str]


@dataclass(frozen=True)
class Sort:
    key: str
    noun: str
    draw: Draw
    told: tuple[str, ...]  # with {v}
    repeated: tuple[str, ...]


def _one_of(values: str) -> Draw:
    pool = values.split("|")
    return lambda rng: rng.choice(pool)


def _digits(pattern: str) -> Draw:
    return lambda rng: "".join(str(rng.randint(1, 9)) if c == "0" else c for c in pattern)


_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
_PARTS = (
    "amber",
    "river",
    "falcon",
    "meadow",
    "signal",
    "lantern",
    "harbor",
    "cedar",
    "comet",
    "marble",
    "willow",
    "raven",
)


def _code(rng: random.Random) -> str:
    return "".join(rng.choices(_LETTERS, k=3)) + str(rng.randint(100, 999))


def _mail(rng: random.Random) -> str:
    return f"{rng.choice(_PARTS)}.{rng.choice(_PARTS)}@{rng.choice(_PARTS)}.com"


def _street(rng: random.Random) -> str:
    return f"{rng.randint(2, 98)} {rng.choice(_PARTS).title()} {rng.choice(('Street', 'Road', 'Lane', 'Avenue'))}"


def _sort(key: str, noun: str, draw: Draw, told: str, repeated: str) -> Sort:
    return Sort(f"wrong_{key}", noun, draw, tuple(told.split("|")), tuple(repeated.split("|")))


SORTS: tuple[Sort, ...] = (
    _sort("color", "color", _one_of("red|blue|green|black|white|yellow|purple|orange|grey|brown|pink|silver|beige|golden"),
          "I would like it in {v}.|The car is {v}.|Please paint the door {v}.",
          "So {v} it is.|I have put down {v} for you.|A {v} one is in stock."),
    _sort("country", "country", _one_of("France|Japan|Brazil|Canada|Egypt|Norway|India|Mexico|Kenya|Poland|Chile|Vietnam|Turkey"),
          "I come from {v}.|The parcel goes to {v}.|We are planning a year in {v}.",
          "{v} is a fine place to live.|Postage to {v} has been worked out.|You will need papers for {v}."),
    _sort("language", "language", _one_of("Dutch|Arabic|Korean|Greek|Swedish|Hindi|Czech|Thai|Finnish|Hebrew|Danish|Welsh"),
          "My mother tongue is {v}.|I am learning {v}.|The manual should be in {v}.",
          "{v} lessons start soon.|There is a {v} version.|I see that you speak {v}."),
    _sort("animal", "animal", _one_of("dog|cat|horse|rabbit|parrot|goat|hamster|tortoise|donkey|ferret|duck|pony|lizard|goldfish"),
          "My {v} is ill.|We have adopted a {v}.|Can I bring a {v}?",
          "I hope your {v} feels well.|A {v} needs good care.|The {v} has been noted."),
    _sort("dish", "dish", _one_of("lasagna|ramen|paella|goulash|curry|pizza|dumplings|risotto|tacos|pancakes|chili|moussaka"),
          "I'd like to order the {v}.|We are cooking {v} tonight.|My favorite food is {v}.",
          "The {v} will be ready shortly.|{v} is a good choice.|For {v} you need fresh ingredients."),
    _sort("profession", "profession", _one_of("nurse|carpenter|pilot|baker|lawyer|farmer|plumber|dentist|teacher|librarian|chemist"),
          "I work as a {v}.|My brother is a {v}.|She wants to become a {v}.",
          "A {v} has a demanding job.|There are openings for a {v}.|As a {v} one meets many people."),
    _sort("sport", "sport", _one_of("tennis|rowing|judo|cricket|fencing|hockey|golf|karate|basketball|cycling|rugby|volleyball"),
          "I play {v} on weekends.|Our club offers {v}.|My daughter does {v}.",
          "{v} keeps one fit.|I have found a {v} course.|There is a {v} match nearby."),
    _sort("street", "street address", _street,
          "I live at {v}.|Deliver it to {v}, please.|The shop is at {v}.",
          "It will be sent to {v}.|{v} is in our records.|The driver comes to {v}."),
    _sort("email_address", "e-mail address", _mail,
          "You can reach me at {v}.|My address is {v}.|Write to {v}.",
          "I have sent a message to {v}.|{v} is on file.|A copy goes to {v}."),
    _sort("phone_number", "phone number", _digits("000-000-0000"),
          "Call me on {v}.|My number is {v}.|The office has {v}.",
          "We will call {v}.|{v} has been saved.|A text was sent to {v}."),
    _sort("booking_code", "booking code", _code,
          "My booking code is {v}.|The reservation has the code {v}.|It says {v} on my ticket.",
          "Booking {v} is confirmed.|I have opened {v}.|Your trip under {v} is unchanged."),
    _sort("room", "room number", _digits("000"),
          "I am in room {v}.|The meeting is in room {v}.|We had booked room {v}.",
          "Somebody will come to room {v}.|Room {v} is free.|Room {v} has been cleaned."),
    _sort("flight", "flight", lambda rng: f"{rng.choice(_LETTERS)}{rng.choice(_LETTERS)}{rng.randint(100, 9999)}",
          "I am on flight {v}.|My flight is {v}.|When does {v} land?",
          "Flight {v} is on time.|{v} leaves from gate nine.|Your seat on {v} is booked."),
    _sort("age", "age", lambda rng: str(rng.randint(3, 90)),
          "My son is {v} years old.|I am {v} years old.|The patient is aged {v} years old.",
          "At {v} years old that is common.|So, {v} years old.|For somebody who is {v} years old there is a discount."),
    _sort("weight", "weight", lambda rng: f"{rng.randint(2, 120)} kilos",
          "The parcel weighs {v}.|I lost {v}.|It can carry {v}.",
          "{v} is allowed.|With {v} the price is higher.|I have entered {v}."),
    _sort("instrument", "instrument", _one_of("piano|cello|trumpet|flute|harp|guitar|drums|violin|clarinet|banjo|tuba|accordion"),
          "I play the {v}.|We sell a used {v}.|My niece studies the {v}.",
          "The {v} is a fine instrument.|Lessons for the {v} are on Mondays.|A {v} should be tuned often."),
    _sort("drink", "drink", _one_of("espresso|lemonade|green tea|cider|cocoa|ginger beer|milk|apple juice|red wine|tonic water"),
          "A {v}, please.|I only drink {v}.|We ordered {v} for everybody.",
          "One {v} is on its way.|The {v} comes at once.|{v} has been added to your bill."),
    _sort("ingredient", "allergy", _one_of("nuts|milk|wheat|shellfish|eggs|soy|celery|sesame|mustard|strawberries|fish"),
          "I am allergic to {v}.|My child can't eat {v}.|There must be no {v} in it.",
          "We leave out {v}.|The kitchen knows about {v}.|I have noted the allergy to {v}."),
    _sort("vehicle", "vehicle", _one_of("truck|motorbike|van|tractor|bicycle|scooter|bus|camper|tram|sailing boat|minibus"),
          "My {v} broke down.|I want to rent a {v}.|We came by {v}.",
          "A mechanic will look at the {v}.|The {v} is reserved.|Parking for a {v} costs extra."),
    _sort("relative", "family member", _one_of("mother|father|sister|brother|uncle|aunt|grandmother|grandfather|cousin|nephew|niece"),
          "It is a present for my {v}.|My {v} needs help.|I am writing for my {v}.",
          "I hope your {v} likes it.|Your {v} can call us.|Give my regards to your {v}."),
    _sort("team", "team", _one_of("sales|legal|support|finance|design|security|marketing|logistics|research|payroll"),
          "I work in the {v} team.|Forward this to the {v} team.|The {v} team asked for it.",
          "The {v} team has been told.|I will ask the {v} team.|Somebody of the {v} team answers soon."),
    _sort("currency", "currency", _one_of("yen|francs|rupees|pesos|zloty|crowns|rand|won|dinars|lira"),
          "I'd like to pay in {v}.|The price is in {v}.|I have only {v} on me.",
          "The sum is shown in {v}.|We take {v}.|You can pay in {v}."),
    _sort("size", "size", _one_of("small|medium|large|extra large|36|38|40|42|44"),
          "I wear size {v}.|Please send size {v}.|I took size {v} home.",
          "Size {v} is in stock.|I have changed it to size {v}.|Size {v} should fit."),
    _sort("weekday", "day of the week", _one_of("Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"),
          "I can come on {v}.|The delivery should be on {v}.|We are closed on {v}.",
          "{v} is fine.|I have put it down for {v}.|Then on {v}."),
    _sort("month", "month", _one_of("January|February|March|April|May|June|July|August|September|October|November|December"),
          "We move in {v}.|The course begins in {v}.|I was there in {v}.",
          "{v} is a good month for it.|There are places left in {v}.|So, in {v}."),
    _sort("season", "time of the year", _one_of("spring|summer|autumn|winter|Easter|Christmas|New Year"),
          "We want to travel in {v}.|It is planned for {v}.|I need it by {v}.",
          "For {v} there are offers.|{v} it shall be.|It will be ready by {v}."),
    _sort("score", "score of a game", lambda rng: f"{rng.randint(0, 9)} to {rng.randint(0, 9)}",
          "We won {v}.|The game ended {v}.|It was {v} at half time.",
          "{v} is a fine result.|I have entered {v}.|So it was {v}."),
    _sort("version", "version", lambda rng: f"{rng.randint(1, 19)}.{rng.randint(0, 19)}",
          "I use version {v}.|The fault came with release {v}.|We are still on {v}.",
          "Version {v} is supported.|In {v} that was changed.|I look at the notes of {v}."),
    _sort("floor", "floor", _one_of("second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth"),
          "My office is on the {v} floor.|We live on the {v} floor.|The fault is on the {v} floor.",
          "The technician goes to the {v} floor.|The {v} floor has a lift.|I wrote down the {v} floor."),
)  # fmt: skip
BY_KEY = {sort.key: sort for sort in SORTS}


def clauses(sort: Sort) -> tuple[str, ...]:
    return tuple(frame.format(n=sort.noun) for frame in NAMED)


def unseen(sort: Sort) -> str:
    return UNSEEN.format(n=sort.noun)
