"""Whether a broker may be found: looks at the clocks, takes what name servers answer, and tells who depends on it.

What follows from that is decided in :mod:`understudy.broker.absence`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from understudy.broker import absence
from understudy.broker.absence import (
    Began,
    Contact,
    Decide,
    Event,
    ForgetView,
    Guarded,
    Isolated,
    Limits,
    Looked,
    Moment,
    Online,
    Outdated,
    Register,
)
from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("broker.presence")

LOOKS_PER_LIMIT = 4
"""How often the clocks are looked at within the time that must not pass unnoticed."""


class Presence:
    """The presence of one broker.

    Args:
        clock: both clocks.
        options: read anew each time.
        identity: the broker.

    Attributes:
        state: what is known.
        parted: this slave has messages that its master lost, and does not act.
        readable_until_ms: wall time; who reads later waits until the broker is online (one number, for pulls ask it).
        on_decide: called when a decision about the role may have changed.
        on_forget: called when what is known of the group is old.
        on_register: called when name servers must be told anew, or may be told again.
    """

    def __init__(self, clock: Clock, options: BrokerOptions, identity: Identity) -> None:
        self._clock = clock
        self._options = options
        self._identity = identity
        self._led = not options.broker.enable_controller_mode
        self.state = absence.State(identity.broker_id, identity.address, self.now())
        self.parted = False
        self.readable_until_ms = self._readable_until_ms()
        self.on_decide: list[Callable[[], None]] = []
        self.on_forget: list[Callable[[], None]] = []
        self.on_register: list[Callable[[], None]] = []

    def now(self) -> Moment:
        """Read both clocks."""
        return Moment(self._clock.monotonic() * 1000, self._clock.wall_ms())

    @property
    def limits(self) -> Limits:
        """What the settings allow at the moment."""
        keys = self._options.broker
        return absence.limits(
            keys.broker_not_active_timeout_millis, keys.broker_heartbeat_interval, keys.sync_broker_member_group_period
        )

    @property
    def isolated(self) -> bool:
        """Whether nobody may find the broker until pre-online is done."""
        return self.state.isolated

    @property
    def absent(self) -> bool:
        """Whether what the broker knows is out of date, right now."""
        return self.state.absent(self.now(), self.limits)

    @property
    def withheld(self) -> bool:
        """Whether name servers must not be told of the broker, right now."""
        return not self._led or self.state.isolated or self.state.out_of_touch(self.now(), self.limits)

    @property
    def unreadable(self) -> bool:
        """Whether readers must wait until the broker is online, right now."""
        return self._clock.wall_ms() > self.readable_until_ms

    @property
    def silent_ms(self) -> float:
        """For how long no name server has answered."""
        return self.state.silent_ms(self.now())

    def began(self, cause: str) -> None:
        """Begin in the role in force, isolated where others could have acted for the broker; *cause* says why."""
        role, keys = self._identity.role, self._options.broker
        self._take(Began(role.broker_id, role.is_slave, keys.enable_slave_acting_master, cause, keys.skip_pre_online))

    def settings_changed(self) -> None:
        """Take what may change while a role lasts: whether others could act for the broker, and what is trusted."""
        keys = self._options.broker
        self._take(Guarded(keys.enable_slave_acting_master, keys.skip_pre_online))

    def contact(
        self, found: Mapping[int, str], before: Mapping[int, str] | None, remembered: Mapping[int, str]
    ) -> None:
        """Take the answer of a name server; see :class:`~understudy.broker.absence.Contact`."""
        self._take(Contact(found, before, remembered))

    def part(self, parted: bool) -> None:
        """Let readers wait, or no longer: what offsets of the group mean is not what this slave's log holds."""
        self.parted = parted
        self.readable_until_ms = self._readable_until_ms()

    def _readable_until_ms(self) -> float:
        return -math.inf if self.parted or not self._led else self.state.readable_until_ms(self.limits)

    def led(self) -> None:
        """Let a broker of controller mode be found: its controllers have said what it is."""
        if not self._led:
            self._led = True
            self.readable_until_ms = self._readable_until_ms()
            _call(self.on_register)

    def outdated(self) -> None:
        """Let nobody find the broker until it has asked the others of its group: it would act, and knows too little."""
        self._take(Outdated())

    def online(self, *, heard: bool = False) -> None:
        """Let the broker be found: pre-online is done; *heard* says whether a name server has answered at its end."""
        self._take(Online(heard))

    async def run(self) -> None:
        """Look at the clocks until cancelled."""
        while True:
            self._take(Looked())
            pause_ms = min(self._options.broker.broker_heartbeat_interval, self.limits.pause / LOOKS_PER_LIMIT)
            await self._clock.sleep(pause_ms / 1000)

    def _take(self, event: Event) -> None:
        self.state, actions = absence.step(self.state, event, self.now(), self.limits)
        self.readable_until_ms = self._readable_until_ms()
        for action in actions:
            if isinstance(action, Isolated):
                log.warning("isolated", broker=self._identity.canonical_name, why=action.cause)
            elif isinstance(action, ForgetView):
                _call(self.on_forget)
            elif isinstance(action, Register):
                _call(self.on_register)
            elif isinstance(action, Decide):
                _call(self.on_decide)


def _call(listeners: list[Callable[[], None]]) -> None:
    for listener in listeners:
        listener()
