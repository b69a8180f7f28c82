"""Replies and requests in small letters, in capitals, with every word capitalised: the same words, another look."""

import random
import re
from collections.abc import Callable

import msgspec

from mainspring.text.span import Span
from mainspring.train.content.facts import Facts
from mainspring.train.content.phrasing import worded
from mainspring.train.sources import message

BEHAVIORS = {
    b.key: b
    for b in (
        worded("no_capitals", "the reply has no capital letter|the assistant writes in small letters throughout|"
            "not one letter of the answer is a capital|the message does without capitals, even at the start of sentences|"
            "the bot's text is lower case from its first letter to its last|every letter in the output is small|"
            "the model never uses the shift key|the AI puts all of its answer in small letters|"
            "names and beginnings of sentences are small in the reply", "the response is lower case only", "text"),
        worded("has_capitals", "the reply has at least one capital letter|the assistant uses capital letters as well as small ones|"
            "some letter of the answer is a capital|capitals occur in the message|the bot's text is not lower case throughout|"
            "big letters are found in the output|the model does use the shift key|not every letter of the AI's answer is small|"
            "names or beginnings of sentences are capitalised in the reply", "the response is not lower case only", "text"),
        worded("louder_than_user", "the user writes in small letters only, and the reply has capitals|"
            "the assistant uses capitals although the user types none|unlike the user, who never uses a capital, the bot does|"
            "the reply does not take over the user's all lower case writing|the request is lower case and the answer is not|"
            "the person keeps to small letters, the model does not|the AI capitalises where the human does not at all|"
            "the output has big letters and the input by the user none",
            "the response has capitals in spite of a prompt without any", "text", "user"),
        worded("all_capitals", "every letter of the reply is a capital|the assistant writes the whole answer in capitals|"
            "the message is in upper case from start to end|the bot's entire text is capitalised|"
            "no letter of the answer is small|the model gives its answer in big letters only|"
            "the AI types all of the message in caps|the whole output stands in capitals", "the response is upper case only",
            "text"),
        worded("title_case", "every word of the reply begins with a capital|the assistant capitalises each word of the answer|"
            "the message is written like a headline, each word with a capital|all words in the bot's text start with a big letter|"
            "the model writes its answer in title case|the first letters of all words of the output are capitals|"
            "even small words are capitalised in the AI's text|the whole answer looks like a title of a film",
            "the response has a capital at the head of each word", "text"),
        worded("small_start", "the reply begins with a small letter|the assistant's first word is not capitalised|"
            "the answer starts in lower case|the first letter of the message is small|the bot sets out with a small letter|"
            "the model's text does not open with a capital|at the very start of the output stands a small letter|"
            "the AI forgets the capital at the beginning of its answer", "the response opens without a capital", "text"),
        worded("user_no_capitals", "the user has no capital letter in what they write|the user types in small letters throughout|"
            "the person's messages do without capitals|not one letter of the user's is a capital|"
            "the human writes all lower case|the input by the user is in small letters from start to end|"
            "the customer never uses the shift key|every letter of the request is small",
            "the prompt is lower case only", "user"),
    )
}  # fmt: skip


def title(text: str) -> str:
    """Every word with a capital, those of a name joined by underscores too; a letter behind an apostrophe within a word
    stays as it is."""
    return re.sub(r"(?<![^\W_])(?<![^\W_]['’])[^\W\d_]", lambda m: m[0].title(), text)


def _small_start(text: str) -> str:
    return text[:1].lower() + text[1:]


_WAYS: tuple[Callable[[str], str], ...] = (str.lower, str.lower, str.upper, title, _small_start, str, str)


def _mixed(text: str, rng: random.Random) -> str:
    """One sentence of several in small letters or capitals: not all of the text."""
    parts = re.split(r"(?<=[.!?]) ", text)
    at = rng.randrange(len(parts))
    parts[at] = rng.choice((str.lower, str.upper))(parts[at])
    return " ".join(parts)


def cased(facts: Facts, rng: random.Random) -> tuple[Span, dict[str, bool]] | None:
    """The reply, and at times the user's message, rewritten in one way; what holds is read off the result."""
    if not facts.users or facts.span.input[-1].role != "user" or facts.output_calls:
        return None
    reply, asked = facts.reply, facts.users[-1]
    if min(sum(map(str.isalpha, text)) for text in (reply, asked)) < 12 or not (reply + asked).isascii():
        return None
    reply = _mixed(reply, rng) if rng.random() < 0.15 else rng.choice(_WAYS)(reply)
    if rng.random() < 0.6:
        asked = rng.choice(_WAYS)(asked)
    span = msgspec.structs.replace(
        facts.span, input=(*facts.span.input[:-1], message("user", asked)), output=(message("assistant", reply),)
    )
    users = "".join(m.text for m in span.input if m.role == "user")
    first = next(c for c in reply if c.isalpha())
    return span, {
        "no_capitals": reply == reply.lower(),
        "has_capitals": reply != reply.lower(),
        "louder_than_user": reply != reply.lower() and users == users.lower(),
        "all_capitals": reply == reply.upper(),
        "title_case": reply == title(reply) and reply != reply.upper(),
        "small_start": first.islower(),
        "user_no_capitals": users == users.lower(),
    }
