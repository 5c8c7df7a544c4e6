"""What the page shows of what servers answer: who leads, since when, rates, lag, what waits, and timelines."""

from __future__ import annotations

import json
import random
from typing import Any

import attrs
import pytest
from console_looks import MASTER, SLAVE, acting, look, master, silent, slave
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.console import questions
from understudy.console.model import lag, memory, waiting
from understudy.console.model.groups import MOST_GONE
from understudy.console.model.lag import LagLook
from understudy.console.model.looks import BrokerLook, GroupAddresses, Look
from understudy.console.model.memory import Memory, observe
from understudy.console.model.rates import MOST_POINTS
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import BrokerError
from understudy.mqclient.session import Session, open_session
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork

BOTH = {0: MASTER, 1: SLAVE}


def after(*looks: Look) -> Memory:
    known = Memory()
    for each in looks:
        known = observe(known, each)
    return known


def shown(known: Memory) -> dict[str, Any]:
    """Return the first screen as a browser gets it."""
    screen: dict[str, Any] = json.loads(json.dumps(memory.first_screen(known)))
    return screen


def steps(known: Memory) -> dict[str, tuple[int, bool]]:
    (row,) = memory.failover_rows(known)
    return {step["step"]: (step["at"], step["told"]) for step in row["steps"]}


class TestWhoLeads:
    def test_a_registered_master_leads_since_its_services_run(self) -> None:
        known = after(look(5_000, BOTH, {MASTER: master(4_900), SLAVE: slave(4_950, end=420)}))
        screen = shown(known)
        assert {"state": "ok", "text": "The group has its master."} == screen["verdict"]
        (group,) = screen["groups"]
        assert ("master", MASTER, 0, 1_000, True) == tuple(
            group[name] for name in ("state", "leader", "leaderId", "since", "exact")
        )
        assert [("master", None), ("slave", 80)] == [(each["part"], each["behindBytes"]) for each in group["members"]]

    def test_a_slave_acts_when_no_master_is_registered_and_says_why_and_since_when(self) -> None:
        known = after(look(9_000, {1: SLAVE}, {SLAVE: acting(8_990, since=7_000)}))
        (group,) = shown(known)["groups"]
        assert ("acting", SLAVE, 1, 7_000, True) == tuple(
            group[name] for name in ("state", "leader", "leaderId", "since", "exact")
        )
        assert "no master, and the smallest id of the group" == group["why"]
        assert {"state": "acting", "text": "Without master, a slave acts: broker-a."} == shown(known)["verdict"]

    def test_nobody_leads_when_no_slave_acts_and_that_comes_first(self) -> None:
        groups = {"a": GroupAddresses("C", {0: MASTER}), "z": GroupAddresses("C", {1: SLAVE})}
        known = after(Look(5_000, groups, {MASTER: master(4_900), SLAVE: slave(4_900)}))
        screen = shown(known)
        assert {"state": "none", "text": "Without master, and nobody acts: z."} == screen["verdict"]
        assert ["z", "a"] == [group["name"] for group in screen["groups"]]
        assert f"broker 1: the master {MASTER} is there" == screen["groups"][0]["why"]

    def test_since_when_stays_while_nothing_changes_and_is_of_this_page_where_nobody_tells(self) -> None:
        # given a group of the reference, whose slave tells neither reasons nor times
        plain = BrokerLook(5_000, {"brokerActive": "true"})
        known = after(*(look(at, {1: SLAVE}, {SLAVE: attrs.evolve(plain, at_ms=at)}) for at in (5_000, 6_000, 7_000)))
        (group,) = shown(known)["groups"]
        assert ("acting", 5_000, False) == (group["state"], group["since"], group["exact"])

    def test_a_master_that_is_registered_and_silent_is_not_shown_as_fine(self) -> None:
        known = after(look(5_000, BOTH, {MASTER: master(4_900)}), look(6_000, BOTH, {MASTER: silent(6_000)}))
        screen = shown(known)
        assert "unknown" == screen["verdict"]["state"]
        assert not screen["groups"][0]["answers"]
        assert 6_000 == screen["groups"][0]["members"][0]["silentSince"]
        assert "no connection: refused" in screen["groups"][0]["why"]

    def test_without_name_server_what_was_known_stays_and_is_called_old(self) -> None:
        known = after(look(5_000, BOTH, {MASTER: master(4_900)}), look(6_000, None), look(7_000, None))
        screen = shown(known)
        assert "unknown" == screen["verdict"]["state"]
        assert "No name server answers" in screen["verdict"]["text"]
        assert 6_000 == screen["nameServer"]["silentSince"]
        assert "master" == screen["groups"][0]["state"]
        assert None is shown(observe(known, look(8_000, BOTH, {})))["nameServer"]["silentSince"]

    def test_members_that_are_gone_are_shown_and_bounded(self) -> None:
        looks = [look(at, {0: f"10.0.0.9:{at}"}, {}) for at in range(1_000, 1_000 + 3 * MOST_GONE)]
        (group,) = shown(after(*looks))["groups"]
        assert 1 + MOST_GONE == len(group["members"])
        assert ["master"] + ["gone"] * MOST_GONE == [each["part"] for each in group["members"]]

    def test_nothing_asked_and_nothing_listed_are_not_fine(self) -> None:
        assert "unknown" == shown(Memory())["verdict"]["state"]
        assert "The name server lists no broker." == shown(after(Look(1_000, {}, {})))["verdict"]["text"]


