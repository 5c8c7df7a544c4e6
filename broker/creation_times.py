"""How long requests that create or change topics and consumer groups take, until all of it is done.

Source: BrokerMetricsManager.java (bounds), AdminBrokerProcessor.java (updateAndCreateTopic,
updateAndCreateSubscriptionGroup).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from understudy.format.names import is_system_topic
from understudy.runtime.clock import Clock
from understudy.runtime.metrics import Family, Histogram

BOUNDS_MS = (10, 100, 1000, 3000, 5000)
_MILLISECONDS = 1000


class CreationTimes:
    """What was measured since the start; what was cancelled counts nowhere.

    Args:
        clock: monotonic time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics = Histogram(BOUNDS_MS)
        self._groups = Histogram(BOUNDS_MS)

    def of_topic(self, name: str) -> AbstractContextManager[None]:
        """Measure the block, which creates or changes topic *name*, or a list of topics that begins with it."""
        return self._measured(self._topics, ("is_system", "true" if is_system_topic(name) else "false"))

    def of_groups(self) -> AbstractContextManager[None]:
        """Measure the block, which creates or changes consumer groups."""
        return self._measured(self._groups)

    def families(self) -> list[Family]:
        """Return what was measured so far."""
        return [
            self._topics.family(
                "rocketmq_topic_create_execution_time_milliseconds", "The distribution of create topic time"
            ),
            self._groups.family(
                "rocketmq_consumer_group_create_execution_time_milliseconds",
                "The distribution of create subscription time",
            ),
        ]

    @contextmanager
    def _measured(self, histogram: Histogram, *labels: tuple[str, str]) -> Iterator[None]:
        began = self._clock.monotonic()

        def observe(status: str) -> None:
            took_ms = (self._clock.monotonic() - began) * _MILLISECONDS
            histogram.observe(took_ms, (("invocation_status", status), *labels))

        try:
            yield
        except Exception:
            observe("failure")
            raise
        observe("success")
