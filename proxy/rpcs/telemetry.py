"""Telemetry, Heartbeat and NotifyClientTermination: who the clients are."""

from __future__ import annotations

from functools import partial

import attrs

from understudy.proxy.clients import Client
from understudy.proxy.core import validation
from understudy.proxy.core.callers import Caller, caller_of
from understudy.proxy.core.settings import GroupConfig, SettingsError, answered_settings, check_settings
from understudy.proxy.core.statuses import ProxyError, ok
from understudy.proxy.grpc.call import Call, Method
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import MOST_BYTES, SERVICE, Parts, decoded, method, refused
from understudy.proxy.rpcs.renewals import Renewals

_SILENT_SECONDS = 60.0
"""How long a stream may be open before it brings settings."""


@attrs.define(eq=False)
class _Stream:
    """Of a stream: who opened it, and its client once it has brought settings that count."""

    caller: Caller
    client: Client | None = None


class Telemetry:
    """Takes the settings of clients and keeps their streams.

    Args:
        parts: of the proxy.
        renewals: messages that clients hold.
    """

    def __init__(self, parts: Parts, renewals: Renewals) -> None:
        self._parts = parts
        self._renewals = renewals

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        return {
            SERVICE + "Telemetry": Method(self.telemetry, streams=True, endless=True, most_bytes=MOST_BYTES),
            SERVICE + "Heartbeat": method(self._parts, v2.HeartbeatRequest, v2.HeartbeatResponse, self.heartbeat),
            SERVICE + "NotifyClientTermination": method(
                self._parts,
                v2.NotifyClientTerminationRequest,
                v2.NotifyClientTerminationResponse,
                self.terminate,
            ),
        }

    async def telemetry(self, call: Call) -> None:
        """Serve a client's stream: settings come and are answered, commands go."""
        try:
            caller = caller_of(call.metadata, call.connection.peer[0])
            user = await self._parts.access.authenticate(call.metadata, call.connection.source, "TelemetryCommand")
            caller = attrs.evolve(caller, user=user)
        except ProxyError as error:
            await call.send(v2.TelemetryCommand(status=refused("Telemetry", call, error)).SerializeToString())
            return
        with self._parts.clock.move_on_after(_SILENT_SECONDS) as silent:
            await call.wait()
        if silent.cancelled_caught:
            raise RpcError(StatusCode.INVALID_ARGUMENT, f"no settings came within {_SILENT_SECONDS:g} s")
        await self._take(_Stream(caller), call)

    async def _take(self, stream: _Stream, call: Call) -> None:
        """Answer what has come; what follows may be hours away, and the stream is a row until then."""
        try:
            while (data := call.next()) is not None:
                command = decoded(v2.TelemetryCommand, data)
                if command.WhichOneof("command") == "settings":
                    source = call.connection.source
                    await self._parts.access.authorize(stream.caller.user, source, command.settings)
                    await self._settle(call, stream, command.settings)
            if not call.complete and not call.ended:  # of a call that has ended nobody would tell the one who parks it
                call.park(partial(self._take, stream), partial(self._leave, stream, call))
        except ProxyError as error:
            await call.send(v2.TelemetryCommand(status=refused("Telemetry", call, error)).SerializeToString())
        finally:
            if call.parked is None:
                self._leave(stream, call)

    def _leave(self, stream: _Stream, call: Call) -> None:
        client, stream.client = stream.client, None
        if client is not None:
            self._parts.clients.closed(client, call)

    async def _settle(self, call: Call, stream: _Stream, settings: v2.Settings) -> None:
        try:
            check_settings(settings)
        except ProxyError as error:
            why = f"process client telemetryCommand failed. {error.message}"
            raise RpcError(StatusCode.INVALID_ARGUMENT, why) from None
        except SettingsError as error:
            raise RpcError(StatusCode.INVALID_ARGUMENT, str(error)) from None
        group = GroupConfig()
        if settings.WhichOneof("pub_sub") == "subscription":
            group = await self._parts.brokers.group(settings.subscription.group.name)
        answer = answered_settings(settings, self._parts.config.client_rules, group)
        client = self._parts.clients.settle(stream.caller, settings, call)
        if stream.client is not client:  # the one it was has terminated
            self._leave(stream, call)
            stream.client = client
        await call.send(v2.TelemetryCommand(status=ok(), settings=answer).SerializeToString())

    async def heartbeat(self, caller: Caller, request: v2.HeartbeatRequest) -> v2.HeartbeatResponse:
        """Take a sign of life."""
        client = self._parts.clients.known(caller)
        if client.is_consumer and validation.group_of(request.group) != client.group:
            why = f"the client has told settings of the group {client.group}, not {request.group.name}"
            raise ProxyError(v2.ILLEGAL_CONSUMER_GROUP, why)
        return v2.HeartbeatResponse(status=ok())

    async def terminate(
        self, caller: Caller, request: v2.NotifyClientTerminationRequest
    ) -> v2.NotifyClientTerminationResponse:
        """Forget a client that ends and give back what it holds; its stream stays until it closes it."""
        self._parts.clients.terminate(caller)
        await self._renewals.release(caller.client_id)
        return v2.NotifyClientTerminationResponse(status=ok())
