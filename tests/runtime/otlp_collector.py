"""A collector of OpenTelemetry for tests: it keeps what it takes, and can be told to behave badly."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from understudy.proxy.grpc.call import Call, unary
from understudy.proxy.grpc.server import GrpcServer
from understudy.runtime.network import ByteStream
from understudy.runtime.otlp import METHOD
from understudy.runtime.tls_server import ServerTls
from understudy.runtime.world import real_world
from understudy.testkit.waiting import until

Series = dict[str, object]
"""Value of each series, written as in a text for Prometheus; that of a histogram are its counts, its sum and bounds."""


@attrs.define
class Collector:
    """What came.

    Attributes:
        port: where it listens.
        requests: those that were taken, in order.
        headers: of each call, taken or not.
        answer: makes each answer; may wait, or raise.
    """

    port: int = 0
    requests: list[ExportMetricsServiceRequest] = attrs.field(factory=list)
    headers: list[dict[str, str]] = attrs.field(factory=list)
    answer: Callable[[], Awaitable[bytes]] | None = None

    async def export(self, call: Call, content: bytes) -> bytes:
        self.headers.append(dict(call.metadata))
        answer = b"" if self.answer is None else await self.answer()
        self.requests.append(ExportMetricsServiceRequest.FromString(content))
        return answer

    async def taken(self, count: int) -> ExportMetricsServiceRequest:
        """Wait until so many requests were taken in all; return the last."""
        await until(lambda: len(self.requests) >= count)
        return self.requests[count - 1]


def refused_points(count: int) -> bytes:
    """Return the answer of a collector that takes all points but some."""
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = count
    answer.partial_success.error_message = "too old"
    return bytes(answer.SerializeToString())


def series_of(request: ExportMetricsServiceRequest) -> Series:
    """Return every series of a request; names have their units behind them, as Prometheus shows them."""
    found: Series = {}
    units = {"ms": "milliseconds", "us": "microseconds"}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        unit = units.get(metric.unit, metric.unit)
        name = metric.name if not unit or metric.name.endswith(unit) else f"{metric.name}_{unit}"
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            labels = ",".join(sorted(f'{each.key}="{each.value.string_value}"' for each in point.attributes))
            key = f"{name}{{{labels}}}"
            assert key not in found
            if metric.WhichOneof("data") == "histogram":
                assert point.count == sum(point.bucket_counts)
                found[key] = (*point.bucket_counts, point.sum, *point.explicit_bounds, math.inf)
            else:
                found[key] = getattr(point, point.WhichOneof("value"))
    return found


@asynccontextmanager
async def open_collector(tls: ServerTls | None = None) -> AsyncIterator[Collector]:
    """Have a collector listen on a free port of this machine."""
    collector = Collector()
    server = GrpcServer(real_world(), "127.0.0.1", 0, {METHOD: unary(collector.export)}, tls=tls)
    _, collector.port = await server.bind()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield collector
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_other(answer: Callable[[ByteStream], Awaitable[None]]) -> AsyncIterator[int]:
    """Have something else listen there, which does *answer* with each connection and closes it then."""
    listener = await real_world().network.listen("127.0.0.1", 0)

    async def serve(stream: ByteStream) -> None:
        try:
            await answer(stream)
        except trio.BrokenResourceError:
            pass  # the other side has left
        finally:
            await trio.aclose_forcefully(stream)  # type: ignore[arg-type]  # closes at once

    async with trio.open_nursery() as nursery:

        async def accept() -> None:
            while True:
                nursery.start_soon(serve, await listener.accept())

        nursery.start_soon(accept)
        yield listener.address[1]
        nursery.cancel_scope.cancel()
    await listener.aclose()
