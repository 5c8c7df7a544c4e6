"""Topics, groups, offsets and clients: what they hold and how they change."""

from __future__ import annotations

import pytest

from understudy.broker import doubts
from understudy.broker.doubts import DOUBT_MS
from understudy.broker.groups import GroupConfig, GroupTable
from understudy.broker.offsets import OffsetTable
from understudy.broker.topics import SystemTopicPlan, TopicConfig, TopicTable
from understudy.format import names
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import dumps, loads
from understudy.runtime.pace import run_steps
from understudy.testkit.processor_time import least_seconds


def now_ms() -> int:
    return 1_000


def topic_table(auto_create: bool = True) -> TopicTable:
    table = TopicTable(now_ms)
    table.install(SystemTopicPlan("DefaultCluster", "broker-a", auto_create=auto_create))
    return table


class TestTopicNames:
    @pytest.mark.parametrize("name", ["TopicTest", "%RETRY%group", "a|b-c_1", "T" * 127, "%RETRY%" + "g" * 248])
    def test_legal(self, name: str) -> None:
        assert names.topic_name_error(name) is None

    @pytest.mark.parametrize(
        ("name", "remark"),
        [
            ("", "The specified topic is blank."),
            (" ", "The specified topic is blank."),
            (
                "bad topic!",
                "The specified topic: bad topic!, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
            ),
            ("T" * 128, f"The specified topic: {'T' * 128}, is longer than topic max length: 127"),
        ],
    )
    def test_illegal_is_told_in_the_words_of_the_reference(self, name: str, remark: str) -> None:
        assert names.topic_name_error(name) == remark

    def test_group_of_a_retry_topic(self) -> None:
        assert names.group_of_retry_topic("%RETRY%cg") == "cg"
        assert names.group_of_retry_topic("%RETRY%cg+Topic") == "cg"


class TestTopics:
    def test_system_topics_are_those_of_the_reference(self) -> None:
        rows = topic_table().rows
        expected = {  # captured from 5.4.0: queues and permission
            "TBW102": (8, 7),
            "SELF_TEST_TOPIC": (1, 6),
            "BenchmarkTest": (1024, 6),
            "DefaultCluster": (16, 7),
            "broker-a": (1, 7),
            "OFFSET_MOVED_EVENT": (1, 6),
            "SCHEDULE_TOPIC_XXXX": (18, 6),
            "DefaultCluster_REPLY_TOPIC": (1, 6),
            "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
            "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
            "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
            "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
            "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6),
            "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
            "rmq_sys_wheel_timer": (1, 6),
        }
        assert {name: (row.write_queue_nums, row.perm) for name, row in rows.items()} == expected

    def test_created_after_the_template(self) -> None:
        table = topic_table()
        changes: list[tuple[TopicConfig, ...]] = []
        table.on_change.append(changes.append)
        before = table.version.counter

        row = table.create_on_send("New", "TBW102", 4, False, True)

        assert row is not None
        assert (row.read_queue_nums, row.write_queue_nums, row.perm, row.sys_flag) == (4, 4, 6, 0)
        assert changes == [(row,)]
        assert table.version.counter == before + 1

    def test_template_caps_the_number_of_queues(self) -> None:
        row = topic_table().create_on_send("New", "TBW102", 64, False, True)
        assert row is not None and row.write_queue_nums == 8

    @pytest.mark.parametrize(
        ("template", "auto_create"), [("NoDefault", True), ("BenchmarkTest", True), ("TBW102", False)]
    )
    def test_not_created_without_a_template_that_hands_down(self, template: str, auto_create: bool) -> None:
        table = topic_table(auto_create)
        assert table.create_on_send("New", template, 4, False, auto_create) is None
        assert table.get("New") is None

    def test_retry_topic_is_made_even_without_auto_creation(self) -> None:
        row = topic_table(False).create_on_send("%RETRY%cg", "TBW102", 4, True, False)
        assert row is not None
        assert (row.write_queue_nums, row.perm, row.sys_flag) == (1, 6, 2)

    def test_file_round_trip_and_merge_over_built_in_rows(self) -> None:
        table = topic_table()
        table.create_on_send("Mine", "TBW102", 4, False, True)
        table.update([TopicConfig("TBW102", 2, 2, 7)])
        text = dumps(table.to_json())

        again = topic_table()
        again.merge_json(loads(text))

        assert again.rows["Mine"] == table.rows["Mine"]
        assert again.rows["TBW102"].write_queue_nums == 2
        assert again.version == table.version

    def test_describe_is_the_text_of_the_reference(self) -> None:
        assert TopicConfig("PopRaw", 2, 2).describe() == (  # captured from 5.4.0
            "TopicConfig [topicName=PopRaw, readQueueNums=2, writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, "
            "topicSysFlag=0, order=false, attributes={}]"
        )

    def test_bad_row_names_the_topic(self) -> None:
        with pytest.raises(ValueError, match="topic T: readQueueNums"):
            topic_table().merge_json({"topicConfigTable": {"T": {"readQueueNums": "many"}}})

    def test_table_has_a_bound(self) -> None:
        table = TopicTable(now_ms, created_limit=20)
        table.install(SystemTopicPlan("C", "b"))
        for number in range(10):
            table.create_on_send(f"T{number}", "TBW102", 1, False, True)
        assert len(table.rows) == 20
        assert table.create_on_send("One", "TBW102", 1, False, True) is None


