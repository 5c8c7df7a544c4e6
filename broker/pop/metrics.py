"""Figures of pops, under the reference's names. Source: PopMetricsManager.java."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.runtime.metrics import Family, Sample

if TYPE_CHECKING:
    from understudy.broker.pops import Pops


def pop_families(pops: Pops, now_ms: int) -> list[Family]:
    """Return the figures of *pops* now.

    Args:
        pops: of one broker.
        now_ms: wall time.
    """
    counts, buffer = pops.log.counts, pops.moving.buffer
    written, read, returned = counts.written.items(), counts.read.items(), counts.returned.items()
    lag, latency = list[Sample](), list[Sample]()
    for queue in range(pops.log.queues):
        labels = {"queue_id": str(queue)}
        behind, oldest_ms = pops.queues.behind(queue)
        lag.append(Sample(behind, labels))
        latency.append(Sample(max(now_ms - oldest_ms, 0) if oldest_ms else 0, labels))
    return [
        Family(
            "rocketmq_pop_offset_buffer_size",
            "gauge",
            "Number of pops that have not moved their queue's offset",
            [Sample(buffer.waiting_offsets)],
        ),
        Family(
            "rocketmq_pop_checkpoint_buffer_size",
            "gauge",
            "Number of check points that wait in memory",
            [Sample(len(buffer))],
        ),
        Family(
            "rocketmq_pop_revive_lag_milliseconds",
            "gauge",
            "Number of messages of the revive topic that are not worked off",
            lag,
        ),
        Family(
            "rocketmq_pop_revive_latency_milliseconds", "gauge", "How long the oldest open check point is due", latency
        ),
        Family(
            "rocketmq_pop_revive_in_message_total",
            "counter",
            "Total number of entries put to the revive topic",
            [
                Sample(
                    number,
                    {"consumer_group": group, "topic": topic, "revive_message_type": kind, "put_status": status},
                )
                for (group, topic, kind, status), number in written
            ],
        ),
        Family(
            "rocketmq_pop_revive_out_message_total",
            "counter",
            "Total number of entries read from the revive topic",
            [
                Sample(
                    number,
                    {"consumer_group": group, "topic": topic, "queue_id": str(queue), "revive_message_type": kind},
                )
                for (group, topic, queue, kind), number in read
            ],
        ),
        Family(
            "rocketmq_pop_revive_retry_messages_total",
            "counter",
            "Total number of messages put to retry topics of pops",
            [
                Sample(number, {"consumer_group": group, "topic": topic, "put_status": status})
                for (group, topic, status), number in returned
            ],
        ),
    ]
