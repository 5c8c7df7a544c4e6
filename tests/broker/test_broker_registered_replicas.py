"""Hosts that may copy a led master's log: those of the replicas that the controllers know, or knew last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import trio
from trio.testing import MockClock

from understudy.broker.led.controllers import Controllers
from understudy.broker.led.identity_files import GroupName
from understudy.broker.led.incarnation import StoreIncarnation
from understudy.broker.led.registered import RegisteredReplicas
from understudy.format.json_dialect import dumps
from understudy.remoting.client import RemotingClient
from understudy.remoting.command import Command, response
from understudy.runtime.clock import SystemClock
from understudy.runtime.threads import InPlace


async def test_replicas_of_a_group_that_was_removed_are_known_until_it_is_there_again(
    autojump_clock: MockClock,
) -> None:
    answers: list[Mapping[int, str]] = [{1: "10.0.0.1:10911", 2: "10.0.0.2:10911"}, {}, {1: "10.0.0.1:10911"}]

    async def ask() -> Mapping[int, str]:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    replicas = RegisteredReplicas(SystemClock(), ask, lambda: 10.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(replicas.run)
        await trio.sleep(5)
        assert replicas.holds("10.0.0.2")
        await trio.sleep(10)
        assert len(answers) == 1
        assert replicas.holds("10.0.0.2")
        await trio.sleep(10)
        assert not replicas.holds("10.0.0.2")
        assert replicas.holds("10.0.0.1")
        nursery.cancel_scope.cancel()


async def test_a_group_that_the_controllers_do_not_know_has_no_replicas() -> None:
    class Client:
        async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
            return response(command, body=dumps({"replicasInfoTable": {}}))

    name, incarnation = GroupName("C", "a"), cast(StoreIncarnation, None)
    controllers = Controllers(cast(RemotingClient, Client()), SystemClock(), InPlace(), name, incarnation)
    assert await controllers.addresses("10.0.0.9:9878") == {}
