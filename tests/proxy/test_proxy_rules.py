"""What gRPC clients may rely on, rule by rule: topics, routes, settings, sends, receives; without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from proxy_rig import consumer_settings, message, receive_request, resource

from understudy.mqclient.route import BrokerAddresses, QueueGroup, TopicRoute
from understudy.proxy.config import config_of
from understudy.proxy.core.callers import Caller, caller_of
from understudy.proxy.core.durations import set_ms, to_ms
from understudy.proxy.core.message_types import TopicType, accepted_types, check_type, type_of_message, type_of_topic
from understudy.proxy.core.receiving import read_receive
from understudy.proxy.core.routes import assignments, endpoints, message_queues
from understudy.proxy.core.sending import Outgoing, outgoing, send_answer, topic_of_messages
from understudy.proxy.core.settings import answered_settings, parse_group
from understudy.proxy.core.statuses import ProxyError, code_of_response, status, summary
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.runtime.properties import ConfigError

CONFIG = config_of({}, "test")[0]
CALLER = Caller("client", "JAVA", "5", "", "10.0.0.1")
NOW = 1_800_000_000_000
DAY_MS = 86_400_000
HALF = {"message_type": v2.TRANSACTION}


def outgoing_of(*messages: v2.Message, expected: TopicType | None = None) -> Outgoing:
    return outgoing(topic_of_messages(messages), messages, expected, CONFIG.send_rules, CALLER, NOW)


def timed(ms: int, topic: str = "T") -> v2.Message:
    found = message(topic)
    set_ms(found.system_properties.delivery_timestamp, ms)
    return found


# --- kinds of topics and messages --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "types"),
    [
        (None, (v2.NORMAL,)),
        ("NORMAL", (v2.NORMAL,)),
        ("fifo", (v2.FIFO,)),
        ("MIXED", (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION)),
        ("PRIORITY", (v2.PRIORITY,)),
        ("something else", (v2.MESSAGE_TYPE_UNSPECIFIED,)),
    ],
)
def test_a_topic_takes_what_its_attribute_says(attribute: str | None, types: tuple[v2.MessageType, ...]) -> None:
    kind = type_of_topic({} if attribute is None else {"message.type": attribute})
    assert types == accepted_types(kind)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, TopicType.NORMAL),
        ({"message_type": v2.FIFO}, TopicType.NORMAL),  # what is said counts for transactions only
        ({"priority": 3}, TopicType.PRIORITY),
        ({"priority": 3, "message_group": "g"}, TopicType.FIFO),
        ({"message_group": "g", "late": True}, TopicType.DELAY),
        ({"message_group": "g", "late": True, **HALF}, TopicType.TRANSACTION),
    ],
)
def test_the_kind_of_a_message_is_the_first_that_its_properties_say(fields: dict[str, Any], kind: TopicType) -> None:
    late = fields.pop("late", False)
    sent = message("T", **fields)
    if late:
        set_ms(sent.system_properties.delivery_timestamp, NOW + 1000)
    for expected in TopicType:
        if expected in (kind, TopicType.MIXED):
            outgoing_of(sent, expected=expected)
        else:
            with pytest.raises(ProxyError) as refused:
                outgoing_of(sent, expected=expected)
            assert v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE == refused.value.code


def test_a_delay_level_is_a_delay() -> None:
    check_type(TopicType.DELAY, {"DELAY": "3"})
    assert TopicType.DELAY == type_of_message({"DELAY": "3", "__SHARDINGKEY": "g"})


# --- routes ------------------------------------------------------------------------------------------------------


def route_of(permission: int, reads: int = 2, writes: int = 1, **addresses: str) -> TopicRoute:
    brokers = {int(number[1:]): address for number, address in addresses.items()}
    groups = (QueueGroup("b", reads, writes, permission),)
    return TopicRoute("T", {"b": BrokerAddresses("b", "C", brokers)}, groups)


def told(address: str) -> v2.Endpoints:
    host, _, port = address.partition(":")
    return endpoints([(host, int(port))])


@pytest.mark.parametrize(
    ("permission", "expected"),
    [
        (6, [v2.READ, v2.READ_WRITE]),
        (4, [v2.READ, v2.READ]),
        (2, [v2.WRITE]),
        (0, [v2.NONE, v2.NONE]),
    ],
)
def test_the_queues_of_slaves_are_in_the_route_too(permission: int, expected: list[v2.Permission]) -> None:
    queues = message_queues(resource("T"), route_of(permission, _0="m:1", _1="s:2"), [v2.NORMAL], told)
    for number, host in ((0, "m"), (1, "s")):
        own = [each for each in queues if each.broker.id == number]
        assert [*enumerate(expected)] == [(each.id, each.permission) for each in own]
        assert {host} == {each.broker.endpoints.addresses[0].host for each in own}


def test_a_group_in_order_is_assigned_each_queue_and_nobody_what_cannot_be_read() -> None:
    route = route_of(6, _1="s:2", _2="t:3")
    assert [-1] == [each.message_queue.id for each in assignments(resource("T"), route, False, told)]
    in_order = assignments(resource("T"), route, True, told)
    assert [0, 1] == [each.message_queue.id for each in in_order]
    assert {"s"} == {each.message_queue.broker.endpoints.addresses[0].host for each in in_order}
    for unreadable in (route_of(2, _0="m:1"), route_of(6, reads=0, _0="m:1"), route_of(6)):
        with pytest.raises(ProxyError) as refused:
            assignments(resource("T"), unreadable, False, told)
        assert v2.FORBIDDEN == refused.value.code


# --- settings ----------------------------------------------------------------------------------------------------


def test_a_consumer_is_told_the_policy_of_its_group() -> None:
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 2000, "max": 60_000, "multiplier": 3}}
    group = parse_group({"consumeMessageOrderly": True, "retryMaxTimes": 4, "groupRetryPolicy": policy})
    answer = answered_settings(consumer_settings("g", "T"), CONFIG.client_rules, group)
    backoff = answer.backoff_policy
    exponential = backoff.exponential_backoff
    assert (True, 5) == (answer.subscription.fifo, backoff.max_attempts)
    assert (2000, 60_000, 3.0) == (to_ms(exponential.initial), to_ms(exponential.max), exponential.multiplier)
    assert [2000, 6000, 18_000, 54_000, 60_000] == [group.wait_ms(times) for times in range(5)]
    own = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [10, 20]}}
    answer = answered_settings(consumer_settings("g", "T"), CONFIG.client_rules, parse_group({"groupRetryPolicy": own}))
    assert [10, 20] == [to_ms(each) for each in answer.backoff_policy.customized_backoff.next]
    assert ("g", ["T"]) == (
        answer.subscription.group.name,
        [each.topic.name for each in answer.subscription.subscriptions],
    )


@pytest.mark.parametrize(
    ("named", "language"),
    [("JAVA", "JAVA"), ("GOLANG", "GO"), ("DOT_NET", "DOTNET"), ("COBOL", "OTHER"), ("", "OTHER")],
)
def test_a_language_that_nobody_knows_is_another_one(named: str, language: str) -> None:
    assert language == caller_of({"x-mq-client-id": "c", "x-mq-language": named}, "h").language


# --- sends -------------------------------------------------------------------------------------------------------


def recovery(seconds: int) -> v2.Message:
    sent = message("T", **HALF)
    sent.system_properties.orphaned_transaction_recovery_duration.seconds = seconds
    return sent


def with_user(name: str, value: str = "x") -> v2.Message:
    sent = message("T")
    sent.user_properties[name] = value
    return sent


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], v2.MESSAGE_CORRUPTED),
        ([message("T"), message("U")], v2.MESSAGE_CORRUPTED),
        ([timed(NOW + DAY_MS + 1)], v2.ILLEGAL_DELIVERY_TIME),
        ([recovery(3601)], v2.BAD_REQUEST),
        ([message("T", tag=" ")], v2.ILLEGAL_MESSAGE_TAG),
        ([message("T", tag="a\n")], v2.ILLEGAL_MESSAGE_TAG),
        ([message("T", keys=["good", " "])], v2.ILLEGAL_MESSAGE_KEY),
        ([message("T", message_group="\t")], v2.ILLEGAL_MESSAGE_GROUP),
        ([message("T", message_group="ä" * 32)], v2.ILLEGAL_MESSAGE_GROUP),
        ([with_user("a\x00b")], v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ([with_user("TAGS")], v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ([message("T", bytes(1), keys=["k" * 16_385])], v2.MESSAGE_PROPERTIES_TOO_LARGE),
    ],
)
def test_a_send_that_breaks_a_rule_is_refused_with_its_code(messages: list[v2.Message], code: v2.Code) -> None:
    with pytest.raises(ProxyError) as refused:
        outgoing_of(*messages)
    assert code == refused.value.code


def test_a_send_at_the_bounds_of_the_rules_is_taken() -> None:
    for sent in (timed(NOW + DAY_MS), timed(0), recovery(3600), recovery(0), message("T", message_group="g" * 63)):
        assert RequestCode.SEND_MESSAGE_V2 == outgoing_of(sent).code
    assert outgoing_of(message("T", body_encoding=v2.GZIP)).ext["f"] == "1"
    assert outgoing_of(message("T", body_encoding=v2.GZIP, **HALF)).ext["f"] == "5"


@pytest.mark.parametrize(
    ("response_code", "code"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, v2.MASTER_PERSISTENCE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, v2.HA_NOT_AVAILABLE),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, v2.SLAVE_PERSISTENCE_TIMEOUT),
        (ResponseCode.SYSTEM_BUSY, v2.TOO_MANY_REQUESTS),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, v2.NOT_IMPLEMENTED),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, v2.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.SYSTEM_ERROR, v2.INTERNAL_SERVER_ERROR),
        (99_999, v2.INTERNAL_SERVER_ERROR),
    ],
)
def test_what_a_broker_answers_to_a_send_is_told_by_its_code_and_without_an_id(
    response_code: int, code: v2.Code
) -> None:
    answer = response(request(RequestCode.SEND_MESSAGE_V2, {}), response_code, "why")
    found = send_answer(outgoing_of(message("T")), answer, "b")
    assert (code, code, "") == (found.status.code, found.entries[0].status.code, found.entries[0].message_id)
    if response_code not in (10, 11, 12):
        assert code == code_of_response(response_code)


def test_entries_of_one_code_have_it_in_sum_different_ones_say_so_and_none_is_an_error() -> None:
    ok, busy, away = v2.Status(code=v2.OK, message="OK"), status(v2.TOO_MANY_REQUESTS, "a"), status(40013, "b")
    assert ok == summary([ok, ok])
    assert status(v2.TOO_MANY_REQUESTS, "a") == summary([busy, status(v2.TOO_MANY_REQUESTS, "c")])
    assert v2.MULTIPLE_RESULTS == summary([ok, away]).code
    assert v2.INTERNAL_SERVER_ERROR == summary([]).code


# --- receives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted_ms", "remaining_ms", "timeout_ms", "expected_ms"),
    [
        (1_000, None, 3_000, 5_000),
        (7_000, None, 3_000, 7_000),
        (60_000, None, 3_000, 20_000),
        (15_000, 18_000.0, 3_000, 15_000),
        (15_000, 8_000.0, 3_000, 8_000),
        (None, 10_000.0, 3_000, 8_500),
        (None, 6_000.0, 3_000, 5_000),
        (None, None, 3_000, 20_000),
    ],
)
def test_a_receive_waits_within_the_bounds_and_no_longer_than_its_client(
    wanted_ms: int | None, remaining_ms: float | None, timeout_ms: int, expected_ms: int
) -> None:
    asked = receive_request("g", "T", wanted_ms or 0)
    if wanted_ms is None:
        asked.ClearField("long_polling_timeout")
    assert expected_ms == read_receive(asked, remaining_ms, timeout_ms, CONFIG.receive_rules).poll_ms


def test_a_receive_asks_a_broker_for_what_its_client_may_have() -> None:
    asked = receive_request("g", "T", batch=99, invisible_ms=1, auto_renew=True, attempt_id="again")
    found = read_receive(asked, None, 3_000, CONFIG.receive_rules)
    assert (32, 60_000, True, "again") == (found.most, found.invisible_ms, found.renewed, found.attempt_id)
    assert ("TAG", "*") == (found.subscription.expression_type, found.subscription.expression)
    asked = receive_request("g", "T", batch=-1)
    asked.filter_expression.CopyFrom(v2.FilterExpression(type=v2.SQL, expression="a > 1"))
    found = read_receive(asked, None, 3_000, CONFIG.receive_rules)
    assert (0, "SQL92", "a > 1") == (found.most, found.subscription.expression_type, found.subscription.expression)
    own, _ = config_of({"enableProxyAutoRenew": False}, "test")
    with pytest.raises(ProxyError) as refused:  # nobody renews: its own time counts
        read_receive(receive_request("g", "T", invisible_ms=1, auto_renew=True), None, 3_000, own.receive_rules)
    assert v2.ILLEGAL_INVISIBLE_TIME == refused.value.code


# --- the file ----------------------------------------------------------------------------------------------------


def test_the_file_is_read_as_the_reference_writes_it_and_as_people_do() -> None:
    for kind in (2, "2", "PROM", "prom"):
        config, warnings = config_of({"metricsExporterType": kind, "proxyMode": "Local"}, "test")
        assert (True, []) == (config.metrics is not None, warnings)
    assert config_of({"metricsExporterType": 0}, "test")[0].metrics is None
    _, (line,) = config_of({"grpcServerport": 1}, "test")
    assert "grpcServerPort" in line
    for bad in ({"proxyMode": "both"}, {"grpcServerPort": "high"}, {"maxMessageSize": -1}):
        with pytest.raises(ConfigError):
            config_of(bad, "test")


def answer_of(code: int, ext: dict[str, str]) -> Command:
    return response(request(RequestCode.SEND_MESSAGE_V2, {}), code, ext=ext)


def test_a_timer_message_is_answered_with_its_handle_of_recall_and_a_half_message_with_its_place() -> None:
    stored = {"queueOffset": "7", "recallHandle": "handle", "msgId": "7F00000100002A9F0000000000000064"}
    plain = send_answer(outgoing_of(timed(NOW + 1000)), answer_of(0, stored), "b").entries[0]
    assert ("m1", "m1", 7, "handle") == (plain.message_id, plain.transaction_id, plain.offset, plain.recall_handle)
    half = send_answer(outgoing_of(message("T", **HALF)), answer_of(0, stored), "b").entries[0]
    assert ("m1", "m1@7@100@b") == (half.message_id, half.transaction_id)
