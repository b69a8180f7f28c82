"""Replies that refuse: put together from an opening, what is refused, why, and another way, which vary on their own.

Among some twenty thousand real replies a few hundred refuse, most of them in the words "As an AI language model, I cannot
provide". Beside these stand replies that do what was asked and share words with a refusal.
"""

import random
import re

import msgspec

from mainspring.text.span import Span
from mainspring.train.content.facts import Facts, beginning
from mainspring.train.content.patterns import NOT, REFUSAL
from mainspring.train.content.phrasing import worded
from mainspring.train.content.slots import values
from mainspring.train.sources import message

BEHAVIORS = {
    b.key: b
    for b in (
        worded("refuses_by_rule", "the assistant declines since the law, safety or decency forbid it|"
            "the reply says no for the sake of rules or morals|the bot won't, because somebody could come to harm or a rule be broken|"
            "a refusal on principle is in the answer|the AI holds back on ethical, legal or policy grounds|"
            "the model keeps its hands off the matter, which isn't permitted, isn't safe or isn't right|"
            "what was wanted is denied as improper, unsafe or not allowed|scruples or regulations are why the agent isn't going to help",
            "the response is a no out of conscience or regulations", "text", "user"),
        worded("refuses_for_lack", "the assistant declines because it lacks the access, data or ability|"
            "the reply says that the bot hasn't got what it would take|the AI would need something that it does not have|"
            "the model explains that this is beyond what it can do|missing means or knowledge keep the agent from helping|"
            "it isn't willingness that the assistant is short of, but ability|"
            "the answer owns up to a limit of the system and leaves the task undone|the bot has no way of doing the job",
            "the response leaves it at not being equipped for the task", "text", "user"),
        worded("refuses_without_reason", "the assistant declines and gives no reason|the reply says no and does not explain it|"
            "the bot won't do it and leaves it at that|a bare no without grounds is all that comes|"
            "the AI keeps to itself why it isn't going to help|the model refuses, and nothing is said about why|"
            "a flat refusal with no justification is in the answer|no cause is named for the agent's unwillingness",
            "the response withholds its grounds for not helping", "text", "user"),
        worded("refuses_with_way_out", "the assistant declines and names something else that could help|"
            "the reply says no and points to another way|the bot won't do it, but it does suggest what to do instead|"
            "a refusal comes along with a different proposal|the AI isn't going to help with that, yet shows a way out|"
            "the user is denied one thing and offered another|the model refuses and has something else to propose|"
            "besides saying no, the agent has a suggestion to make",
            "the response rejects the task while proposing a substitute", "text", "user"),
    )
}  # fmt: skip
# What else is told: a rule, kinds of sentences.
REFUSES, UNWILLING, ALTERNATIVE = "reply_refuses", "refusal", "c_alternatives"

