"""Replication as others see and steer it (907, 908, 1007).

Source: AdminBrokerProcessor.java, HARuntimeInfo.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from understudy.broker.admin.answers import json_answer
from understudy.broker.identity import Identity
from understudy.broker.replication import Replication
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, required_int
from understudy.remoting.server import RemotingServer
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer questions about the replication of *broker* on *server*."""
    handlers = ReplicationAdmin(broker.identity, broker.replication, broker.store)
    server.register(RequestCode.GET_BROKER_HA_STATUS, handlers.status)
    server.register(RequestCode.GET_BROKER_EPOCH_CACHE, handlers.epochs)
    server.register_async(RequestCode.RESET_MASTER_FLUSH_OFFSET, handlers.reset_flush_offset)


class ReplicationAdmin:
    """Handlers over one broker's replication."""

    def __init__(self, identity: Identity, replication: Replication, store: MessageStore) -> None:
        self._identity = identity
        self._replication = replication
        self._store = store

    def status(self, connection: Connection, command: Command) -> Command:
        """Return how far each slave is, or how this slave follows (907)."""
        replication, store = self._replication, self._store
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
        replication, identity = self._replication, self._identity
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
        if self._identity.role.is_slave and not await self._replication.reset_flush_offset(offset):
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the disk refused the checkpoint; see the log of the broker")
        return response(command)
