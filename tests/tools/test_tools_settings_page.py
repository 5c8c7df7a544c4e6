"""The page of settings is what the code says."""

from __future__ import annotations

import re

import attrs
import pytest
from settings_page import PAGE, attributes_of, page

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.config import BrokerOptions, Machine
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.role import Role
from understudy.broker.storage import store_settings
from understudy.container.config import BrokerContainerConfig
from understudy.controller.configuration import ControllerConfig
from understudy.namesrv.config import NamesrvConfig
from understudy.proxy.config import ProxyConfig
from understudy.remoting.metrics_keys import ExporterKeys
from understudy.remoting.netty_config import NettyServerConfig
from understudy.runtime.configuration import fields_of
from understudy.security.settings import KEYS as SECURITY_KEYS
from understudy.store.config import LIVE

FAILOVERS = PAGE.with_name("failover.md")
PROGRAMS = ("Brokers", "Name servers", "Containers", "Controllers", "Proxies")
SECURITY = "Users, rules and TLS"
SECTIONS = (
    *(BrokerConfig, MessageStoreConfig, NettyServerConfig),
    *(NamesrvConfig, BrokerContainerConfig, ControllerConfig, ProxyConfig),
)


def column(title: str, name: str) -> dict[str, str]:
    """Return the keys in the table of a part of the page, and what stands there in the column of that *name*."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    number = [each.strip() for each in lines[0]].index(name)
    return {cells[0].strip(" `"): cells[number].strip() for cells in lines[2:]}


def defaults(title: str) -> dict[str, str]:
    """Return the keys of a program on the page, and what it says of their defaults."""
    return column(title, "default")


def rows(title: str) -> dict[str, str]:
    """Return the keys of a program on the page, and when each counts."""
    return column(title, "when")


def test_the_page_of_settings_is_what_the_code_says() -> None:
    assert page() == PAGE.read_text(), "run .venv/bin/python tests/tools/settings_page.py"


@pytest.mark.parametrize("title", [*PROGRAMS, SECURITY])
def test_every_key_says_in_a_sentence_what_it_does(title: str) -> None:
    effects = column(title, "effect")
    assert len(effects) > 10
    assert [key for key, effect in effects.items() if not effect] == [], "say it in the docstring of the key's class"
    assert [key for key, effect in effects.items() if not effect.endswith(".") or len(effect) > 140] == []


def test_every_key_of_users_rules_and_tls_is_there() -> None:
    assert column(SECURITY, "effect").keys() == SECURITY_KEYS


@pytest.mark.parametrize("section", [*SECTIONS, ExporterKeys])
def test_no_class_of_settings_speaks_of_a_key_that_it_does_not_have(section: type) -> None:
    told = attributes_of(section)
    assert told
    assert [name for name in told if not hasattr(section, name)] == []


def test_a_setting_of_the_store_is_live_when_the_open_store_takes_it() -> None:
    role, seen = Role("ASYNC_MASTER", 0), 0
    before = attrs.asdict(store_settings(MessageStoreConfig(), role))
    for key, when in rows("Brokers").items():
        field = fields_of(MessageStoreConfig).get(key)
        if field is None or when != "live":
            continue
        keys = MessageStoreConfig()
        value = getattr(keys, field.name)
        setattr(
            keys, field.name, not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "5"
        )
        after = attrs.asdict(store_settings(keys, role))
        changed = {name for name in after if after[name] != before[name]}
        assert (key, changed - {*LIVE}) == (key, set())
        seen += len(changed)
    assert seen > 20


def test_every_key_of_a_proxy_is_there_and_none_changes_over_the_network() -> None:
    assert rows("Proxies") == dict.fromkeys(fields_of(ProxyConfig), "file")


def test_where_metrics_go_counts_at_the_next_start_of_every_server() -> None:
    for title, when in (("Brokers", "start"), ("Controllers", "start"), ("Name servers", "file")):
        said = {key: word for key, word in rows(title).items() if key.startswith(("metrics", "metricG", "metricL"))}
        assert len(said) == 11
        assert set(said.values()) == {when}
    assert rows("Brokers")["enableStatsMetrics"] == "live"  # which families there are is asked at each scrape


def test_the_address_of_replication_does_not_follow_the_one_for_clients() -> None:
    machine = Machine("vm", "10.0.0.9", "/store")
    options, _ = BrokerOptions.from_properties({"brokerIP1": "10.1.2.3"}, machine=machine)
    assert ("10.1.2.3", "10.0.0.9") == (options.broker.broker_ip1, options.broker.broker_ip2)
    options, _ = BrokerOptions.from_properties({}, machine=machine)
    assert ("10.0.0.9", "10.0.0.9") == (options.broker.broker_ip1, options.broker.broker_ip2)
    said = defaults("Brokers")
    assert said["brokerIP1"] == said["brokerIP2"] == "the address from which the host reaches others"


def default_of(key: str, section: type[attrs.AttrsInstance] | None = None) -> str:
    """Return the default of a key of brokers, or of *section*, as files have it."""
    sections = (BrokerConfig, MessageStoreConfig) if section is None else (section,)
    (field,) = (found for each in sections if (found := fields_of(each).get(key)) is not None)
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def test_the_page_of_failovers_has_the_defaults_of_the_settings_that_it_explains() -> None:
    rows = FAILOVERS.read_text().partition("\n## Settings\n")[2].partition("\n## ")[0].splitlines()
    keys = 0
    for row in (each for each in rows if each.startswith("| `")):
        cell = row.split(" | ")[0].removeprefix("| ")
        groups = re.findall(r"((?:`\w+`(?:, )?)+) \((\w+)(?:; ([^)]*))?\)", cell)
        assert cell == ", ".join(f"{names} ({default}{note and f'; {note}'})" for names, default, note in groups)
        for names, default, note in groups:
            section = NamesrvConfig if note == "of name servers" else None
            for key in re.findall(r"\w+", names):
                assert (key, default) == (key, default_of(key, section))
                keys += 1
    assert keys > 15
    times = re.findall(r"`(\w+)` \((\d+) s\)", FAILOVERS.read_text())
    assert len(times) > 4
    assert times == [(key, str(int(default_of(key)) // 1000)) for key, _ in times]
