"""Where the logs of a group's replicas end now: who is elected must not lack what another one has.

A heartbeat tells where a log ended up to a second ago. What was copied since, to the one replica that an
acknowledgement needed, would be cut without a nearer look (differs from the reference, which goes by heartbeats alone).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio

from understudy.format.json_dialect import JsonError
from understudy.remoting.bodies import json_of, read_answer
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.threads import Threads

log = get_logger("controller.failover")

PATIENCE_MS = 100
"""A replica that lives answers within a few milliseconds; a group without master waits for none that does not."""

_LONG = 1 << 63


@attrs.frozen
class LogEnd:
    """What a replica says of its log.

    Attributes:
        epoch: its newest; -1 without any.
        max_offset_bytes: its end.
    """

    epoch: int
    max_offset_bytes: int


class LogEnds:
    """Asks replicas.

    Args:
        client: connections to them.
        threads: where large answers are read.
    """

    def __init__(self, client: RemotingClient, threads: Threads) -> None:
        self._client = client
        self._threads = threads

    async def ask(self, addresses: Mapping[int, str]) -> dict[int, LogEnd]:
        """Ask all at once (1007).

        Args:
            addresses: of the replicas, by persistent id.

        Returns:
            What those said who answered within :data:`PATIENCE_MS`.
        """
        said: dict[int, LogEnd] = {}
        async with trio.open_nursery() as nursery:
            for broker_id, address in addresses.items():
                nursery.start_soon(self._ask_one, broker_id, address, said)
        return said

    async def _ask_one(self, broker_id: int, address: str, said: dict[int, LogEnd]) -> None:
        try:
            question = request(RequestCode.GET_BROKER_EPOCH_CACHE)
            answer = await self._client.invoke_repeatable(address, question, PATIENCE_MS)
            if answer.code != ResponseCode.SUCCESS:
                raise RemotingError(address, f"{answer.code}: {answer.remark}")
            await read_answer(self._threads, answer)
            body = json_of(answer)
            epochs = [int(each["epoch"]) for each in body.get("epochList") or ()]
            end = LogEnd(max(epochs, default=-1), int(body["maxOffset"]))
            if not (-1 <= end.epoch < _LONG and 0 <= end.max_offset_bytes < _LONG):
                raise ValueError(f"epoch {end.epoch} and end {end.max_offset_bytes} are no 64-bit numbers")
            said[broker_id] = end
        except (AttributeError, JsonError, KeyError, RemotingError, TypeError, ValueError) as error:
            log.warning("a replica does not say where its log ends: its heartbeat counts", broker=address, why=error)
