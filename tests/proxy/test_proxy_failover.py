"""gRPC clients across a failover of the brokers behind their proxy, in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from grpc_client import open_client
from proxy_rig import User, message

from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.session import open_session
from understudy.proxy.config import config_of
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.server import Proxy
from understudy.testkit.drills.ring import GROUPS, broker_of, container_of, start_ring
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import eventually, until

TOPIC, GROUP = "orders", "readers"
PROTOCOL_CODES = {v2.OK, v2.INVALID_RECEIPT_HANDLE, v2.INTERNAL_SERVER_ERROR, v2.PROXY_TIMEOUT}
DEAD = GROUPS[0]


@attrs.define
class Rig:
    """A ring of three, with a proxy in front of it."""

    cluster: SimCluster
    proxy: Proxy
    sent: set[str] = attrs.field(factory=set)
    got: Counter[str] = attrs.field(factory=Counter)
    codes: Counter[int] = attrs.field(factory=Counter)

    @asynccontextmanager
    async def user(self, name: str) -> AsyncIterator[User]:
        address = self.cluster.address("p1"), self.proxy.address[1]
        async with open_client(self.cluster.client_world(name), address) as connection:
            yield User(connection, name)

    async def send(self, name: str, count: int) -> None:
        """Send as clients do: one after the other, and again what was refused."""
        async with self.user(name) as user:
            for number in range(count):
                key = f"{name}-{number}"
                for _ in range(3):
                    answer = await user.send(message(TOPIC, key.encode(), key))
                    if answer.status.code == v2.OK:
                        self.sent.add(key)
                        break
                    await trio.sleep(0.1)
                await trio.sleep(0.2)

    async def consume(self, name: str) -> None:
        """Receive and acknowledge for ever."""
        async with self.user(name) as user:
            await user.consume(GROUP, TOPIC)
            while True:
                status, messages = await user.receive(GROUP, TOPIC, invisible_ms=20_000)
                for each in messages:
                    self.got[each.body.decode()] += 1
                    answer = await user.ack(GROUP, TOPIC, each.system_properties.receipt_handle)
                    self.codes[answer.status.code] += 1
                if status.code not in (v2.OK, v2.MESSAGE_NOT_FOUND):
                    await trio.sleep(1)

    def acts(self) -> bool:
        slave = broker_of(self.cluster, DEAD, 1)
        return slave is not None and slave.session.rules.active

    def complete(self) -> bool:
        master = broker_of(self.cluster, DEAD, 0)
        return master is not None and not master.registration.isolated and not self.acts()


def play(test: Callable[[Rig], Awaitable[None]]) -> None:
    async def scenario(source: random.Random) -> None:
        with trio.fail_after(100_000):
            async with SimCluster(source) as cluster:
                await start_ring(cluster)
                async with open_session(cluster.client_world(), cluster.name_servers) as session:
                    for group in GROUPS:
                        await until(lambda group=group: broker_of(cluster, group, 0) is not None)
                        broker = broker_of(cluster, group, 0)
                        assert broker is not None
                        await topics.save_topic(session, broker.identity.address, TopicSettings(TOPIC, 2, 2))
                    await eventually(lambda: topics.exists(session, TOPIC))
                keys = {"namesrvAddr": cluster.name_servers, "localServeAddr": "p1", "tlsServerMode": "disabled"}
                proxy = Proxy(cluster.client_world("p1"), config_of(keys, "test")[0])
                await trio.sleep(15)
                async with trio.open_nursery() as nursery:
                    await nursery.start(proxy.run)
                    await test(Rig(cluster, proxy))
                    nursery.cancel_scope.cancel()

    run_seed(scenario, seed=1)


@pytest.mark.covers("R118")
def test_no_acknowledged_message_is_lost_when_a_broker_is_killed_and_comes_back() -> None:
    async def test(rig: Rig) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.consume, "reader")
            await trio.sleep(5)
            async with trio.open_nursery() as senders:
                for number in range(3):
                    senders.start_soon(rig.send, f"sender{number}", 100)
                await trio.sleep(6)
                await rig.cluster.kill(container_of(DEAD, 0))
                await until(rig.acts, 120, 0.1)
                await trio.sleep(8)
                await rig.cluster.restart(container_of(DEAD, 0))
            await until(rig.complete, 120, 0.1)
            with trio.move_on_after(300):
                await until(lambda: rig.sent <= rig.got.keys(), 400, 0.5)
            nursery.cancel_scope.cancel()
        assert rig.sent - rig.got.keys() == set()
        assert len(rig.sent) > 250
        assert rig.codes.keys() <= PROTOCOL_CODES
        assert rig.codes[v2.OK] > 0.9 * rig.codes.total()

    play(test)


@pytest.mark.parametrize("pause_seconds", [0, 15])
def test_a_handle_of_a_dead_master_acknowledges_at_the_slave_that_acts_and_stays_acknowledged(
    pause_seconds: int,
) -> None:
    async def test(rig: Rig) -> None:
        async with rig.user("one") as user:
            await user.consume(GROUP, TOPIC)
            await user.receive(GROUP, TOPIC)
            held: list[v2.Message] = []
            for number in range(12):
                await user.send(message(TOPIC, b"%d" % number, f"m{number}"))
            while len(held) < 12:
                held += (await user.receive(GROUP, TOPIC, invisible_ms=60_000))[1]
            handles = [each.system_properties.receipt_handle for each in held]
            assert any(f" {DEAD} " in handle for handle in handles)
            await trio.sleep(3)  # copied to the slaves
            await rig.cluster.kill(container_of(DEAD, 0))
            await until(rig.acts, 120, 0.1)
            await trio.sleep(pause_seconds)
            codes = [(await user.ack(GROUP, TOPIC, handle)).status.code for handle in handles]
            assert codes == [v2.OK] * len(handles)
            await rig.cluster.restart(container_of(DEAD, 0))
            await until(rig.complete, 120, 0.1)
            with trio.move_on_after(70):
                while True:
                    assert (await user.receive(GROUP, TOPIC))[1] == []

    play(test)
