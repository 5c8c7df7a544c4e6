"""No request body and no header field makes an administrative handler fail in a way it did not mean to."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

import pytest
import trio
from admin_rig import EXCHANGES, Peer, Rig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.broker.filters import Subscription
from understudy.remoting.command import Command
from understudy.remoting.errors import ConnectionLostError
from understudy.remoting.fields import CommandError

MORE_FIELDS = """consumerGroup groupName cleanOffset topicSeq maxTopicNum dataVersion groupSeq maxGroupNum srcGroup
destGroup offline filterGroups compareGroup producerGroup topicList configType maxNum beginTimestamp endTimestamp
readable statsName statsKey clientId attributes"""
FIELDS = sorted({field for each in EXCHANGES.values() for field in each["ext"] or {}} | set(MORE_FIELDS.split()))
WORDS = """0 -1 1 T g c true null 9223372036854775807 9223372036854775808 T@1@g +message.type=FIFO %RETRY%g { 1e9
TOPIC_PUT_NUMS QUEUE_PUT_SIZE PULL POP CLUSTERING AVG \u0663 \u00b2"""
VALUES = st.sampled_from(["", *WORDS.split()]) | st.text(max_size=10)
EXTS = st.none() | st.dictionaries(st.sampled_from(FIELDS), VALUES | st.none(), max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(VALUES, inner, max_size=3),
    max_leaves=4,
)
BODY_WORDS = """topicConfigList groupConfigList topic consumerGroup clientId messageModel strategyName mode groupName
attributes retryMaxTimes readQueueNums perm topicName groupRetryPolicy"""
BODY_FIELDS = st.sampled_from(BODY_WORDS.split())
ROWS = st.lists(st.dictionaries(BODY_FIELDS, JSON_VALUES, max_size=4), max_size=2)
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=20),
    st.dictionaries(BODY_FIELDS, JSON_VALUES | ROWS, max_size=4).map(lambda value: json.dumps(value).encode()),
    st.sampled_from(sorted({each["body"].encode() for each in EXCHANGES.values()})),
    st.sampled_from([b"traceOn=\n", b"listenPort=x", b"\\u12", b"x y=1\nbrokerName=b\n", b"=", b"#"]),
)


def rig() -> Rig:
    made = Rig()
    made.topic("T", 2)
    made.group("g")
    made.store.put("T", 0, 1000, 2000, 3000, size=100)
    made.offsets.commit("g", "T", 0, 2)
    made.consumer("g", "c", Peer("c:1", ConnectionLostError("c:1", "gone")), Subscription("T"))
    return made


WITHOUT_INPUT = {26, 28, 43, 45, 60, 61, 305, 306, 316, 328, 329, 354, 402, 907}
OF_REPLICATION = {905, 906, 908}
CODES = sorted(rig().server.handlers.keys() - WITHOUT_INPUT - OF_REPLICATION)


@pytest.mark.parametrize("code", CODES)
def test_whatever_comes_is_answered_or_refused_with_a_reason(code: int) -> None:
    handler = rig().server.handlers[code]
    peer = Peer("127.0.0.1:1")

    async def wait(pending: Awaitable[Command]) -> Command:
        with trio.fail_after(30):
            return await pending

    @settings(max_examples=30, suppress_health_check=list(HealthCheck))
    @given(EXTS, BODIES)
    def check(ext: dict[str, Any] | None, body: bytes) -> None:
        command = Command(code, "JAVA", 493, 1, 0, None, ext, body)
        try:
            answer = handler(peer, command)
            if not isinstance(answer, Command):
                answer = trio.run(wait, answer)
        except CommandError as error:
            assert error.code not in (0, 3) or code == 401
            assert error.remark.strip()
            return
        assert answer.opaque == 1

    check()
