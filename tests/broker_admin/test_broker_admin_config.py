"""Configuration keys: the answer of GET_BROKER_CONFIG equals a real broker's, and bad input gets one clear line."""

import math
import re
from pathlib import Path

import attrs
import pytest

from understudy.broker import inert_keys
from understudy.broker.broker_config import BrokerConfig
from understudy.broker.config import INERT, BrokerOptions, Machine, delay_levels_ms
from understudy.broker.inert_settings import InertBrokerConfig, InertMessageStoreConfig
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.remoting.netty_config import NO_EFFECT, NettyClientConfig, NettyServerConfig
from understudy.runtime.configuration import fields_of
from understudy.runtime.properties import ConfigError, Properties, parse_properties, rewrite_properties

DATA = Path(__file__).parent.parent / "data" / "broker_admin"
SECTIONS = (BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig)
# keys that the reference does not have
OURS = ("haRegisteredSlavesOnly", "haTransferWholeLog", "preOnlineMaxWaitMillis", "scrubBytesPerSecond")
MACHINE = Machine("vm", "192.0.2.2", "/home/user/store", "/root/.cache/rocketmq-java/5.4.0")


def options(properties: dict[str, str]) -> tuple[BrokerOptions, list[str]]:
    return BrokerOptions.from_properties(properties, "broker.conf", machine=MACHINE)


def test_every_key_and_default_is_the_one_a_real_broker_answers() -> None:
    """The body was made by BrokerController of 5.4.0 on a machine with two processors."""
    expected = (DATA / "get_broker_config_body.txt").read_text()
    given, _ = options({"storePathRootDir": "/tmp/broker_admin/jstore", "customKey": "1", "listenPort": "27001"})
    for key, value in {
        "sendMessageThreadPoolNums": 2,
        "putMessageFutureThreadPoolNums": 2,
        "pullMessageThreadPoolNums": 20,
        "litePullMessageThreadPoolNums": 20,
        "processReplyMessageThreadPoolNums": 20,
        "queryMessageThreadPoolNums": 10,
        "heartbeatThreadPoolNums": 2,
        "endTransactionThreadPoolNums": 12,
    }.items():
        setattr(given.broker, fields_of(BrokerConfig)[key].name, value)

    body = "".join(f"{key}={value}\n" for key, value in given.properties().items() if key not in OURS)

    assert expected == body
    assert set(OURS) <= given.properties().keys()


def test_reasons_stand_only_on_known_keys() -> None:
    known = {key for section in SECTIONS for key in fields_of(section)}
    outside = {key for key in INERT if key not in known}

    assert all(
        key.startswith(("auth", "acl", "user", "stateful", "rmqAddress", "inner", "init", "migrate"))
        or key in ("clusterName", "configName")
        for key in outside
    )


def test_the_stock_file_of_the_reference_starts_without_a_word() -> None:
    text = (
        "# a comment\nbrokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen = 04\n"
        "fileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\n"
    )

    built, warnings = options(parse_properties(text))

    assert [] == warnings
    assert ("broker-a", 48, 10911, 10912) == (
        built.broker.broker_name,
        built.store.file_reserved_time,
        built.server.listen_port,
        built.store.ha_listen_port,
    )


def test_the_shipped_file_starts_without_a_word() -> None:
    path = Path(__file__).parents[2] / "conf" / "broker.conf"

    _, warnings = options(parse_properties(path.read_text()))

    assert warnings == []


def test_unknown_and_inert_keys_are_one_warning_line_each() -> None:
    built, warnings = options({"lisenPort": "1", "useTLS": "true", "traceOn": "false", "transferMsgByHeap": "true"})

    assert [
        "broker.conf: unknown key lisenPort is ignored, the nearest known key is listenPort",
        "broker.conf: useTLS=true has no effect here: there is no Netty, the kernel's defaults apply",
    ] == warnings
    assert "1" == built.properties()["lisenPort"]


