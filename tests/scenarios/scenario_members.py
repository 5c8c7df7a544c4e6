"""What a scenario is played by, members and name servers as values, and the transcript of what they do."""

from __future__ import annotations

import math

import attrs

from understudy.broker import absence, member_view, registering
from understudy.broker.announcement import Patience
from understudy.broker.group_memory import GroupMemory
from understudy.container import silence
from understudy.container.preonline import handshake

UNWATCHED_SECONDS = 110
"""How much longer name servers wait for a broker that sends no heartbeats."""


@attrs.define
class NameServer:
    """Who is listed, and when each of them was heard last."""

    name: str
    up: bool = True
    members: dict[int, str] = attrs.field(factory=dict)
    heard: dict[int, float] = attrs.field(factory=dict)

    def hear(self, broker: Broker, now: float) -> None:
        """Note that *broker* was heard; one that sends no heartbeats is waited for until it registers again."""
        self.heard[broker.broker_id] = now if broker.acting_enabled else now + UNWATCHED_SECONDS


@attrs.define
class Broker:
    """One member: what survives its process, and what lives in it."""

    broker_id: int
    acting_enabled: bool = True
    commit_offset: int = 0
    log_end: int = 0
    log_open: bool = False
    synced: bool = False
    memory: GroupMemory = attrs.field(factory=GroupMemory)
    alive: bool = False
    frozen: bool = False
    stuck: bool = False
    view: member_view.State = attrs.field(init=False)
    presence: absence.State = attrs.field(init=False)
    registration: registering.State = attrs.field(init=False)
    returning: handshake.State | None = None
    answered: bool = False
    awaits_since: float | None = None
    announced_at: float = -math.inf
    successor: int | None = None
    follows: str | None = None
    connected: str | None = None
    locks: dict[str, str] = attrs.field(factory=dict)
    heard: dict[int, float] = attrs.field(factory=dict)
    left: dict[int, float] = attrs.field(factory=dict)
    silence: silence.State = attrs.field(factory=silence.State)
    patience: Patience = attrs.field(factory=Patience)
    said: dict[str, str] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        return str(self.broker_id)

    @property
    def address(self) -> str:
        return f"b{self.broker_id}"

    @property
    def runs(self) -> bool:
        return self.alive and not self.frozen


class Transcript:
    """What happened, a line each, in virtual seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []

    def close(self) -> None:
        """There is nothing to end: it is all values."""

    def note(self, text: str) -> None:
        self.lines.append(f"{self.now:>3.0f}s  {text}")

    def say(self, broker: Broker, text: str) -> None:
        self.note(f"{broker.name}: {text}")

    def say_once(self, broker: Broker, topic: str, text: str) -> None:
        """Say *text* unless it is what was said of *topic* last."""
        if self.changed(broker, topic, text):
            self.say(broker, text)

    def changed(self, broker: Broker, topic: str, text: str) -> bool:
        before = broker.said.get(topic)
        broker.said[topic] = text
        return before != text
