"""What a broker shows when somebody scrapes, or pushes when it is time, under the reference's names.

Everything is read from tables that exist anyway, at that moment: sending and pulling pay nothing for it, but for the
times of requests, see :mod:`~understudy.remoting.latencies`.

Source: BrokerMetricsConstant.java, DefaultStoreMetricsConstant.java; names and labels as captured from 5.4.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from understudy.broker.lag import lag_pieces
from understudy.broker.pop.metrics import pop_families
from understudy.broker.storage import BrokerStartError
from understudy.broker.timer.figures import families as timer_families
from understudy.broker.topic_counters import SIZE_BOUNDS
from understudy.format.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from understudy.format.versions import version_text
from understudy.remoting.metrics_keys import read_metrics_settings
from understudy.runtime.log import get_logger
from understudy.runtime.metrics import PIECE_SAMPLES, Family, Sample, counter, gauge, histogram_samples
from understudy.runtime.properties import ConfigError

if TYPE_CHECKING:
    from understudy.broker.broker import Broker
    from understudy.broker.clients import ClientChannel
    from understudy.remoting.connection import Connection
    from understudy.runtime.metrics_export import Exporter

log = get_logger("broker.metrics")

METER = "broker-meter"
_PIECE_TOPICS = PIECE_SAMPLES // (len(SIZE_BOUNDS) + 3)  # each has a sample for every bound, and three more
_NOT_SENT = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
"""Topics of messages that came in before, as others, and are counted as those."""
_LOCAL = {"storage_type": "local", "storage_medium": "disk"}


def exporter_of(broker: Broker) -> Exporter | None:
    """Make the exporter that a broker's settings ask for, or ``None``. Raises ``BrokerStartError``."""
    config = broker.options.broker
    try:
        settings, warning = read_metrics_settings(config)
    except ConfigError as error:
        raise BrokerStartError(str(error)) from None
    if warning:
        log.warning(warning, broker=config.broker_name)
    if settings is None:
        return None
    from understudy.runtime.metrics_export import make_exporter  # few brokers have metrics out

    if config.enable_remoting_metrics:
        _measure_requests(broker)
    labels = {"cluster": config.broker_cluster_name, "node_type": "broker", "node_id": config.broker_name}
    settings = attrs.evolve(settings, labels={**labels, **settings.labels})
    return make_exporter(broker.world, settings, lambda: pieces(broker), METER)


def _measure_requests(broker: Broker) -> None:
    from understudy.remoting.latencies import Latencies

    latencies = broker.server.latencies = Latencies(broker.world.clock)
    if broker.fast_server is not None:
        broker.fast_server.latencies = latencies


def pieces(broker: Broker) -> Iterator[Family | None]:
    """Make all families as of now, with ``None`` between them where others may have their turn.

    Each kind can be switched off by the reference's key for it, that of requests' times at the start.
    """
    config = broker.options.broker
    if config.enable_stats_metrics:
        yield from _state(broker)
    if config.enable_request_metrics:
        yield from _traffic(broker)
    if broker.server.latencies is not None:
        yield broker.server.latencies.family()
    if config.enable_connection_metrics:
        yield from _connections(broker)
        yield from broker.world.load.families()
    if config.enable_lag_and_dlq_metrics:
        yield from _lag(broker)
    if config.enable_message_store_metrics:
        yield from _storage(broker)
        if broker.options.store.timer_wheel_enable:
            yield from timer_families(broker.timer, broker.world.clock.wall_ms(), _LOCAL)
    if config.enable_pop_metrics:
        yield from pop_families(broker.pops, broker.world.clock.wall_ms())
    if config.enable_transaction_metrics:
        yield from _transactions(broker)


def _state(broker: Broker) -> list[Family]:
    waiting = {kind: lane.waiting for kind, lane in broker.server.lanes.items()}
    waiting |= {"send": len(broker.acknowledgements), "pull": len(broker.hold)}
    return [
        Family(
            "rocketmq_processor_watermark",
            "gauge",
            "Request processor watermark",
            [Sample(number, {"processor": kind}) for kind, number in sorted(waiting.items())],
        ),
        gauge("rocketmq_broker_permission", "Broker permission", broker.options.broker.broker_permission),
        gauge("rocketmq_unsaved_tables", "Tables whose last write failed", len(broker.persistence.unsaved)),
        gauge("rocketmq_topic_number", "Active topic number", len(broker.topics.rows)),
        gauge("rocketmq_consumer_group_number", "Active subscription group number", len(broker.groups.rows)),
        Family(
            "rocketmq_broker_service",
            "gauge",
            "Services of the broker that run now",
            [Sample(1, {"service": name}) for name in sorted(broker.services.running())],
        ),
    ]


def _traffic(broker: Broker) -> Iterator[Family | None]:
    messages_in, bytes_in, sizes = list[Sample](), list[Sample](), list[Sample]()
    for topic, figures in broker.stats.puts():
        if topic.startswith(_NOT_SENT):
            continue
        if len(messages_in) % _PIECE_TOPICS == 0:
            yield None
        labels = {"topic": topic, "message_type": figures.type, "is_system": _flag(is_system_topic(topic))}
        messages_in.append(Sample(figures.messages, labels))
        bytes_in.append(Sample(figures.size_bytes, labels))
        sizes += histogram_samples(SIZE_BOUNDS, figures.buckets, figures.observed_bytes, labels)
    messages_out, bytes_out = list[Sample](), list[Sample]()
    for topic, group, messages, size_bytes in broker.stats.gets():
        if len(messages_out) % PIECE_SAMPLES == 0:
            yield None
        labels = _group_labels(group, topic)
        messages_out.append(Sample(messages, labels))
        bytes_out.append(Sample(size_bytes, labels))
    yield Family("rocketmq_messages_in_total", "counter", "Total number of incoming messages", messages_in)
    yield Family("rocketmq_throughput_in_total", "counter", "Total traffic of incoming messages", bytes_in)
    yield Family("rocketmq_message_size", "histogram", "Incoming messages size", sizes)
    yield Family("rocketmq_messages_out_total", "counter", "Total number of outgoing messages", messages_out)
    yield Family("rocketmq_throughput_out_total", "counter", "Total traffic of outgoing messages", bytes_out)
    yield from broker.stats.creations.families()


