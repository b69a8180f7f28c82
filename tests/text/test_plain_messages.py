"""Plain turns go to the template by a shorter way, and come out of it by another: nothing else comes of them."""

from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.errors import MainspringError, SpanError
from mainspring.text.bundle import Bundle
from mainspring.text.guard import ControlFinder, Guard, Piece
from mainspring.text.messages import Builder, Plan
from mainspring.text.plain import Control
from mainspring.text.span import Message, Role, Span, Text, ToolCall, ToolDefinition
from support.chat_templates import CHATML, QWEN_STYLE, STRICT
from support.qwen import write_qwen

PRINTS_ALL = (
    "{% for message in messages[:-1] %}{{ message }}<|im_end|>{{ message.content|upper }}{% endfor %}"
    "{{ messages[-1].content }}<|im_end|>"
)
TEMPLATES = {"chatml": CHATML, "qwen": QWEN_STYLE, "strict": STRICT, "prints all": PRINTS_ALL}
BITS = st.sampled_from(
    ["Hello.", " ", "\n", "<|im_end|>", "</think>", "é", "\ufdd0", "\ufdd1", "a<b>c", "\ud800", "'", "x" * 40]
)
TEXTS = st.lists(BITS, max_size=4).map("".join)
PLAIN = st.builds(
    lambda role, text: Message(role, (Text(text),)), st.sampled_from(["system", "user", "assistant"]), TEXTS
)
OTHER = st.sampled_from([
    Message("user", (Text("a"), Text("b"))), Message("user", (Text("a"),), "bob"), Message("assistant", ()),
    Message("assistant", (ToolCall("f", {"a": 1}),)),
])  # fmt: skip
SPANS = st.builds(
    Span, st.lists(PLAIN | OTHER, max_size=4).map(tuple), st.lists(PLAIN, max_size=2).map(tuple),
    st.sampled_from([(), (ToolDefinition("f"),)]),
)  # fmt: skip


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    folder: Path = tmp_path_factory.mktemp("models")
    return {name: Bundle.load(write_qwen(folder / name.split()[0], source)) for name, source in TEMPLATES.items()}


def outcome(bundle: Bundle, span: Span) -> object:
    try:
        view = bundle.view(span)
    except MainspringError as error:
        return type(error), str(error), error.param
    return view.tokens.tolist(), view.pieces, view.notes


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(span=SPANS)
def test_the_short_way_changes_nothing(bundles: dict[str, Bundle], name: str, span: Span) -> None:
    short = outcome(bundles[name], span)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Builder, "plain_messages", lambda *_: None)
        assert outcome(bundles[name], span) == short


def test_the_short_way_is_taken_for_plain_turns_alone() -> None:
    def taken(span: Span, plan: Plan = Plan()) -> bool:  # noqa: B008 - it is frozen
        return Builder(Guard(ControlFinder(()), "0123456"), plan).plain_messages(span, 0) is not None

    plain = Span((Message("user", (Text("a"),)),), (Message("assistant", (Text("b"),)),))
    assert taken(plain)
    assert not taken(plain, Plan(level=1))
    assert not taken(plain, Plan(short={"input[0].parts[0]": "c"}))
    assert not taken(Span((Message("user", (Text("a"),), "bob"),)))
    assert not taken(Span(plain.input, plain.output, (ToolDefinition("f"),)))


MARKS = "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4\ufdd5\ufdd6"
LEAVES = ("Hello <x>", "  ", "b", " c<x>\n", "naïve", "Hello <x>")
BETWEEN = st.sampled_from(["", "<x>", "\n", "é<x>", "user: ", *MARKS[:4]])
WHOLE = st.tuples(st.integers(0, len(LEAVES) - 1), st.just(slice(None)))
TORN = st.tuples(
    st.integers(0, len(LEAVES) - 1), st.sampled_from([slice(1, None), slice(4, None), slice(-1), slice(5)])
)


@given(st.lists(st.tuples(WHOLE | TORN, BETWEEN), max_size=8))
def test_an_output_is_taken_apart_alike_by_either_way(shown: list[tuple[tuple[int, slice], str]]) -> None:
    """Leaves in any order, repeated, torn, between any text: as where nothing is looked for as it stood."""
    guard = Guard(ControlFinder([Control("<x>", 1)]), MARKS)
    leaves = [guard.marked(text, f"input[{index}]") for index, text in enumerate(LEAVES)]
    output = "".join(leaves[number][part] + between for (number, part), between in shown)
    found = guard.pieces(output)
    guard._shown = [""] * len(LEAVES)
    assert guard.pieces(output) == found


def test_a_text_one_guard_let_pass_may_hold_the_marks_of_another() -> None:
    finder = ControlFinder([Control("<x>", 1)])
    others = "".join(chr(ord(mark) + len(MARKS)) for mark in MARKS)
    between = f"a{others[1]}b"
    one, other = Guard(finder, MARKS), Guard(finder, others)
    leaf = Piece("user", "Hi", 0)
    assert one.pieces(one.marked("Hi", "input[0]") + between) == [leaf, Piece("template", between)]
    assert other.pieces(other.marked("Hi", "input[0]") + between) == [
        leaf,
        Piece("template", "a"),
        Piece("template", "b"),
    ]


@pytest.mark.parametrize("change", [str.upper, lambda text: text[:9], lambda text: text.replace("l", "ll")])
def test_what_a_template_makes_of_a_text_is_what_is_shown(change: "object") -> None:
    assert callable(change)
    guard = Guard(ControlFinder([Control("<x>", 1)]), "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4\ufdd5\ufdd6")
    marked = guard.marked("hello <x> world", "input[0]")
    start, end = marked[:2], marked[-1:]
    shown = change(marked[2:-1])
    assert guard.pieces(f"{start}{shown}{end}") == [Piece("user", shown.replace("\ufdd2", ""), 0)]
    assert guard.pieces(marked) == [Piece("user", "hello <x> world", 0)]


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_role_nobody_knows_is_refused_on_either_side(bundles: dict[str, Bundle], side: str) -> None:
    """Records made in Python are checked by nobody else, and templates get roles unmarked."""
    roles = {"input": "user", "output": "assistant"} | {side: "<|im_start|>system"}
    span = Span(*((Message(role, (Text("Hi"),)),) for role in cast("dict[str, Role]", roles).values()))
    with pytest.raises(SpanError, match="unknown role") as refused:
        bundles["chatml"].view(span)
    assert refused.value.param == f"{side}[0].role"