class TestTimeline:
    def failover(self) -> list[Look]:
        return [
            look(10_000, BOTH, {MASTER: master(9_950), SLAVE: slave(9_960)}),
            look(11_000, BOTH, {MASTER: silent(10_900), SLAVE: slave(10_960)}),
            look(12_000, {1: SLAVE}, {MASTER: silent(11_900), SLAVE: acting(11_960, since=11_400, got=5)}, {1: SLAVE}),
            look(13_000, {1: SLAVE}, {SLAVE: acting(12_960, since=11_400, got=5)}, {0: SLAVE}),
            look(14_000, {1: SLAVE}, {SLAVE: acting(13_960, since=11_400, got=9)}, {0: SLAVE}),
            look(20_000, {1: SLAVE}, {MASTER: master(19_900, boot=19_000), SLAVE: acting(19_960, since=11_400, got=9)}),
            look(21_000, BOTH, {MASTER: master(20_900, boot=19_000), SLAVE: slave(20_960)}),
        ]

    def test_each_step_has_the_time_a_broker_tells_or_of_the_look_that_saw_it(self) -> None:
        known = after(*self.failover())
        assert {
            "T0": (9_950, False),
            "T1": (11_400, False),
            "T2": (11_400, True),
            "T3": (11_403, True),
            "T4": (13_000, False),
            "T5": (14_000, False),
            "R1": (19_000, True),
            "R2": (21_000, False),
        } == steps(known)
        (row,) = memory.failover_rows(known)
        assert (True, MASTER, SLAVE, 9_950) == (row["over"], row["master"], row["acting"], row["began"])
        assert "no master, and the smallest id of the group" == row["why"]

    def test_it_grows_while_it_goes_on_and_a_second_one_is_another(self) -> None:
        looks = self.failover()
        known = after(*looks[:4])
        assert {"T0", "T1", "T2", "T3", "T4"} == steps(known).keys()
        assert not memory.failover_rows(known)[0]["over"]
        later = [attrs.evolve(each, at_ms=each.at_ms + 50_000) for each in looks[1:3]]
        known = after(*looks, *later)
        assert [False, True] == [row["over"] for row in memory.failover_rows(known)]

    def test_a_frozen_master_is_back_when_it_answers_again(self) -> None:
        looks = self.failover()
        looks[5] = look(20_000, {1: SLAVE}, {MASTER: master(19_900), SLAVE: acting(19_960, since=11_400, got=9)})
        looks[6] = look(21_000, BOTH, {MASTER: master(20_900), SLAVE: slave(20_960)})
        assert (19_900, False) == steps(after(*looks))["R1"]

    def test_a_master_that_only_the_name_server_has_lost_never_left(self) -> None:
        looks = [
            look(at, members, {MASTER: master(at - 50), SLAVE: slave(at - 40)})
            for at, members in ((10_000, BOTH), (11_000, {1: SLAVE}), (12_000, {1: SLAVE}), (13_000, BOTH))
        ]
        assert {"T0", "T1", "R2"} == steps(after(*looks)).keys()

    def test_a_page_opened_in_the_middle_knows_what_the_slave_tells(self) -> None:
        known = after(*self.failover()[2:5])
        assert {"T2", "T3", "T4", "T5"} == steps(known).keys()

    def test_without_name_server_nothing_is_called_a_failover(self) -> None:
        known = after(*self.failover()[:1], look(11_000, None, {MASTER: silent(10_900)}), look(12_000, None))
        assert [] == memory.failover_rows(known)