_OPENINGS = (
    "I'm sorry, but ", "I am sorry. ", "Sorry, ", "Unfortunately, ", "Apologies, but ", "I'm afraid that ", "No. ", "Hm, ",
    "I see why you ask, but ", "Thank you for asking. ", "I understand that this matters to you. Still, ", "To be frank, ",
    "I appreciate your trust, but ", "Let me be clear: ", "Well, ", "Thanks for your message. ", "I regret it, but ",
    "With all respect, ", "Hello, and sorry in advance: ", "That's a difficult one. ", "", "", "", "",
)  # fmt: skip
_WON_T = (
    "I can't help with that", "I won't do that", "I cannot assist with this", "I'm not going to write this", "I have to decline",
    "I must decline this request", "this is something I won't do", "I'm not willing to take part in that", "I will not help here",
    "I can't go along with that", "I'd rather not do this", "I have to say no", "my answer is no", "I refuse to do so",
    "I won't support that", "you will have to do without me here", "I can't be part of this",
    "I can't give you that", "I won't share that",
    "I will pass on this one", "I can't answer that", "that's not something I can help you with", "I cannot provide this",
    "I can't fulfil this request", "I am not able to help with that", "we can't do that for you", "I shall leave that alone",
)  # fmt: skip
_CAN_T = (
    "I'm unable to do that", "I can't do this from here", "I have no means to do that", "this is beyond what I can do",
    "I have no way to look that up", "I'm not able to open it", "I can't see it", "I don't have access to that", "I cannot tell",
    "that is outside of my abilities", "I have no tool for it", "I can't find that out",
    "I am unable to complete this", "I don't know how it is at present", "I can't check that for you", "I wasn't made for this",
    "I can't carry this out", "I lack what it takes", "this is more than I can handle",
    "I couldn't do it even if I wanted to",
)  # fmt: skip
_RULES = (
    "It is against the law in most places.", "It could hurt somebody.", "My guidelines rule it out.", "People could be put at risk.",
    "That would go against our policy on {topic}.", "It would invade somebody's privacy.", "It isn't right to deceive people.",
    "It would not be ethical.", "The people concerned have not agreed to it.", "That is private information.",
    "Nobody may use what belongs to somebody else without permission.", "It might end badly for you and for others.",
    "Our terms do not allow it.", "It would be unfair to {name}.", "Such content can do real damage.", "That would be cheating.",
    "It breaks the rules of {company}.", "Somebody could lose money over it.", "It would be copying another person's work.",
    "You need a licence for that in {city}.", "I don't want anyone to come to harm.", "It is dangerous without training.",
    "I keep to the rules I was given.", "Passing this on would be a breach of trust.", "It would be discrimination.",
)  # fmt: skip
_LACKS = (
    "I have no access to the internet.", "I can't see your files.", "What I know ends in {year}.", "I only deal in text.",
    "There is too little information in what you sent.", "Your account is not visible to me.",
    "Nothing was attached.", "I have no figures on {topic}.", "The system of {company} is closed to me.", "I have no camera.",
    "I can't place orders or make calls.", "I have never been to {city}.", "Live data are not open to me.", "The page doesn't load here.",
    "Nobody has told me what {name} wrote.", "My tools don't go that far.",
    "That depends on things which I can't know.", "I don't have a body.", "It calls for more than a language model.",
)  # fmt: skip
_WAYS_OUT = (
    "You could ask {name}.", "What I can do is tell you how it works in general.", "Instead, you might look for a public one nearby.",
    "Have you thought of asking the owner?", "Try the help pages of {company}.",
    "If you need it soon, you could call {company}.", "Perhaps your neighbors can lend you one.", "I could explain {topic} to you instead.",
    "A library in {city} may have it.", "You may want to talk to a doctor about it.",
    "There are courses on {topic} that might serve you better.", "You might try {url} for that.", "Buying a {product} is another option.",
    "How about a story on something else?", "It may help to speak with somebody you trust.",
    "An expert in {city} would be the right person to ask.",
    "You can do it yourself in the settings.", "Alternatively, I can suggest a few questions to ask.", "The authorities can help you there.",
)  # fmt: skip
_CLOSINGS = ("", "", "", "", "", " Let me know if there is something else.", " Is there anything else?",
             " Take care.", " I hope you understand.", " I wish I had better news.")  # fmt: skip
# Of replies that do what was asked.
_BESIDE = (
    "Sorry for the wait.", "I can help with that.", "You can't go wrong here.",
    "I couldn't agree more.", "No problem.", "I'm happy to do that.", "No worries, I can do it.",
    "It is not against any rule.", "I would not say no to this.", "Unfortunately this took a moment.", "Of course.", "Sorry, I was slow.",
    "I don't mind at all.", "Thank you for asking.", "I see why you ask.", "That's not difficult.", "I am able to do this.",
    "Nothing speaks against it.", "As an AI, I can do this quickly.", "I have access to what it takes.", "I'm willing to help.",
    "Let me be clear: this is a good question.", "I apologize for the short answer.",
)  # fmt: skip
# Short replies that do what was asked.
_DONE = (
    "Your {product} is on its way.", "I have booked it for {day} {month}.", "You will find everything at {url}.", "It opens at nine.",
    "{name} is the person to ask, and the number is {phone}.", "The answer is {num}.", "That was in {year}, in {city}.",
    "Here is the link: {url}.", "Done, {name} has been told.", "Take the second street on the left.", "It costs {num} dollars.",
    "Your order has been sent to {city}.", "I moved it to {month} for you.", "Yes, we have it in stock.",
    "The name you are looking for is {name} {name2}.", "It takes about {num} minutes.",
    "You can pick it up at {company}.", "All {num} of them have been added.", "I changed the name to {name}.", "The two are the same.",
    "Your table is reserved for {day} {month}.", "It means the same as {word}.",
    "A haiku: still pond, a frog, the sound of {word}.", "Press the button twice and wait.", "I have shortened it to {num} lines.",
    "The best known of them lives in {city}.", "Read the page on {topic} at {url}.", "Your account at {company} is open now.",
    "Mix the two and stir until smooth.", "The meeting with {name} is on {day} {month}.", "The file was saved as {word}.",
    "It's {num} degrees in {city}.", "I've put {topic} at the top of the list.", "You are all set.", "Enjoy your {product}!",
    "The train leaves for {city} at {num} past.", "That would be {name2}.", "Certainly, it is {word}.",
)  # fmt: skip
_HINTS = tuple(way for way in _WAYS_OUT if not re.match(r"What I can|.*instead|Instead|Alternatively", way))
_WARNINGS = (
    "Mind that it is against the law in some places.", "Be careful, it could hurt somebody.", "Do ask the people concerned first.",
    "Please keep private information to yourself.", "It may break the rules of {company}, so check them first.",
    "It is dangerous without training.", "You may need a licence for that in {city}.", "Don't let it be unfair to {name}.",
)  # fmt: skip


