"""Topics of which an acting slave has messages but no row: their master died before the row was copied.

Messages are copied at once, tables a moment later. What is missing then is asked of the name servers, which knew the
topic before anybody was told that it exists; a topic that they do not know either was made by the last sends, and its
queues in the log say what it is. The rows give way to the master's as soon as it is back.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from understudy.broker.logged_batches import LoggedBatches
from understudy.broker.lost_topics import row_of_queues, without_row
from understudy.broker.topics import TopicConfig
from understudy.format import names
from understudy.remoting.bodies import json_value
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("container.log_topics")

QUESTION_TIMEOUT_MS = 3_000
AGAIN_SECONDS = 1.0


def row_of(
    topic: str, queues: int, route: Mapping[str, Any], broker_name: str, batch_topics: Container[str] = ()
) -> TopicConfig:
    """Return the row of a topic.

    Args:
        topic: its name.
        queues: how many queues the log has at least.
        route: what a name server answered; empty when it does not know the topic.
        broker_name: whose part of the route counts.
        batch_topics: those that have batch queues.
    """
    row = row_of_queues(topic, queues, batch_topics)
    listed = route.get("queueDatas")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, Mapping) and each.get("brokerName") == broker_name:
            known = TopicConfig.from_json(each, topic)
            row.read_queue_nums = max(queues, known.read_queue_nums)
            row.write_queue_nums = max(queues, known.write_queue_nums)
            row.perm = known.perm | names.PERM_WRITE  # name servers take it from a group without a master
            row.sys_flag = known.sys_flag
    return row


class LogTopics:
    """Finds and adds the missing rows of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def missing(self) -> dict[str, int]:
        """Return the topics without a row and their known queues."""
        return without_row(self._broker.store.queues(), self._broker.topics.rows)

    async def run(self) -> None:
        """Add rows until none is missing; ends then."""
        broker = self._broker
        while missing := self.missing():
            answers = [await self._row(topic, queues) for topic, queues in missing.items()]
            found = [row for row in answers if row is not None]
            broker.topics.take(found)
            for row in found:
                log.warning("topic was not copied from the master in time, made anew", row=row.describe())
            if len(found) < len(missing):
                await broker.world.clock.sleep(AGAIN_SECONDS)

    async def _row(self, topic: str, queues: int) -> TopicConfig | None:
        """Return the row of *topic*, or ``None`` when no name server answers."""
        broker = self._broker
        for address in broker.registration.name_servers:
            question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            try:
                answer = await broker.client.invoke(address, question, QUESTION_TIMEOUT_MS)
                if answer.code not in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST):
                    continue
                found = answer.code == ResponseCode.SUCCESS
                route = await json_value(broker.world.threads, answer.body) if found else {}
                known = route if isinstance(route, Mapping) else {}
                return row_of(topic, queues, known, broker.identity.name, LoggedBatches(broker.store))
            except (RemotingError, ValueError) as error:
                log.warning("no route from a name server", name_server=address, topic=topic, why=error)
        return None