class TestRates:
    def test_they_are_differences_over_the_time_between_two_answers(self) -> None:
        known = after(
            look(1_000, BOTH, {MASTER: master(1_000, put=100, got=40)}),
            look(3_000, BOTH, {MASTER: master(3_000, put=160, got=50)}),
        )
        assert [[1_000, None, None, 1.5], [3_000, 30.0, 5.0, 1.5]] == memory.points(known)
        assert (30.0, 5.0) == tuple(shown(known)["groups"][0]["members"][0][name] for name in ("put", "got"))

    def test_a_broker_that_began_anew_or_is_silent_has_none(self) -> None:
        known = after(
            look(1_000, BOTH, {MASTER: master(1_000, put=100)}),
            look(2_000, BOTH, {MASTER: master(2_000, put=10)}),
            look(3_000, BOTH, {MASTER: silent(3_000)}),
            look(4_000, BOTH, {MASTER: master(4_000, put=20)}),
        )
        assert [None] * 4 == [point[1] for point in memory.points(known)]

    def test_a_minute_in_which_nothing_was_stored_has_no_latency(self) -> None:
        busy = master(1_000)
        idle = attrs.evolve(busy, figures={**(busy.figures or {}), "putLatency99": "0.00"})
        assert [[1_000, None, None, None]] == memory.points(after(look(1_000, BOTH, {MASTER: idle})))

    def test_what_is_kept_is_bounded(self) -> None:
        known = Memory()
        for at in range(MOST_POINTS + 5):
            known = observe(known, look(at * 1_000, BOTH, {}))
        assert MOST_POINTS == len(memory.points(known))


def stats(topic: str, *queues: tuple[int, int, int], broker: str = "broker-a", tps: float = 1.0) -> dict[str, Any]:
    return {
        "consumeTps": tps,
        "offsetTable": {
            json.dumps({"topic": topic, "brokerName": broker, "queueId": number}): {
                "brokerOffset": end, "consumerOffset": consumed, "lastTimestamp": last,
            }
            for number, (end, consumed, last) in enumerate(queues)
        },
    }  # fmt: skip


