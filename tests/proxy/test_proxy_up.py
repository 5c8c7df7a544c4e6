"""`understudy up` has a proxy beside its brokers: a gRPC client sends to each of them and gets it back."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio
from grpc_client import open_client
from proxy_rig import User, message

from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.session import open_session
from understudy.programs import up
from understudy.programs.up_places import BROKERS, Places
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.runtime.world import real_world
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually

GROUP, TOPIC = "readers", "First"


async def test_a_grpc_client_works_with_what_understudy_up_has_started(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world, printed = real_world(), ""
    with PortBlocks(40) as blocks:
        first = blocks.take()
        places = Places(str(tmp_path / "data"), "127.0.0.1", first, first + 5, first + 10, first + 30)

        async def begun() -> bool:
            nonlocal printed
            printed += capfd.readouterr().out
            return "Data:" in printed

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(up.serve, world, places, live=False))
            await eventually(begun, 60)
            assert f"rocketmq-proxy startup successfully. gRPC address 127.0.0.1:{first + 30}" in printed
            async with open_session(world, places.name_server) as session:
                for name in BROKERS:
                    await topics.save_topic(session, f"127.0.0.1:{places.port_of(name)}", TopicSettings(TOPIC, 1, 1))
                await eventually(lambda: topics.exists(session, TOPIC), 30)
            async with open_client(world, ("127.0.0.1", places.proxy_port)) as connection:
                user = User(connection, "client")
                await user.consume(GROUP, TOPIC)
                for _ in BROKERS:  # one after the other: each learns where the group begins
                    assert v2.MESSAGE_NOT_FOUND == (await user.receive(GROUP, TOPIC))[0].code
                for number in range(4):
                    assert v2.OK == (await user.send(message(TOPIC, b"%d" % number, str(number)))).status.code
                got: list[v2.Message] = []
                with trio.fail_after(60):
                    while len(got) < 4:
                        got += (await user.receive(GROUP, TOPIC))[1]
                handles = [each.system_properties.receipt_handle for each in got]
                assert v2.OK == (await user.ack(GROUP, TOPIC, *handles)).status.code
            nursery.cancel_scope.cancel()
    assert [b"0", b"1", b"2", b"3"] == sorted(each.body for each in got)
    assert {*BROKERS} == {handle.split(" ")[5] for handle in handles}
