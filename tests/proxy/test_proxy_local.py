"""Local mode: a proxy that speaks to the brokers of its process over connections in memory."""

from __future__ import annotations

import pytest
import trio
from grpc_client import open_client
from proxy_rig import User, message

from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.session import open_session
from understudy.programs.local_proxy import run_local_proxy
from understudy.proxy.config import config_of
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.runtime.memory_stream import BUFFER_BYTES, memory_connection
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually

GROUP = "readers"


@pytest.mark.covers("R116")
async def test_clients_reach_the_broker_beside_the_proxy_without_a_socket_and_no_other_one() -> None:
    world = real_world()
    async with LocalCluster(2) as cluster, open_session(world, cluster.namesrv_address) as session:
        for broker in cluster.brokers.values():
            await topics.save_topic(session, broker.identity.address, TopicSettings("Normal", 1, 1))
        await eventually(lambda: topics.exists(session, "Normal"))
        near, far = cluster.brokers["broker-a"], cluster.brokers["broker-b"]
        keys = {"grpcServerPort": 0, "namesrvAddr": cluster.namesrv_address, "localServeAddr": "127.0.0.1"}
        config, _ = config_of({**keys, "tlsServerMode": "disabled", "remotingListenPort": 0}, "test")
        async with trio.open_nursery() as nursery:
            before = set(near.server.connections), set(far.server.connections)
            proxy = await nursery.start(run_local_proxy, world, config, lambda: [near])
            async with open_client(world, proxy.address) as connection:
                user = User(connection, "client")
                await user.consume(GROUP, "Normal")
                assert v2.MESSAGE_NOT_FOUND == (await user.receive(GROUP, "Normal"))[0].code
                for number in range(4):
                    sent = await user.send(message("Normal", b"%d" % number, str(number)))
                    assert (v2.OK, number) == (sent.status.code, sent.entries[0].offset)
                _, got = await user.receive(GROUP, "Normal")
                handles = [each.system_properties.receipt_handle for each in got]
                assert v2.OK == (await user.ack(GROUP, "Normal", *handles)).status.code
                request = v2.QueryRouteRequest(topic=v2.Resource(name="Normal"))
                route = await user.ask("QueryRoute", request, v2.QueryRouteResponse)
            new = near.server.connections - before[0]
            nursery.cancel_scope.cancel()
        assert [b"0", b"1", b"2", b"3"] == sorted(each.body for each in got)
        assert {("127.0.0.1", proxy.address[1])} == {
            (each.broker.endpoints.addresses[0].host, each.broker.endpoints.addresses[0].port)
            for each in route.message_queues
        }
        assert [True] == [type(connection._stream).__name__ == "MemoryStream" for connection in new]


async def test_bytes_in_memory_arrive_in_order_and_wait_for_room() -> None:
    ours, theirs = memory_connection(("a", 1), ("b", 2))
    data = bytes(range(256)) * (BUFFER_BYTES // 64)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, data)
        await trio.testing.wait_all_tasks_blocked()
        assert 0 == ours.send_nowait([b"more"])
        found = b""
        while len(found) < len(data):
            found += await theirs.receive_some(100_000)
        assert data == found
    await ours.aclose()
    assert b"" == await theirs.receive_some(1)
    with pytest.raises(trio.BrokenResourceError):
        await theirs.send_all(b"x")
    with pytest.raises(trio.ClosedResourceError):
        await ours.receive_some(1)
