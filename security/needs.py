"""What each request needs, in one table of every request code. What is not in the table is refused.

Most rows follow the reference's annotated headers. Rows of requests that the reference lets pass for everybody who
signed (it looks at annotated headers only) are ours: configuration, tables of all topics and offsets, queue assignment,
batches of acknowledgements, replies. Where a request names two resources, both are needed.

Source: DefaultAuthorizationContextBuilder.java, the header classes of remoting/protocol/header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from understudy.format.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from understudy.remoting.bodies import JsonError, json_of
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.fields import CommandError
from understudy.security.policies import Action, Kind, Need, of_topic

_C = RequestCode
_ALL = frozenset(Action)
_PUB, _SUB = frozenset({Action.PUB}), frozenset({Action.SUB})
_GET, _UPDATE = frozenset({Action.GET}), frozenset({Action.UPDATE})
_CREATE, _DELETE = frozenset({Action.CREATE}), frozenset({Action.DELETE})
_SUB_GET = frozenset({Action.SUB, Action.GET})
_SUB_UPDATE = frozenset({Action.SUB, Action.UPDATE})
_PUB_SUB_GET = frozenset({Action.PUB, Action.SUB, Action.GET})

Rule = Callable[[Command, str], Iterable[Need]]
"""From a request and the name of the cluster to what it needs; one after the other where a body says how much."""
Actions = frozenset[Action]


def _topic(name: str, actions: Actions, as_group: Actions = _SUB) -> Need:
    """Return the need on a topic; of a retry or dead letter topic it is one on the group."""
    kind, resource = of_topic(name)
    return Need(kind, resource, actions if kind is Kind.TOPIC else as_group)


def reading_of(topic: str) -> Need:
    """Return what is needed to read the messages of *topic*."""
    return _topic(topic, _SUB_GET, _SUB_GET)


def _group(name: str, actions: Actions) -> Need:
    return Need(Kind.GROUP, name, actions)


def _field(command: Command, name: str) -> str:
    """Return a header field; a missing one is a name that no pattern but ``*`` fits."""
    return (command.ext or {}).get(name) or ""


def _body(command: Command) -> Mapping[str, Any]:
    return _mapping(_json(command))


def _json(command: Command) -> Any:
    if not command.body:
        return {}
    try:
        return json_of(command)
    except JsonError as error:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"the body is no JSON: {error}") from None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _rows(value: Any) -> Iterable[Mapping[str, Any]]:
    return (_mapping(row) for row in value) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


@attrs.frozen
class OfFields:
    """A rule that sees two header fields of a request at most, so that whom it let pass may be remembered by these.

    Attributes:
        needs: from the name of the cluster and both texts, empty where there is none, to what is needed.
        first, second: the names of the fields; empty where it looks at none.
    """

    needs: Callable[[str, str, str], list[Need]]
    first: str = ""
    second: str = ""

    def __call__(self, command: Command, cluster: str) -> list[Need]:
        """Return what *command* needs; a missing field is a name that no pattern but ``*`` fits."""
        return self.needs(cluster, _field(command, self.first), _field(command, self.second))


def _cluster(actions: Actions) -> Rule:
    return OfFields(lambda cluster, _, __: [Need(Kind.CLUSTER, cluster, actions)])


def _of_topic(actions: Actions, as_group: Actions = _SUB) -> Rule:
    return OfFields(lambda cluster, topic, _: [_topic(topic, actions, as_group)], "topic")


def _of_group(actions: Actions, field: str = "consumerGroup") -> Rule:
    return OfFields(lambda cluster, group, _: [_group(group, actions)], field)


def _of_both(actions: Actions, field: str = "consumerGroup") -> Rule:
    """For a topic and a group; a retry topic is a group of its own, whatever group is named beside it."""
    return OfFields(
        lambda cluster, topic, group: [_topic(topic, actions, actions), _group(group, actions)], "topic", field
    )


def _send(cluster: str, topic: str, letter: str) -> list[Need]:
    # Either spelling of the header may stand in any of these codes: whichever the handler takes is looked at.
    names = {text for text in (topic, letter) if text} or {""}
    needs = [_topic(name, _PUB) for name in sorted(names)]
    if any(map(_is_written_by_brokers, names)):
        needs.append(Need(Kind.CLUSTER, cluster, _UPDATE))
    return needs


def _is_written_by_brokers(topic: str) -> bool:
    """Whether what stands in *topic* has a broker deliver, take back or copy messages of any other topic."""
    return topic == TIMER_TOPIC or topic.startswith(REVIVE_TOPIC_PREFIX)


def _end_transaction(cluster: str, topic: str, group: str) -> list[Need]:
    # Older clients do not name the topic. The handler compares the group with that of the half message.
    return [_topic(topic, _PUB)] if topic else [_group(group, _PUB)]


def _heartbeat(command: Command, cluster: str) -> Iterator[Need]:
    for consumer in _rows(_body(command).get("consumerDataSet")):
        yield _group(_text(consumer.get("groupName")), _SUB)
        for each in _rows(consumer.get("subscriptionDataSet")):
            yield _topic(_text(each.get("topic")), _SUB)


def _unregister(cluster: str, group: str, _: str) -> list[Need]:
    return [_group(group, _SUB)] if group else []


def _lock(command: Command, cluster: str) -> Iterator[Need]:
    body = _body(command)
    yield _group(_text(body.get("consumerGroup")), _SUB)
    for queue in _rows(body.get("mqSet")):
        yield _topic(_text(queue.get("topic")), _SUB)


def _check_client(command: Command, cluster: str) -> list[Need]:
    body = _body(command)
    wanted = _mapping(body.get("subscriptionData"))
    return [_group(_text(body.get("group")), _SUB), _topic(_text(wanted.get("topic")), _SUB)]


def _assignment(command: Command, cluster: str) -> list[Need]:
    body = _body(command)
    return [_group(_text(body.get("consumerGroup")), _SUB), _topic(_text(body.get("topic")), _SUB)]


def _batch_ack(command: Command, cluster: str) -> Iterator[Need]:
    row = None
    for row in _rows(_body(command).get("acks")):
        yield _group(_text(row.get("c") or row.get("consumerGroup")), _SUB)
        yield _topic(_text(row.get("t") or row.get("topic")), _SUB)
    if row is None:
        yield _group("", _SUB)


def _topics_of_list(command: Command, cluster: str) -> Iterator[Need]:
    row = None
    for row in _rows(_body(command).get("topicConfigList")):
        yield _topic(_text(row.get("topicName")), _CREATE, _CREATE)
    if row is None:
        yield _topic("", _CREATE)


def _group_of_body(command: Command, cluster: str) -> list[Need]:
    return [_group(_text(_body(command).get("groupName")), _CREATE)]


def _groups_of_list(command: Command, cluster: str) -> Iterator[Need]:
    row = None
    for row in _rows(_body(command).get("groupConfigList")):
        yield _group(_text(row.get("groupName")), _CREATE)
    if row is None:
        yield _group("", _CREATE)


def _clone(command: Command, cluster: str) -> list[Need]:
    needs = [_group(_field(command, "srcGroup"), _GET), _group(_field(command, "destGroup"), _UPDATE)]
    topic = _field(command, "topic")
    return [*needs, _topic(topic, _UPDATE, _UPDATE)] if topic else needs


def _request_mode(command: Command, cluster: str) -> list[Need]:
    body = _body(command)
    return [_group(_text(body.get("consumerGroup")), _UPDATE), _topic(_text(body.get("topic")), _UPDATE, _UPDATE)]


def _rows_of(rule: Rule, *codes: RequestCode) -> dict[int, Rule]:
    return {int(code): rule for code in codes}


NEEDS: Mapping[int, Rule] = {
    # --- clients
    **_rows_of(_of_topic(_PUB_SUB_GET, _SUB_GET), _C.GET_ROUTEINFO_BY_TOPIC),
    **_rows_of(OfFields(lambda *_: []), _C.GET_KV_CONFIG),  # where ordered topics are: asked by clients of every kind
    **_rows_of(
        OfFields(_send, "topic", "b"),
        *(_C.SEND_MESSAGE, _C.SEND_MESSAGE_V2, _C.SEND_BATCH_MESSAGE, _C.SEND_REPLY_MESSAGE, _C.SEND_REPLY_MESSAGE_V2),
    ),
    **_rows_of(OfFields(_end_transaction, "topic", "producerGroup"), _C.END_TRANSACTION),
    **_rows_of(_of_topic(_PUB), _C.RECALL_MESSAGE),
    **_rows_of(_of_group(_SUB, "group"), _C.CONSUMER_SEND_MSG_BACK),
    **_rows_of(
        _of_both(_SUB),
        *(_C.PULL_MESSAGE, _C.LITE_PULL_MESSAGE),
        *(_C.POP_MESSAGE, _C.ACK_MESSAGE, _C.PEEK_MESSAGE, _C.CHANGE_MESSAGE_INVISIBLETIME),
        *(_C.NOTIFICATION, _C.POLLING_INFO),
    ),
    **_rows_of(_batch_ack, _C.BATCH_ACK_MESSAGE),
    **_rows_of(_of_topic(_SUB_GET, _SUB_GET), _C.QUERY_MESSAGE),
    **_rows_of(_of_both(_SUB_GET), _C.QUERY_CONSUMER_OFFSET),
    **_rows_of(_of_both(_SUB_UPDATE), _C.UPDATE_CONSUMER_OFFSET),
    **_rows_of(
        _of_topic(_SUB_GET, _SUB_GET),
        *(_C.SEARCH_OFFSET_BY_TIMESTAMP, _C.GET_MAX_OFFSET, _C.GET_MIN_OFFSET, _C.GET_EARLIEST_MSG_STORETIME),
        _C.QUERY_BROKER_OFFSET,
    ),
    **_rows_of(_heartbeat, _C.HEART_BEAT),
    **_rows_of(OfFields(_unregister, "consumerGroup"), _C.UNREGISTER_CLIENT),
    **_rows_of(_of_group(_SUB_GET), _C.GET_CONSUMER_LIST_BY_GROUP),
    **_rows_of(_lock, _C.LOCK_BATCH_MQ, _C.UNLOCK_BATCH_MQ),
    **_rows_of(_check_client, _C.CHECK_CLIENT_CONFIG),
    **_rows_of(_assignment, _C.QUERY_ASSIGNMENT),
    # --- administration of topics and groups
    **_rows_of(_of_topic(_CREATE, _CREATE), _C.UPDATE_AND_CREATE_TOPIC, _C.UPDATE_AND_CREATE_STATIC_TOPIC),
    **_rows_of(_topics_of_list, _C.UPDATE_AND_CREATE_TOPIC_LIST),
    **_rows_of(_of_topic(_DELETE, _DELETE), _C.DELETE_TOPIC_IN_BROKER, _C.DELETE_TOPIC_IN_NAMESRV),
    **_rows_of(_of_topic(_GET, _GET), _C.GET_TOPIC_CONFIG, _C.GET_TOPIC_STATS_INFO, _C.QUERY_TOPIC_CONSUME_BY_WHO),
    **_rows_of(_of_topic(_GET, _GET), _C.QUERY_CONSUME_QUEUE),
    **_rows_of(_group_of_body, _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
    **_rows_of(_groups_of_list, _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
    **_rows_of(_of_group(_DELETE, "groupName"), _C.DELETE_SUBSCRIPTIONGROUP),
    **_rows_of(_of_group(_GET, "group"), _C.GET_SUBSCRIPTIONGROUP_CONFIG, _C.QUERY_TOPICS_BY_CONSUMER),
    **_rows_of(_of_both(_UPDATE, "group"), _C.UPDATE_AND_GET_GROUP_FORBIDDEN, _C.INVOKE_BROKER_TO_RESET_OFFSET),
    **_rows_of(_of_both(_GET, "group"), _C.QUERY_CONSUME_TIME_SPAN, _C.QUERY_SUBSCRIPTION_BY_CONSUMER),
    **_rows_of(_of_both(_GET, "group"), _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
    **_rows_of(_of_group(_GET), _C.GET_CONSUMER_CONNECTION_LIST, _C.GET_CONSUMER_RUNNING_INFO, _C.GET_CONSUME_STATS),
    **_rows_of(_of_group(_UPDATE), _C.CONSUME_MESSAGE_DIRECTLY),
    **_rows_of(_of_group(_GET, "producerGroup"), _C.GET_PRODUCER_CONNECTION_LIST),
    **_rows_of(_clone, _C.CLONE_GROUP_OFFSET),
    **_rows_of(_request_mode, _C.SET_MESSAGE_REQUEST_MODE),
    # --- what shows the cluster, or messages of every topic
    **_rows_of(
        _cluster(_GET),
        *(_C.GET_ALL_TOPIC_CONFIG, _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _C.GET_ALL_CONSUMER_OFFSET),
        *(_C.GET_ALL_DELAY_OFFSET, _C.GET_ALL_MESSAGE_REQUEST_MODE, _C.GET_TIMER_CHECK_POINT, _C.GET_TIMER_METRICS),
        *(_C.GET_POP_ORDERS, _C.GET_ACTING_POPS, _C.VIEW_MESSAGE_BY_ID, _C.QUERY_DATA_VERSION),
        *(_C.GET_BROKER_CONFIG, _C.GET_BROKER_RUNTIME_INFO, _C.GET_NAMESRV_CONFIG, _C.GET_CONTROLLER_CONFIG),
        *(_C.GET_BROKER_CLUSTER_INFO, _C.GET_BROKER_MEMBER_GROUP, _C.GET_BROKER_HA_STATUS, _C.GET_BROKER_EPOCH_CACHE),
        *(_C.GET_KVLIST_BY_NAMESPACE, _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _C.GET_TOPICS_BY_CLUSTER),
        *(_C.GET_SYSTEM_TOPIC_LIST_FROM_NS, _C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _C.GET_UNIT_TOPIC_LIST),
        *(_C.GET_HAS_UNIT_SUB_TOPIC_LIST, _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        *(_C.GET_ALL_PRODUCER_INFO, _C.GET_BROKER_CONSUME_STATS, _C.QUERY_CORRECTION_OFFSET, _C.VIEW_BROKER_STATS_DATA),
        *(_C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _C.GET_COLD_DATA_FLOW_CTR_INFO),
        *(_C.GET_BROKER_ROSTER, _C.GET_PRE_ONLINE_REPORT, _C.SCRUB_LOG, _C.LIST_STUCK_WORK),
        *(_C.CONTROLLER_GET_REPLICA_INFO, _C.CONTROLLER_GET_METADATA_INFO, _C.CONTROLLER_GET_SYNC_STATE_DATA),
        *(_C.CONTROLLER_EXPLAIN_MASTER, _C.CONTROLLER_QUORUM_FACTS),
        *(_C.AUTH_GET_USER, _C.AUTH_LIST_USER, _C.AUTH_GET_ACL, _C.AUTH_LIST_ACL),
    ),
    # --- what changes the cluster, what servers tell each other, and the raw log
    **_rows_of(
        _cluster(_UPDATE),
        *(_C.UPDATE_BROKER_CONFIG, _C.UPDATE_NAMESRV_CONFIG, _C.UPDATE_CONTROLLER_CONFIG),
        *(_C.PUT_KV_CONFIG, _C.DELETE_KV_CONFIG, _C.WIPE_WRITE_PERM_OF_BROKER, _C.ADD_WRITE_PERM_OF_BROKER),
        *(_C.REGISTER_BROKER, _C.UNREGISTER_BROKER, _C.REGISTER_TOPIC_IN_NAMESRV, _C.REGISTER_FILTER_SERVER),
        *(_C.BROKER_HEARTBEAT, _C.NOTIFY_MIN_BROKER_ID_CHANGE, _C.EXCHANGE_BROKER_HA_INFO, _C.FINISH_PRE_ONLINE),
        *(
            _C.RESET_MASTER_FLUSH_OFFSET,
            _C.SETTLE_FIRST_READS,
            _C.SETTLE_STUCK_WORK,
            _C.READ_LOG,
            _C.POP_ROLLBACK,
            _C.RESUME_CHECK_HALF_MESSAGE,
        ),
        *(_C.CLEAN_EXPIRED_CONSUMEQUEUE, _C.CLEAN_UNUSED_TOPIC, _C.DELETE_EXPIRED_COMMITLOG),
        *(_C.EXPORT_ROCKSDB_CONFIG_TO_JSON, _C.SET_COMMITLOG_READ_MODE, _C.SWITCH_TIMER_ENGINE),
        *(_C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, _C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
        *(_C.ADD_BROKER, _C.REMOVE_BROKER, _C.CLEAN_BROKER_DATA, _C.NOTIFY_BROKER_ROLE_CHANGED),
        *(_C.CONTROLLER_ALTER_SYNC_STATE_SET, _C.CONTROLLER_ELECT_MASTER, _C.CONTROLLER_REGISTER_BROKER),
        *(_C.CONTROLLER_GET_NEXT_BROKER_ID, _C.CONTROLLER_APPLY_BROKER_ID),
        *(_C.AUTH_CREATE_USER, _C.AUTH_UPDATE_USER, _C.AUTH_DELETE_USER),
        *(_C.AUTH_CREATE_ACL, _C.AUTH_UPDATE_ACL, _C.AUTH_DELETE_ACL, _C.GET_ALL_USERS),
    ),
    # --- what servers ask of clients: no server answers it
    **_rows_of(
        _cluster(_ALL),
        *(_C.CHECK_TRANSACTION_STATE, _C.NOTIFY_CONSUMER_IDS_CHANGED, _C.RESET_CONSUMER_CLIENT_OFFSET),
        *(_C.GET_CONSUMER_STATUS_FROM_CLIENT, _C.PUSH_REPLY_MESSAGE_TO_CLIENT),
    ),
}
"""From a request code to its rule."""
