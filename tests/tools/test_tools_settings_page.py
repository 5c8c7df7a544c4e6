"""The page of settings is what the code says."""

from __future__ import annotations

import re

import attrs
from settings_page import PAGE, page

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.config import BrokerOptions, Machine
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.namesrv.config import NamesrvConfig
from understudy.proxy.config import ProxyConfig
from understudy.runtime.configuration import fields_of

FAILOVERS = PAGE.with_name("failover.md")


def defaults(title: str) -> dict[str, str]:
    """Return the keys of a program on the page, and what it says of their defaults."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section, re.MULTILINE))


def rows(title: str) -> dict[str, str]:
    """Return the keys of a program on the page, and when each counts."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \|.*\| (\w+) \|$", section, re.MULTILINE))


def test_the_page_of_settings_is_what_the_code_says() -> None:
    assert page() == PAGE.read_text(), "run .venv/bin/python tests/tools/settings_page.py"


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
