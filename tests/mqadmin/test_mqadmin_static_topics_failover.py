"""Static topics whose groups lose their masters: slaves that act serve what they have, and send nobody on too early."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
from mqadmin_rig import shell
from static_rig import GROUP, SUBSCRIPTION, TOPIC, open_groups, run

from understudy.mqclient.errors import ClientError
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.testkit.waiting import until

ACTING = {"enableSlaveActingMaster": "true"}
SLAVE = {**ACTING, "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}


@pytest.mark.covers("R349")
def test_readers_of_a_moved_queue_go_on_through_slaves_that_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def scenario(source: random.Random) -> None:
        async with open_groups(source, **ACTING) as client:
            cluster = client.cluster
            for host, name in (("s1", "broker-a"), ("s2", "broker-b")):
                await cluster.start_container(host, [{"brokerName": name, **SLAVE}])
            slaves = [cluster.brokers("s1")["broker-a"], cluster.brokers("s2")["broker-b"]]
            await shell(cluster, f"updateStaticTopic -t {TOPIC} -qn 1 -b broker-a")
            for number in range(4):
                assert (await client.send(0, b"%d" % number)).code == 0
            await shell(cluster, f"remappingStaticTopic -t {TOPIC} -b broker-b")
            for number in range(4, 7):
                assert (await client.send(0, b"%d" % number)).code == 0
            await trio.sleep(10)
            # given slaves that have the mapping of their masters
            masters = [client.broker("broker-a"), client.broker("broker-b")]
            assert [each.queue_mappings.table for each in slaves] == [each.queue_mappings.table for each in masters]
            everything = [*enumerate(b"%d" % each for each in range(4))]
            everything += [(10_000 + number, b"%d" % (4 + number)) for number in range(3)]
            assert await client.read_all(0) == everything
            group = {"consumerGroup": GROUP}
            assert (await client.ask(0, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=3, **group)).code == 0
            await trio.sleep(15)  # slaves know the commit, too
            # when the group that has the older messages loses its master, then the one that leads
            for host, slave in (("c1", slaves[0]), ("c2", slaves[1])):
                await cluster.kill(host)
                await until(lambda slave=slave: "schedule" in slave.services.running(), 60)  # type: ignore[misc]
                await trio.sleep(40)  # what was known of addresses is old
                # then a reader finds what it found before
                assert await client.read_all(0) == everything
            assert await client.offset_of(0, RequestCode.QUERY_CONSUMER_OFFSET, **group) == 3
            assert await client.offset_of(0, RequestCode.GET_MAX_OFFSET) == 10_003
            # and nobody is told that a message was stored
            refused = await client.send(0, b"no")
            assert refused.code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY)

    run(scenario)


def test_a_move_waits_for_the_masters_and_changes_nothing_while_a_slave_acts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def scenario(source: random.Random) -> None:
        async with open_groups(source, **ACTING) as client:
            cluster = client.cluster
            await cluster.start_container("s1", [{"brokerName": "broker-a", **SLAVE}])
            slave = cluster.brokers("s1")["broker-a"]
            await shell(cluster, f"updateStaticTopic -t {TOPIC} -qn 1 -b broker-a")
            for number in range(3):
                assert (await client.send(0, b"%d" % number)).code == 0
            await trio.sleep(15)
            await cluster.kill("c1")
            await until(lambda: "schedule" in slave.services.running(), 60)
            mappings = dict(client.broker("broker-b").queue_mappings.rows)
            # given that nothing can be said of where the queue ends
            with pytest.raises(ClientError, match="broker-a has no master at the moment"):
                await shell(cluster, f"remappingStaticTopic -t {TOPIC} -b broker-b")
            assert mappings == client.broker("broker-b").queue_mappings.rows
            assert [body for _, body in await client.read_all(0)] == [b"0", b"1", b"2"]
            # the group's offsets are where they were committed when the master is back, and it moves
            group = {"consumerGroup": GROUP}
            assert (await client.ask(0, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=2, **group)).code == 0
            await cluster.restart("c1")
            await until(lambda: not client.broker("broker-a").registration.isolated, 120)
            await trio.sleep(30)
            assert await client.offset_of(0, RequestCode.QUERY_CONSUMER_OFFSET, **group) == 2
            await shell(cluster, f"remappingStaticTopic -t {TOPIC} -b broker-b")
            assert (await client.send(0, b"3")).code == 0
            assert await client.offset_of(0, RequestCode.QUERY_CONSUMER_OFFSET, **group) == 2
            assert await client.read_all(0) == [(0, b"0"), (1, b"1"), (2, b"2"), (10_000, b"3")]

    run(scenario)


def test_a_slave_that_acts_and_lags_behind_sends_no_reader_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def scenario(source: random.Random) -> None:
        async with open_groups(source, **ACTING) as client:
            cluster = client.cluster
            await cluster.start_container("s1", [{"brokerName": "broker-a", **SLAVE}])
            slave = cluster.brokers("s1")["broker-a"]
            await shell(cluster, f"updateStaticTopic -t {TOPIC} -qn 1 -b broker-a")
            for number in range(2):
                assert (await client.send(0, b"%d" % number)).code == 0
            await trio.sleep(15)
            # given a slave that has not copied the last messages of the piece when its master dies
            cluster.network.cut(cluster.address("c1"), cluster.address("s1"))
            for number in range(2, 4):
                assert (await client.send(0, b"%d" % number)).code == 0
            await shell(cluster, f"remappingStaticTopic -t {TOPIC} -b broker-b")
            assert (await client.send(0, b"4")).code == 0
            await cluster.kill("c1")
            await until(lambda: "schedule" in slave.services.running(), 60)
            await trio.sleep(40)
            # then what it has is read, and the rest is waited for
            assert await client.read_all(0) == [(0, b"0"), (1, b"1")]
            read = await client.pull(0, 2)
            assert (ResponseCode.PULL_NOT_FOUND, 2) == (read.code, read.next_offset)
            cluster.heal()
            await cluster.restart("c1")
            await until(lambda: not client.broker("broker-a").registration.isolated, 120)
            await trio.sleep(40)
            everything = [*enumerate([b"0", b"1", b"2", b"3"]), (10_000, b"4")]
            assert await client.read_all(0) == everything

    run(scenario)


def test_a_pull_commits_in_the_piece_that_it_reads_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            await shell(client.cluster, f"updateStaticTopic -t {TOPIC} -qn 1 -b broker-a")
            for number in range(4):
                assert (await client.send(0, b"%d" % number)).code == 0
            await shell(client.cluster, f"remappingStaticTopic -t {TOPIC} -b broker-b")
            for number in range(4):
                assert (await client.send(0, b"%d" % number)).code == 0
            group = {"consumerGroup": GROUP}

            async def stands(offset: int, commits: int) -> int:
                fields = {
                    "queueOffset": offset,
                    "commitOffset": commits,
                    "sysFlag": 1 | SUBSCRIPTION,
                    "maxMsgNums": 1,
                    **group,
                }
                fields |= {"suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
                await client.ask(0, RequestCode.PULL_MESSAGE, **fields)
                return await client.offset_of(0, RequestCode.QUERY_CONSUMER_OFFSET, **group)

            assert len(await client.read_all(0)) == 8  # both groups know the readers
            assert (await client.ask(0, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=2, **group)).code == 0
            # given a reader that is further than what it has done with
            assert 2 == await stands(10_000, 3)
            assert 2 == await stands(3, 3)
            # then it stands where it commits as soon as that is in the piece that it reads
            assert 10_001 == await stands(10_002, 10_001)
            assert 10_001 == await stands(10_002, 2)
            # and of older pieces the newest counts, when the queue has moved on and nothing was committed since
            await shell(client.cluster, f"remappingStaticTopic -t {TOPIC} -b broker-a")
            assert 10_001 == await client.offset_of(0, RequestCode.QUERY_CONSUMER_OFFSET, **group)

    run(scenario)
