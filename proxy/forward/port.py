"""A listening port for remoting clients, which also takes gRPC clients that come to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from understudy.mqclient.route import BrokerAddresses
from understudy.mqclient.session import Session
from understudy.proxy.access import Access
from understudy.proxy.brokers import CALL_MS, Brokers
from understudy.proxy.core.forwarding import (
    TARGETS,
    Target,
    address_for,
    broker_of,
    brokers_of_locks,
    merged_locks,
    told_route,
    topic_of,
)
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.forward.guests import Guest, copied, guest_of, relabelled
from understudy.proxy.grpc.server import GrpcServer
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.bodies import JsonError, json_of, json_value
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, AsyncHandler
from understudy.remoting.errors import RemotingError
from understudy.remoting.fields import CommandError, required
from understudy.remoting.limits import LaneLimits
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.tls_server import Continued
from understudy.runtime.world import World

log = get_logger("proxy.forward")

_HTTP2 = b"PRI "
_FIRST_SECONDS = 60.0
_FIRST_BYTES = 65_536
_LONGEST_NAME = 255
_LANE, _LIMITS = "forward", LaneLimits(running=1024)


class RemotingPort(RemotingServer):
    """The port.

    Args:
        world: clock and network.
        host, port: where to listen.
        session: with the proxy's own connections; those of clients are signed and secured in the same way.
        brokers: the cluster.
        access: who may ask what.
        grpc: takes connections that begin as HTTP/2.
        told: returns the address by which clients reach this port.
    """

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        session: Session,
        brokers: Brokers,
        access: Access,
        grpc: GrpcServer,
        told: Callable[[], str],
    ) -> None:
        super().__init__(world, host, port, name="proxy")
        self._session = session
        self._brokers = brokers
        self._access = access
        self._grpc = grpc
        self._told = told
        self._looked_for: set[str] = set()  # topics whose routes are asked for because one was refused
        self.lane(_LANE, _LIMITS)
        self.register_async(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._checked(self._route), _LANE)
        ways = {Target.EVERY: self._to_every, Target.ONE: self._to_any, Target.LOCKS: self._to_holders}
        for code, target in TARGETS.items():
            way = ways.get(target)
            if way is None:
                self.register(code, self._forward)
            else:
                self.register_async(code, self._checked(way), _LANE)

    async def serve(self, stream: ByteStream) -> None:
        """Answer one connection, TLS off, until it ends."""
        data = b""
        with self._world.clock.move_on_after(_FIRST_SECONDS):
            try:
                data = await stream.receive_some(_FIRST_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
        if data.startswith(_HTTP2):
            await self._grpc.serve(Continued(stream, data), secured=True)
        else:
            await super().serve(Continued(stream, data))

    # --- ways of a request -----------------------------------------------------------------------------------------

    def _forward(self, connection: Connection, command: Command) -> Answer:
        """Hand on what is for one broker: at once where it is known and connected, else as soon as it is."""
        guest = self._guest(connection)
        if guest.client is not None and not self._access.asks:
            known = self._brokers.known(broker_of(command), topic_of(command))
            address = None if known is None else address_for(TARGETS[command.code], known)
            broker = None if address is None else guest.client.open_connection(address)
            if broker is not None:
                guest.ask(broker, command, self._look_again(connection, command))
                return None
        return self.lane(_LANE).submit(connection, command, self._checked(self._to_one))

    def _checked(self, handler: AsyncHandler) -> AsyncHandler:
        async def handle(connection: Connection, command: Command) -> Answer:
            try:
                if self._access.asks:
                    await self._access.check_command(command, connection.source, self._brokers.cluster_name)
                return await handler(connection, command)
            except ProxyError as error:
                code = ResponseCode.TOPIC_NOT_EXIST if error.code == v2.TOPIC_NOT_FOUND else ResponseCode.SYSTEM_ERROR
                raise CommandError(code, error.message) from None
            except RemotingError as error:
                raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None

        return handle

    async def _route(self, connection: Connection, command: Command) -> Answer:
        route = await self._brokers.route(required(command, "topic"))
        return response(command, body=told_route(route, self._told()))

    async def _to_one(self, connection: Connection, command: Command) -> Answer:
        guest, name, topic = self._guest(connection), broker_of(command), topic_of(command)
        addresses = await self._brokers.addresses(name, topic)
        try:
            broker = await self._connection(guest, address_for(TARGETS[command.code], addresses))
        except RemotingError:
            await self._brokers.route(topic or name, fresh=True)  # for the next one
            raise
        guest.ask(broker, command, self._look_again(connection, command))
        return None

    def _look_again(self, connection: Connection, command: Command) -> Callable[[], None] | None:
        """Return what asks anew where the broker of a request is when it is refused: its client tries again.

        It keeps nothing of the request but a name, and nothing when that is too long to be one.
        """
        topic = topic_of(command) or broker_of(command)
        return None if len(topic) > _LONGEST_NAME else partial(self._look_for, connection, topic)

    def _look_for(self, connection: Connection, topic: str) -> None:
        if topic not in self._looked_for and connection.start_soon(self._renew, topic):
            self._looked_for.add(topic)

    async def _renew(self, topic: str) -> None:
        try:
            with contextlib.suppress(ProxyError):
                await self._brokers.route(topic, fresh=True)
        finally:
            self._looked_for.discard(topic)

    async def _to_any(self, connection: Connection, command: Command) -> Answer:
        guest = self._guest(connection)
        failure: RemotingError | None = None
        for addresses in await self._cluster():
            try:
                guest.ask(await self._connection(guest, address_for(Target.READER, addresses)), command)
            except RemotingError as error:
                failure = error
                continue
            return None
        raise CommandError(ResponseCode.SYSTEM_ERROR, str(failure or "there is no broker at the moment"))

    async def _to_every(self, connection: Connection, command: Command) -> Answer:
        """Tell all brokers, slaves too, who may be read when their masters are gone; answer as the first of them."""
        guest, answers = self._guest(connection), list[Command]()

        async def tell(address: str) -> None:
            try:
                broker = await self._connection(guest, address)
                if command.flag & ONEWAY_BIT:
                    broker.notify(copied(command))
                else:
                    answers.append(await broker.invoke(copied(command), CALL_MS))
            except RemotingError as error:
                log.info("broker not told", broker=address, code=command.code, why=error)

        cluster = await self._cluster()
        async with trio.open_nursery() as nursery:
            for addresses in cluster:
                for address in addresses.addresses.values():
                    nursery.start_soon(tell, address)
        if not answers and not command.flag & ONEWAY_BIT:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "no broker answers at the moment")
        good = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
        return relabelled((good or answers)[0], command, "") if answers else None

    async def _to_holders(self, connection: Connection, command: Command) -> Answer:
        guest, bodies = self._guest(connection), list[Any]()
        for name, part in brokers_of_locks(command, json_of).items():
            addresses = await self._brokers.addresses(name, "")
            broker = await self._connection(guest, address_for(Target.READER, addresses))
            if command.flag & ONEWAY_BIT:
                broker.notify(copied(part))
                continue
            answer = await broker.invoke(copied(part), CALL_MS)
            if answer.code != ResponseCode.SUCCESS:
                return relabelled(answer, command, "")
            if command.code == RequestCode.LOCK_BATCH_MQ:
                with contextlib.suppress(JsonError):  # then that broker has locked nothing
                    bodies.append(await json_value(self._world.threads, bytes(answer.body)))
        body = merged_locks(bodies) if command.code == RequestCode.LOCK_BATCH_MQ else b""
        return response(command, body=body)

    # --- brokers ---------------------------------------------------------------------------------------------------

    def _guest(self, connection: Connection) -> Guest:
        def run(guest: Guest) -> None:
            connection.start_soon(guest.run, self._world, self._session.remoting)

        return guest_of(connection, run)

    async def _connection(self, guest: Guest, address: str) -> Connection:
        await guest.ready.wait()
        assert guest.client is not None
        return await guest.client.connection(address, CALL_MS)

    async def _cluster(self) -> list[BrokerAddresses]:
        """Return all brokers of the cluster, those with a master first."""
        route = await self._brokers.route(self._brokers.cluster_name)
        return sorted(route.brokers.values(), key=lambda group: group.master is None)