def test_an_id_that_does_not_count_is_a_warning() -> None:
    for role in ("ASYNC_MASTER", "SYNC_MASTER"):
        built, warnings = options(parse_properties(f"brokerRole={role}\nbrokerId=1\n", "broker.conf"))
        why = f"broker.conf:2: brokerId=1 counts as 0, because brokerRole is {role}; a slave needs brokerRole=SLAVE"
        assert (built.broker.broker_id, warnings) == (0, [why])
    for text in ("brokerRole=SLAVE\nbrokerId=1\n", "enableControllerMode=true\ncontrollerAddr=a:1\nbrokerId=1\n"):
        assert options(parse_properties(text, "broker.conf"))[1] == []


def test_lines_of_a_file_are_named_in_warnings_and_errors() -> None:
    # given a file with an unknown key, one without effect by its other name, and one that is switched on in vain
    text = (
        "# comment\nlisenPort=1\n\nnamesrvAddr=h:1;\\\n  i:2\ninBrokerContainer=true\nmigrateAuthFromV1Enabled=true\n"
        "brokerIP1=127.0.0.1\n"
    )
    built, warnings = options(parse_properties(text, "broker.conf"))
    # then each warning names its line, continued ones counted
    assert [
        "broker.conf:2: unknown key lisenPort is ignored, the nearest known key is listenPort",
        "broker.conf:6: inBrokerContainer=true has no effect here: the broker knows by itself where it runs",
        "broker.conf:7: migrateAuthFromV1Enabled=true has no effect here: every request is judged by the users and "
        "rules of that moment; docs/security.md says how they are set",
    ] == warnings
    assert "h:1;i:2" == built.broker.namesrv_addr
    # and so does what is wrong by itself or beside another key
    for wrong, line in {
        "listenPort=abc\ntraceOn=no\n": "broker.conf:9: listenPort=abc: expected a port from 0 to 65535; "
        "broker.conf:10: traceOn=no: expected true or false",
        "brokerRole=SLAVE\nbrokerId=0\n": "broker.conf:10: brokerId=0: expected more than 0, because",
        "enableControllerMode=true\n": "broker.conf:9: enableControllerMode=true needs controllerAddr, host:port",
        "enableControllerMode=true\ncontrollerAddr=h:1;i\n": "broker.conf:10: controllerAddr=h:1;i: expected "
        "host:port, several separated by ';', like 127.0.0.1:9878;",
        "enableControllerMode=true\ncontrollerAddr=h:1\nenableSlaveActingMaster=true\n": "broker.conf:9: "
        "enableControllerMode and enableSlaveActingMaster are two ways of failover",
        "brokerIP1=no host\n": "broker.conf:9: brokerIP1=no host: expected an IP address",
    }.items():
        with pytest.raises(ConfigError) as caught:
            options(parse_properties(text + wrong, "broker.conf"))
        assert str(caught.value).startswith(line)


def test_what_came_over_the_network_stands_in_no_line() -> None:
    given, _ = options({})
    with pytest.raises(ConfigError) as caught:
        given.read_change(Properties(parse_properties("\nfileReservedTime=soon\n", "request"), "request"))
    assert "request: fileReservedTime=soon: expected a whole number from 0 to 2147483647" == str(caught.value)


