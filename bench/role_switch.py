"""How long a led broker of this machine takes to change its role: from the word to the first send that it accepts.

    ./understudy bench role-switch [--changes N] [--messages N]

One broker with real files and sockets becomes master and slave in turn, idle but for a log of that many messages; the
time until it is master includes the epoch on the disk, and the word to a name server. Beside it stands the processor
time of the process (broker, name server and client), which other work on the machine hardly stretches. Exit code 1 when
the median of either change is above 50 ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
from understudy.broker.role import Role
from understudy.broker.switch_replication import SwitchReplication
from understudy.container.hosted import host_broker
from understudy.format.record import encode_host
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.background import open_background
from understudy.runtime.world import real_world
from understudy.testkit.topic_fields import topic_fields

MOST_MS = 50.0
TOPIC = "Switched"


async def _broker(nursery: trio.Nursery, folder: str, name_server: str) -> Broker:
    keys = {
        "brokerName": "g",
        "listenPort": "0",
        "brokerIP1": "127.0.0.1",
        "namesrvAddr": name_server,
        "storePathRootDir": f"{folder}/store",
        "storePathCommitLog": f"{folder}/store/commitlog",
    }
    options, _ = BrokerOptions.from_properties(keys)
    options.broker.enable_controller_mode = True
    broker: Broker = await nursery.start(host_broker, real_world(), options)
    part = broker.replication
    assert isinstance(part, SwitchReplication)
    part.own_id = 1
    part.set_fenced(False)
    return broker


async def _send(client: RemotingClient, broker: Broker) -> int:
    values = ("p", TOPIC, "TBW102", "1", "0", "0", "1", "0", "", "0", "false", "false")
    question = request(RequestCode.SEND_MESSAGE_V2, dict(zip("abcdefghijkm", values, strict=True)), b"x")
    return (await client.invoke(broker.identity.address, question, 3_000)).code


Took = tuple[float, float]
"""Milliseconds, and those of the processor."""


def _now() -> Took:
    return time.perf_counter() * 1000, time.process_time() * 1000


def _since(began: Took) -> Took:
    now = _now()
    return now[0] - began[0], now[1] - began[1]


async def measure(folder: str, changes: int, messages: int) -> tuple[list[Took], list[Took]]:
    """Return how long each change to master and each change to slave took."""
    world = real_world()
    config = NamesrvConfig(kv_config_path=f"{folder}/kvConfig.json", config_store_path=f"{folder}/namesrv.properties")
    server = NameServer(world, config, "127.0.0.1", 0)
    to_master: list[Took] = []
    to_slave: list[Took] = []
    async with open_background() as outer, open_client(world) as client:
        await outer.start(server.run)
        async with open_background() as nursery:
            broker = await _broker(nursery, folder, f"127.0.0.1:{server.address[1]}")
            for epoch in range(1, changes + 1):
                began = _now()
                await broker.change_role(Role("SYNC_MASTER", 0, 2 * epoch, "elected"))
                if epoch == 1:
                    question = request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1))
                    assert (await client.invoke(broker.identity.address, question, 3_000)).code == 0
                    for _ in range(messages):
                        broker.store.append(TOPIC, 0, b"x" * 1024, b"", 1, encode_host("127.0.0.1", 1))
                else:
                    assert await _send(client, broker) == 0
                    to_master.append(_since(began))
                began = _now()
                await broker.change_role(Role("SLAVE", 1, 2 * epoch + 1, "another was elected"))
                to_slave.append(_since(began))
    return to_master, to_slave


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; *arguments* are those of the process when ``None``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=30, help="of each kind (30)")
    parser.add_argument("--messages", type=int, default=10_000, help="of 1 KiB in the log (10,000)")
    options = parser.parse_args(arguments)
    if options.changes < 2:
        parser.error("--changes must be at least 2: the first one makes the log")
    with tempfile.TemporaryDirectory(prefix="understudy-roles-") as folder:
        to_master, to_slave = trio.run(measure, folder, options.changes, options.messages)
    slow = False
    for name, found in (("to master, with a send", to_master), ("to slave", to_slave)):
        times = [took for took, _ in found]
        median, processor = statistics.median(times), statistics.median(used for _, used in found)
        slow |= median > MOST_MS
        print(
            f"{name:24} {len(found)} changes: median {median:.1f} ms, longest {max(times):.1f} ms; of the processor "
            f"{processor:.1f} ms"
        )
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
