"""What is asked for often and changes seldom: kept, renewed while it is used, forgotten when it is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import attrs
import trio

from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("proxy.cache")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@attrs.frozen
class CacheRules:
    """How long values count.

    Attributes:
        refresh_seconds: a value that is older is asked for again, while the old one is used.
        expire_seconds: a value that nobody asked for is forgotten.
        absent_seconds: how long the word that there is none counts.
        most: values; the one that was not used for longest goes.
    """

    refresh_seconds: float = 20.0
    expire_seconds: float = 300.0
    absent_seconds: float = 1.0
    most: int = 20_000


@attrs.define(eq=False)
class _Entry(Generic[V]):
    value: V | None
    loaded_at: float
    used_at: float
    renewing: bool = False


class LoadingCache(Generic[K, V]):
    """Values by key, loaded when they are asked for.

    Args:
        clock: for ages.
        tasks: where values are renewed.
        load: returns the value of a key, ``None`` if there is none.
        rules: see there.
    """

    def __init__(
        self, clock: Clock, tasks: trio.Nursery, load: Callable[[K], Awaitable[V | None]], rules: CacheRules
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._load = load
        self._rules = rules
        self._entries: dict[K, _Entry[V]] = {}
        self._loading: dict[K, trio.Event] = {}

    async def get(self, key: K, *, fresh: bool = False) -> V | None:
        """Return the value of *key*, ``None`` if there is none.

        Args:
            key: what to look for; calls at the same time share one load.
            fresh: what is known does not count. A value that was asked for less than a second ago does.

        Raises:
            Exception: what loading raises, when there is no older value.
        """
        while True:
            now, entry = self._clock.monotonic(), self._entries.get(key)
            if entry is not None and self._counts(entry, now, fresh):
                self._use(key, entry, now)
                return entry.value
            under_way = self._loading.get(key)
            if under_way is None:
                return await self._fill(key)
            await under_way.wait()
            fresh = False
            if key not in self._entries:  # whoever asked has failed, and tells why only to itself
                return await self._fill(key)

    def at_hand(self, key: K) -> V | None:
        """Return the value of *key* if it is there and counts; as with :meth:`get` it is renewed while it is used."""
        now, entry = self._clock.monotonic(), self._entries.get(key)
        if entry is None or not self._counts(entry, now, False):
            return None
        self._use(key, entry, now)
        return entry.value

    def _use(self, key: K, entry: _Entry[V], now: float) -> None:
        entry.used_at = now
        self._entries[key] = self._entries.pop(key)  # the last one was used last
        if now - entry.loaded_at >= self._rules.refresh_seconds and not entry.renewing:
            entry.renewing = True
            self._tasks.start_soon(self._renew, key, entry)

    def _counts(self, entry: _Entry[V], now: float, fresh: bool) -> bool:
        age = now - entry.loaded_at
        if entry.value is None or fresh:
            return age < self._rules.absent_seconds
        return now - entry.used_at < self._rules.expire_seconds

    async def _fill(self, key: K) -> V | None:
        event = self._loading[key] = trio.Event()
        try:
            value = await self._load(key)
        finally:
            if self._loading.get(key) is event:
                del self._loading[key]
            event.set()
        self._put(key, value)
        return value

    def _put(self, key: K, value: V | None) -> None:
        now = self._clock.monotonic()
        self._entries.pop(key, None)
        if len(self._entries) >= self._rules.most:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = _Entry(value, now, now)

    async def _renew(self, key: K, entry: _Entry[V]) -> None:
        try:
            value = await self._load(key)
        except Exception as error:  # the old value serves on
            entry.renewing = False
            entry.loaded_at = self._clock.monotonic() - self._rules.refresh_seconds + self._rules.absent_seconds
            log.info("not renewed", key=key, why=error)
            return
        if self._entries.get(key) is entry:
            self._put(key, value)
