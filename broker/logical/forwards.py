"""Asks other broker groups for pieces of logical queues that lie there.

Source: RpcClientImpl.java, ClientMetadata.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from understudy.broker.node import Node
from understudy.format.json_dialect import JsonError
from understudy.format.static_topics import MappingItem
from understudy.remoting.bodies import json_value
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command, request
from understudy.remoting.errors import RemotingError
from understudy.remoting.fields import CommandError
from understudy.runtime.log import get_logger

log = get_logger("broker.logical")

LANE = "logical queues"
ROUTE_SECONDS = 30.0
_ROUTE_TIMEOUT_MS = 3_000


class Forwards:
    """Sends requests for physical queues to the groups that have them.

    Args:
        node: who asks.
        client: connections to other servers.
        name_servers: returns their addresses.
    """

    def __init__(self, node: Node, client: RemotingClient, name_servers: Callable[[], Sequence[str]]) -> None:
        self._node = node
        self._client = client
        self._name_servers = name_servers
        self._addresses: dict[str, tuple[float, str]] = {}  # by group: until when it is believed

    async def ask(self, item: MappingItem, topic: str, asked: Command, ext: dict[str, str]) -> Command:
        """Return what the group of *item* answers.

        Args:
            item: the physical queue.
            topic: of the queue.
            asked: the request for the logical queue.
            ext: header of the request for the physical one.

        Raises:
            CommandError: the group cannot be asked; the client may try again.
        """
        name = item.broker_name
        timeout_ms = self._node.options.broker.forward_timeout
        oneway = bool(asked.flag & ONEWAY_BIT)
        forwarded = request(asked.code, {**ext, "bname": name, "lo": "false"}, oneway=oneway)
        address = await self._address(name, topic)
        try:
            if not oneway:
                return await self._client.invoke_repeatable(address, forwarded, timeout_ms)
            await self._client.invoke_oneway(address, forwarded, timeout_ms)
        except RemotingError as error:
            self._addresses.pop(name, None)
            remark = f"broker {name}, which has older messages of static topic {topic}, does not answer: {error}"
            raise CommandError(ResponseCode.SYSTEM_BUSY, remark, {}) from None
        return Command()

    async def is_master(self, item: MappingItem, topic: str) -> bool:
        """Return whether who was asked last for *item* is the master of its group, as name servers show it now.

        Args:
            item: the physical queue.
            topic: of the queue.

        Raises:
            CommandError: nobody is shown.
        """
        asked = self._addresses.pop(item.broker_name, (0.0, ""))[1]
        address = await self._address(item.broker_name, topic)
        if address != asked:
            return False
        try:
            question = request(RequestCode.GET_BROKER_CONFIG)
            answer = await self._client.invoke_repeatable(address, question, _ROUTE_TIMEOUT_MS)
        except RemotingError:
            return False
        lines = answer.body.decode("utf-8", "replace").splitlines()
        mine = f"brokerName={item.broker_name}"
        return answer.code == ResponseCode.SUCCESS and mine in lines and "brokerRole=SLAVE" not in lines

    async def _address(self, name: str, topic: str) -> str:
        now = self._node.world.clock.monotonic()
        known = self._addresses.get(name)
        if known is not None and now < known[0]:
            return known[1]
        for server in self._name_servers():
            found = master_address(await self._route(server, topic), name)
            if found is not None:
                self._addresses[name] = now + ROUTE_SECONDS, found
                return found
        remark = f"no name server knows where broker {name} is, which has older messages of static topic {topic}"
        raise CommandError(ResponseCode.SYSTEM_BUSY, remark, {})

    async def _route(self, server: str, topic: str) -> Any:
        question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        try:
            answer = await self._client.invoke(server, question, _ROUTE_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                return await json_value(self._node.world.threads, answer.body)
        except (RemotingError, JsonError) as error:
            log.warning("no route", topic=topic, name_server=server, why=error)
        return None


def master_address(route: Any, name: str) -> str | None:
    """Return the address of the master of group *name*, or of who is shown in its place, ``None`` when none is."""
    brokers = route.get("brokerDatas") if isinstance(route, dict) else None
    for data in brokers if isinstance(brokers, list) else ():
        if isinstance(data, dict) and data.get("brokerName") == name:
            addresses = data.get("brokerAddrs")
            found = addresses.get("0") if isinstance(addresses, dict) else None
            return found if isinstance(found, str) else None
    return None
