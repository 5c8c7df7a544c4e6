"""What it costs a broker that senders sign: sends a second and processor time, beside a broker that asks nobody.

    ./understudy bench signatures [--seconds N] [--rounds N]

Two brokers in processes of their own, and one sender that turns from one to the other, the order swapped each round.
Its requests are made beforehand, 64 to a write, so that the broker is what is measured, and no client. Who signs is one
of 2,000 users and may send by one of ten rules; the body has 1 KiB. Exit code 1 when the rate with signatures is less
than 0.8 of that without, by the median of the rounds. Needs a core for the sender and one for the broker.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from bench.comparison.processes import cpu_seconds
from bench.load import security_loads, servers
from bench.load.servers import Server
from bench.load.wire import Peer, send_request
from understudy.remoting.command import Command
from understudy.remoting.frame import encode
from understudy.security.signature import signer

LEAST = 0.8
IN_A_WRITE = 64
TOPIC = "Signed"
BODY = b"x" * 1024
WARM_UP_S = 1.0


@attrs.frozen
class Rate:
    """What one broker took in one round.

    Attributes:
        per_second: sends.
        cpu_us: of the broker's processor time for one of them, microseconds.
    """

    per_second: float
    cpu_us: float


def requests(*, signed: bool) -> list[Command]:
    """Return the sends of one write."""
    found = [send_request(TOPIC, BODY, number % 4) for number in range(IN_A_WRITE)]
    if signed:
        sign = signer(security_loads.user(7))
        for each in found:
            sign(each)
    return found


def play(server: Server, *, signed: bool, seconds: float) -> Rate:
    """Send for so many seconds; raises ``RuntimeError`` for a send that is refused."""
    commands = requests(signed=signed)
    with Peer(server.port) as peer:
        refused = [answer for answer in peer.ask_all(*commands) if answer.code]
        if refused:
            raise RuntimeError(f"a send was refused with {refused[0].code}: {refused[0].remark}")
        data = b"".join(map(encode, commands))
        began, cpu_s, count = time.perf_counter(), cpu_seconds(server.process.pid), 0
        while (spent := time.perf_counter() - began) < seconds:
            peer.socket.sendall(data)
            count += answers(peer, IN_A_WRITE)
        cpu_s = cpu_seconds(server.process.pid) - cpu_s
    return Rate(count / spent, cpu_s / count * 1_000_000)


def answers(peer: Peer, wanted: int) -> int:
    """Take so many answers from the socket by their lengths, and nothing behind them."""
    taken, held = 0, b""
    while taken < wanted:
        data = peer.socket.recv(1 << 20)
        if not data:
            raise ConnectionResetError("closed by the server")
        held += data
        at = 0
        while len(held) >= at + 4 and len(held) >= (end := at + 4 + int.from_bytes(held[at : at + 4])):
            taken, at = taken + 1, end
        held = held[at:]
    return taken


def measure(folder: Path, seconds: float, rounds: int) -> tuple[list[Rate], list[Rate]]:
    """Return the rounds of the broker that asks for signatures, and of the other one."""
    closed_folder, open_folder = folder / "closed", folder / "open"
    for each in (closed_folder, open_folder):
        each.mkdir()
    security_loads.write_users(closed_folder)
    with (
        servers.broker(closed_folder, keys=security_loads.KEYS) as closed,
        servers.broker(open_folder) as opened,
    ):
        security_loads.make_topic(closed.port, TOPIC)
        servers.make_topic(opened.port, TOPIC)
        found: dict[bool, list[Rate]] = {True: [], False: []}
        for number in range(-1, rounds):
            for signed in (True, False) if number % 2 else (False, True):
                rate = play(closed if signed else opened, signed=signed, seconds=seconds if number >= 0 else WARM_UP_S)
                if number >= 0:
                    found[signed].append(rate)
    return found[True], found[False]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; *arguments* are those of the process when ``None``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each broker in each round (5)")
    parser.add_argument("--rounds", type=int, default=6, help="how many (6)")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds must be more than nothing")
    with tempfile.TemporaryDirectory(prefix="understudy-signatures-") as folder:
        signed, unsigned = measure(Path(folder), options.seconds, options.rounds)
    for name, rates in (("with signatures", signed), ("without", unsigned)):
        rate, cost = (statistics.median(getattr(each, what) for each in rates) for what in ("per_second", "cpu_us"))
        print(f"{name:16} {rate:10,.0f} sends/s   {cost:6.1f} us of the broker's processor for each")
    pairs = list(zip(signed, unsigned, strict=True))
    ratio = statistics.median(one.per_second / other.per_second for one, other in pairs)
    cost = statistics.median(one.cpu_us / other.cpu_us for one, other in pairs)
    print(f"rate {ratio:.2f} of that without, {LEAST} wanted; processor time {cost:.2f} times as much")
    return int(ratio < LEAST)


if __name__ == "__main__":
    sys.exit(main())
