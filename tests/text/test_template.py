"""Templates give what jinja2 gives, and can neither run away nor say what a conversation holds."""

from datetime import datetime
from typing import Any

import pytest

from mainspring.errors import TemplateError
from mainspring.text.template import Number, RefusalError, Template
from support.chat_templates import CHATML, QWEN_STYLE, jinja_render

TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "description": "Über <b>", "parameters": {"type": "object", "required": ["q"]}},
    }
]
CALL = {
    "type": "function",
    "function": {"name": "look", "arguments": {"q": "a\n'b'", "n": 3, "deep": {"x": [1, None]}}},
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": " Be brief. \n"},
    {"role": "user", "content": "What's up?"},
    {"role": "assistant", "content": "Let me see.", "reasoning_content": "hm", "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": '{"r": 1}'},
    {"role": "tool", "content": "second"},
    {"role": "assistant", "content": "Done é 漢字 😀"},
]
SNIPPETS = [
    "{{ x | tojson }}|{{ x | tojson(indent=2) }}|{{ x | tojson(separators=(',', ':')) }}",
    "{{ x | tojson(sort_keys=True) }}|{{ x | tojson(ensure_ascii=True) }}",
    "{% for k, v in x.items() %}{% if loop.index > 2 %}{% break %}{% endif %}{{ k }}={{ v }};{% endfor %}",
    "{% set n = namespace(c=0) %}{% for i in range(5) %}{% if i == 2 %}{% continue %}{% endif %}"
    "{% set n.c = n.c + i %}{% endfor %}{{ n.c }}",
    "{% macro f(a, b='z') %}[{{ a }}{{ b }}]{% endmacro %}{{ f('q') }}{{ f('q', b=1) }}",
    "{{ s.split('-')[1:] }}{{ s.strip().upper() }}{{ s.startswith(' a') }}{{ s | replace('a', 'o') | trim | length }}",
    "{{ x.missing }}{{ x.missing is defined }}{{ x is mapping }}{{ s is string }}{{ none is none }}{{ true }}",
    "{%- if s %}\n  a\n{%- endif %}\n  {% if s %}\n  b\n  {% endif %}\n{{ 'a' ~ 1 ~ 2.5 }}",
    "{{ x }}|{{ x | string }}|{{ s[::-1] }}|{{ [1, 2, 3][-1] }}|{{ (s * 2) }}",
]


@pytest.mark.parametrize("source", SNIPPETS)
def test_snippets_as_jinja(source: str) -> None:
    context = {"x": {"b": [1, 1.5, None, True], "a": "é\"'<&>", "ü": {"z": {}}}, "s": " a-b-c "}
    assert Template(source).render(context, chars=100, items=10) == jinja_render(source, **context)


@pytest.mark.parametrize("source", [CHATML, QWEN_STYLE])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("thinking", [True, False])
def test_chat_templates_as_jinja(source: str, count: int, tools: Any, thinking: bool) -> None:
    context = {"messages": MESSAGES[:count], "tools": tools, "add_generation_prompt": True, "enable_thinking": thinking}
    assert Template(source).render(context, chars=500, items=20) == jinja_render(source, **context)


@pytest.mark.parametrize("value", [1.0, 1e-5, 1e22, -0.0, 2.5e-9, 12345678901234567.0])
def test_numbers_print_as_in_python(value: float) -> None:
    source = "{{ x }} {{ x | string }} {{ x | tojson }} {{ y | tojson }}"
    context = {"x": Number(value), "y": {"k": [Number(value)]}}
    plain = {"x": value, "y": {"k": [value]}}
    assert Template(source).render(context, chars=1, items=1) == jinja_render(source, **plain)


def test_clock_is_an_argument() -> None:
    template = Template("{{ strftime_now('%d %b %Y') }}", clock=datetime(2031, 2, 3))
    assert template.render({}, chars=0, items=0) == "03 Feb 2031"
    assert Template("{{ strftime_now('%Y') }}").render({}, chars=0, items=0) == "2025"


def test_generation_blocks_render_as_their_content() -> None:
    source = "a {%- generation -%} b {%- endgeneration %} c{% generation %}d{% endgeneration %}"
    assert Template(source).render({}, chars=0, items=0) == "ab cd"


@pytest.mark.parametrize(
    "source",
    [
        "\n{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "\n{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "\n{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
        "\n{{ ('x' * 100000) | join('y' * 100000) }}",
        "\n{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_templates_that_run_away_are_stopped(source: str) -> None:
    with pytest.raises(TemplateError, match=r"chat_template line 2 (runs out of fuel|fails)"):
        Template(source).render({}, chars=10, items=1)


@pytest.mark.parametrize("source", ["{{ '{:>900000000}'.format('a') }}", "{{ f.format(1) }}", "{{ [1] * 9 ** 9 }}"])
def test_what_the_engine_does_not_meter_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match="named line 2 uses padding or repetition"):
        Template("\n" + source, "named")


def test_plain_formatting_is_not() -> None:
    source = "{{ '<|{}|>{}'.format('a', 1) }}{{ x[0] ~ '*' }}{{ 2 * x[0] }}"
    assert Template(source).render({"x": [3]}, chars=0, items=0) == "<|a|>13*6"


def test_output_has_a_cap() -> None:
    with pytest.raises(TemplateError, match="the cap is"):
        Template("{{ 'x' * 2000000 }}").render({}, chars=0, items=0)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n{% if %}", r"named line 2 fails: syntax error"),
        ("a\n\n{{ x.y.z }}", r"named line 3 fails: UndefinedError"),
        ("{{ 1 / 0 }}", r"named line 1 fails"),
        ("{{ x | nofilter }}", r"named line 1 fails: unknown filter"),
        ("{{ x | tojson(indent=1000000000) }}", r"named fails: ValueError"),
        ("{{ x | tojson(indent='q', separators=3) }}", r"named fails: TypeError"),
    ],
)
def test_failures_name_template_and_line(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        Template(source, "named").render({"x": {}}, chars=0, items=0)


def test_refusals_are_told_apart_and_quote_the_source_alone() -> None:
    template = Template("a\n{{ raise_exception('Not this: ' ~ x) }}")
    with pytest.raises(RefusalError) as caught:
        template.render({"x": "secret"}, chars=0, items=0)
    assert caught.value.message == "chat_template line 2 refuses: Not this: …"
    with pytest.raises(RefusalError) as caught:
        Template("{{ raise_exception(x) }}").render({"x": "secret"}, chars=0, items=0)
    assert caught.value.message == "chat_template refuses"


def test_errors_do_not_quote_values() -> None:
    with pytest.raises(TemplateError) as caught:
        Template("{{ x + 1 }}{{ x.nothing.more }}").render({"x": "my secret"}, chars=0, items=0)
    assert "secret" not in str(caught.value)


def test_ten_thousand_messages_have_fuel_enough() -> None:
    messages = MESSAGES[1:2] + MESSAGES[2:] * 2500
    context = {"messages": messages, "tools": None, "add_generation_prompt": True}
    text = Template(QWEN_STYLE).render(context, chars=300_000, items=len(messages))
    assert text.count("<|im_start|>assistant") == 5001


def test_a_long_text_has_fuel_enough() -> None:
    messages = [{"role": "user", "content": "a </think> b\n" * 500_000}]
    context = {"messages": messages, "tools": None, "add_generation_prompt": True}
    assert len(Template(QWEN_STYLE).render(context, chars=6_500_000, items=1)) > 6_000_000