def _connections(broker: Broker) -> list[Family]:
    producers = Counter(
        _software(channel) for channels in broker.producers.groups.values() for channel in channels.values()
    )
    consumers = Counter(
        (name, *_software(channel), group.consume_type.removeprefix("CONSUME_").lower())
        for name, group in broker.consumers.groups.items()
        for channel in group.channels.values()
    )
    return [
        counter("rocketmq_refused_connections_total", "Connections refused for want of descriptors", _refused(broker)),
        Family(
            "rocketmq_producer_connections",
            "gauge",
            "Producer connections",
            [
                Sample(number, {"language": language, "version": version, "protocol_type": "remoting"})
                for (language, version), number in producers.items()
            ],
        ),
        Family(
            "rocketmq_consumer_connections",
            "gauge",
            "Consumer connections",
            [
                Sample(
                    number,
                    {
                        "consumer_group": group,
                        "language": language,
                        "version": version,
                        "consume_mode": mode,
                        "protocol_type": "remoting",
                        "is_system": _flag(is_system_group(group)),
                    },
                )
                for (group, language, version, mode), number in consumers.items()
            ],
        ),
    ]


def _software(channel: ClientChannel[Connection]) -> tuple[str, str]:
    """Return language and version of a client."""
    return channel.language.lower(), version_text(channel.version).lower()


def _refused(broker: Broker) -> int:
    fast = broker.fast_server.refused_connections if broker.fast_server is not None else 0
    return broker.server.refused_connections + fast


def _lag(broker: Broker) -> Iterator[Family | None]:
    rows: dict[str, list[Sample]] = {name: [] for name in _LAG_TEXTS}
    found = lag_pieces(broker, broker.world.clock.wall_ms(), estimate=broker.options.broker.estimate_accumulation)
    for lag in found:
        yield None
        if lag is None:
            continue
        labels = _group_labels(lag.group, lag.topic)
        for name, value in zip(
            _LAG_TEXTS, (lag.messages, lag.behind_ms, lag.in_flight, lag.queueing_ms, lag.ready), strict=True
        ):
            rows[name].append(Sample(value, labels))
    given_up = [
        Sample(number, _group_labels(group, topic)) for topic, group, number in broker.stats.events("DLQ_PUT_NUMS")
    ]
    yield from (Family(name, "gauge", text, rows[name]) for name, text in _LAG_TEXTS.items())
    yield Family("rocketmq_send_to_dlq_messages_total", "counter", "Consumer send to DLQ messages", given_up)


_LAG_TEXTS = {
    "rocketmq_consumer_lag_messages": "Consumer lag messages",
    "rocketmq_consumer_lag_latency_milliseconds": "Consumer lag time",
    "rocketmq_consumer_inflight_messages": "Consumer inflight messages",
    "rocketmq_consumer_queueing_latency_milliseconds": "Consumer queueing time",
    "rocketmq_consumer_ready_messages": "Consumer ready messages",
}


def _storage(broker: Broker) -> list[Family]:
    store = broker.store
    high, earliest_ms = store.max_physical_offset, store.earliest_store_time()
    kept_ms = broker.world.clock.wall_ms() - earliest_ms if earliest_ms > 0 else 0
    return [
        _local("rocketmq_storage_size_bytes", "Broker storage size", max(high - store.min_physical_offset, 0)),
        _behind("flush", max(high - store.flushed_offset, 0)),
        _behind("dispatch", 0),
        _local("rocketmq_storage_message_reserve_time_milliseconds", "Broker message reserve time", max(kept_ms, 0)),
    ]


def _transactions(broker: Broker) -> list[Family]:
    counts = broker.transactions.counts
    return [
        Family("rocketmq_half_messages", "gauge", "Half messages of all topics", _by_topic(counts.open)),
        Family(
            "rocketmq_commit_messages_total", "counter", "Total number of commit messages", _by_topic(counts.commits)
        ),
        Family(
            "rocketmq_rollback_messages_total",
            "counter",
            "Total number of rollback messages",
            _by_topic(counts.rollbacks),
        ),
        counts.latency.family(
            # In seconds all the same, as by the reference.
            "rocketmq_finish_message_latency_milliseconds",
            "Transaction finish latency",
            ("rocketmq_finish_message_latency", "ms"),
        ),
    ]


def _by_topic(numbers: Mapping[str, int]) -> list[Sample]:
    return [Sample(number, {"topic": topic}) for topic, number in numbers.items()]


def _local(name: str, text: str, value: int) -> Family:
    return Family(name, "gauge", text, [Sample(value, _LOCAL)])


def _behind(what: str, value: int) -> Family:
    name = f"rocketmq_storage_{what}_behind_bytes"  # with its unit at OpenTelemetry, too
    return attrs.evolve(_local(name, f"Broker {what} behind bytes", value), instrument=(name, "bytes"))


def _group_labels(group: str, topic: str) -> dict[str, str]:
    return {
        "consumer_group": group,
        "topic": topic,
        "is_retry": _flag(topic.startswith(RETRY_PREFIX)),
        "is_system": _flag(is_system_topic(topic) or is_system_group(group)),
    }


def _flag(value: bool) -> str:
    return "true" if value else "false"
