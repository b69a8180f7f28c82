"""Dialling again: the bounds of the wait, and a node that outlives its routers."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.errors import InputError
from mainspring.node import clock
from mainspring.node.config import NodeConfig, resolve
from mainspring.node.departure import Departure
from mainspring.node.home import Home
from mainspring.node.membership import Membership
from mainspring.node.redial import LEAST_S, LONGEST_S, Ending, Redial
from mainspring.wire import messages as m
from mainspring.wire.errors import HOPELESS, Close, IdentityError
from mainspring.wire.link import Knock, Link
from mainspring.wire.memory import Network, connect
from mainspring.wire.transport import Accept, Connection
from support.links import End
from support.nodes import ROUTER, WHO, NodeRig

endings = st.builds(Ending, st.sampled_from([None, *Close]), st.just(""), st.one_of(st.none(), st.floats(0, 1000)))


@given(st.lists(st.tuples(endings, st.floats(0, 1, exclude_max=True)), max_size=40))
def test_waits_are_bounded_whatever_happens(course: list[tuple[Ending, float]]) -> None:
    redial = Redial()
    for ending, chance in course:
        assert LEAST_S <= redial.next(ending, chance) <= LONGEST_S


def test_waits_grow_and_start_over_after_a_sound_link() -> None:
    redial, nobody = Redial(), Ending(None)
    waits = [redial.next(nobody, 0.999) for _ in range(10)]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(0.2, rel=0.01)
    assert waits[-1] == pytest.approx(30.0, rel=0.01)
    assert redial.next(Ending(Close.LOST, lasted_s=5.0), 0.999) > 29.0, "a link of a moment proves nothing"
    assert redial.next(Ending(Close.LOST, lasted_s=100.0), 0.999) < 0.21


@pytest.mark.parametrize("close", sorted(HOPELESS))
def test_who_is_not_wanted_waits_long(close: Close) -> None:
    assert Redial().next(Ending(close), 0.0) >= LONGEST_S / 2


def test_a_goodbye_is_due_when_nothing_is_held_or_time_is_up() -> None:
    departure = Departure()
    assert not departure.may_go(False, 1e9)
    departure.begin(10.0, 5.0, linger_s=0.5)
    assert not departure.may_go(False, 10.4)
    assert departure.due_s(10.1) == 10.5
    assert departure.may_go(False, 10.5)
    assert not departure.may_go(True, 14.9)
    assert departure.due_s(11.0) == 15.0
    assert departure.may_go(True, 15.0)


class Routers:
    """What is dialled: `course` says what happens to each dialling, the last one for ever."""

    def __init__(self, rig: NodeRig, course: list[str]) -> None:
        self.course, self.dials, self.ends = course, 0, list[End]()
        self.networks: list[Network] = []
        self.rig = rig

    async def dial(self, host: str, port: int, accept: Accept) -> Connection:
        what = self.course[min(self.dials, len(self.course) - 1)]
        self.dials += 1
        await asyncio.sleep(0)
        if what == "nobody":
            raise ConnectionError(f"{host} port {port}: nobody there")
        if what == "stranger":
            raise IdentityError("not our router")
        loop = asyncio.get_running_loop()
        network = Network(loop.call_later)
        end = LoopEnd(Link.answer(WHO, clock.now_s()), what, loop.call_later)
        self.ends.append(end)
        self.networks.append(network)
        left, _ = connect(network, WHO, ROUTER, accept, end.accept)
        return left


class LoopEnd(End):
    """A router's end on a real loop that welcomes whoever knocks; `what`: "drops" does and then is gone."""

    def __init__(self, link: Link, what: str, call_later: Callable[..., object]) -> None:
        super().__init__(_Loop(call_later), link)  # type: ignore[arg-type]
        self.what = what

    def turn(self) -> None:
        super().turn()
        for event in self.heard:
            if isinstance(event, Knock) and self.link.epoch == 0 and self.closed is None:
                self.link.welcome(1, 1, self.world.now_s)
                super().turn()
        if self.what == "drops" and self.got(m.NodeReport) and self.closed is None:
            self.close(Close.INTERNAL)


class _Loop:
    def __init__(self, call_later: Callable[..., object]) -> None:
        self.call_later = call_later

    @property
    def now_s(self) -> float:
        return clock.now_s()


