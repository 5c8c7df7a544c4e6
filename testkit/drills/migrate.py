"""A running group comes to be led by controllers, and goes back, under traffic: played in virtual time from a seed.

    understudy drill migrate [--seed N] [--acting]
    understudy drill migrate --processes [--acting] [--clients java] [--verify]

Three brokers in plain replication (with ``--acting``: whose slaves act) become a group that controllers lead, broker
after broker; the elected master is killed, so that it is seen to be led; then they go back. A producer and a consumer
group work all the time. docs/migration.md is the same as a page for operators.

With ``--processes`` real replicas of a led group (with ``--acting``: of one whose slaves act) are replaced by ours and
come back, one by one, in processes of this machine (:mod:`.migrate_processes`).
"""

from __future__ import annotations

import argparse
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial

import trio

from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import Producer, SendStatus, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.remoting.client import open_client
from understudy.runtime.background import open_background
from understudy.testkit.drills.equal_offsets import told, with_offsets
from understudy.testkit.history import History, Verdict
from understudy.testkit.led.group import BROKERS, CONTROLLERS, TOPIC, LedGroup
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

READERS = "readers"
LED = {"allAckInSyncStateSet": "true"}
OF_LED_LIVES = ("/data/store/brokerIdentity", "/data/store/epochFileCheckpoint", "/data/store/epochFileCheckpoint.bak")
QUIET_SECONDS = 3.0
_WAIT_SECONDS = 60.0


def plain(broker_id: int, *, acting: bool) -> dict[str, str]:
    """Return the keys of a broker that no controller leads."""
    return {
        "enableControllerMode": "false",
        "brokerRole": "SLAVE" if broker_id else "SYNC_MASTER",
        "brokerId": str(broker_id),
        "totalReplicas": "3",
        "inSyncReplicas": "2",
        "enableSlaveActingMaster": str(acting).lower(),
    }


class Migration:
    """One run.

    Args:
        group: nothing of it runs yet.
        keys: of each broker, changed step by step.
        acting: the slaves of the plain group act.
        say: told each step.
    """

    def __init__(
        self, group: LedGroup, keys: dict[str, dict[str, str]], acting: bool, say: Callable[[str], None]
    ) -> None:
        self._group = group
        self._keys = keys
        self._acting = acting
        self._say = say
        self._sending = True
        self.history = History()

    async def play(self) -> Verdict:
        """Play it; return the verdict. Raises ``trio.TooSlowError``: a step did not come to its end."""
        group, cluster = self._group, self._group.cluster
        await cluster.start_name_server("ns")
        for number, name in enumerate(BROKERS):
            self._keys[name] = plain(number, acting=self._acting)
            await group.start_broker(name)
        await self._plain(BROKERS[0])
        await group.create_topic(BROKERS[0])
        world, options = cluster.client_world("clients"), PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with (
            open_producer(world, cluster.name_servers, "writers") as producer,
            open_push_consumer(world, cluster.name_servers, READERS, {TOPIC: "*"}, self._listen, options),
            open_background() as nursery,
        ):
            nursery.start_soon(self._send, producer)
            await trio.sleep(QUIET_SECONDS)
            await self._forth()
            await trio.sleep(QUIET_SECONDS)
            await self._lose_master()
            await trio.sleep(QUIET_SECONDS)
            await self._back()
            await trio.sleep(QUIET_SECONDS)
            self._sending = False
            await until(self._all_delivered, _WAIT_SECONDS)
        await until(lambda: len({tuple(group.bodies(name)) for name in BROKERS}) == 1, _WAIT_SECONDS)
        self._say("the logs of all replicas are equal")
        verdict = await with_offsets(
            self.history.check([READERS], ordered=False), {name: partial(group.ask, name) for name in BROKERS}
        )
        self._say(told(verdict))
        return verdict

    async def _forth(self) -> None:
        for name in CONTROLLERS:
            await self._group.start_controller(name)
        self._say("the controllers run")
        for count, name in enumerate(BROKERS, 1):
            await self._restart(name, LED)
            await self._group.ready(count, _WAIT_SECONDS)
            self._say(f"{name} is led: {self._told()}")

    async def _lose_master(self) -> None:
        group = self._group
        name = await group.ready(3, _WAIT_SECONDS)
        await group.kill(name)
        await until(lambda: group.master() not in (None, name), _WAIT_SECONDS)
        self._say(f"{name} was killed: {self._told()}")
        await group.start_broker(name)
        await group.ready(3, _WAIT_SECONDS)

    async def _back(self) -> None:
        group = self._group
        master = await group.ready(3, _WAIT_SECONDS)
        slaves = [name for name in BROKERS if name != master]
        for number, name in enumerate(slaves, 1):
            await self._restart(name, plain(number, acting=self._acting), forget=True)
            self._say(f"{name} is led no longer, and waits for a master of its kind")
        await self._restart(master, plain(0, acting=self._acting), forget=True)
        await self._plain(master)
        self._say(f"{master} is led no longer: all replicas follow it")
        for name in CONTROLLERS:
            await group.kill(name)

    async def _restart(self, name: str, keys: dict[str, str], *, forget: bool = False) -> None:
        """Stop a broker as SIGTERM does and start it with other keys."""
        group = self._group
        await group.cluster.stop(name)
        del group.brokers[name]
        disk = group.cluster.host(name).disk
        for path in OF_LED_LIVES if forget else ():
            if disk.exists(path):
                disk.remove(path)
        self._keys[name] = keys
        await group.start_broker(name)

    async def _plain(self, master: str) -> None:
        """Wait until both slaves follow *master* in plain replication."""

        def follow() -> bool:
            serving = self._group.brokers[master].replication.master
            return serving is not None and serving.in_sync_count(1.0) == len(BROKERS)

        await until(follow, _WAIT_SECONDS)

    def _told(self) -> str:
        facts = self._group.facts()
        assert facts is not None
        return f"master {self._group.master()}, epoch {facts.master_epoch}, in sync {', '.join(self._group.members())}"

    # --- traffic -------------------------------------------------------------------------------------------------

    async def _send(self, producer: Producer) -> None:
        number = 0
        while self._sending:
            key = f"m{number}"
            number += 1
            try:
                sent = await producer.send(Message(TOPIC, key.encode()))
            except ClientError:
                self.history.sent(key, key, None, acknowledged=False)
            else:
                queue = (sent.queue.topic, sent.queue.broker_name, sent.queue.queue_id)
                self.history.sent(key, key, queue, acknowledged=sent.status is SendStatus.OK)
            await trio.sleep(0.05)

    async def _listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        queue = (context.queue.topic, context.queue.broker_name, context.queue.queue_id)
        for each in messages:
            self.history.delivered(bytes(each.body).decode(), READERS, queue, each.queue_offset)

    def _all_delivered(self) -> bool:
        got = {each.key for each in self.history.deliveries}
        return all(each.key in got for each in self.history.sends if each.acknowledged)


