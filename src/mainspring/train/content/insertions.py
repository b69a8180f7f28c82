"""A sentence of a known kind put into a real reply: the edited span shows the kind, the untouched one does not.

Near misses are made the same way: another kind's sentence, the same sentence in the user's turn, a value that the input
holds already.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from mainspring.text.span import Message, Span, Text
from mainspring.train.content import kinds as k
from mainspring.train.content.examples import ABSENT, PRESENT, UNTOLD, Example, Row, rng_for, rule_rows
from mainspring.train.content.facts import Facts
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.rules import CODE, REFUSAL, SORRY, URL
from mainspring.train.content.slots import values
from mainspring.train.sources import Conversation, message

# Untouched replies may hold these by themselves.
NATURAL = {
    "apology": SORRY,
    "refusal": REFUSAL,
    "policy": r"polic|guideline|not allowed|terms of",
    "claims_ai": r"\bAI\b|language model|artificial|chatbot",
    "offer_help": r"let me know|anything else|feel free|help you",
    "code": CODE + "|`",
    "clarify": r"\?",
    "uncertain": r"not sure|might|may be|perhaps|uncertain|don't know",
    "medical_note": r"doctor|physician|medical|healthcare",
    "legal_note": r"lawyer|attorney|legal",
    "finance_note": r"financ|invest",
    "summary": r"overall|in conclusion|in short|to sum|in summary|therefore",
    "danger": r"careful|warning|danger|risk|caution",
    "encourage": r"you can|believe in|keep |congrat|proud",
    "flattery": r"great|good|excellent|wonderful|brilliant",
    "fake_url": URL,
    "fake_citation": r"\(\d{4}\)|et al|journal|study",
    "fake_statistic": r"\d ?%|percent",
    "fake_quote": r"[\"“]",
    "religious": r"\bgod\b|pray|lord|bible|faith|church",
    "political": r"government|president|party|policy|vote|tax",
    "moralizing": r"should|important|respect|respons|ethic",
    "metaphor": r"\blike\b|imagine|as if|as though|akin",
    "personal_story": r"\b(?:I|my|we|me)\b",
    "feelings": r"\b(?:I|my|feel)\b",
    "claims_human": r"\b(?:I|my)\b",
    "claims_memory": r"remember|last time|as you",
    "recipe": r"cook|bake|salt|butter|oven|recipe|add ",
    "sports": r"sport|game|team|match|player",
    "weather": r"weather|rain|sun|snow|storm|temperature",
    "travel_tip": r"visit|travel|trip|hotel|beach|tour",
    "movie_tip": r"movie|film|series|watch",
    "book_tip": r"book|novel|read|author",
    "time": r"\d{4}|o'clock|today|a\.?m\.?|p\.?m\.?",
    "empathy": r"sorry|understand|feel|hard|tough",
    "advert": r"brand|product|buy|market",
    "archaic": r"thou|thee|hath|verily|\bye\b",
    "childlike": r"little|sweet",
    "poem": r"\n.*\n|rhyme|poem",
    "joke": r"joke|funny|haha|why did",
    "slang": r"bro|dude|yo\b|lol|gonna",
    "gossip": r"rumou?r|affair|divorc",
    "threat": r"or else|regret|pay",
    "fake_address": r"\d+ \w+ (?:street|avenue|road)",
    "fake_phone": r"\d{3}",
    "fake_email": r"@",
    "shouting": r"[A-Z]{4,}",
    "emoji": r"[:;]-?[)D(]|[\U0001F300-\U0001FAFF]",
    "promise_callback": r"call|contact|get back|follow",
    "human_agent": r"agent|representative|transfer",
    "fake_deadline": r"deadline|before|by [A-Z]",
    "asks_personal": r"name|address|age|old",
    "self_correction": r"actually|correct|mistake",
    "unhealthy": r"dose|sleep|smok|meal|medicine",
    "stereotype": r"women|men|people|old",
    "illegal": r"steal|forge|brib|tax|illegal",
    "dutch": r"[à-ž]",
    "french": r"[à-ž]",
    "spanish": r"[à-ž]",
    "italian": r"[à-ž]",
    "german": r"[à-ž]",
    "hashtag": r"#",
    "guarantee": r"guarantee|certain|ensure",
    "prompt_leak": r"prompt|instruct",
    "tested": r"test|evaluat",
    "conspiracy": r"truth|secret|government",
    "blame": r"fault|should have",
    "insult": r"stupid|idiot|fool",
    "sarcasm": r"great|wow|brilliant|lovely|sure",
    "asks_payment": r"card|pay|\$",
    "asks_password": r"password|login|pin\b",
    "asks_rating": r"rate|review|satisf|feedback",
    "promise_refund": r"refund|reimburs",
    "discount_code": r"code|discount|coupon|voucher",
    "sales_pressure": r"buy|order|offer",
    "cutoff": r"20\d\d|update|knowledge",
}
_COMPILED = {key: re.compile(pattern, re.IGNORECASE if key != "shouting" else 0) for key, pattern in NATURAL.items()}
LANGUAGES = {"french", "german", "spanish", "italian", "dutch"}
# A sentence of the one may count as the other too.
CLOSE = (
    LANGUAGES,
    {"refusal", "policy", "apology"},
    {"fake_citation", "book_tip", "fake_quote", "movie_tip"},
    {"claims_ai", "cutoff", "uncertain"},
    {"personal_story", "claims_human", "feelings", "claims_memory"},
    {"clarify", "asks_personal", "asks_password", "asks_payment", "offer_help", "asks_rating", "human_agent"},
    {"insult", "sarcasm", "blame", "threat"},
    {"advert", "sales_pressure", "discount_code"},
    {"encourage", "flattery", "empathy", "guarantee"},
    {"promise_callback", "human_agent", "promise_refund", "fake_phone"},
    {"stereotype", "political", "conspiracy", "gossip"},
    {"unhealthy", "illegal", "danger", "medical_note"},
    {"prompt_leak", "policy", "advert"},
    {"time", "cutoff", "fake_deadline"},
    {"slang", "joke", "childlike", "archaic", "poem", "emoji", "sarcasm"},
    {"fake_statistic", "uncertain"},
    {"legal_note", "policy", "finance_note", "medical_note"},
    {"hashtag", "advert"},
    {"weather", "travel_tip", "sports", "fake_address"},
    {"code", "fake_deadline"},
    {"moralizing", "religious", "blame"},
    {"metaphor", "poem", "joke"},
    {"asks_payment", "fake_phone"},
)
SHORT = ("Can you help me?", "What do you say?", "Hello.", "I have a question about this.", "Please go on.", "And now?")
GIVEN = ("Here is what I have: {}", "I found this: {}", "For your records: {}", "My notes say {}")


def behavior_of(kind: k.Kind) -> Behavior:
    return Behavior(kind.key, kind.train, (kind.test,), ("text",))


def group_of(key: str) -> str:
    return "edits_unseen" if key in k.TEST_KINDS else "edits_calibration" if key in k.CALIBRATION_KINDS else "edits"


def insertion_examples(found: Iterable[Conversation], rounds: Callable[[str], int]) -> Iterator[Example]:
    """`rounds` says how many edits a text gets."""
    for conversation in found:
        facts = Facts(conversation.span)
        if not facts.reply or facts.output_calls or len(facts.reply) > 3500:
            continue
        for number in range(rounds(conversation.text_id)):
            rng = rng_for("insert", conversation.text_id, conversation.source, number)
            yield _edited(conversation, rng)
        rng = rng_for("untouched", conversation.text_id, conversation.source)
        yield _untouched(conversation, facts, rng)


def _edited(conversation: Conversation, rng: random.Random) -> Example:
    kind, second = rng.sample(k.KINDS, 2)
    slots = values(rng)
    sentence = rng.choice(kind.sentences).format(**slots)
    chance, span = rng.random(), conversation.span
    original = Facts(span).reply
    if rng.random() < 0.15:
        span = Span((message("user", rng.choice(SHORT)),), (message("assistant", original.split("\n")[0][:160]),))
    if chance < 0.12:  # the user says it, the assistant does not
        span = _with_user(span, sentence)
        told = {kind.key: ABSENT}
    elif chance < 0.24 and kind.made_up:  # the value is known from the input
        span = _with_user(_with_reply(span, rng, sentence), rng.choice(GIVEN).format(sentence))
        told = {kind.key: ABSENT}
    else:
        span = _with_reply(span, rng, sentence)
        told = {kind.key: PRESENT}
        if rng.random() < 0.25 and not _close(kind.key, second.key):
            span = _with_reply(span, rng, rng.choice(second.sentences).format(**values(rng)))
            told[second.key] = PRESENT
    rows = [Row(behavior_of(k.BY_KEY[key]), value, group_of(key)) for key, value in told.items()]
    rows += _absent(Facts(span), original, set(told), rng, 5)
    if rng.random() < 0.03:
        span, rows = Span(span.input), [Row(r.behavior, UNTOLD, r.group) for r in rows]
    rows += rule_rows(Facts(span), 3, rng)
    return Example(span, conversation.text_id, conversation.source, tuple(rows))


def _untouched(conversation: Conversation, facts: Facts, rng: random.Random) -> Example:
    rows = _absent(facts, facts.reply, set(), rng, 9)
    return Example(conversation.span, conversation.text_id, conversation.source, tuple(rows))


def _absent(facts: Facts, original: str, told: set[str], rng: random.Random, count: int) -> list[Row]:
    """Kinds that are surely not there: not close to one that is, and not in the untouched words."""
    chosen: list[Row] = []
    for kind in rng.sample(k.KINDS, 3 * count):
        pattern = _COMPILED.get(kind.key)
        if kind.key in told or any(_close(kind.key, key) for key in told) or len(chosen) == count:
            continue
        if pattern and pattern.search(original if not told else original + facts.reply):
            continue
        chosen.append(Row(behavior_of(kind), ABSENT, group_of(kind.key)))
    return chosen


def _close(one: str, other: str) -> bool:
    return any(one in group and other in group for group in CLOSE)


def _with_reply(span: Span, rng: random.Random, sentence: str) -> Span:
    reply = span.output[0].text
    return msgspec.structs.replace(span, output=(_replace_text(span.output[0], place(reply, sentence, rng)),))


def _with_user(span: Span, sentence: str) -> Span:
    at = max((i for i, m in enumerate(span.input) if m.role == "user"), default=None)
    if at is None:
        return msgspec.structs.replace(span, input=(message("user", sentence), *span.input))
    changed = _replace_text(span.input[at], f"{span.input[at].text}\n{sentence}")
    return msgspec.structs.replace(span, input=(*span.input[:at], changed, *span.input[at + 1 :]))


def _replace_text(old: Message, text: str) -> Message:
    others = tuple(part for part in old.parts if not isinstance(part, Text))
    return msgspec.structs.replace(old, parts=(Text(text), *others))


def place(reply: str, sentence: str, rng: random.Random) -> str:
    """Before the reply, after it, or behind one of its sentences."""
    chance = rng.random()
    if chance < 0.2:
        return f"{sentence} {reply}"
    ends = [m.end() for m in re.finditer(r"[.!?](?=\s)", reply)]
    if chance < 0.55 and ends:
        at = rng.choice(ends)
        return f"{reply[:at]} {sentence}{reply[at:]}"
    return reply.rstrip() + rng.choice((" ", "\n\n", "\n")) + sentence
