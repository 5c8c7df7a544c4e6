"""A running broker changes its role: its clients stay connected, and both directions of replication work after it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from container_ring import records, run

from understudy.broker.broker import Broker
from understudy.broker.log_history import LogHistory
from understudy.broker.role import Role
from understudy.broker.role_change import RoleChangeError
from understudy.format.json_dialect import loads
from understudy.format.record import decode_records
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

TOPIC = "orders"
MASTER, SLAVE_1, SLAVE_2 = "ASYNC_MASTER", Role("SLAVE", 1, 1, "test"), Role("SLAVE", 2, 1, "test")


class Pair:
    """Two brokers of a group on hosts c1 and c2, and one client with one connection to each."""

    def __init__(self, cluster: SimCluster, client: RemotingClient) -> None:
        self.client = client
        self.one, self.two = (cluster.brokers(host)["g"] for host in ("c1", "c2"))
        self.name_server = cluster.name_servers

    async def ask(self, broker: Broker, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        return await self.client.invoke(broker.identity.address, request(code, ext, body), 5_000)

    async def send(self, broker: Broker, body: bytes, properties: str = "") -> int:
        values = ("p", TOPIC, "TBW102", "1", "0", "0", "1", "0", properties, "0", "false", "false")
        ext = dict(zip("abcdefghijkm", values, strict=True))
        return (await self.ask(broker, RequestCode.SEND_MESSAGE_V2, ext, body)).code

    async def configure(self, broker: Broker, text: str) -> None:
        answer = await self.ask(broker, RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode())
        assert answer.code == 0, answer.remark

    def pull(self, broker: Broker, offset: int, wait_ms: int = 0) -> Any:
        ext = {
            "consumerGroup": "readers",
            "topic": TOPIC,
            "queueId": "0",
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "6" if wait_ms else "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": str(wait_ms),
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        return self.ask(broker, RequestCode.PULL_MESSAGE, ext)

    async def bodies(self, broker: Broker, offset: int) -> list[bytes]:
        answer = await self.pull(broker, offset)
        return [record.body for record in decode_records(memoryview(answer.body))] if answer.code == 0 else []

    async def commit(self, broker: Broker, offset: int) -> None:
        ext = {"consumerGroup": "readers", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
        assert (await self.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0

    async def members(self) -> dict[str, str]:
        ext = {"clusterName": "DefaultCluster", "brokerName": "g"}
        command = request(RequestCode.GET_BROKER_MEMBER_GROUP, ext)
        answer = await self.client.invoke(self.name_server, command, 3_000)
        return dict(loads(answer.body)["brokerMemberGroup"]["brokerAddrs"])

    async def roster(self, broker: Broker) -> dict[str, Any]:
        return dict(loads((await self.ask(broker, RequestCode.GET_BROKER_ROSTER, {})).body))

    async def in_step(self) -> None:
        """Wait until both have the same log and the same offset of the readers."""

        def same() -> bool:
            ends = {each.store.max_physical_offset for each in (self.one, self.two)}
            read = {each.offsets.query("readers", TOPIC, 0) for each in (self.one, self.two)}
            return len(ends) == len(read) == 1

        await until(same, 30)

    async def hand_over(self, giver: Broker, taker: Broker, giver_becomes: Role, kind: str, epoch: int) -> None:
        await self.in_step()
        await giver.change_role(Role("SLAVE", giver_becomes.broker_id, epoch, "test"))
        await taker.change_role(Role(kind, 0, epoch, "test"))


@asynccontextmanager
async def open_pair(source: random.Random, extra: dict[str, str]) -> AsyncIterator[Pair]:
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        common = {"brokerName": "g", "slaveReadEnable": "true", **extra}
        await cluster.start_container("c1", [common])
        await cluster.start_container("c2", [{**common, "brokerRole": "SLAVE", "brokerId": "1"}])
        async with open_client(cluster.client_world()) as client:
            pair = Pair(cluster, client)
            await until(lambda: pair.two.slave_sync.synced and not pair.one.registration.isolated, 30)
            made = await pair.ask(pair.one, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1))
            assert made.code == 0
            pair.one.groups.get("readers")
            await until(
                lambda: pair.two.topics.get(TOPIC) is not None and pair.two.groups.find("readers") is not None, 30
            )
            yield pair


ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": "2", "inSyncReplicas": "1"}


@pytest.mark.parametrize("settings", [{}, ACTING], ids=["plain", "acting"])
@pytest.mark.parametrize("kind", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_a_client_stays_connected_while_its_broker_becomes_a_slave_and_a_master_again(
    kind: str, settings: dict[str, str]
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {**settings}) as pair:
            one, two = pair.one, pair.two
            assert await pair.send(one, b"0") == 0
            assert await pair.bodies(one, 0) == [b"0"]
            await pair.commit(one, 1)
            assert await pair.bodies(two, 9) == []
            connections = {each: list(each.server.connections) for each in (one, two)}
            # when the master becomes a slave and the slave a master
            await pair.hand_over(one, two, SLAVE_2, kind, 1)
            # then name servers list them so
            wanted = {"0": two.identity.address, "2": one.identity.address}
            listed: dict[str, str] = {}
            with trio.fail_after(30):
                while listed != wanted:
                    await trio.sleep(0.1)
                    listed = await pair.members()
            # what is sent goes to the new master, and what is read and committed is the same on both
            assert await pair.send(one, b"refused") in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY)
            await until(lambda: two.replication.master is not None and two.replication.master.connection_count == 1, 30)
            assert await pair.send(two, b"1") == 0
            await pair.commit(two, 2)
            await pair.in_step()
            assert await pair.bodies(one, 0) == await pair.bodies(two, 0) == [b"0", b"1"]
            assert one.offsets.query("readers", TOPIC, 0) == 2
            # and back
            await pair.hand_over(two, one, SLAVE_1, kind, 2)
            await until(lambda: one.replication.master is not None and one.replication.master.connection_count == 1, 30)
            assert await pair.send(one, b"2") == 0
            assert await pair.send(one, b"late", "DELAY\x011\x02") == 0
            await pair.in_step()
            await until(lambda: len(records(two)) == 4, 20)
            assert await pair.bodies(two, 0) == [b"0", b"1", b"2", b"late"]
            # over the connections that were there before
            assert all(connection.alive for each in connections.values() for connection in each)
            assert all(set(connections[each]) <= set(each.server.connections) for each in (one, two))

    run(scenario)


def test_how_much_of_the_log_counts_as_near_its_end_follows_the_role_and_live_changes() -> None:
    async def scenario(source: random.Random) -> None:
        settings = {"accessMessageInMemoryMaxRatio": "10", "maxTransferCountOnMessageInDisk": "7"}
        async with open_pair(source, settings) as pair:
            one, two = pair.one, pair.two
            for number in range(20):
                assert await pair.send(one, b"%d" % number) == 0
            await pair.in_step()

            def at_once(broker: Broker) -> int:
                return broker.store.get(TOPIC, 0, 0, 32, 1 << 20).count

            # a slave has 10 percent less, here nothing, so reads of it are those from the disk
            await until(lambda: (at_once(one), at_once(two)) == (20, 7), 10)
            await pair.hand_over(one, two, SLAVE_2, "ASYNC_MASTER", 1)
            assert (at_once(one), at_once(two)) == (7, 20)
            await pair.hand_over(two, one, SLAVE_1, "ASYNC_MASTER", 2)
            assert (at_once(one), at_once(two)) == (20, 7)
            # and so it is when the key changes while the broker runs
            for percent, expected in ((9, 7), (11, 20), (10, 7)):
                await pair.configure(two, f"accessMessageInMemoryMaxRatio={percent}")
                assert at_once(two) == expected

    run(scenario)


def test_a_slave_corrects_offsets_as_soon_as_it_is_told_to() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {}) as pair:
            for corrects in (True, False, True):
                await pair.configure(pair.two, f"offsetCheckInSlave={str(corrects).lower()}")
                found = pair.two.store.get(TOPIC, 0, 5, 32, 1 << 20)
                assert found.next_begin_offset == (0 if corrects else 5)

    run(scenario)


def test_sends_in_the_middle_of_a_change_are_told_to_go_elsewhere_and_a_waiting_pull_is_answered() -> None:
    async def scenario(source: random.Random) -> None:
        settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2"}
        async with SimCluster(source) as cluster, open_client(cluster.client_world()) as client:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "g", **settings}])
            await cluster.start_container("c2", [{"brokerName": "g", "brokerRole": "SLAVE", "brokerId": "1"}])
            pair = Pair(cluster, client)
            await until(lambda: pair.two.slave_sync.synced, 30)
            assert await pair.send(pair.one, b"0") == 0
            pair.one.groups.get("readers")
            await pair.in_step()
            codes = {}

            async def sends(name: str) -> None:
                codes[name] = await pair.send(pair.one, name.encode())

            async def changes() -> None:
                await pair.one.change_role(SLAVE_2)
                codes["changed"] = 0

            async def pulls() -> None:
                codes["pull"] = (await pair.pull(pair.one, 1, 60_000)).code

            # given a slave that is not heard, so that a send waits for its copy
            cluster.partition(["c1"], ["c2"])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pulls)
                await trio.sleep(1)
                nursery.start_soon(sends, "waits")
                await trio.sleep(0.5)
                # when the master is told to become a slave
                nursery.start_soon(changes)
                await trio.sleep(0.1)
                await sends("during")
                # then the first send is answered for what it is, the second told to go elsewhere
                assert "changed" not in codes and "waits" not in codes
                await until(lambda: "changed" in codes, 5)
                nursery.cancel_scope.deadline = trio.current_time() + 65
            assert codes["waits"] == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert codes["during"] == ResponseCode.SERVICE_NOT_AVAILABLE
            assert codes["pull"] == 0

    run(scenario)


def test_an_older_epoch_and_a_port_that_is_taken_leave_the_role_as_it_is() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {}) as pair:
            await pair.one.change_role(Role(MASTER, 0, 7, "elected"))
            assert pair.one.role.epoch == 7
            with pytest.raises(RoleChangeError, match="epoch 6"):
                await pair.one.change_role(Role("SLAVE", 2, 6, "elected before"))
            roster = await pair.roster(pair.one)
            assert roster["role"] == {"kind": MASTER, "epoch": 7, "reason": "elected"}
            assert await pair.send(pair.one, b"x") == 0
            # a slave whose HA port is taken stays a slave that copies
            port = pair.two.options.store.ha_listen_port
            taken = await pair.two.world.network.listen("0.0.0.0", port)
            with pytest.raises(RoleChangeError, match=str(port)):
                await pair.two.change_role(Role(MASTER, 0, 8, "elected"))
            assert pair.two.role.is_slave and pair.two.role.epoch == 0
            assert await pair.send(pair.two, b"x") == ResponseCode.SYSTEM_BUSY
            await pair.in_step()
            # and becomes a master when the port is free
            await taken.aclose()
            await pair.two.change_role(Role(MASTER, 0, 8, "elected"))
            assert await pair.send(pair.two, b"y") == 0

    run(scenario)


def test_the_roster_shows_the_services_of_the_role_in_force_with_their_reasons() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {}) as pair:

            async def states() -> dict[str, str]:
                return {each["name"]: each["state"] for each in (await pair.roster(pair.one))["services"]}

            before = await states()
            assert (before["schedule"], before["replication to slaves"]) == ("running", "running")
            assert before["metadata sync"] == before["replication from the master"] == "off"
            await pair.one.change_role(SLAVE_2)
            await trio.sleep(0.1)
            after = await states()
            assert after.keys() == before.keys()
            assert (after["schedule"], after["replication to slaves"]) == ("off", "off")
            assert after["metadata sync"] == after["replication from the master"] == "running"

    run(scenario)


def test_changes_that_are_asked_for_at_once_are_made_one_after_the_other() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING) as pair:
            one, refused = pair.one, []

            async def change(epoch: int) -> None:
                role = Role("SLAVE", 2, epoch, "test") if epoch % 2 else Role(MASTER, 0, epoch, "test")
                try:
                    await one.change_role(role)
                except RoleChangeError as error:
                    refused.append(str(error))

            # when six are asked for in any order, before the first has been made
            async with trio.open_nursery() as nursery:
                for epoch in random.Random(1).sample(range(1, 7), 6):
                    nursery.start_soon(change, epoch)
            # then the newest is in force, and what was older than one that was made is refused
            assert one.role == Role(MASTER, 0, 6, "test")
            assert refused and all("is older than that of" in each for each in refused)
            await until(lambda: not one.registration.isolated and "schedule" in one.services.running(), 30)
            running = one.services.running()
            assert "replication to slaves" in running and "replication from the master" not in running
            assert await pair.send(one, b"x") == 0

    run(scenario)


def test_a_change_that_waits_ends_with_its_broker() -> None:
    async def scenario(source: random.Random) -> None:
        settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2", "slaveTimeout": "60000"}
        async with SimCluster(source) as cluster, open_client(cluster.client_world()) as client:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "g", **settings}])
            await cluster.start_container("c2", [{"brokerName": "g", "brokerRole": "SLAVE", "brokerId": "1"}])
            pair = Pair(cluster, client)
            await until(lambda: pair.two.slave_sync.synced, 30)
            cluster.partition(["c1"], ["c2"])
            told = []

            async def changes() -> None:
                with pytest.raises(RoleChangeError) as error:
                    await pair.one.change_role(SLAVE_2)
                told.append(str(error.value))

            async with trio.open_nursery() as nursery:
                # given a send that waits for its copy, and a change that waits for the send
                nursery.start_soon(_ignore_answer, pair)
                await trio.sleep(0.5)
                nursery.start_soon(changes)
                await trio.sleep(0.5)
                assert pair.one.role.kind == "SYNC_MASTER"
                # when the broker is stopped
                await cluster.stop("c1")
            # then whoever asked learns it, and later ones too
            await changes()
            assert told == ["the broker stops", "the broker stops"]

    run(scenario)


async def _ignore_answer(pair: Pair) -> None:
    with pytest.raises(RemotingError):
        await pair.send(pair.one, b"waits")


def test_a_slave_that_becomes_the_master_begins_a_new_life_of_its_log() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {}) as pair:
            one, two = pair.one, pair.two
            await until(lambda: two.history.value == one.history.value != LogHistory(), 10)
            # given an offset of messages that only the former master has
            await one.change_role(Role("SLAVE", 2, 1, "test"))
            two.offsets.commit("readers", TOPIC, 0, 50)
            end = two.store.max_queue_offset(TOPIC, 0)
            await two.change_role(Role("ASYNC_MASTER", 0, 1, "test"))
            # then it counts no more, and what is made from now on is known to be of another life
            assert two.offsets.query("readers", TOPIC, 0) == end < 50
            assert len(two.history.value.lives) == 1 + (two.store.max_physical_offset > 0)

    run(scenario)


def test_what_was_popped_before_a_slave_leads_is_not_handed_out_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {}) as pair:
            one, two = pair.one, pair.two
            for number in range(3):
                assert await pair.send(one, b"%d" % number) == 0
            values = ("readers", TOPIC, "-1", "2", "0", "30000", "0", "0", "TAG", "*", "false")
            names = "consumerGroup topic queueId maxMsgNums pollTime invisibleTime bornTime initMode expType exp order"
            pop = dict(zip(names.split(), values, strict=True))
            # given a pop whose check point the slave has copied, and a copy of the offsets that is older
            assert (await pair.ask(one, RequestCode.POP_MESSAGE, pop)).code == 0
            await pair.in_step()
            await one.change_role(SLAVE_2)
            two.offsets.committed.clear()
            # when it leads
            await two.change_role(Role(MASTER, 0, 1, "test"))
            answer = await pair.ask(two, RequestCode.POP_MESSAGE, pop)
            assert [each.body for each in decode_records(memoryview(answer.body))] == [b"2"]

    run(scenario)
