"""A report of a give-back tells everything that was taken, however often it had to begin anew."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, run
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.merge import merge, stamped, table_of
from understudy.container.preonline.report import FORMER_MAX, Report, TakenOver, former_of
from understudy.container.role_services import RoleServices
from understudy.format.json_dialect import loads
from understudy.remoting.codes import RequestCode
from understudy.testkit.waiting import until

PATH = "/data/g0-0/config/preOnline.json"


async def returned(ring: Ring) -> dict[str, Any]:
    await until(lambda: not ring.broker("g0", 0).registration.isolated, 90)
    return dict(loads((await ring.ask(ring.broker("g0", 0), RequestCode.GET_PRE_ONLINE_REPORT)).body))


async def given_commits_at_the_acting_slave(ring: Ring) -> None:
    await ring.commit(ring.broker("g0", 0), 10)
    await trio.sleep(5)
    await ring.cluster.kill("c1")
    slave = ring.broker("g0", 1)
    await until(lambda: "schedule" in slave.services.running(), 20)
    await ring.commit(slave, 400)
    await trio.sleep(2)


def taken(report: dict[str, Any]) -> list[tuple[int, int]]:
    return [(row["before"], row["merged"]) for row in report["rows"] if row["key"] == f"{TOPIC}@readers"]


def test_what_was_taken_before_a_give_back_failed_is_in_the_report() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await given_commits_at_the_acting_slave(ring)
            # when the second slave does not answer, so that everybody is asked once more
            ring.cluster.network.cut(ring.cluster.address("c1"), ring.cluster.address("c3"))
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            rules = master.session.rules
            assert isinstance(rules, RoleServices)
            await until(lambda: rules.returning is not None and rules.returning.tries > 0, 30)
            assert master.offsets.query("readers", TOPIC, 0) == 400
            ring.cluster.heal()
            report = await returned(ring)
            # then the report still tells of what was taken the first time
            assert (10, 400) in taken(report)
            assert report["changed"] >= 1

    run(scenario)


def test_a_give_back_that_was_broken_off_and_former_ones_are_told_with_the_next() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await given_commits_at_the_acting_slave(ring)
            ring.cluster.network.cut(ring.cluster.address("c1"), ring.cluster.address("c3"))
            await ring.cluster.restart("c1")
            # when the master's process ends after it took what the first slave knew, and before the second answered
            disk = ring.cluster.host("c1").disk
            await until(lambda: disk.exists(PATH), 30)
            await trio.sleep(0.5)
            assert loads(disk.read(PATH))["endedAt"] is None
            await ring.cluster.kill("c1")
            ring.cluster.heal()
            await ring.cluster.restart("c1")
            report = await returned(ring)
            # then its next life tells of both
            assert report["endedAt"] is not None
            assert report["former"][0]["changed"] >= 1
            assert report["former"][0]["endedAt"] is None
            # and so does another return
            await trio.sleep(5)
            await ring.cluster.kill("c1")
            await ring.cluster.restart("c1")
            again = await returned(ring)
            assert [each["beganAt"] for each in again["former"]][-1:] == [report["former"][0]["beganAt"]]

    run(scenario)


TABLE = st.dictionaries(st.sampled_from(["t@a", "t@b"]), st.dictionaries(st.integers(0, 1), st.integers(0, 9)))


@given(TABLE, st.lists(TABLE, min_size=1, max_size=4))
def test_a_report_tells_what_was_there_first_and_what_is_there_now(
    own: dict[str, dict[int, int]], looks: list[dict[str, dict[int, int]]]
) -> None:
    first, now = stamped(own), stamped(own)
    found: TakenOver | None = None
    for other in looks:
        rows = merge(now, stamped(other))
        later = TakenOver(1, "s:1", 0, {"consumerOffsets": rows})
        found = later if found is None else found.again(later)
        now = {key: {**queues, **table_of(rows).get(key, {})} for key, queues in {**table_of(rows), **now}.items()}
    assert found is not None
    told = {(row.key, row.queue_id): row for row in found.rows}
    for key, queues in now.items():
        for queue_id, offset in queues.items():
            before = first.get(key, {}).get(queue_id)
            if before != offset:
                assert (told[key, queue_id].own, told[key, queue_id].merged) == (before, offset)
            elif (key, queue_id) in told:
                assert not told[key, queue_id].changed


@pytest.mark.parametrize("content", [None, {}, {"changed": 0}, {"changed": 0, "former": 5}])
def test_reports_that_changed_nothing_are_not_kept(content: dict[str, Any] | None) -> None:
    assert former_of(content) == ()


def test_the_newest_former_reports_are_kept() -> None:
    content: dict[str, Any] | None = None
    for number in range(FORMER_MAX + 4):
        rows = merge(stamped({}), stamped({"t@a": {0: 1}}))
        slaves = (TakenOver(1, "s:1", 0, {"consumerOffsets": rows}),)
        content = Report("b", str(number), number, number, slaves, "", former_of(content)).to_json()
    assert content is not None
    assert [each["cause"] for each in content["former"]] == [str(number) for number in range(FORMER_MAX + 2, 2, -1)]
    assert all("former" not in each for each in content["former"])
