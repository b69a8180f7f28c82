"""Behaviors whose label is a rule over the text: facts of a span -> present or not.

A span that lacks what a behavior needs (`needs`) gets `not_observable`. Each behavior has several clauses, which the
frames multiply; the `test` ones are kept for tests.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mainspring.train.content import patterns as p
from mainspring.train.content.facts import Facts, numbers
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.wordings import more

Test = Callable[[Facts], bool]


@dataclass(frozen=True)
class Rule:
    behavior: Behavior
    holds: Test


def _reply(pattern: str, flags: int = re.IGNORECASE) -> Test:
    compiled = re.compile(pattern, flags)
    return lambda f: compiled.search(f.reply) is not None


def _user(pattern: str, flags: int = re.IGNORECASE) -> Test:
    compiled = re.compile(pattern, flags)
    return lambda f: any(compiled.search(text) for text in f.users)


def _later_user(pattern: str) -> Test:
    """A user turn after an answer of the assistant."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda f: any(compiled.search(text) for text in f.users[1:])


def _rule(key: str, train: str, test: str, holds: Test, *needs: str) -> Rule:
    clauses, kept = (tuple(part.strip() for part in text.split("|")) for text in (train, test))
    return Rule(Behavior(key, (*clauses, *more("rules", key)), kept, needs or ("text",)), holds)


