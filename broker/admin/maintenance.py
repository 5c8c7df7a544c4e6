"""Clean up and compare on demand; questions about an engine that is not here (306, 316, 329, 354, 355, 954)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.broker.admin.answers import UNSET_REMARK, json_answer
from understudy.broker.topics import TopicTable
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional_bool, required
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.maintenance")

CHECK_RUNS = 2
"""CheckRocksdbCqWriteResult: what a broker without RocksDB queues answers."""


CONFIG_TYPES = ("topics", "subscriptionGroups", "consumerOffsets")


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer clean-up requests of *broker* on *server*."""
    handlers = MaintenanceAdmin(broker.store, broker.topics, broker.world)
    server.register(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, handlers.clean_queues)
    server.register_async(RequestCode.CLEAN_UNUSED_TOPIC, handlers.clean_topics)
    server.register(RequestCode.DELETE_EXPIRED_COMMITLOG, handlers.delete_expired)
    server.register(RequestCode.SCRUB_LOG, handlers.scrub)
    server.register(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, handlers.check_rocksdb)
    server.register(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, handlers.export_rocksdb)


class MaintenanceAdmin:
    """Handlers over one broker's store."""

    def __init__(self, store: MessageStore, topics: TopicTable, world: World) -> None:
        self._store = store
        self._topics = topics
        self._world = world

    def clean_queues(self, connection: Connection, command: Command) -> Command:
        """Agree (306): queue files are deleted together with the log files they point into, none is left to clean."""
        return response(command)

    async def clean_topics(self, connection: Connection, command: Command) -> Command:
        """Delete the queues of topics that no longer exist (316)."""
        async with Pace(self._world) as pace:
            cleaned = await pace.run(self._store.clean_unused(self._topics.rows))
        if cleaned:
            log.info("queues of unknown topics deleted", topics=",".join(cleaned))
            await self._store.save_deletions()
        return response(command)

    def delete_expired(self, connection: Connection, command: Command) -> Command:
        """Delete log files beyond their reserved time now instead of at the configured hour (329)."""
        self._store.delete_expired_files()
        return response(command)

    def scrub(self, connection: Connection, command: Command) -> Command:
        """Compare every message with its checksum, or tell how far that is (954, ours).

        With ``start=true`` a comparison begins unless one runs. The answer has what the last one has found so far.
        """
        store = self._store
        report = store.start_scrub() if optional_bool(command, "start") else store.scrub_report
        if report is None:
            raise CommandError(ResponseCode.QUERY_NOT_FOUND, "nothing was compared since the start of this broker")
        body = {
            "begin": report.begin,
            "end": report.end,
            "position": report.position,
            "records": report.records,
            "units": report.units,
            "entries": report.entries,
            "damaged": [list(place) for place in report.damaged],
            "firstHole": store.hole if store.hole is not None else -1,
            "running": report.running,
        }
        return json_answer(command, body)

    def check_rocksdb(self, connection: Connection, command: Command) -> Command:
        """Answer as a broker with file queues does (354)."""
        return json_answer(command, {"checkStatus": CHECK_RUNS}, remark=UNSET_REMARK)

    def export_rocksdb(self, connection: Connection, command: Command) -> Command:
        """Answer as a broker whose tables are JSON files already does (355)."""
        for kind in filter(None, required(command, "configType").split(";")):
            if kind not in CONFIG_TYPES:
                raise CommandError(ResponseCode.SYSTEM_ERROR, f"Unknown config type: {kind}")
        return response(command, 0, "export done.")