def home_of(rig: NodeRig, routers: Routers) -> Home:
    loop = asyncio.get_running_loop()
    rig.runner._clock, rig.runner._call_later = clock.now_s, loop.call_later

    def member(ended):
        hello = m.Hello(role="node", name="ant", instance=7)
        return Membership(hello, rig.offering, rig.runner, clock.now_s, loop.call_later, ended)

    return Home(routers, ("hill", 7300), member, chance=lambda: 0.0)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_node_told_to_leave_just_as_its_router_answers_leaves() -> None:
    async def story() -> None:
        rig = NodeRig()
        routers = Routers(rig, ["stays"])
        home = home_of(rig, routers)
        dial = routers.dial

        async def interrupted(host: str, port: int, accept: Accept) -> Connection:
            connection = await dial(host, port, accept)
            home.leave(5.0, "told to stop")
            return connection

        routers.dial = interrupted  # type: ignore[method-assign]
        await asyncio.wait_for(home.run(), 10)

    asyncio.run(story())


def test_a_node_comes_back_until_it_is_told_to_leave() -> None:
    async def story() -> None:
        rig = NodeRig()
        routers = Routers(rig, ["nobody", "drops", "nobody", "stays"])
        home = home_of(rig, routers)
        running = asyncio.create_task(home.run())
        await until(lambda: len(routers.ends) == 2 and routers.ends[1].got(m.NodeReport))
        assert routers.dials == 4
        assert routers.ends[1].got(m.Offer)
        home.leave(5.0, "told to stop")
        await asyncio.wait_for(running, 20)
        assert routers.dials == 4
        assert routers.ends[1].got(m.Goodbye)

    asyncio.run(story())


@pytest.mark.parametrize("what", ["nobody", "stranger"])
def test_leaving_interrupts_the_wait_for_the_next_dial(what: str) -> None:
    async def story() -> None:
        rig = NodeRig()
        home = home_of(rig, routers := Routers(rig, [what]))
        home._chance = lambda: 0.99
        running = asyncio.create_task(home.run())
        await until(lambda: routers.dials >= 1)
        home.leave(5.0, "told to stop")
        await asyncio.wait_for(running, 5)

    asyncio.run(story())


FLAGS = {"join": "hill:7300", "model": "m", "tls": "t"}


def test_flags_win_over_the_file_and_all_is_printed(tmp_path) -> None:
    (tmp_path / "small").mkdir()
    file = tmp_path / "node.toml"
    file.write_text('[node]\njoin = "a:1"\nmodel = "small"\ntls = "elsewhere"\nthrottle = 4\nlabels = {room = "3"}\n')
    config = resolve(file, {"join": "[::1]:7300", "device": None})
    assert (config.join, config.throttle, config.device) == ("[::1]:7300", 4.0, "cpu")
    assert config.address == ("::1", 7300)
    assert config.model == str(tmp_path / "small"), "beside the file"
    assert config.tls == "elsewhere"
    lines = config.lines()
    assert lines[0] == "[node]"
    assert 'labels = { "room" = "3" }' in lines
    again = tmp_path / "again.toml"
    again.write_text("\n".join(lines))
    assert resolve(again, {}) == config


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"join": "hill"}, "join: is HOST:PORT"),
        ({"join": "hill:70000"}, "join: is HOST:PORT"),
        ({"throttle": 0.5}, "throttle"),
        ({"device": "abacus"}, "device"),
        ({"null_cost": (0.0, 0.0, 0.0)}, "null_cost"),
        ({"spelling": 1}, "spelling"),
        ({"model": None}, "model: is needed"),
    ],
)
def test_a_configuration_that_can_not_be_is_refused_by_key(flags: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve(None, {**FLAGS, **flags})
    assert says in str(caught.value)


def test_a_file_that_is_none_is_said(tmp_path) -> None:
    file = tmp_path / "node.toml"
    for content, says in (("[node", "node.toml"), ("[[node]]\nname = 'a'", "one table here")):
        file.write_text(content)
        with pytest.raises(InputError) as caught:
            resolve(file, FLAGS)
        assert says in str(caught.value)
    with pytest.raises(InputError, match="No such file"):
        resolve(tmp_path / "none.toml", FLAGS)
    assert isinstance(resolve(None, FLAGS), NodeConfig)
