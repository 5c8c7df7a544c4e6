"""What the timer shows when somebody scrapes, under the reference's names.

Source: DefaultStoreMetricsManager.java, DefaultStoreMetricsConstant.java, TimerMetrics.java (timerDist).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from understudy.broker.timer.lateness import behind_ms
from understudy.broker.timer.timer import Timer
from understudy.runtime.metrics import Family, Kind, Sample

BOUNDS_SECONDS = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)


def families(timer: Timer, now_ms: int, labels: Mapping[str, str]) -> list[Family]:
    """Return the timer's families.

    Args:
        timer: the timer.
        now_ms: wall time.
        labels: that all of them have.
    """
    within = timer.files.waiting_within(timer.floor(now_ms), BOUNDS_SECONDS)
    asked = timer.asked_seconds.family("rocketmq_delay_message_latency_seconds", "Timer message set latency")
    return [
        attrs.evolve(asked, samples=[attrs.evolve(each, labels={**labels, **each.labels}) for each in asked.samples]),
        _one("enqueue_lag", "Timer enqueue messages lag", timer.behind, labels),
        _one("enqueue_latency_milliseconds", "Timer enqueue latency", _unread_ms(timer, now_ms), labels),
        _one("dequeue_lag", "Timer dequeue messages lag", timer.waiting, labels),
        _one("dequeue_latency_milliseconds", "Timer dequeue latency", behind_ms(timer, now_ms), labels),
        _by_topic("rocketmq_timing_messages", "gauge", "Current message number in timing", timer.waiting_of, labels),
        _by_topic("rocketmq_timer_enqueue_total", "counter", "Total number of timer enqueue", timer.entered.of, labels),
        _by_topic(
            "rocketmq_timer_dequeue_total", "counter", "Total number of timer dequeue", timer.delivered.of, labels
        ),
        Family(
            "rocketmq_timer_message_snapshot",
            "gauge",
            "Timer message distribution snapshot, only count timing messages in 24h.",
            [
                Sample(count, {**labels, "timer_bound_s": str(bound)})
                for bound, count in zip(BOUNDS_SECONDS, within, strict=True)
            ],
        ),
    ]


def _unread_ms(timer: Timer, now_ms: int) -> int:
    """Return for how long the oldest message that is in no slot yet has been in the topic; 0 when none is."""
    stored_ms = timer.topic.stored_ms(timer.progress.enqueued) if timer.behind else -1
    return max(now_ms - stored_ms, 0) if stored_ms > 0 else 0


def _one(name: str, text: str, value: int, labels: Mapping[str, str]) -> Family:
    return Family(f"rocketmq_timer_{name}", "gauge", text, [Sample(value, dict(labels))])


def _by_topic(name: str, kind: Kind, text: str, counts: Mapping[str, int], labels: Mapping[str, str]) -> Family:
    samples = [Sample(count, {**labels, "topic": topic}) for topic, count in sorted(counts.items())]
    return Family(name, kind, text, samples)