async def migrate(source: random.Random, acting: bool, say: Callable[[str], None]) -> Verdict:
    """Play one migration there and back, see :class:`Migration`."""
    keys: dict[str, dict[str, str]] = {}
    async with (
        SimCluster(source) as cluster,
        open_client(cluster.client_world()) as client,
        open_background() as nursery,
    ):
        for name in (*CONTROLLERS, *BROKERS):
            cluster.host(name)
        return await Migration(LedGroup(cluster, nursery, client, {}, keys), keys, acting, say).play()


def main(argv: Sequence[str] | None = None) -> int:
    """Play the drill; return 0 when nothing was lost."""
    parser = argparse.ArgumentParser(
        prog="understudy drill migrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what everything random is drawn from (1)")
    parser.add_argument("--acting", action="store_true", help="the slaves of the plain group act for their master")
    parser.add_argument("--processes", action="store_true", help="replace real replicas by ours and back, here and now")
    parser.add_argument("--clients", choices=("ours", "java"), help="with --processes: whose clients work (java)")
    parser.add_argument("--verify", action="store_true", help="with --processes: compare the stores by Spark")
    options = parser.parse_args(argv)
    if options.processes:
        return _play_processes(parser, options)
    if options.clients or options.verify:
        parser.error("--clients and --verify belong to --processes: in virtual time nothing of ours is a process")
    logging.disable(logging.CRITICAL)

    def say(text: str) -> None:
        print(f"{trio.current_time():9.3f} s  {text}", flush=True)

    verdict = run_seed(partial(migrate, acting=options.acting, say=say), options.seed)
    print(f"\nVerdict: {verdict}")
    return 0 if verdict.ok else 1


def _play_processes(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Replace real replicas and return the exit code; the folder is kept when something went wrong."""
    from understudy.testkit.drills import controller_processes, migrate_processes

    launcher = controller_processes.find_launcher(None)
    if launcher is None:
        parser.error("--processes needs the real system: run ./understudy test once")
    wish = migrate_processes.Wish(options.clients or "java", acting=options.acting, verify=options.verify)
    return controller_processes.in_folder(partial(migrate_processes.play, launcher=launcher, wish=wish))
