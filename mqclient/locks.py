"""Locks at the brokers, under which ordered consumers hold their queues (RebalanceLockManager.java)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import attrs

from understudy.format.json_dialect import dumps
from understudy.mqclient.errors import ClientError
from understudy.mqclient.leaders import name_of_group
from understudy.mqclient.offsets import parse_queue, queue_body
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session, json_body
from understudy.remoting.codes import RequestCode
from understudy.runtime.log import get_logger

log = get_logger("mqclient.locks")

_VALID_SECONDS = 30.0  # brokers keep a lock for 60 s; half of it leaves room for clocks and delays


@attrs.frozen
class Renewal:
    """Which locks a broker confirmed and which it refused; those of silent brokers are in neither."""

    granted: frozenset[MessageQueue]
    refused: frozenset[MessageQueue]


class QueueLocks:
    """Locks of one consumer."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        """Ask for *queues* and return those that are locked for this client now."""
        return (await self.renew(queues)).granted

    async def renew(self, queues: Iterable[MessageQueue]) -> Renewal:
        """Ask for *queues*, held or not, and return what the brokers said."""
        granted: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()
        for broker_name, own in self._by_broker(queues).items():
            try:
                answer = await self._session.call(
                    self._session.master_address(broker_name),
                    RequestCode.LOCK_BATCH_MQ,
                    {},
                    self._body(own),
                    timeout_ms=1000,
                )
                listed = (await json_body(self._session, answer)).get("lockOKMQSet") or ()
            except ClientError as error:
                log.warning("no locks from broker", broker=broker_name, group=self._group, why=error)
                for topic in dict.fromkeys(queue.topic for queue in own):  # the master may be another one by now
                    await self._session.renew_route(topic)
                continue
            confirmed = {parse_queue(item) for item in listed}
            granted.update(confirmed)
            refused.update(queue for queue in own if queue not in confirmed)
        return Renewal(frozenset(granted), frozenset(refused))

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release *queues*; a failure is logged, the lock then ends by itself."""
        for broker_name, own in self._by_broker(queues).items():
            try:
                await self._session.call(
                    self._session.master_address(broker_name),
                    RequestCode.UNLOCK_BATCH_MQ,
                    {},
                    self._body(own),
                    timeout_ms=1000,
                )
            except ClientError as error:
                log.warning("locks not released", broker=broker_name, group=self._group, why=error)

    @staticmethod
    def expired(locked_at: float | None, now: float) -> bool:
        """Return whether a lock confirmed at *locked_at* may have ended by *now* (monotonic seconds)."""
        return locked_at is None or now - locked_at > _VALID_SECONDS

    def _body(self, queues: Iterable[MessageQueue]) -> bytes:
        return dumps(
            {
                "clientId": self._session.client_id,
                "consumerGroup": self._group,
                "mqSet": [queue_body(queue) for queue in queues],
                "onlyThisBroker": False,
            }
        )

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        groups: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            groups[name_of_group(self._session, queue)].append(queue)
        return groups
