"""What one broker knows of messages that were popped."""

from __future__ import annotations

import attrs

from understudy.broker.offsets import OffsetTable
from understudy.broker.pop.log import ReviveLog
from understudy.broker.pop.moving import Moving
from understudy.broker.pop.order import OrderTable
from understudy.broker.pop.stepped_clock import PopClock
from understudy.broker.statistics import BrokerStatistics


@attrs.frozen
class PopState:
    """Where every pop, acknowledgement and message that comes back leaves its trace.

    Attributes:
        offsets: where groups are in their queues.
        orders: what was handed out in order.
        log: check points and acknowledgements.
        moving: what waits in memory, and what is out; it moves offsets behind what the log has.
        stats: how much it was.
        clock: the wall clock.
    """

    offsets: OffsetTable
    orders: OrderTable
    log: ReviveLog
    moving: Moving
    stats: BrokerStatistics
    clock: PopClock
