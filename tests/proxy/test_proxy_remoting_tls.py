"""The proxy's port for remoting clients takes secured and plain connections, and gRPC clients of both kinds."""

from __future__ import annotations

import ssl

import trio
from grpc_client import open_client as open_grpc
from proxy_rig import User, message

from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.session import open_session
from understudy.programs.local_proxy import run_local_proxy
from understudy.proxy.config import config_of
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually


async def test_remoting_clients_with_and_without_tls_and_grpc_clients_come_to_one_port(port_blocks: PortBlocks) -> None:
    world, (port,) = real_world(), port_blocks.middles(1)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the certificate is the proxy's own
    async with LocalCluster(1) as cluster, open_session(world, cluster.namesrv_address) as session:
        (broker,) = cluster.brokers.values()
        await topics.save_topic(session, broker.identity.address, TopicSettings("Normal", 1, 1))
        await eventually(lambda: topics.exists(session, "Normal"))
        keys = {"grpcServerPort": 0, "namesrvAddr": cluster.namesrv_address, "localServeAddr": "127.0.0.1"}
        config, _ = config_of({**keys, "remotingListenPort": port}, "test")
        async with trio.open_nursery() as nursery:
            await nursery.start(run_local_proxy, world, config, lambda: [broker])
            for tls in (context, None):
                async with open_client(world) as client:
                    client.tls = tls
                    fields = {"topic": "Normal"}
                    command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
                    answer = await client.invoke(f"127.0.0.1:{port}", command, 10_000)
                    assert (0, True) == (answer.code, f"127.0.0.1:{port}".encode() in bytes(answer.body))
            async with open_grpc(world, ("127.0.0.1", port)) as connection:
                assert v2.OK == (await User(connection, "client").send(message("Normal"))).status.code
            nursery.cancel_scope.cancel()