RULES: tuple[Rule, ...] = (
    _rule("reply_url", "the reply contains a URL|the assistant gives a web link|the answer includes a link to a web page|"
          "a web address appears in the assistant's message", "the assistant's text has a hyperlink in it|"
          "the response points to a website by its address", _reply(p.URL)),
    _rule("reply_bullets", "the reply contains a bulleted list|the assistant uses bullet points|"
          "part of the answer is formatted as bullets|the answer lists items behind dashes or stars",
          "the response has a list with bullet marks|the assistant's text is laid out with bullets",
          _reply(r"(?:^|\n)\s*[-*•] \S")),
    _rule("reply_numbered", "the reply contains a numbered list|the assistant numbers its points|"
          "the answer goes 1., 2., 3.|the answer is given as numbered items",
          "the response enumerates things with numbers at the start of lines|the assistant's list is numbered",
          lambda f: all(re.search(rf"(?:^|\n) *{n}[.)] ", f.reply) for n in (1, 2))),
    _rule("reply_code", "the reply contains code|the assistant writes program code|the answer includes a code snippet|"
          "source code appears in the reply", "the response has lines of a programming language|"
          "the assistant's text shows a piece of a program", _reply(p.CODE, 0)),
    _rule("reply_json", "the reply contains JSON|the assistant answers with a JSON object|the answer includes JSON data|"
          "there is a JSON structure in the reply", "the response shows data in JSON format",
          _reply(r"\{\s*\"\w+\"\s*:", 0)),
    _rule("reply_table", "the reply contains a table|the assistant lays data out in a table|"
          "the answer has rows and columns set off by bars|part of the answer is a table",
          "the response presents a table", _reply(r"\|[^\n]*\|[ \t]*\n[ \t]*\|", 0)),
    _rule("reply_bold", "the reply uses bold text or headings|the assistant formats words in bold or as headings|"
          "there is Markdown emphasis or a heading in the answer|the answer has headings or words in bold",
          "the response contains Markdown headings or bold type", lambda f: p.bold(f.reply)),
    _rule("reply_question", "the assistant asks a question|the reply contains a question|"
          "the answer includes a question to the user|there is a question mark in the assistant's message",
          "the assistant puts a question in its response|something is asked in the reply", _reply(r"\?(?:\s|$|\")")),
    _rule("reply_ends_question", "the reply ends with a question|the assistant closes by asking something|"
          "the last sentence of the answer is a question", "the response finishes on a question",
          _reply(r"\?[\"')]*\s*$")),
    _rule("reply_exclaims", "the reply contains an exclamation mark|the assistant exclaims something|"
          "there is an exclamation in the answer|the assistant uses exclamation marks",
          "the response has a sentence that ends with !", _reply(r"\w!")),
    _rule("reply_digits", "the reply contains a number written in digits|there are figures in the answer|"
          "the assistant writes a numeral|digits appear in the reply", "the response has at least one digit in it",
          _reply(r"\d")),
    _rule("reply_year", "the reply mentions a year|the assistant names a calendar year|a year such as 1994 appears in "
          "the answer|the answer gives the year of something", "the response states which year something was",
          _reply(p.YEAR)),
    _rule("reply_money", "the reply mentions an amount of money|the assistant names a price or a sum|"
          "a sum in dollars or euros appears in the answer|the answer gives a price",
          "the response states how much money something is", _reply(p.MONEY)),
    _rule("reply_percent", "the reply contains a percentage|the assistant gives a figure in percent|"
          "a percentage appears in the answer", "the response states a percent value", _reply(r"\d\s?%|percent")),
    _rule("reply_quote", "the reply puts something in quotation marks|the assistant quotes words|"
          "the answer contains a quotation|there are quoted words in the reply",
          "the response has text between quotation marks", _reply(r"[\"“][^\"”\n]{3,}[\"”]", 0)),
    _rule("reply_parenthesis", "the reply contains parentheses|the assistant adds something in brackets|"
          "the answer has a remark in parentheses", "the response uses round brackets", _reply(r"\([^)\n]+\)", 0)),
    _rule("reply_caps", "the reply contains a word in capitals|the assistant writes a word all in upper case|"
          "a word of four or more capital letters appears in the answer", "the response shouts a word or names a long acronym",
          _reply(r"\b[A-Z]{4,}\b", 0)),
    _rule("reply_long", "the reply is longer than 150 words|the assistant answers at length, over 150 words|"
          "the answer has more than 150 words", "the response exceeds 150 words", lambda f: f.words > 150),
    _rule("reply_very_long", "the reply is longer than 300 words|the assistant writes more than 300 words|"
          "the answer is very long, over 300 words", "the response exceeds 300 words", lambda f: f.words > 300),
    _rule("reply_short", "the reply is shorter than 20 words|the assistant answers in fewer than 20 words|"
          "the answer is brief, under 20 words", "the response stays below 20 words", lambda f: f.words < 20),
    _rule("reply_one_sentence", "the reply is a single sentence|the assistant answers in one sentence|"
          "the answer consists of just one sentence", "the response is no more than one sentence",
          lambda f: len(f.sentences) <= 1),
    _rule("reply_paragraphs", "the reply has several paragraphs|the assistant splits its answer into paragraphs|"
          "the answer has an empty line between parts", "the response is made of more than one paragraph",
          lambda f: "\n\n" in f.reply.strip()),
    _rule("reply_first_person", "the assistant speaks of itself in the first person|the reply uses the word I|"
          "the assistant says I, me or my", "the response is written from an I perspective",
          _reply(p.FIRST_PERSON, 0)),
    _rule("reply_addresses_user", "the reply addresses the user as you|the assistant speaks to the user with you or your|"
          "the answer uses the word you", "the response talks to the reader directly as you", _reply(r"\byou(?:r|rs)?\b")),
    _rule("reply_sorry", "the assistant apologizes|the reply contains an apology|the assistant says it is sorry|"
          "the answer expresses regret", "the response begs pardon|the assistant voices an apology", _reply(p.SORRY)),
    _rule("reply_refuses", "the assistant refuses or says it is unable|the reply declines the request|"
          "the assistant says that it can't or won't do something|the answer states an inability or unwillingness",
          "the response turns the request down|the assistant does not agree to do what was asked and says so",
          _reply(p.REFUSAL)),
    _rule("reply_thanks", "the assistant thanks the user|the reply says thank you|the answer expresses thanks|"
          "the assistant shows gratitude", "the response includes words of thanks", _reply(r"\bthank(?:s| you)\b")),
    _rule("reply_greets", "the assistant greets the user|the reply opens with a greeting|the answer begins with hello or hi",
          "the response starts by saying hello", _reply(p.GREETING)),
    _rule("reply_please", "the assistant says please|the reply contains the word please|"
          "the assistant asks for something politely with please", "the word please occurs in the response",
          _reply(r"\bplease\b")),
    _rule("reply_affirms", "the reply opens with sure, certainly, yes or okay|the assistant begins by agreeing|"
          "the answer starts with a word of assent", "the response starts off with a yes, sure or okay",
          _reply(r"^\s*(?:sure|certainly|of course|yes|okay|ok|absolutely|great)\b")),
    _rule("reply_offers_help", "the assistant offers further help|the reply says to let it know or asks if there is more|"
          "the assistant offers more assistance", "the response ends by offering to help with anything else",
          _reply(r"let me know|anything else|feel free|further (?:help|assistance|questions)|happy to help")),
    _rule("reply_ai", "the assistant says that it is an AI|the reply mentions being a language model or AI|"
          "the assistant calls itself an artificial intelligence", "the response points out that an AI is speaking",
          _reply(p.AI, 0)),
    _rule("reply_hedges", "the assistant hedges with words like might, may or perhaps|the reply expresses uncertainty|"
          "the answer is qualified by maybe, possibly or likely", "the response is tentative in places",
          _reply(p.HEDGES)),
    _rule("reply_sequence", "the reply describes steps in order|the assistant explains first, then, finally|"
          "the answer gives steps one after another", "the response walks through steps in sequence",
          lambda f: _in_order(f.reply.lower())),
    _rule("reply_foreign_script", "the reply contains letters that are not Latin|the assistant writes in another script|"
          "characters of a non-Latin alphabet appear in the answer", "the response shows foreign characters",
          _reply(p.LETTERS, 0)),
    _rule("reply_citation", "the reply has numbered references such as [1]|the assistant cites sources by number|"
          "bracketed citation numbers appear in the answer", "the response marks sources with numbers in brackets",
          _reply(r"\[\d+\]", 0)),
    _rule("reply_math", "the reply contains an equation or formula|the assistant writes mathematics|"
          "the answer has a formula with an equals sign", "the response shows a calculation",
          lambda f: p.mathematics(f.reply)),
    _rule("reply_repeats_user", "the reply repeats a long stretch of the user's words|"
          "the assistant copies six or more words in a row from the user|the answer takes over a phrase of the user's at length",
          "the response has a whole stretch of what the person wrote in it", lambda f: _shares_run(f, 6), "text", "user"),
    _rule("reply_new_number", "the reply contains a number that stands nowhere in the input|"
          "the assistant states a figure that nobody gave it|a number in the answer does not come from the conversation",
          "the response introduces a figure of its own", lambda f: bool(numbers(f.reply) - numbers(f.before))),
    _rule("reply_same_as_earlier", "the assistant repeats something it said earlier|"
          "the reply is much like an earlier one of the assistant|the assistant says the same again",
          "the response restates an earlier answer", lambda f: _repeats_earlier(f), "text", "earlier"),
    _rule("user_question", "the user asks a question|a user message contains a question|"
          "the user's message has a question mark in it", "the person puts a question to the assistant",
          _user(r"\?"), "user"),
    _rule("user_please", "the user says please|the user asks politely with please|the word please is in a user message",
          "the person uses the word please", _user(r"\bplease\b"), "user"),
    _rule("user_code", "the user's message contains code|the user shows program code|the user pastes source code",
          "the person shares lines of a program", _user(p.CODE, 0), "user"),
    _rule("user_digits", "the user's message contains a number in digits|the user gives figures|"
          "there are digits in what the user wrote", "the person mentions a numeral", _user(r"\d"), "user"),
    _rule("user_long", "the user writes more than 100 words|a user message is longer than 100 words|"
          "the user's request is long", "the person's message goes beyond 100 words",
          lambda f: any(len(text.split()) > 100 for text in f.users), "user"),
    _rule("user_short", "the user writes fewer than ten words|the user's messages are very short|"
          "no user message has ten words", "the person keeps each message under ten words",
          lambda f: all(len(text.split()) < 10 for text in f.users), "user"),
    _rule("user_greets", "the user greets the assistant|a user message opens with hello or hi|"
          "the user says hello", "the person starts with a greeting", _user(p.GREETING), "user"),
    _rule("user_url", "the user's message contains a URL|the user gives a web link|the user posts a web address",
          "the person mentions a website by its address", _user(p.URL), "user"),
    _rule("user_thanks_later", "the user thanks the assistant for an answer|the user reacts to a reply with thanks|"
          "after a reply, the user says thank you", "the person shows gratitude for what the assistant did",
          _later_user(p.THANKS), "later_user"),
    _rule("user_complains", "the user complains about a reply|the user says that the assistant got it wrong|"
          "the user objects to what the assistant said", "the person is unhappy with an answer",
          _later_user(p.COMPLAINS), "later_user"),
    _rule("user_agrees_later", "the user agrees to what the assistant proposed|the user confirms with yes or okay|"
          "the user accepts the assistant's suggestion", "the person says yes to the assistant",
          _later_user(r"^\s*(?:yes|yeah|yep|sure|ok|okay|correct|sounds good|that works|perfect)\b"), "later_user"),
    _rule("user_repeats", "the user sends the same message twice|the user repeats an earlier request|"
          "two user messages say the same", "the person asks again what was asked before",
          lambda f: len({text.strip().lower() for text in f.users}) < len(f.users), "two_users"),
    _rule("many_turns", "the conversation has more than three user messages|the user writes at least four times|"
          "there are four or more turns of the user", "the dialogue goes on for over three user turns",
          lambda f: len(f.users) > 3, "user"),
    _rule("tool_called", "the assistant called a tool|a tool is called in the conversation|"
          "the assistant uses one of its tools", "a function gets invoked by the assistant",
          lambda f: bool(f.calls), "tools"),
    _rule("tool_called_last", "the assistant's last message calls a tool|the output is a tool call|"
          "the assistant ends by calling a function", "the final turn invokes a tool",
          lambda f: bool(f.output_calls), "tools", "reply"),
    _rule("tool_many", "the assistant called tools three times or more|at least three tool calls are made|"
          "there are three or more function calls", "tools get invoked more than twice",
          lambda f: len(f.calls) >= 3, "tools"),
    _rule("tool_error", "a tool returned an error|a tool call failed|a tool's result reports an error",
          "something went wrong in a tool according to its result",
          lambda f: any(p.reports_error(text) for text in f.results), "results"),
    _rule("tool_empty", "a tool returned nothing|a tool's result is empty|a tool call gave no data",
          "a function came back without any content",
          lambda f: any(text.strip() in ("", "[]", "{}", "null") for text in f.results), "results"),
    _rule("tool_number_used", "the reply states a figure from a tool's result|the assistant reports a number that a tool "
          "returned|the answer uses a number from the tool's output", "the response passes on a figure a function gave",
          lambda f: bool(numbers(f.reply) & set().union(*map(numbers, f.results))), "results", "text"),
    _rule("tool_same_twice", "the same tool is called twice|the assistant calls one tool more than once|"
          "one function is called again", "a tool gets used repeatedly",
          lambda f: len({call.name for call in f.calls}) < len(f.calls), "calls"),
    _rule("system_policy", "the system prompt says what the assistant must not do|the system message contains a prohibition|"
          "the system prompt forbids something", "the operator's instructions rule something out",
          lambda f: re.search(p.PROHIBITS, f.system, re.IGNORECASE) is not None, "system"),
    _rule("system_long", "the system prompt is longer than 50 words|the system message has more than 50 words",
          "the operator's instructions exceed 50 words", lambda f: len(f.system.split()) > 50, "system"),
)  # fmt: skip


