"""What it costs to compare messages with their checksums when they are read for the first time after a start.

    ./understudy bench first-reads [--messages N] [--rounds N] [--json]

A broker stores messages of 1 KB and ends; then it starts again and again. Each time one client pulls all of them, 32 at
a time: as they are, which compares each of them; a second time; and after a scrub of the whole log, when nothing is
left to compare. Figures are processor time of the broker for a pull, and of all rounds the least one of each kind.

Two bounds, and the command ends with 1 when one is broken: a pull whose messages are all new to the process takes at
most 0.25 ms more than one with nothing to compare, and every later pull of them at most a tenth more.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import attrs

from bench.load.servers import Server, broker, make_topic
from bench.load.wire import Peer, send_request
from understudy.format.pull_flags import SUBSCRIPTION
from understudy.remoting.codes import RequestCode

TOPIC = "Old"
BODY = bytes(1024)
AT_ONCE = 32
WAIT_SECONDS = 120.0
FIRST_MORE_US = 250.0
"""What a first read of 32 messages of 1 KB may cost more, once in the life of a process."""
AGAIN_SHARE = 0.1
"""How much dearer a pull of what was compared before may be; what is above 3 % here is noise."""


@attrs.frozen
class Cost:
    """Microseconds of the broker's processor time for a pull.

    Attributes:
        first: of messages that nobody has read since the start.
        again: of those that were compared before.
        scrubbed: after a scrub of the whole log.
    """

    first: float
    again: float
    scrubbed: float

    @property
    def first_share(self) -> float:
        """How much dearer a first read is, as a share of a pull without comparison."""
        return self.first / self.scrubbed - 1

    @property
    def again_share(self) -> float:
        """How much dearer a later read is."""
        return self.again / self.scrubbed - 1

    def faults(self) -> list[str]:
        """Return which bounds are broken."""
        found = []
        if self.first - self.scrubbed > FIRST_MORE_US:
            found.append(f"A FIRST READ COSTS more than {FIRST_MORE_US:g} us: {self.first - self.scrubbed:.0f}")
        if self.again_share > AGAIN_SHARE:
            found.append(f"A LATER READ COSTS more than {AGAIN_SHARE:.0%}: {self.again_share:.1%}")
        return found


def store(port: int, messages: int) -> None:
    """Store *messages* in one queue."""
    with Peer(port) as peer:
        for first in range(0, messages, 1_000):
            peer.ask_all(*(send_request(TOPIC, BODY) for _ in range(min(1_000, messages - first))))


def processor_ns(pid: int) -> int:
    """Return the processor time of a process so far, all threads, in nanoseconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def microseconds_a_pull(server: Server, messages: int) -> float:
    """Pull everything and return the processor time of the broker for one pull. Raises ``RuntimeError``: some lack."""
    offset = pulls = 0
    with Peer(server.port) as peer:
        before = processor_ns(server.process.pid)
        while offset < messages:
            ext = {"consumerGroup": "bench", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset)}
            ext |= {
                "maxMsgNums": str(AT_ONCE),
                "sysFlag": str(SUBSCRIPTION),
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
            }
            ext |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
            answer = peer.ask(RequestCode.PULL_MESSAGE, ext)
            if answer.code:
                raise RuntimeError(f"offset {offset} of {messages}: {answer.code} {answer.remark}")
            offset, pulls = int((answer.ext or {})["nextBeginOffset"]), pulls + 1
        return (processor_ns(server.process.pid) - before) / pulls / 1_000


def scrub(port: int) -> None:
    """Have the whole log compared. Raises ``RuntimeError``: it takes too long."""
    until, started = time.monotonic() + WAIT_SECONDS, {"start": "true"}
    with Peer(port) as peer:
        while json.loads(peer.ask(RequestCode.SCRUB_LOG, started).body)["running"]:
            if time.monotonic() > until:
                raise RuntimeError(f"the scrub takes longer than {WAIT_SECONDS:g} s")
            started = {}
            time.sleep(0.1)


def measure(folder: Path, messages: int, rounds: int) -> Cost:
    """Return the least cost of each kind."""
    keys: dict[str, object] = {"accessMessageInMemoryMaxRatio": 90, "maxTransferCountOnMessageInMemory": AT_ONCE}
    with broker(folder, keys=keys) as server:
        make_topic(server.port, TOPIC, 1)
        store(server.port, messages)
    found: list[Cost] = []
    for _ in range(rounds):
        with broker(folder, keys=keys) as server:
            first, again = (microseconds_a_pull(server, messages) for _ in range(2))
            scrub(server.port)
            found.append(Cost(first, again, microseconds_a_pull(server, messages)))
    return Cost(*(min(getattr(each, name) for each in found) for name in ("first", "again", "scrubbed")))


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="understudy bench first-reads", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        cost = measure(Path(folder), options.messages, options.rounds)
    faults = cost.faults()
    if options.json:
        shares = {"first_share": cost.first_share, "again_share": cost.again_share, "faults": faults}
        print(json.dumps({**attrs.asdict(cost), **shares}))
        return 1 if faults else 0
    print(f"a pull of {AT_ONCE} messages of 1 KB, processor time of the broker:")
    print(f"  nothing to compare    {cost.scrubbed:8.1f} us")
    print(f"  read before           {cost.again:8.1f} us, {cost.again_share:+.1%}")
    print(f"  read for the first time {cost.first:6.1f} us, {cost.first_share:+.1%}")
    print("\n".join(faults) or "ok")
    return 1 if faults else 0