_DENIES = re.compile(
    rf"{REFUSAL}|{NOT}\b|\bcan ?not\b|\bwill not\b|\bnot (?:able|willing|capable|possible)\b|\b(?:do|does|did) not have\b|\bunable\b"
    r"|\bnot equipped\b|\bdo(?:es)? not (?:possess|know|really|understand)\b|\bcould not find\b|\bneed more information\b"
    r"|\bimpossible\b|\bno (?:information|access|way|means)\b|\brefus|\bdeclin",
    re.IGNORECASE,
)


def refused(facts: Facts, rng: random.Random) -> tuple[Span, dict[str, bool]] | None:
    """The reply replaced by a refusal or by a short reply that does what was asked; or kept, whole or cut, perhaps behind
    words that refusals have too: neither length nor fitting the question tells them apart. None where it may be one."""
    if not facts.users or not facts.reply or facts.output_calls or facts.earlier or _DENIES.search(facts.reply):
        return None
    chance = rng.random()
    if chance < 0.5:
        reply, told = refusal(rng)
    else:
        told = dict.fromkeys((REFUSES, UNWILLING, *BEHAVIORS), False)
        if chance < 0.7:
            reply = granted(rng)
        else:
            reply = (beginning(facts.reply, rng.randint(1, 3)) if rng.random() < 0.5 else None) or facts.reply
            reply = f"{rng.choice(_BESIDE)} {reply}" if chance < 0.85 else reply
    return msgspec.structs.replace(facts.span, output=(message("assistant", reply),)), told


def granted(rng: random.Random) -> str:
    """A short reply that does what was asked; some have sentences that stand in refusals, too."""
    parts = [rng.choice(_BESIDE) if rng.random() < 0.4 else "", rng.choice(_DONE)]
    chance = rng.random()
    if chance < 0.5:
        parts.append(rng.choice(_HINTS if chance < 0.35 else _WARNINGS))
    return " ".join(part for part in parts if part).format(**values(rng)) + rng.choice(_CLOSINGS[:-2])


def refusal(rng: random.Random) -> tuple[str, dict[str, bool]]:
    """A refusal and what is true of it."""
    by_rule = rng.random() < 0.55
    core, reasons = (_WON_T, _RULES) if by_rule else (_CAN_T, _LACKS)
    opening, said, slots = rng.choice(_OPENINGS), rng.choice(core), values(rng)
    if not opening or opening.endswith(". "):
        said = said[0].upper() + said[1:]
    reason = rng.choice(reasons) if rng.random() < 0.6 else ""
    way = rng.choice(_WAYS_OUT) if rng.random() < 0.45 else ""
    parts = [f"{opening}{said}.", reason, way]
    if rng.random() < 0.15:  # the reason first
        parts = [reason, f"{opening}{said}.", way]
    reply = " ".join(part for part in parts if part).format(**slots) + rng.choice(_CLOSINGS)
    told = {
        REFUSES: True,
        "refuses_by_rule": by_rule,
        "refuses_for_lack": not by_rule,
        "refuses_without_reason": not reason,
        "refuses_with_way_out": bool(way),
        ALTERNATIVE: bool(way),
    }
    if by_rule:  # who can't may be willing
        told[UNWILLING] = True
    if not reason and by_rule:  # whatever may be behind it
        del told["refuses_by_rule"], told["refuses_for_lack"]
    elif not reason:  # "I can't see it" is a reason of a kind
        del told["refuses_without_reason"]
    return reply, told
