"""gRPC clients that only are there: connections with an open telemetry stream, and receives that wait."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import attrs
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection

from bench.comparison.processes import anonymous_mb, cpu_seconds
from understudy.proxy.core.durations import set_ms
from understudy.proxy.grpc.framing import framed
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import SERVICE

TOPIC = "Send1"
_GROUPS = 50
_AT_ONCE = 50
_SETTLE_S = 3.0
_POLL_MS = 20_000


@attrs.frozen
class Idle:
    """What the proxy used, in one situation."""

    what: str
    anonymous_mb: float
    resident_mb: float
    processor_percent: float

    def __str__(self) -> str:
        memory = f"RssAnon {self.anonymous_mb:6.1f} MB, resident {self.resident_mb:6.1f} MB"
        return f"{self.what:44} {memory}, {self.processor_percent:5.2f} % of a processor"


async def measure_idle(port: int, pid: int, clients: int, parked: int, seconds: float) -> list[Idle]:
    """Return what a proxy on *port* with process id *pid* uses without clients, with them, and with waiting receives.

    Args:
        port: of the proxy, on this machine.
        pid: its process.
        clients: connections with an open telemetry stream.
        parked: receives that wait, spread over the connections.
        seconds: each situation lasts.
    """
    found = [await _measured(pid, "nobody", seconds)]
    limiter = trio.CapacityLimiter(_AT_ONCE)
    opened: dict[int, tuple[trio.SocketStream, H2Connection]] = {}

    async def connect(number: int) -> None:
        async with limiter:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            state = H2Connection(H2Configuration(client_side=True))
            state.initiate_connection()
            _begin(state, 1, "Telemetry", number, v2.TelemetryCommand(settings=_settings(number)).SerializeToString())
            await stream.send_all(state.data_to_send())
            await stream.receive_some(65536)
            opened[number] = stream, state

    async with trio.open_nursery() as nursery:
        for number in range(clients):
            nursery.start_soon(connect, number)
    found.append(await _measured(pid, f"{clients} clients with open telemetry streams", seconds))
    if parked:
        for number in itertools.islice(itertools.cycle(range(clients)), parked):
            state = opened[number][1]
            _begin(state, state.get_next_available_stream_id(), "ReceiveMessage", number, _receive(number), end=True)
        for stream, state in opened.values():
            await stream.send_all(state.data_to_send())
        found.append(await _measured(pid, f"and {parked} receives that wait", min(seconds, _POLL_MS / 1000 - 5)))
    for stream, _ in opened.values():
        await stream.aclose()
    return found


async def _measured(pid: int, what: str, seconds: float) -> Idle:
    await trio.sleep(_SETTLE_S)
    before, begin = cpu_seconds(pid), time.monotonic()
    await trio.sleep(seconds)
    percent = (cpu_seconds(pid) - before) / (time.monotonic() - begin) * 100
    return Idle(what, anonymous_mb(pid), _resident_mb(pid), percent)


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def _begin(state: H2Connection, stream: int, rpc: str, number: int, message: bytes, *, end: bool = False) -> None:
    fields = {":method": "POST", ":scheme": "http", ":path": SERVICE + rpc, ":authority": "127.0.0.1"}
    fields |= {"te": "trailers", "content-type": "application/grpc", "x-mq-language": "JAVA", "x-mq-protocol": "v2"}
    fields |= {"x-mq-client-id": f"bench-client@{number}@1@abcdefgh", "x-mq-client-version": "5.2.0"}
    state.send_headers(stream, list(fields.items()))
    state.send_data(stream, framed(message), end_stream=end)


def _settings(number: int) -> v2.Settings:
    settings = v2.Settings(client_type=v2.PUSH_CONSUMER)
    settings.subscription.group.name = f"idle-{number % _GROUPS}"
    settings.subscription.subscriptions.add().topic.name = TOPIC
    return settings


def _receive(number: int) -> bytes:
    queue = v2.MessageQueue(topic=v2.Resource(name=TOPIC))
    group = v2.Resource(name=f"idle-{number % _GROUPS}")
    request = v2.ReceiveMessageRequest(group=group, message_queue=queue, batch_size=32, auto_renew=True)
    set_ms(request.long_polling_timeout, _POLL_MS)
    return request.SerializeToString()
