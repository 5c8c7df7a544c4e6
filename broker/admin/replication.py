"""Replication as others see and steer it (905 to 908), and the tables that slaves copy (43, 45, 60, 61, 402).

Source: AdminBrokerProcessor.java, HARuntimeInfo.java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from understudy.broker.admin.answers import json_answer, long_json_answer
from understudy.broker.announcement import STAND_BACK_SECONDS, Claim, Patience, refusal, successor_refusal
from understudy.broker.log_history import LOG_HISTORY
from understudy.broker.member_events import Notice
from understudy.broker.member_view import MASTER_ID
from understudy.broker.replicated.orders import KNOWN
from understudy.broker.replicated.table import KNOWN_OFFSETS, PARTLY, TABLES
from understudy.broker.replicated.timer import metrics_of, told
from understudy.broker.services import STORED
from understudy.format import json_dialect
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, optional_int, required_int
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.admin")

SUCCESSOR = "successorId"
"""Header field of ours: the id of a slave that comes online and acts for the master from now on."""
SUCCESSOR_ADDRESS = "successorAddress"
"""Where that slave answers, ``host:port``."""


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer replication requests of *broker* on *server*."""
    handlers = ReplicationAdmin(broker)
    server.register(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, handlers.min_broker_changed)
    server.register_async(RequestCode.EXCHANGE_BROKER_HA_INFO, handlers.exchange)
    server.register(RequestCode.GET_BROKER_HA_STATUS, handlers.status)
    server.register(RequestCode.GET_BROKER_EPOCH_CACHE, handlers.epochs)
    server.register_async(RequestCode.RESET_MASTER_FLUSH_OFFSET, handlers.reset_flush_offset)
    server.register_async(RequestCode.GET_ALL_CONSUMER_OFFSET, handlers.consumer_offsets)
    server.register(RequestCode.GET_ALL_DELAY_OFFSET, handlers.delay_offsets)
    server.register(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, handlers.request_modes)
    server.register(RequestCode.GET_POP_ORDERS, handlers.pop_orders)
    server.register(RequestCode.GET_ACTING_POPS, handlers.acting_pops)
    server.register(RequestCode.GET_TIMER_CHECK_POINT, handlers.timer_checkpoint)
    server.register(RequestCode.GET_TIMER_METRICS, handlers.timer_metrics)


