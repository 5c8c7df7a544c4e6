"""Keeps hidden what clients hold and want to keep, and gives back what they leave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

import trio

from understudy.proxy.core.handles import Handle
from understudy.proxy.core.renewal import Held, RenewalRules, Step, step
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import Parts
from understudy.runtime.log import get_logger

log = get_logger("proxy.renewals")

MOST_HELD = 200_000
_AT_ONCE = 32
_LOOKED_AT = 64
"""Messages that are looked at in one turn of the event loop: a fraction of a millisecond."""
_STOP_SECONDS = 2.0

Hide = Callable[[str, str, Handle, int], Awaitable[Handle]]
"""Hides a message of a group and topic for milliseconds; returns the handle that counts then."""


class _HeldMessages:
    """Messages by client and handle, those of a client found without a look at all others."""

    def __init__(self) -> None:
        self._of_client: dict[str, dict[str, Held]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, key: tuple[str, str]) -> Held | None:
        return self._of_client.get(key[0], {}).get(key[1])

    def put(self, key: tuple[str, str], held: Held) -> None:
        own = self._of_client.setdefault(key[0], {})
        self._count += key[1] not in own
        own[key[1]] = held

    def pop(self, key: tuple[str, str]) -> Held | None:
        """Take a message out and return it, ``None`` if it is not there."""
        own = self._of_client.get(key[0], {})
        held = own.pop(key[1], None)
        self._count -= held is not None
        if not own:
            self._of_client.pop(key[0], None)
        return held

    def keys_of(self, client_id: str) -> list[tuple[str, str]]:
        return [(client_id, text) for text in self._of_client.get(client_id, ())]

    def keys(self) -> Iterator[tuple[str, str]]:
        """Return the keys of this moment; those of a client when it is its turn."""
        return (key for client_id in list(self._of_client) for key in self.keys_of(client_id))


class Renewals:
    """The messages that clients of this proxy hold, by client and the handle that they know.

    Args:
        parts: of the proxy.
        hide: tells the broker.
    """

    def __init__(self, parts: Parts, hide: Hide) -> None:
        self._parts = parts
        self._hide = hide
        config = parts.config
        self._rules = RenewalRules(
            config.renew_ahead_time_millis,
            config.renew_max_time_millis,
            config.max_renew_retry_times,
            config.invisible_time_millis_when_clear,
        )
        self._held = _HeldMessages()
        self._under_way: dict[tuple[str, str], trio.Event] = {}  # those that are being renewed

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, client_id: str, group: str, topic: str, handle: Handle, reconsume_times: int) -> None:
        """Keep a message for a client; not beyond what this proxy may hold, where it comes again in its time.

        Args:
            client_id, group, topic: whose it is.
            handle: as the client gets it.
            reconsume_times: how often it was tried before.
        """
        if len(self._held) >= MOST_HELD:
            log.warning("too many messages are held, one is not renewed", held=len(self._held), client=client_id)
            return
        now_ms = self._parts.clock.wall_ms()
        self._held.put((client_id, handle.text), Held(client_id, group, topic, handle, now_ms, reconsume_times))

    @asynccontextmanager
    async def settling(self, client_id: str, handle: Handle) -> AsyncIterator[Handle]:
        """Use the newest handle of a message for the one that its client knows; forget it when the block succeeds."""
        key = (client_id, handle.text)
        while (under_way := self._under_way.get(key)) is not None:
            await under_way.wait()
        held = self._held.pop(key)
        try:
            yield handle if held is None else held.handle
        except BaseException:
            # Differs: the reference forgets it, and it comes again although its client lives.
            self.keep_on(client_id, handle, held)
            raise

    def take(self, client_id: str, handle: Handle) -> tuple[Handle, Held | None] | None:
        """Begin what :meth:`settling` does, without a wait; ``None`` while the message is being renewed.

        Returns:
            The newest handle, and what :meth:`keep_on` wants if the message is not settled after all.
        """
        key = (client_id, handle.text)
        if key in self._under_way:
            return None
        held = self._held.pop(key)
        return (handle if held is None else held.handle), held

    def keep_on(self, client_id: str, handle: Handle, held: Held | None) -> None:
        """Go on with a message that was taken and is not settled."""
        if held is not None:
            self._held.put((client_id, handle.text), held)

    async def run(self) -> None:
        """Look after all of them for ever; give them back at the end."""
        try:
            while True:
                await self._parts.clock.sleep(self._parts.config.renew_schedule_period_millis / 1000)
                await self._look()
        finally:
            with self._parts.clock.move_on_after(_STOP_SECONDS) as scope:
                scope.shield = True
                await self._release(self._held.keys())

    async def release(self, client_id: str) -> None:
        """Give back what a client holds that ends."""
        await self._release(self._held.keys_of(client_id))

    async def _look(self) -> None:
        due: list[tuple[tuple[str, str], Step, int]] = []
        for number, key in enumerate(self._held.keys(), 1):
            if not number % _LOOKED_AT:
                await trio.lowlevel.checkpoint()
            held = self._held.get(key)
            if held is None:
                continue  # settled since
            there = self._parts.clients.get(held.client_id) is not None
            group = await self._parts.brokers.group(held.group)
            now_ms = self._parts.clock.wall_ms()
            what, hide_ms = step(held, now_ms, client_is_there=there, group=group, rules=self._rules)
            if what is Step.FORGET:
                self._held.pop(key)
            elif what is not Step.KEEP:
                due.append((key, what, hide_ms))
        await self._carry_out_all(due)

    async def _carry_out_all(self, due: Iterable[tuple[tuple[str, str], Step, int]]) -> None:
        """Do what is due, some of it at a time."""
        left = iter(due)

        async def work(left: Iterator[tuple[tuple[str, str], Step, int]]) -> None:
            for key, what, hide_ms in left:
                await trio.lowlevel.checkpoint()
                await self._carry_out(key, what, hide_ms)

        async with trio.open_nursery() as nursery:
            for _ in range(_AT_ONCE):
                nursery.start_soon(work, left)

    async def _carry_out(self, key: tuple[str, str], what: Step, hide_ms: int) -> None:
        held = self._held.get(key)
        if held is None or key in self._under_way:
            return  # acknowledged, or released, meanwhile
        if what is Step.RELEASE:
            self._held.pop(key)
        done = self._under_way[key] = trio.Event()
        try:
            handle = await self._hide(held.group, held.topic, held.handle, hide_ms)
        except ProxyError as error:
            self._replace(key, held, held.failed() if error.code != v2.INVALID_RECEIPT_HANDLE else None)
            log.info("not renewed", topic=held.topic, group=held.group, failures=held.failures + 1, why=error)
        else:
            self._replace(key, held, held.renewed(handle))
        finally:
            del self._under_way[key]
            done.set()

    def _replace(self, key: tuple[str, str], before: Held, after: Held | None) -> None:
        """Put *after* in place of *before*, unless the message was settled meanwhile."""
        if self._held.get(key) is before:
            if after is None:
                self._held.pop(key)
            else:
                self._held.put(key, after)

    async def _release(self, keys: Iterable[tuple[str, str]]) -> None:
        await self._carry_out_all((key, Step.RELEASE, self._rules.clear_ms) for key in keys)
