"""Consumers, producers and their subscriptions: what their tables hold and how they change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.clients import ClientChannel, ConsumerTable, ProducerTable
from understudy.broker.filters import Subscription, SubscriptionError, tag_codes
from understudy.format.java_hash import java_hash
from understudy.runtime.pace import run_steps


def channel(connection: str, client: str, seen_ms: int = 0) -> ClientChannel[str]:
    return ClientChannel(connection, client, "JAVA", 493, seen_ms)


class TestConsumers:
    def register(self, table: ConsumerTable[str], connection: str, *subscriptions: Subscription) -> bool:
        member = channel(connection, f"client {connection}")
        return run_steps(table.registering("cg", member, "CONSUME_PASSIVELY", "CLUSTERING", "W", subscriptions, 5))

    @pytest.mark.covers("IT-23")
    def test_members_are_told_of_new_channels_and_topics_but_not_of_versions(self) -> None:
        table: ConsumerTable[str] = ConsumerTable()
        assert self.register(table, "a", Subscription("T", version=1)) is True
        assert self.register(table, "a", Subscription("T", version=1)) is False
        assert self.register(table, "a", Subscription("T", "TagA", version=2)) is False
        assert self.register(table, "a", Subscription("T", version=2), Subscription("U")) is True
        assert self.register(table, "b", Subscription("T", version=2), Subscription("U")) is True
        assert self.register(table, "b", Subscription("T", version=2)) is True
        assert table.groups["cg"].client_ids() == ["client a", "client b"]

    def test_older_subscription_does_not_replace_a_newer_one(self) -> None:
        table: ConsumerTable[str] = ConsumerTable()
        self.register(table, "a", Subscription("T", "new", version=9))
        self.register(table, "b", Subscription("T", "old", version=3))
        found = table.find_subscription("cg", "T")
        assert found is not None and found.expression == "new"

    @pytest.mark.covers("IT-23")
    def test_group_is_gone_with_its_last_channel(self) -> None:
        table: ConsumerTable[str] = ConsumerTable()
        self.register(table, "a")
        self.register(table, "b")
        assert table.close("a") == ["cg"]
        assert table.close("b") == []
        assert table.groups == {}
        assert table._by_connection == {}

    def test_a_left_group_expires_although_the_client_lives_in_another(self) -> None:
        table: ConsumerTable[str] = ConsumerTable()
        for group in ("stays", "left"):
            run_steps(table.registering(group, channel("a", "c"), "P", "CLUSTERING", "W", (), 0))
        run_steps(table.registering("stays", channel("a", "c"), "P", "CLUSTERING", "W", (), 200_000))
        assert table.groups["left"].channels["a"].last_seen_ms == 0
        assert table.expired(200_000, 120_000) == ["a"]

    def test_fingerprint(self) -> None:
        table: ConsumerTable[str] = ConsumerTable()
        assert [table.swap_fingerprint("g", value) for value in (7, 7, 8, 8)] == [False, False, True, False]


class TestProducers:
    @pytest.mark.covers("IT-23")
    def test_found_by_client_id_until_gone(self) -> None:
        table: ProducerTable[str] = ProducerTable()
        table.register("pg", channel("a", "c1"))
        table.register("pg2", channel("a", "c1"))
        assert table.find_client("c1") == "a"
        assert table.unregister("pg", "a", "c1") is True
        assert table.find_client("c1") == "a"
        table.close("a")
        assert table.find_client("c1") is None
        assert table.groups == {}

    def test_silent_ones_expire(self) -> None:
        table: ProducerTable[str] = ProducerTable()
        table.register("pg", channel("a", "c1", 0))
        table.register("pg", channel("b", "c2", 100_000))
        assert table.expired(120_001) == ["a"]


class TestFilters:
    @pytest.mark.parametrize("text", ["", "*"])
    def test_everything(self, text: str) -> None:
        assert tag_codes(text) is None

    def test_codes(self) -> None:
        assert tag_codes("TagA || TagB") == {2598919, 2598920}  # captured from a 5.4.0 client
        assert tag_codes(" ") == frozenset()

    def test_only_separators(self) -> None:
        with pytest.raises(SubscriptionError):
            tag_codes("||")

    @given(st.text(st.characters(exclude_characters="|*\x00", exclude_categories=("Cs",)), min_size=1))
    def test_a_single_tag_is_its_hash(self, tag: str) -> None:
        stripped = tag.strip()
        assert tag_codes(tag) == ({java_hash(stripped)} if stripped else frozenset())
