"""Messages whose bytes are read when somebody asks: to whoever uses them, values as any others."""

from __future__ import annotations

import copy
import pickle

import pytest

from understudy.format import record
from understudy.mqclient.errors import RecordDamagedError
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.popped import PopRequest, popped_messages
from understudy.mqclient.records import decode_records
from understudy.mqclient.subscription import Subscription
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request, response

HOST = record.encode_host("127.0.0.1", 10911)
HOST6 = record.encode_host("::1", 10911)


def stored(number: int, *, topic: str = "Topic", properties: bytes = b"TAGS\x01a\x02", long: bool = False) -> bytes:
    return record.encode_record(
        topic, 7, number, 4096 + number, b"body %d" % number, properties, flag=3, born_ms=1000, store_ms=2000,
        born_host=HOST6 if long else HOST, store_host=HOST, reconsume_times=2, prepared_transaction_offset=77,
    )  # fmt: skip


def plain(number: int, *, topic: str = "Topic", properties: dict[str, str] | None = None) -> ReceivedMessage:
    size = len(stored(number, topic=topic, properties=b"" if properties == {} else b"TAGS\x01a\x02"))
    return ReceivedMessage(
        topic, b"body %d" % number, {"TAGS": "a"} if properties is None else properties, 3, "b", 7, number,
        4096 + number, 0, 1000, "127.0.0.1:10911", 2000, "127.0.0.1:10911", 2, 77, crc(number), size, topic,
    )  # fmt: skip


def crc(number: int) -> int:
    (decoded,) = record.decode_records(stored(number))
    return decoded.body_crc


def test_what_is_read_is_equal_to_what_was_made() -> None:
    assert plain(5) == decode_records(stored(5), "b")[0]
    assert repr(plain(5)) == repr(decode_records(stored(5), "b")[0])


def test_each_record_of_an_answer_is_itself() -> None:
    kinds = [stored(0), stored(1, topic="Other"), stored(2, topic="Other", long=True), stored(3, properties=b"")]
    messages = decode_records(b"".join(kinds), "b")
    assert [0, 1, 2, 3] == [message.queue_offset for message in messages]
    assert ["Topic", "Other", "Other", "Topic"] == [message.topic for message in messages]
    hosts = [message.born_host for message in messages]
    assert ["127.0.0.1:10911", "127.0.0.1:10911", "[::1]:10911", "127.0.0.1:10911"] == hosts
    assert [{"TAGS": "a"}] * 3 + [{}] == [message.properties for message in messages]
    assert [4096, 4097, 4098, 4099] == [message.commit_log_offset for message in messages]


def test_what_was_written_stays() -> None:
    (message,) = decode_records(stored(5), "b")
    message.reconsume_times += 1
    message.properties["mine"] = "1"
    message.flag = 9
    assert (3, 77, {"TAGS": "a", "mine": "1"}, 9) == (
        message.reconsume_times, message.prepared_transaction_offset, message.properties, message.flag,
    )  # fmt: skip


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_copies_are_equal(again: type[ReceivedMessage]) -> None:
    (message,) = decode_records(stored(5), "b")
    assert plain(5) == again(message)  # type: ignore[call-arg]


def test_what_a_message_does_not_have_is_said_as_usual() -> None:
    (message,) = decode_records(stored(5), "b")
    with pytest.raises(AttributeError, match="'ReceivedMessage' object has no attribute 'tag'"):
        getattr(message, "tag")  # noqa: B009  # no attribute, also for the type checker


@pytest.mark.parametrize("bad", [b"TAGS\x01\xff\xfe\x02"])
def test_properties_that_are_no_text_are_damage_although_nobody_asks_for_them(bad: bytes) -> None:
    data = stored(0) + stored(1, properties=bad) + stored(2)
    with pytest.raises(RecordDamagedError, match="cannot be read"):
        decode_records(data)
    messages = decode_records(data, "b", keep_damaged=True)
    assert [False, True, False] == [bool(message.damage) for message in messages]
    assert [0, 1, 2] == [message.queue_offset for message in messages]
    assert stored(1, properties=bad) == messages[1].body


def test_damage_after_damage_leaves_the_neighbours() -> None:
    kinds = [stored(number) for number in range(5)]
    for broken in (1, 2):
        kinds[broken] = kinds[broken].replace(b"body", b"BODY")
    messages = decode_records(b"".join(kinds), "b", keep_damaged=True)
    assert [False, True, True, False, False] == [bool(message.damage) for message in messages]
    assert [b"body 0", b"BODY 1", b"BODY 2", b"body 3", b"body 4"] == [message.body for message in messages]
    assert ("a", 7, "127.0.0.1:10911") == (messages[1].tags, messages[1].queue_id, messages[1].store_host)


@pytest.mark.parametrize("cut", [1, 60, 90])
def test_a_wrong_length_is_never_kept(cut: int) -> None:
    with pytest.raises(RecordDamagedError, match=r"length|no record"):
        decode_records(stored(0) + stored(1)[:-cut], "b", keep_damaged=True)


@pytest.mark.parametrize(
    ("starts", "mark", "topic"),
    [
        ("0 7 0", "0", "Topic"),
        ("1 7 0;0 6 0", "1", "%RETRY%g_Topic"),
        ("2 7 0", "2", "%RETRY%g+Topic"),
        ("0 7 5;1 7 0", "1", "%RETRY%g_Topic"),  # the other queue of this id began behind it
    ],
)
def test_a_popped_message_whose_topic_cannot_be_read_can_be_acknowledged(starts: str, mark: str, topic: str) -> None:
    ext = {"startOffsetInfo": starts, "popTime": "1000", "invisibleTime": "60000", "reviveQid": "3"}
    asked = request(RequestCode.POP_MESSAGE)
    body = stored(1, topic="?", properties=b"\xff\xfe")
    wanted = PopRequest("g", Subscription("Topic", "*", 0), "b")
    (popped,) = popped_messages(wanted, response(asked, 0, None, ext, body))
    assert popped.message.damage and popped.message.body == body
    assert (popped.message.topic, popped.stored_topic, popped.receipt.retry) == ("Topic", topic, mark)
    assert (popped.fields["topic"], popped.fields["queueId"], popped.fields["offset"]) == (topic, 7, 1)
