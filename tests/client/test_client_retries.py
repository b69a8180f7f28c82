"""Whether to try again, without sockets or time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.client.attempts import Attempts, Reply, Wait, complaint
from mainspring.client.errors import (
    BusyError,
    KeyRefusedError,
    NoReplyError,
    RequestError,
    ServiceError,
    TimedOutError,
    UnavailableError,
)
from mainspring.client.requests import DEADLINE, Call
from mainspring.client.retries import Retries, told_s

CALL = Call("POST", "/v1/scores", {"accept": "application/json"}, b"{}")


def attempts(retries: Retries | None = None, *, deadline_s: float | None = None, chance: float = 0.0) -> Attempts:
    return Attempts(
        CALL, retries or Retries(), timeout_s=10.0, deadline_s=deadline_s, now_s=100.0, chance=lambda: chance
    )


def test_the_services_own_time_is_believed_to_the_millisecond() -> None:
    machine = attempts()
    machine.begin(100.0)
    outcome = machine.answered(429, {"retry-after": "3", "retry-after-ms": "2345"}, b"", 100.0)
    assert outcome == Wait(2.345)


def test_up_to_a_tenth_later_than_told_and_never_earlier() -> None:
    machine = attempts(chance=1.0)
    machine.begin(100.0)
    assert machine.answered(503, {"retry-after": "2"}, b"", 100.0) == Wait(pytest.approx(2.2))


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_what_may_pass_is_tried_again(status: int) -> None:
    machine = attempts(Retries(attempts=2), chance=0.5)
    machine.begin(100.0)
    assert machine.answered(status, {}, b"", 100.0) == Wait(0.125)
    machine.begin(100.2)
    with pytest.raises(ServiceError) as error:
        machine.answered(status, {}, b"", 100.2)
    assert error.value.attempts == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, RequestError), (401, KeyRefusedError), (403, KeyRefusedError), (404, RequestError), (413, RequestError),
     (422, RequestError), (500, UnavailableError)],
)  # fmt: skip
def test_what_stays_wrong_is_not(status: int, kind: type[ServiceError]) -> None:
    machine = attempts()
    machine.begin(100.0)
    with pytest.raises(kind) as error:
        machine.answered(status, {"retry-after": "1"}, b"", 100.0)
    assert error.value.status == status


def test_told_not_to_retry() -> None:
    machine = attempts()
    machine.begin(100.0)
    body = b'{"detail": "no room before the deadline", "reason": "contention"}'
    with pytest.raises(BusyError, match="no room") as error:
        machine.answered(429, {"retry-after": "1", "x-should-retry": "false"}, body, 100.0)
    assert (error.value.reason, error.value.retry_after_s, error.value.attempts) == ("contention", 1.0, 1)


def test_a_wait_that_is_too_long_is_not_waited() -> None:
    machine = attempts(Retries(wait_s=5.0))
    machine.begin(100.0)
    with pytest.raises(BusyError) as error:
        machine.answered(429, {"retry-after": "6"}, b"", 100.0)
    assert error.value.retry_after_s == 6.0


def test_the_deadline_is_told_shrinks_and_ends_the_tries() -> None:
    machine = attempts(deadline_s=2.0)
    first = machine.begin(100.0)
    assert (first.headers[DEADLINE], first.timeout_s) == ("2000", 2.0)
    assert machine.answered(503, {"retry-after-ms": "500"}, b"", 100.7) == Wait(0.5)
    assert machine.begin(101.2).headers[DEADLINE] == "800"
    with pytest.raises(UnavailableError):  # 1 s more would be too late
        machine.answered(503, {"retry-after-ms": "1000"}, b"", 101.3)
    with pytest.raises(TimedOutError):
        machine.begin(102.0)


def test_a_broken_connection_is_tried_again_a_timeout_is_not() -> None:
    machine = attempts(Retries(attempts=2))
    machine.begin(100.0)
    assert machine.broke("refused", 100.0) == Wait(0.0)
    machine.begin(100.0)
    with pytest.raises(NoReplyError, match="refused"):
        machine.broke("refused", 100.0)
    other = attempts()
    other.begin(100.0)
    with pytest.raises(TimedOutError, match="10 s"):
        other.broke("", 110.0, timed_out=True)


def test_an_answer_has_its_headers() -> None:
    machine = attempts()
    machine.begin(100.0)
    outcome = machine.answered(200, {"x-request-id": "r", "x-slo-class": "batch", "x-predicted-ms": "7.5"}, b"{}", 1.0)
    assert isinstance(outcome, Reply)
    assert (outcome.received.request_id, outcome.received.predicted_ms) == ("r", 7.5)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"detail":"m","reason":"r","limit":5,"param":"span"}', ("m", "r", 5.0, "span")),
        (b'{"error":{"message":"m","type":"t","param":null,"code":"c"}}', ("m", "c", None, None)),
        (b"<html>bad gateway</html>", ("", "", None, None)),
        (b"[1]", ("", "", None, None)),
        (b'{"detail": [{"loc": "x"}], "limit": true}', ("", "", None, None)),
        (b"\xff\xfe", ("", "", None, None)),
    ],
)
def test_complaints_of_both_surfaces(body: bytes, told: tuple[object, ...]) -> None:
    assert complaint(body) == told


@given(st.text(max_size=12), st.text(max_size=12))
def test_whatever_the_headers_say_a_wait_is_a_time(ms: str, seconds: str) -> None:
    told = told_s({"retry-after-ms": ms, "retry-after": seconds})
    assert told is None or 0.0 <= told < float("inf")


@given(
    st.lists(st.tuples(st.sampled_from([0, 429, 503, 504]), st.floats(0, 100)), min_size=1, max_size=30),
    st.integers(1, 6), st.floats(0, 1), st.floats(0, 50),
)  # fmt: skip
def test_tries_and_time_are_bounded(answers: list[tuple[int, float]], most: int, chance: float, total_s: float) -> None:
    machine = attempts(Retries(attempts=most, total_s=total_s), chance=chance)
    now, tries = 100.0, 0
    for status, told in answers:
        machine.begin(now)
        tries += 1
        try:
            headers = {"retry-after": f"{told:f}"}
            outcome = machine.broke("", now) if status == 0 else machine.answered(status, headers, b"", now)
        except ServiceError:
            break
        assert isinstance(outcome, Wait)
        now += outcome.seconds
    assert tries <= most
    assert now - 100.0 <= total_s * (1 + 1e-9) + 1e-6


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"attempts": 101}, {"total_s": -1.0}, {"wait_s": float("inf")}])
def test_retries_have_limits(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"attempts|total_s"):
        Retries(**wrong)  # type: ignore[arg-type]