class TestGroups:
    def test_unknown_group_is_made_with_class_defaults(self) -> None:
        table = GroupTable(now_ms)
        row = table.get("gdis")
        assert row is not None
        assert row.to_json() == {  # captured from 5.4.0
            "attributes": {},
            "brokerId": 0,
            "consumeBroadcastEnable": True,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeMessageOrderly": False,
            "consumeTimeoutMinute": 15,
            "groupName": "gdis",
            "groupRetryPolicy": {"type": "CUSTOMIZED"},
            "groupSysFlag": 0,
            "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": 16,
            "retryQueueNums": 1,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        assert table.version.counter == 1

    def test_not_made_when_switched_off_but_system_groups_are(self) -> None:
        table = GroupTable(now_ms)
        table.auto_create = lambda: False
        assert table.get("cg") is None
        assert table.get("CID_RMQ_SYS_X") is not None

    @pytest.mark.parametrize("name", ["bad group!", "", "g" * 121])
    def test_illegal_name_is_not_made(self, name: str) -> None:
        assert GroupTable(now_ms).get(name) is None

    def test_forbidden_reading(self) -> None:
        table = GroupTable(now_ms)
        table.forbid("cg", "T", True)
        assert table.is_forbidden("cg", "T")
        assert table.to_json()["forbiddenTable"] == {"cg": {"T": 4}}
        table.forbid("cg", "T", False)
        assert not table.is_forbidden("cg", "T")
        assert table.forbidden == {}

    def test_file_round_trip(self) -> None:
        table = GroupTable(now_ms)
        table.update([GroupConfig("cg", consume_enable=False, retry_max_times=3, subscriptions=[{"topic": "t"}])])
        table.forbid("cg", "T", True)
        again = GroupTable(now_ms)
        again.merge_json(loads(dumps(table.to_json())))
        assert again.rows == table.rows
        assert again.forbidden == table.forbidden
        assert again.version == table.version


class TestOffsets:
    @pytest.mark.covers("SL-05")
    def test_cleaned_by_topic_and_by_group(self) -> None:
        table = OffsetTable(now_ms)
        table.commit("g1", "T1", 0, 1)
        table.commit("g2", "T1", 0, 2)
        table.commit("g1", "T2", 3, 4)

        run_steps(table.remove_topics({"T1"}))
        assert (table.query("g1", "T1", 0), table.query("g1", "T2", 3)) == (-1, 4)

        table.remove_group("g1")
        assert table.query("g1", "T2", 3) == -1
        assert table.committed == {}

    @pytest.mark.covers("SL-05")
    def test_file_round_trip_with_bare_keys(self) -> None:
        table = OffsetTable(now_ms)
        table.commit("cg", "TopicTest", 0, 100)
        table.commit("cg", "TopicTest", 1, 98)
        text = dumps(table.to_json(), bare_keys=True)
        assert b'"offsetTable":{"TopicTest@cg":{0:100,1:98}}' in text

        again = OffsetTable(now_ms)
        again.merge_json(loads(text))
        assert again.committed == table.committed

    def test_version_grows_once_per_step(self) -> None:
        table = OffsetTable(now_ms, version_step=3)
        for offset in range(7):
            table.commit("cg", "T", 0, offset)
        assert table.version.counter == 2

    def test_reset_wins_until_it_is_taken_and_swallows_commits(self) -> None:
        table = OffsetTable(now_ms)
        table.commit("cg", "T", 0, 50)
        table.assign_reset("cg", "T", 0, 7)
        assert table.commit_unless_reset("cg", "T", 0, 51) is False
        assert table.query("cg", "T", 0) == 7
        assert table.take_reset("cg", "T", 0) == 7
        assert table.take_reset("cg", "T", 0) is None
        assert table.commit_unless_reset("cg", "T", 0, 8) is True
        assert table.query("cg", "T", 0) == 8

    def test_a_group_whose_messages_were_lost_is_set_right_once(self) -> None:
        table = OffsetTable(now_ms)
        for queue_id in (0, 1):
            table.commit("cg", "T", queue_id, 5)
        table.doubts.begin(table.committed, lambda topic, queue_id: 7)
        # what it holds in memory is no offset of this log
        assert table.commit_unless_reset("cg", "T", 0, 9) is False
        assert table.commit_unless_reset("cg", "T", 0, 7) is True
        assert table.correction("cg", "T", 0, 9) == 7
        # from then on it is believed, and whoever asks for what is there at once
        assert table.correction("cg", "T", 0, 9) is None
        assert table.commit_unless_reset("cg", "T", 0, 9) is True
        assert table.correction("cg", "T", 1, 7) is None
        assert table.correction("other", "T", 0, 9) is None
        assert not table.doubts.active

    def test_a_group_that_is_not_known_is_doubted_until_it_asks_where_it_stands(self) -> None:
        table = OffsetTable(now_ms)
        table.commit("cg", "T", 0, 5)
        table.doubts.begin(table.committed, lambda topic, queue_id: 7)
        table.doubts.doubt_others(lambda topic, queue_id: 7)
        assert table.commit_unless_reset("other", "T", 0, 9) is False
        assert table.correction("other", "T", 0, 9) == 7
        assert table.commit_unless_reset("other", "T", 0, 9) is True
        # more of the log is here than it seemed
        table.doubts.learn_ends(lambda topic, queue_id: 8)
        assert table.correction("third", "T", 0, 9) == 8
        for group in ("cg", "fourth"):
            table.doubts.asked(f"T@{group}", 0)
        assert table.correction("fourth", "T", 0, 9) is None
        assert table.correction("cg", "T", 0, 9) == 8, "a group that is known is told where it stands"
        assert table.correction("cg", "T", 0, 9) is None
        assert table.correction("TOOLS_CONSUMER", "T", 0, 9) is None

    def test_groups_that_are_not_known_are_believed_when_there_are_too_many(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(doubts, "MOST_BELIEVED", 3)
        table = OffsetTable(now_ms)
        table.doubts.doubt_others(lambda topic, queue_id: 7)
        table.doubts.begin({"T@cg": {0: 5}}, lambda topic, queue_id: 7)
        assert [table.correction(f"g{number}", "T", 0, 9) for number in range(5)] == [7, 7, 7, 7, None]
        assert table.correction("cg", "T", 0, 9) == 7
        assert not table.doubts.active

    def test_doubts_end_with_time(self) -> None:
        clock = [now_ms()]
        table = OffsetTable(lambda: clock[0])
        table.commit("cg", "T", 0, 5)
        table.doubts.begin(table.committed, lambda topic, queue_id: 7)
        clock[0] += DOUBT_MS + 1
        # who reads at a slave commits here all the same
        assert table.commit_unless_reset("cg", "T", 0, 9) is True
        assert not table.doubts.active

    def test_topics_and_groups(self) -> None:
        table = OffsetTable(now_ms)
        table.commit("g1", "%RETRY%g1", 0, 1)
        table.commit("g1", "T", 0, 1)
        assert table.topics_of("g1") == ["%RETRY%g1", "T"]
        assert table.groups_of("T") == ["g1"]


class TestDataVersion:
    def test_order_and_next(self) -> None:
        first = DataVersion(0, 5, 100)
        assert first.next(50) > first
        assert DataVersion(1, 0, 0) > first
        assert DataVersion.from_json({"counter": 5, "timestamp": "100"}) == first
        assert DataVersion.from_json(None) == DataVersion()


@pytest.mark.parametrize("count", [65_536, 300_000, 2**31 - 1, "300000"])
def test_no_row_from_anywhere_has_more_queues_than_a_topic_may(count: object) -> None:
    for row, key in (({"topicName": "T"}, "readQueueNums"), ({"topicName": "T"}, "writeQueueNums")):
        with pytest.raises(ValueError, match=f"topic T: {key} is {count}, a topic has 65535 queues at most"):
            TopicConfig.from_json({**row, key: count})
    with pytest.raises(ValueError, match=f"group g: retryQueueNums is {count}, a topic has 65535 queues at most"):
        GroupConfig.from_json({"groupName": "g", "retryQueueNums": count})
    assert 65_535 == GroupConfig.from_json({"groupName": "g", "retryQueueNums": 65_535}).retry_queue_nums


def test_offsets_that_are_written_later_are_the_same() -> None:
    table = OffsetTable(lambda: 1)
    for number in range(50):
        table.commit(f"g{number}", "T", number % 4, number)
    table.assign_reset("g1", "T", 1, 0)
    table.remove_group("g2")
    assert dumps(table.to_json(), bare_keys=True) == dumps(table.to_json(later=True), bare_keys=True)
    later = table.to_json(later=True)
    run_steps(table.remove_topics({"T"}))  # meanwhile
    assert 49 == len(loads(dumps(later))["offsetTable"])


def test_rows_of_another_replica_that_say_the_same_are_ours_before_they_are_taken() -> None:
    """So a table of 20,000 rows is taken at once, and compared in pieces or in a thread before."""

    class Row(TopicConfig):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Row.compared += 1
            return vars_of(self) == vars_of(other)

        __hash__ = None  # type: ignore[assignment]

    def vars_of(row: object) -> tuple[object, ...]:
        assert isinstance(row, TopicConfig)
        return row.name, row.read_queue_nums, row.write_queue_nums

    table = TopicTable(lambda: 0)
    names = [f"T{number}" for number in range(100)]
    table.update([Row(name, 4, 4) for name in names])
    told: list[tuple[TopicConfig, ...]] = []
    table.on_change.append(told.append)
    theirs = [table.own(Row(name, 5 if name == "T7" else 4, 4)) for name in names] + [table.own(Row("New", 1, 1))]
    before = Row.compared
    assert before == 100
    assert run_steps(table.take_in_steps(theirs, None, delete=True, overwrite=True)) == []
    assert Row.compared == before
    assert [[row.name for row in rows] for rows in told] == [["T7", "New"]]
    assert (table.rows["T7"].read_queue_nums, len(table.rows)) == (5, 101)


def test_twenty_thousand_changed_rows_of_another_replica_are_taken_in_one_short_turn() -> None:
    rows = [[TopicConfig(f"T{number}", queues, queues) for number in range(20_000)] for queues in (4, 5)]
    table = TopicTable(lambda: 0)

    def take() -> None:
        rows.reverse()
        assert run_steps(table.take_in_steps(rows[0], None, delete=True, overwrite=True)) == []

    take()
    assert least_seconds(take, 0.02) < 0.02
    assert table.rows["T19999"] is rows[0][-1]
