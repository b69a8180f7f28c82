"""What has only fields of our own shape is not looked at as telemetry, and nothing that is telemetry is missed."""

from typing import Any

import pytest

from mainspring.text.formats import _telemetry
from mainspring.text.formats._telemetry import telemetry
from support.span_examples import EXAMPLES

OWN: dict[str, Any] = {
    "text": {"input": "a", "output": "b"},
    "messages": {"input": [{"role": "user", "content": "a"}], "output": {"role": "assistant", "content": "b"}},
    "openinference, nested": {"input": {"value": "a", "mime_type": "text/plain"}, "output": {"value": "b"}},
    "one tagged value": {"input": {"kvlistValue": {"values": [{"key": "value", "value": {"stringValue": "a"}}]}}},
    "an output that is a value": {"input": "a", "output": {"value": "b", "role": "assistant"}},
    "no field": {},
}


@pytest.mark.parametrize("data", [*EXAMPLES.values(), *OWN.values()], ids=[*EXAMPLES, *OWN])
def test_the_shortcut_changes_nothing(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    short = telemetry(data)
    monkeypatch.setattr(_telemetry, "_is_plain", lambda _: False)
    long = telemetry(data)
    assert (short is None) == (long is None)


def test_it_is_taken_for_our_own_shape() -> None:
    assert _telemetry._is_plain(OWN["messages"])
    assert not _telemetry._is_plain(OWN["openinference, nested"])