class ReplicationAdmin:
    """Handlers over one broker's replication."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._patience = Patience()

    def min_broker_changed(self, connection: Connection, command: Command) -> Command:
        """Learn from the name server that the smallest id of the group changed (905)."""
        notice = Notice(
            optional_int(command, "minBrokerId"),
            optional(command, "minBrokerAddr"),
            optional(command, "offlineBrokerAddr"),
            optional(command, "haBrokerAddr"),
        )
        self._broker.member_group.pushed(notice, connection.peer[0])
        return response(command)

    async def exchange(self, connection: Connection, command: Command) -> Command:
        """Tell where this master's log is, or learn it from a master that comes online (906).

        A slave of ours that will act from now on says so in the field :data:`SUCCESSOR`. It is answered when nothing
        more is delivered here.
        """
        broker = self._broker
        successor = optional_int(command, SUCCESSOR)
        if successor is not None:
            if not MASTER_ID < successor < broker.identity.broker_id:
                remark = f"broker {broker.identity.broker_id} does not stand back for broker {successor}"
                raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
            await self._check_successor(successor, optional(command, SUCCESSOR_ADDRESS))
            broker.replication.stand_back()
            async with trio.open_nursery() as nursery:  # each may have a put under way, which has a moment to end
                for each in STORED:
                    nursery.start_soon(broker.services.stop, each.value)
            return response(command, ext={})
        ha_address = optional(command, "masterHaAddress")
        if ha_address:
            claim = Claim(optional(command, "masterAddress"), ha_address)
            shown = None if broker.presence.state.contact_lost else broker.member_group.members
            why = ""
            if broker.role.is_slave:
                why = await refusal(claim, shown, broker.identity, broker.world, broker.client)
            if why:
                raise self._not_believed("a master that says it comes back is not believed", why)
            broker.replication.learn_flush_offset(optional_int(command, "masterFlushOffset") or 0)
            broker.replication.announced(claim.address, ha_address)
            return response(command, ext={})
        if broker.role.is_slave:
            return response(command, ext={})
        ext = {
            "masterAddress": broker.identity.address,
            "masterFlushOffset": str(broker.replication.initial_offset),
            "masterHaAddress": broker.identity.ha_address,
        }
        return response(command, ext=ext)

    async def _check_successor(self, broker_id: int, address: str | None) -> None:
        """Refuse to stand back for a slave that is not there, or for longer than may be."""
        broker, what = self._broker, "a slave that says it acts from now on is not believed"
        why = await successor_refusal(broker_id, address, broker.identity, broker.world, broker.client)
        if not why and not self._patience.lasts(broker.world.clock.monotonic()):
            why = (
                f"for {STAND_BACK_SECONDS:g} s slaves said that they come, and none is there; try again a minute later"
            )
        if why:
            raise self._not_believed(what, why)

    def _not_believed(self, what: str, why: str) -> CommandError:
        log.warning(what, broker=self._broker.identity.name, why=why)
        return CommandError(ResponseCode.SYSTEM_ERROR, f"not believed: {why}")

    def status(self, connection: Connection, command: Command) -> Command:
        """Return how far each slave is, or how this slave follows (907)."""
        replication, store = self._broker.replication, self._broker.store
        if replication.master is None and replication.slave is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "this broker does not replicate by the plain protocol")
        client: dict[str, Any] = {
            "lastReadTimestamp": 0,
            "lastWriteTimestamp": 0,
            "masterFlushOffset": 0,
            "maxOffset": 0,
            "transferredByteInSecond": 0,
        }
        slaves: list[dict[str, Any]] = []
        end = 0
        if replication.master is not None:
            end = store.max_physical_offset
            slaves = [
                {
                    "addr": each.address,
                    "diff": end - each.acknowledged,
                    "inSync": each.in_sync,
                    "slaveAckOffset": each.acknowledged,
                    "transferFromWhere": each.transfer_from,
                    "transferredByteInSecond": each.bytes_per_second,
                }
                for each in replication.master.status()
            ]
        elif replication.slave is not None:
            progress = replication.slave.progress()
            client = {
                "lastReadTimestamp": progress.last_read_ms,
                "lastWriteTimestamp": progress.last_write_ms,
                "masterAddr": progress.master_address,
                "masterFlushOffset": replication.master_flush_offset,
                "maxOffset": store.max_physical_offset,
                "transferredByteInSecond": progress.received_bytes_per_second,
            }
            if progress.master_address is None:
                del client["masterAddr"]
        body = {
            "haClientRuntimeInfo": client,
            "haConnectionInfo": slaves,
            "inSyncSlaveNums": sum(each["inSync"] for each in slaves),
            "master": replication.master is not None,
            "masterCommitLogMaxOffset": end,
        }
        return json_answer(command, body)

    def epochs(self, connection: Connection, command: Command) -> Command:
        """Return which master wrote which part of the log (1007)."""
        replication, identity = self._broker.replication, self._broker.identity
        from understudy.broker.switch_replication import SwitchReplication  # only those who are led start with it

        if not isinstance(replication, SwitchReplication):
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                "this broker is not led by a controller (enableControllerMode), so has no epochs",
            )
        rows = [{"endOffset": end, "epoch": epoch, "startOffset": start} for epoch, start, end in replication.epochs()]
        body = {
            "brokerId": identity.broker_id,
            "brokerName": identity.name,
            "clusterName": identity.cluster,
            "epochList": rows,
            "maxOffset": replication.max_offset(),
        }
        return json_answer(command, body)

    async def reset_flush_offset(self, connection: Connection, command: Command) -> Command:
        """Set what a slave knows of its master's log, durably (908); without effect on a master.

        Differs from the reference, which takes negative offsets and answers before the value is durable.
        """
        offset = required_int(command, "masterFlushOffset")
        if offset < 0:
            remark = f"masterFlushOffset must be 0 or more, not {offset}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        if self._broker.role.is_slave and not await self._broker.replication.reset_flush_offset(offset):
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the disk refused the checkpoint; see the log of the broker")
        return response(command)

    async def consumer_offsets(self, connection: Connection, command: Command) -> Command:
        """Return the offset table (43); to a slave of ours that says what it has, only what changed since."""
        offsets, asked = self._broker.offsets, optional(command, KNOWN_OFFSETS)
        if asked is not None:
            life, _, known = asked.partition("-")
            current = f"{self._broker.started_ms}-{offsets.revision}"
            ext = {KNOWN_OFFSETS: current, TABLES: self._tables(), LOG_HISTORY: self._broker.history.value.to_text()}
            if asked == current:
                return response(command, ext=ext)
            partly = life == str(self._broker.started_ms) and known.isdecimal()
            content = offsets.to_json(int(known) if partly else -1, later=True)
            ext[PARTLY] = str(partly).lower()
            async with Pace(self._broker.world) as pace:
                return await long_json_answer(command, content, pace, ext=ext, bare_keys=False)
        async with Pace(self._broker.world) as pace:
            topics = await pace.run(offsets.topics_by_group())
            # Offsets of broadcasting members belong to no group.
            topics = {group: each for group, each in topics.items() if "@" not in group}
            content = offsets.to_json(later=True)
            body = {"dataVersion": content.pop("dataVersion"), "groupTopicMap": topics, **content}
            return await long_json_answer(command, body, pace)

    def _tables(self) -> str:
        """Return a text that changes with topics and groups."""
        topics, groups = self._broker.topics.version, self._broker.groups.version
        return f"{topics.state_version}.{topics.counter}.{topics.timestamp}-{groups.counter}.{groups.timestamp}"

    def delay_offsets(self, connection: Connection, command: Command) -> Command:
        """Return how far each delay level is delivered (45); to a replica of ours also in which log."""
        ext = None
        if optional(command, LOG_HISTORY) is not None:
            ext = {LOG_HISTORY: self._broker.history.value.to_text()}
        return json_answer(command, self._broker.schedule_progress.to_json(), ext=ext)

    def pop_orders(self, connection: Connection, command: Command) -> Command:
        """Return what was popped in order (955, ours); nothing when the asker has it."""
        orders = self._broker.orders
        return self._unless_known(command, f"{self._broker.started_ms}.{orders.revision}", orders.to_json)

    def acting_pops(self, connection: Connection, command: Command) -> Command:
        """Return what a slave handed out that acts or has acted (956, ours); nothing when the asker has it."""
        acting = self._broker.acting_pops
        return self._unless_known(command, f"{self._broker.started_ms}.{acting.revision}", acting.to_json)

    def _unless_known(self, command: Command, known: str, content: Callable[[], Any]) -> Command:
        ext = {KNOWN: known}
        if optional(command, LOG_HISTORY) is not None:
            ext[LOG_HISTORY] = self._broker.history.value.to_text()
        if optional(command, KNOWN) == known:
            return response(command, ext=ext)
        return response(command, ext=ext, body=json_dialect.dumps(content()))

    def request_modes(self, connection: Connection, command: Command) -> Command:
        """Return the modes that differ from the default: none of a master, a slave's are its master's (402)."""
        return json_answer(command, self._broker.request_modes.to_json())

    def timer_checkpoint(self, connection: Connection, command: Command) -> Command:
        """Return how far the timer has come (60); to a replica of ours also in which log, and within the second."""
        broker, timer = self._broker, self._broker.timer
        check = timer.check()
        ext = told(timer, check)
        if optional(command, LOG_HISTORY) is not None:
            ext[LOG_HISTORY] = broker.history.value.to_text()
        return response(command, body=check.encode(), ext=ext)

    def timer_metrics(self, connection: Connection, command: Command) -> Command:
        """Return how many messages of each topic wait in the timer (61)."""
        return json_answer(command, metrics_of(self._broker.timer))