def test_switched_on_authentication_is_never_silent() -> None:
    for keys in ({"authorizationEnabled": "true"}, {"aclEnable": "true"}):
        with pytest.raises(ConfigError, match="authenticationEnabled=true"):
            options(keys)
    built, warnings = options({"authenticationEnabled": "true", "authorizationEnabled": "false"})

    assert (True, False, []) == (built.security.authenticates, built.security.authorizes, warnings)


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("listenPort", "abc", "a port from 0 to 65535"),
        ("listenPort", "70000", "a port from 0 to 65535"),
        ("traceOn", "yes", "true or false"),
        ("brokerRole", "MASTER", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("namesrvAddr", "localhost", "host:port"),
        ("messageDelayLevel", "1s 2x", "waits such as"),
        ("deleteWhen", "25", "hours from 00 to 23"),
        ("defaultTopicQueueNums", "0", "1 to 65535 queues"),
        ("defaultTopicQueueNums", "65536", "1 to 65535 queues"),
        ("reviveQueueNum", "1000", "1 to 999 queues"),
        ("brokerId", "99999999999999999999", "a whole number"),
    ],
)
def test_a_bad_value_is_one_line_with_file_key_value_and_expectation(key: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options({key: text})

    line = str(caught.value)
    assert line.startswith(f"broker.conf: {key}={text}: expected {expected}")
    assert "\n" not in line


def test_a_connection_may_be_silent_for_so_long_and_for_ever_where_the_key_is_zero() -> None:
    limits = [options({"serverChannelMaxIdleTimeSeconds": text})[0].server.limits for text in ("7", "0")]

    assert [7, math.inf] == [each.idle_seconds for each in limits]


def test_a_slave_needs_an_id_and_a_master_always_has_zero() -> None:
    with pytest.raises(ConfigError, match="brokerRole is SLAVE"):
        options({"brokerRole": "SLAVE"})
    master, _ = options({"brokerId": "3"})

    assert 0 == master.broker.broker_id


def test_an_update_is_all_or_nothing_and_skips_unknown_keys() -> None:
    given, _ = options({})

    with pytest.raises(ConfigError):
        given.read_change(Properties({"traceOn": "false", "fileReservedTime": "soon"}, "update"))
    change = given.read_change(
        Properties({"traceOn": "false", "configStorePath": "x", "writeBufferHighWaterMark": "7"}, "update")
    )
    assert given.broker.trace_on is True
    given.apply(change)

    assert {"traceOn": "false", "writeBufferHighWaterMark": "7"} == change.texts
    assert (False, 7, 7) == (
        given.broker.trace_on,
        given.server.write_buffer_high_water_mark,
        given.client.write_buffer_high_water_mark,
    )


def test_rewriting_keeps_comments_and_order() -> None:
    text = b"# mine\nbrokerName=a\n traceOn : true\n#traceOn=off\ntraceOn=true\n"

    assert b"# mine\nbrokerName=a\ntraceOn=false\n#traceOn=off\nregionId=C:\\\\x\n" == rewrite_properties(
        text, {"traceOn": "false", "regionId": "C:\\x"}
    )


def test_delay_levels() -> None:
    assert [1000, 300_000, 7_200_000, 86_400_000] == delay_levels_ms("1s 5m 2h 1d")


def test_no_key_has_two_reasons() -> None:
    listed = [*(key for keys in inert_keys._GROUPS.values() for key in keys.split()), *NO_EFFECT]

    assert sorted(listed) == sorted(INERT)


@pytest.mark.parametrize(
    ("section", "inert"), [(BrokerConfig, InertBrokerConfig), (MessageStoreConfig, InertMessageStoreConfig)]
)
def test_keys_without_an_effect_are_in_classes_of_their_own(
    section: type[attrs.AttrsInstance], inert: type[attrs.AttrsInstance]
) -> None:
    assert fields_of(inert).keys() == INERT.keys() & fields_of(section).keys()


def test_inert_are_exactly_the_keys_that_nothing_reads() -> None:
    """Some are read only to be answered, or to refuse them with a clear line."""
    only_shown = {
        *("bitMapLengthConsumeQueueExt", "expectConsumerNumUseFilter", "maxErrorRateOfBloomFilter", "rocketmqHome"),
        *("duplicationEnable", "enableDLegerCommitLog", "endTransactionPoolQueueCapacity"),
        *("isInBrokerContainer", "cgColdReadThreshold", "globalColdReadThreshold"),
    }
    broker_folder = Path(inert_keys.__file__).parent
    rooms = (broker_folder, broker_folder.parent / "container", broker_folder.parent / "ha")
    shared = [broker_folder.parent / name for name in ("runtime/load.py", "remoting/metrics_keys.py")]
    shared.append(broker_folder.parent / "remoting/netty_config.py")
    sources = [path.read_text() for path in (*(path for room in rooms for path in room.rglob("*.py")), *shared)]
    names = {name for text in sources for name in re.findall(r"\.([a-z]\w+)\b", text)}

    fields = {key: field.name for section in SECTIONS for key, field in fields_of(section).items()}
    known, read = fields.keys(), {key for key, name in fields.items() if name in names}
    assert (INERT.keys() & read) - only_shown == set(), "take keys that have an effect now out of inert_keys.py"
    assert known - INERT.keys() - read == set(), "keys that nothing reads belong into inert_keys.py"
