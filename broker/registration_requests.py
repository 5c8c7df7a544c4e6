"""What a broker says to its name servers: every request, ready to be sent once.

Source: BrokerOuterAPI.java, RegisterBrokerBody.java.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable

from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.registration_body import compressed_body, registration_pieces
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.format import names
from understudy.format.json_dialect import dumps, join_in_steps
from understudy.format.record import CRC_MASK
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request


class RegistrationRequests:
    """Writes the requests of one broker, each from what is true at that moment.

    Args:
        options: read anew for each request.
        identity: who the broker is.
        topics: what it has.
        mappings: which of its topics are static.
        acts_for_master: whether slaves may be shown in the place of their master, as far as this broker goes.
    """

    def __init__(
        self,
        options: BrokerOptions,
        identity: Identity,
        topics: TopicTable,
        mappings: QueueMappings,
        acts_for_master: Callable[[], bool],
    ) -> None:
        self._options = options
        self._identity = identity
        self._topics = topics
        self._mappings = mappings
        self._acts_for_master = acts_for_master

    def registering(self, rows: Iterable[TopicConfig]) -> Generator[None, None, Command]:
        """Return the registration of the broker with *rows*, in steps; rows and version are those of the first step."""
        broker, identity = self._options.broker, self._identity
        listed, version, mask = list(rows), self._topics.version, self._perm_mask()
        mapped, mapped_version = self._mappings.table, self._mappings.version
        static = [mapped[row.name] for row in listed if row.name in mapped] if mapped else []
        yield
        compressed = broker.compressed_register
        if compressed:
            body = compressed_body(listed, version, mask, static)
        else:
            body = yield from join_in_steps(registration_pieces(listed, version, mask, static, mapped_version))
        ext = {
            "brokerName": identity.name,
            "brokerAddr": identity.address,
            "clusterName": identity.cluster,
            "haServerAddr": identity.ha_address,
            "brokerId": str(identity.broker_id),
            # Differs because the reference says false and compresses all the same, which no name server can read.
            "compressed": "true" if compressed else "false",
            "bodyCrc32": str(zlib.crc32(body) & CRC_MASK),
            "enableActingMaster": "true" if self._acts_for_master() else "false",
        }
        if broker.enable_slave_acting_master:
            ext["heartbeatTimeoutMillis"] = str(broker.broker_not_active_timeout_millis)
        return request(RequestCode.REGISTER_BROKER, ext, body)

    def register_topic(self, row: TopicConfig) -> Command:
        """Return the announcement of one topic alone."""
        body = dumps(
            {
                "brokerDatas": [],
                "filterServerTable": {},
                "queueDatas": [
                    {
                        "brokerName": self._identity.name,
                        "perm": row.perm & self._perm_mask(),
                        "readQueueNums": row.read_queue_nums,
                        "topicSysFlag": row.sys_flag,
                        "writeQueueNums": row.write_queue_nums,
                    }
                ],
            }
        )
        return request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": row.name}, body)

    def ask_version(self) -> Command:
        """Return the question whether the name server knows another version of the topics, or not even the broker."""
        return request(RequestCode.QUERY_DATA_VERSION, self._who(), dumps(self._topics.version.to_json()))

    def heartbeat(self) -> Command:
        """Return a light heartbeat, which nobody answers."""
        who = self._who()
        del who["brokerId"]
        return request(RequestCode.BROKER_HEARTBEAT, who, oneway=True)

    def sign_off(self) -> Command:
        """Return the word that the broker is gone."""
        return request(RequestCode.UNREGISTER_BROKER, self._who())

    def _who(self) -> dict[str, str]:
        identity = self._identity
        return {
            "brokerName": identity.name,
            "brokerAddr": identity.address,
            "clusterName": identity.cluster,
            "brokerId": str(identity.broker_id),
        }

    def _perm_mask(self) -> int:
        perm = self._options.broker.broker_permission
        both = names.PERM_READ | names.PERM_WRITE
        return 7 if perm & both == both else perm
