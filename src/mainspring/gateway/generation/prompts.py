"""A conversation or a text -> prompt tokens, and what reading the reply needs to know of them. Pure; for any thread."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mainspring.errors import InputError, TooLargeError
from mainspring.gateway.assemble import SUBMIT_BYTES, tokens_of, too_many_bytes
from mainspring.gateway.errors import ContextError, ValidationError
from mainspring.gateway.generation.asking import Conversation, GenerateCall, Writing
from mainspring.text.bundle import Bundle
from mainspring.text.grammar import check_grammar
from mainspring.text.guard import Piece
from mainspring.text.prompt import prefix_keys, turn_ends, write_prompt
from mainspring.text.reply.parser import Parser
from mainspring.text.reply.reply import Reply
from mainspring.text.reply.tags import CALL, THINK

U32 = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Ready:
    """One prompt. `tokens` [n] uint32, `keys` of its beginnings, `max_tokens` for its reply. `asked` is what the caller
    gave where that is no conversation. `inside`: it ends within reasoning."""

    bundle: Bundle
    tokens: U32
    keys: tuple[tuple[str, int], ...]
    max_tokens: int
    conversation: Conversation | None = None
    inside: bool = False
    given: str = ""
    asked: str | Sequence[int] = ""

    @cached_property
    def text(self) -> str:
        """What `asked` says. Made when it is wanted, once for all choices: thousands of ids take milliseconds."""
        return self.asked if isinstance(self.asked, str) else self.bundle.tokenizer.decode(self.asked)

    def reply(self, writing: Writing) -> Reply:
        """A reader for one reply."""
        parser = None
        if self.conversation is not None:
            parser = Parser(
                reasoning=THINK in self.bundle.tokenizer.control or THINK in self.bundle.files.template,
                inside=self.inside, schemas=self.conversation.schemas, given=self.given,
            )  # fmt: skip
        return Reply(
            self.bundle.tokenizer, ends=ends_of(self.bundle, writing), stop_ids=writing.stop_ids, stops=writing.stops,
            least=writing.min_tokens, parser=parser, special=writing.special,
            one_call=self.conversation is not None and self.conversation.one_call,
        )  # fmt: skip


def ends_of(bundle: Bundle, writing: Writing) -> Collection[int]:
    return () if writing.ignore_eos else bundle.eos_ids


def make_ready(
    bundle: Bundle, call: GenerateCall, context: int, most_new: int, salt: bytes
) -> list[Ready]:  # fmt: skip
    """One for each prompt of `call`. `context`: tokens of prompt and reply together; `most_new`: of a
    reply where nothing is said.
    InputError, ValidationError, ContextError name the caller's field."""
    check_ids(bundle, call.writing)
    if call.writing.grammar:
        check_grammar("json_schema", call.writing.grammar, "response_format.json_schema.schema")
    made = []
    for at, prompt in enumerate(call.prompts):
        field = call.field if len(call.prompts) == 1 else f"{call.field}[{at}]"
        if isinstance(prompt, Conversation):
            made.append(_of_conversation(bundle, prompt, call, context, most_new, salt))
            continue
        tokens = tokens_of(bundle, prompt, field)
        if not len(tokens):
            raise ValidationError("at least one token is needed", param=field)
        room = _room(len(tokens), call.writing, context, most_new, field)
        keys = prefix_keys(tokens, turn_ends(tokens, bundle.eos_ids), salt)
        made.append(Ready(bundle, tokens, keys, room, asked=prompt))
    size = max(each.tokens.nbytes for each in made)
    if size > SUBMIT_BYTES:
        raise too_many_bytes(size, call.field)
    return made


def count(bundle: Bundle, conversation: Conversation) -> int:
    """Tokens of a conversation's prompt. InputError."""
    return len(written(bundle, conversation, None).tokens)


def check_ids(bundle: Bundle, writing: Writing) -> None:
    size = bundle.tokenizer.vocab_size
    for name, ids in (("logit_bias", writing.sampling.logit_bias), ("stop_token_ids", writing.stop_ids)):
        if any(token >= size for token in ids):
            raise ValidationError(f"token ids go from 0 to {size - 1}", param=name)


def _of_conversation(
    bundle: Bundle, conversation: Conversation, call: GenerateCall, context: int, most_new: int, salt: bytes
) -> Ready:
    try:
        prompt = written(bundle, conversation, context)
    except TooLargeError as error:
        raise ContextError(context, error.actual, param=call.field) from None
    if not len(prompt.tokens):
        raise ValidationError("the template makes no token of this conversation", param=call.field)
    room = _room(len(prompt.tokens), call.writing, context, most_new, call.field)
    keys = prefix_keys(prompt.tokens, prompt.turns, salt)
    given = prompt.given if conversation.force else ""
    return Ready(bundle, prompt.tokens, keys, room, conversation, prompt.inside, given)


def written(bundle: Bundle, conversation: Conversation, limit: int | None) -> Any:
    try:
        return write_prompt(
            bundle.chat, conversation.span, ends=bundle.eos_ids, thinking=conversation.thinking,
            variables=conversation.variables, given=begin(bundle, conversation), limit=limit,
            closed=conversation.thinking is False,
        )  # fmt: skip
    except InputError as error:
        error.param = _place(error.param, conversation.places)
        raise


def begin(bundle: Bundle, conversation: Conversation) -> list[Piece]:
    """What the reply begins with: text of the caller's, or a call that it has to make, in the template's own format."""
    if not conversation.force:
        return [Piece("user", conversation.begun)] if conversation.begun else []
    name = conversation.force.partition(":")[2]
    if "<function=" in bundle.files.template:
        text = f"\n<function={name}>\n" if name else "\n<function="
    else:
        text = f'\n{{"name": "{name}", "arguments": ' if name else '\n{"name": "'
    kind = "control" if CALL in bundle.tokenizer.control else "user"
    return [Piece(kind, CALL), Piece("user", text)]  # type: ignore[arg-type]


def _place(param: str | None, places: tuple[str, ...]) -> str | None:
    """`input[3].parts[0]` under the caller's name for that message."""
    if param is None or not param.startswith("input["):
        return param
    number, _, _rest = param.removeprefix("input[").partition("]")
    return places[int(number)] if number.isdecimal() and int(number) < len(places) else param


def _room(prompt: int, writing: Writing, context: int, most_new: int, field: str) -> int:
    """Tokens that the reply may have."""
    wanted = writing.max_tokens
    least = max(1, writing.min_tokens) if wanted is None else wanted
    if prompt + least > context:
        raise ContextError(context, prompt + least, param=field, prompt=prompt, reply=wanted)
    return min(max(most_new, least), context - prompt) if wanted is None else wanted