def _shares_run(f: Facts, length: int) -> bool:
    return bool(_runs(f.reply, length) & _runs(" ".join(f.users), length))


def _runs(text: str, length: int) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def _in_order(reply: str) -> bool:
    first = re.search(r"\bfirst(?:ly)?\b", reply)
    later = first and re.search(r"\b(?:then|next|second(?:ly)?|finally)\b", reply[first.end() :])
    return bool(later) or "step 1" in reply


def _repeats_earlier(f: Facts) -> bool:
    said = {sentence.strip().lower() for text in f.earlier for sentence in re.split(r"(?<=[.!?])\s+|\n+", text)}
    return any(len(s) > 15 and s.strip().lower() in said for s in f.sentences)


def call_behaviors(f: Facts, others: list[str]) -> list[tuple[Behavior, bool]]:
    """Which tool was called, and with which arguments; `others` are names and values to deny."""
    if not f.calls:
        return []
    names = {call.name for call in f.calls}
    found = [(_called(name), True) for name in sorted(names)[:2]]
    found += [(_called(name), False) for name in others if name not in names]
    for call in f.calls[-2:]:
        for key, value in list(call.arguments.items())[:2] if isinstance(call.arguments, dict) else []:
            if isinstance(value, str | int | float) and 0 < len(str(value)) < 40:
                found.append((argument_behavior(call.name, key, str(value)), True))
    return found


