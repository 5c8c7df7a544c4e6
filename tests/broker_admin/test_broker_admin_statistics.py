"""Windows of the statistics equal what StatsItem of the reference computes."""

from understudy.broker.counters import Rate
from understudy.broker.statistics import BrokerStatistics


class SteppedClock:
    """Wall time that moves only when told."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms


def sampled(statistics: BrokerStatistics, clock: SteppedClock, ticks: int = 1) -> None:
    for _ in range(ticks):
        clock.now_ms += 10_000
        statistics.sample()


def made() -> tuple[BrokerStatistics, SteppedClock]:
    clock = SteppedClock()
    statistics = BrokerStatistics(clock, "DefaultCluster")  # type: ignore[arg-type]  # only wall time is used
    statistics.sample()
    return statistics, clock


def test_an_item_nobody_counted_does_not_exist() -> None:
    statistics, _ = made()

    assert statistics.windows("TOPIC_PUT_NUMS", "T") is None
    assert statistics.windows("NO_SUCH_SET", "T") is None
    assert statistics.windows("TOPIC_PUT_NUMS", "") is None


def test_a_new_item_starts_at_zero_one_period_before_its_first_snapshot() -> None:
    statistics, clock = made()
    statistics.topic("T").add(3, 10, 1000)
    statistics.topic("T").add(0, 2, 200)
    sampled(statistics, clock)

    minute, hour, day = statistics.windows("TOPIC_PUT_NUMS", "T") or ()

    assert minute == Rate(12, 1.2, 6.0)
    assert hour == day == Rate()
    assert statistics.windows("TOPIC_PUT_SIZE", "T")[0] == Rate(1200, 120.0, 600.0)  # type: ignore[index]
    assert statistics.windows("QUEUE_PUT_NUMS", "T@3")[0] == Rate(10, 1.0, 10.0)  # type: ignore[index]
    assert statistics.windows("QUEUE_PUT_NUMS", "T@1") is None
    assert statistics.windows("QUEUE_PUT_NUMS", "T@9") is None


def test_after_a_quiet_minute_the_minute_is_empty_and_the_hour_remembers() -> None:
    statistics, clock = made()
    statistics.group("g", "T").add(0, 10, 500)
    sampled(statistics, clock, 60)

    minute, hour, _ = statistics.windows("GROUP_GET_NUMS", "T@g") or ()

    assert minute == Rate()
    assert hour == Rate(10, 10 * 1000 / 600_000, 10.0)  # as captured: sum 10, tps 0.016666666666666666


def test_a_steady_stream_has_its_rate() -> None:
    statistics, clock = made()
    for _ in range(30):
        statistics.topic("T").add(0, 50, 50)
        sampled(statistics, clock)

    minute, _, _ = statistics.windows("TOPIC_PUT_NUMS", "T") or ()

    assert minute == Rate(300, 5.0, 50.0)
    assert statistics.topic_put_rate("T") == 5.0
    assert statistics.topic_put_rate("other") == 0.0


def test_rates_are_unknown_until_their_window_is_full() -> None:
    statistics, clock = made()
    statistics.topic("T").add(0, 600, 1)
    statistics.get_found += 10
    statistics.get_missed += 20
    sampled(statistics, clock)

    assert statistics.rates()["putTps"] == (60.0, None, None)
    assert statistics.rates()["getTotalTps"] == (3.0, None, None)
    sampled(statistics, clock, 59)
    assert statistics.rates()["putTps"] == (0.0, 0.0, 1.0)


def test_broker_totals_outlive_their_topics_and_leave_system_topics_out() -> None:
    statistics, clock = made()
    statistics.topic("T").add(0, 5, 1)
    statistics.topic("SCHEDULE_TOPIC_XXXX").add(0, 7, 1)
    sampled(statistics, clock)
    statistics.topics_deleted({"T"})

    assert statistics.windows("TOPIC_PUT_NUMS", "T") is None
    assert statistics.put_total == 12
    assert statistics.today()["msgPutTotalTodayNow"] == 5
    broker, _, _ = statistics.windows("BROKER_PUT_NUMS", "DefaultCluster") or ()
    assert broker.total == 12
    assert statistics.windows("BROKER_PUT_NUMS", "OtherCluster") is None


def test_midnight_moves_the_mornings() -> None:
    statistics, clock = made()
    statistics.topic("T").add(0, 5, 1)
    clock.now_ms += 86_400_000
    statistics.sample()
    statistics.topic("T").add(0, 3, 1)

    assert statistics.today() == {
        "msgPutTotalYesterdayMorning": 0,
        "msgPutTotalTodayMorning": 5,
        "msgPutTotalTodayNow": 8,
        "msgGetTotalYesterdayMorning": 0,
        "msgGetTotalTodayMorning": 0,
        "msgGetTotalTodayNow": 0,
    }


def test_events_and_put_times() -> None:
    statistics, clock = made()
    statistics.sent_back("g", "T")
    statistics.given_up("g", "T")
    for elapsed_ms in (0, 1, 9, 10, 10_000):
        statistics.put_took(elapsed_ms)
    sampled(statistics, clock, 6)

    assert statistics.windows("SNDBCK_PUT_NUMS", "T@g")[0].total == 1  # type: ignore[index]
    assert statistics.windows("DLQ_PUT_NUMS", "T@g")[0].total == 1  # type: ignore[index]
    assert statistics.put_slowest_ms == 10_000
    assert statistics.put_time_buckets() == (1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    statistics.group_deleted("g")
    assert statistics.windows("SNDBCK_PUT_NUMS", "T@g") is None