class TestLag:
    def test_brokers_are_added_up_by_group_and_topic_the_farthest_behind_first(self) -> None:
        looks = {
            name: lag.look_of(
                {
                    "consumeStatsList": [
                        {"slow": [stats("T", (100, 40, 7_000), (50, 50, 9_000))]},
                        {"fast": [stats("T", (9, 9, 1))]},
                    ]
                },
                5_000,
            )
            for name in ("broker-a", "broker-b")
        }
        table = lag.ranking(looks.values())
        assert [("slow", 120, 60, 4, 7_000), ("fast", 0, 0, 2, 0)] == [
            (row.group, row.behind, row.worst, row.queues, row.last_ms) for row in table.topics
        ]
        assert [("slow", 120, ["T"], 2.0), ("fast", 0, ["T"], 2.0)] == [
            (row["group"], row["behind"], row["topics"], row["perSecond"]) for row in table.groups
        ]

    def test_what_is_not_known_is_named_and_never_nothing(self) -> None:
        known = after(look(5_000, BOTH, {MASTER: master(4_900)}))
        assert ["broker-a"] == shown(known)["lag"]["unknown"]
        told = lag.look_of({"consumeStatsList": [{"g": [stats("T", (5, 1, 1))]}]}, 5_000)
        known = memory.with_lag(known, "broker-a", told)
        assert [] == shown(known)["lag"]["unknown"]
        # when it does not answer later, then what it said stays and is called old
        known = memory.with_lag(known, "broker-a", LagLook(9_000, error="no answer"))
        assert ["broker-a"] == shown(known)["lag"]["unknown"]
        assert told.rows == known.lags["broker-a"].rows

    @given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda each: st.lists(each, max_size=3)))
    def test_a_row_that_is_none_is_left_out(self, broken: object) -> None:
        key = json.dumps({"topic": "T", "brokerName": "b", "queueId": 0})
        assert [] == lag.queues_of({"offsetTable": {key: broken, json.dumps(broken): {"brokerOffset": 1}}})


class TestWaiting:
    def test_kinds_are_counted_and_what_is_stuck_comes_first(self) -> None:
        rows = [
            {
                "kind": "delay",
                "place": "delay level 3",
                "count": 7,
                "waitsMs": -500,
                "stuck": False,
                "why": "w",
                "advice": "",
            },
            {
                "kind": "half",
                "place": "half queue 0, offset 1",
                "count": 1,
                "waitsMs": 9_000,
                "stuck": True,
                "why": "w",
                "advice": "a",
            },
            {
                "kind": "half",
                "place": "half queue 0, offset 2",
                "count": 1,
                "waitsMs": 90_000,
                "stuck": True,
                "why": "w",
                "advice": "a",
            },
        ]
        looks = [waiting.look_of({"rows": rows, "more": 0}, "broker-a", 5_000)]
        assert [90_000, 9_000, -500] == [row["waitsMs"] for row in waiting.rows_of(looks)]
        kinds = {each["kind"]: (each["count"], each["stuck"], each["oldestMs"]) for each in waiting.kinds_of(looks)}
        assert {"half": (2, 2, 90_000), "pop": (0, 0, 0), "timer": (0, 0, 0), "delay": (7, 0, 0)} == kinds


@pytest.mark.parametrize("told", ["NaN 1 2", "inf", "-Infinity", "1e999", "many", ""])
def test_a_figure_that_json_has_no_word_for_is_none(told: str) -> None:
    assert BrokerLook(0, {"putTps": told}).number("putTps") is None


@pytest.mark.parametrize(
    ("code", "of_reference"), [(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, True), (ResponseCode.SYSTEM_BUSY, False)]
)
async def test_a_busy_broker_is_not_taken_for_one_of_the_reference(
    code: ResponseCode, of_reference: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def figures(session: Session, address: str) -> dict[str, str]:
        return {"brokerActive": "true"}

    async def refuse(session: Session, address: str, asked: RequestCode, ext: object) -> dict[str, object]:
        raise BrokerError(code, "not now", address)

    monkeypatch.setattr(cluster, "runtime_info", figures)
    monkeypatch.setattr(questions, "ask", refuse)
    world = World(VirtualClock(), SimNetwork(random.Random(1)).host("h"), SimDisk(random.Random(1)), random.Random(1))
    async with open_session(world, "nobody:9876") as session:
        look = await questions.broker(session, MASTER, with_roster=True, with_replication=False, with_settings=False)
    assert (True, of_reference) == (look.answered, look.of_reference)