def _called(name: str) -> Behavior:
    train = (
        f"the tool {name} was called",
        f"the assistant called {name}",
        f"the assistant uses the function {name}",
        *more("parametrised", "tool_named", name=name),
    )
    return Behavior(
        f"tool_named:{name}", train, (f"a call to {name} is made", f"the assistant invokes {name}"), ("tools",)
    )


def argument_behavior(name: str, key: str, value: str) -> Behavior:
    train = (
        f"{name} was called with {key} set to {value}",
        f"the assistant passed {value} as {key}",
        f"a tool call has the argument {key} = {value}",
        *more("parametrised", "tool_argument", name=name, key=key, value=value),
    )
    test = (f"the {key} given to {name} is {value}",)
    return Behavior(f"tool_argument:{name}:{key}:{value}", train, test, ("tools",))


WORD = re.compile(r"\b[a-z]{4,12}\b(?!['’]\w)")


def word_behaviors(f: Facts, vocabulary: Sequence[str], rng: random.Random) -> list[tuple[Behavior, bool]]:
    """Which words the reply and the user use: two that stand there and as many that don't, of each."""
    found = []
    for who, text in (("reply", f.reply), ("user", "\n".join(f.users))):
        words = set(WORD.findall(text.lower()))
        there = sorted(words & set(vocabulary)) if words else []
        found += [(_word(who, word), True) for word in rng.sample(there, min(2, len(there)))]
        others = [word for word in rng.sample(vocabulary, min(6, len(vocabulary))) if word not in text.lower()]
        found += [(_word(who, word), False) for word in others[:2]]
    return found


def _word(who: str, word: str) -> Behavior:
    one = "the assistant" if who == "reply" else "the user"
    where = "reply" if who == "reply" else "user's message"
    train = (
        f"the word {word} is in the {where}",
        f"{one} writes {word}",
        f"the {where} mentions {word}",
        *more("parametrised", f"{who}_word", word=word),
    )
    return Behavior(
        f"{who}_word:{word}", train, (f'{one} uses the term "{word}"',), ("text" if who == "reply" else "user",)
    )
