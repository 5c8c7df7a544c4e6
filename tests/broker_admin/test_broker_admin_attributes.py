"""Every attribute of topics and groups, and what comes of it here; batch queues come in at every door."""

from __future__ import annotations

import json

import pytest
from admin_rig import Rig

from understudy.broker.admin.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, AttributeRefusedError, alter

STORED = "kept, shown and copied to slaves"
REFUSED = "refused"

#: What a request with each value gets; numbers stand for their bounds.
TOPICS = {
    "cleanup.policy": {"DELETE": STORED, "COMPACTION": STORED},  # and its queues are compacted
    "message.type": {
        "UNSPECIFIED": STORED,
        "MIXED": STORED,  # by requests only with enableMixedMessageType
        "TRANSACTION": STORED,
        "PRIORITY": STORED,
        "FIFO": STORED,
        "DELAY": STORED,
        "NORMAL": STORED,
    },
    "queue.type": {"SimpleCQ": STORED, "BatchCQ": STORED},  # and its queues are batch queues
    "reserve.time": {"-2": REFUSED, "-1": STORED, "9223372036854775807": STORED, "9223372036854775808": REFUSED},
}
GROUPS = {"priority.factor": {"-1": REFUSED, "0": STORED, "100": STORED, "101": REFUSED}}


@pytest.mark.parametrize(("known", "table"), [(TOPIC_ATTRIBUTES, TOPICS), (GROUP_ATTRIBUTES, GROUPS)])
def test_what_is_done_with_each_attribute_is_listed(known: dict[str, object], table: dict[str, dict[str, str]]) -> None:
    assert known.keys() == table.keys()
    for key, values in table.items():
        attribute = (TOPIC_ATTRIBUTES | GROUP_ATTRIBUTES)[key]
        assert not attribute.choices or set(attribute.choices) == values.keys()
        for value, effect in values.items():
            try:
                stored = alter({key: attribute}, None, {f"+{key}": value})
            except AttributeRefusedError:
                stored = {}
            assert ({key: value} if effect == STORED else {}) == stored, (key, value)


async def test_batch_queues_are_taken_by_name_and_in_lists_and_stay() -> None:
    rig = Rig()
    fields = {"topic": "T", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    one = await rig.ask(17, {**fields, "attributes": "+queue.type=BatchCQ"})
    rows = [
        {"topicName": name, "attributes": {"+queue.type": kind}} for name, kind in (("A", "SimpleCQ"), ("B", "BatchCQ"))
    ]
    several = await rig.ask(18, body=json.dumps({"topicConfigList": rows}).encode())
    assert (one.code, several.code) == (0, 0)
    kinds = {name: rig.topics.rows[name].attributes["queue.type"] for name in ("T", "A", "B")}
    assert kinds == {"T": "BatchCQ", "A": "SimpleCQ", "B": "BatchCQ"}
    for name, other in (("T", "SimpleCQ"), ("A", "BatchCQ")):
        answer = await rig.ask(17, {**fields, "topic": name, "attributes": f"+queue.type={other}"})
        assert answer.code == 1
        assert "attempt to update an unchangeable attribute. key: queue.type" in (answer.remark or "")
