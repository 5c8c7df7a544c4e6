"""The services of a broker: one table that says what runs, on which condition, and what is called.

Everything that runs beside answering requests is a row here. The first rows live as long as the broker, the others as
long as it has one role; both are kept running, stopped and listed by the same few lines.

Source: BrokerController.java (startBasicService, start).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

import attrs

from understudy.runtime.log import get_logger
from understudy.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from understudy.broker.broker import Broker
    from understudy.broker.session import RoleRules

log = get_logger("broker.services")


class Service(Enum):
    """What runs or not as the role and the situation of the broker decide; the value is the name in the roster."""

    REPLICATION_SERVER = "replication to slaves"
    REPLICATION_CLIENT = "replication from the master"
    METADATA_SYNC = "metadata sync"
    SCHEDULE = "schedule"
    TRANSACTIONS = "transactions"
    TIMER = "timer"
    REVIVE = "pop revive"
    HEARTBEAT = "heartbeat"
    MEMBER_VIEW = "member group"
    ABSENCE_WATCH = "absence watch"
    PRE_ONLINE = "pre-online"
    LATE_TAKE_OVER = "late take-over"
    LOG_TOPICS = "topics of the log"
    MASTER_HOLES = "holes of the log"


STORED = (Service.SCHEDULE, Service.TIMER, Service.TRANSACTIONS, Service.REVIVE)
"""Services that look after messages already stored, those of a master and of a slave that acts. They have one decision,
so that they switch on and off together, whichever there are."""


@attrs.frozen
class Decision:
    """Whether a service runs, and why."""

    run: bool
    reason: str


Decisions = Mapping[Service, Decision]
Run = Callable[[], Awaitable[object]]


@attrs.frozen
class ServiceRow:
    """One service.

    Attributes:
        name: its name in the roster.
        condition: from the decisions of the role to whether it must run now.
        run: runs it until cancelled.
        essential: its failure ends the broker.
    """

    name: str
    condition: Callable[[Decisions], Decision]
    run: Run
    essential: bool = True


@attrs.frozen
class RosterLine:
    """One service as people see it; *started_ms* is wall time in milliseconds, 0 for one that never ran."""

    name: str
    state: str  # running | stopping | ended | failed | off
    reason: str
    started_ms: int


# --- the table -------------------------------------------------------------------------------------------------------


_ALWAYS_ON = Decision(True, "always on")


def _always(decisions: Decisions) -> Decision:
    return _ALWAYS_ON


def _because(reason: str) -> Callable[[Decisions], Decision]:
    return lambda decisions: Decision(True, reason)


def _wanted(wheel: bool) -> Callable[[Decisions], Decision]:
    return lambda decisions: Decision(wheel, f"timerWheelEnable={str(wheel).lower()}")


def broker_rows(broker: Broker) -> tuple[ServiceRow, ...]:
    """Return the services that live as long as *broker*, whatever its role."""
    fast, metrics = broker.fast_server, broker.metrics
    rows = [
        ServiceRow("store", _always, broker.store.run),
        ServiceRow("timer wheel", _wanted(broker.options.store.timer_wheel_enable), broker.timing.run),
        ServiceRow("persistence", _always, broker.persistence.run),
        ServiceRow("pull hold", _always, broker.hold.run),
        ServiceRow("first reads", _always, broker.first_read_questions.run),
        ServiceRow("pop hold", _always, broker.pops.hold.run),
        ServiceRow("acknowledgements", _always, broker.acknowledgements.run),
        ServiceRow("housekeeping", _always, broker.members.run),
        ServiceRow("broadcast offsets", _always, lambda: broker.broadcasts.run(broker.members.is_connected)),
        ServiceRow("statistics", _always, broker.stats.run),
        ServiceRow("server", _always, broker.server.run),
        ServiceRow("registration", _always, broker.registration.run),
        ServiceRow("name servers", _always, broker.registration.servers.run),
        ServiceRow("role", _always, broker.roles.run),
    ]
    if fast is not None:
        rows.append(ServiceRow("fast server", _because(f"listenPort={broker.options.server.listen_port}"), fast.run))
    if broker.led is not None:
        rows.append(ServiceRow("controller", _because("enableControllerMode=true"), broker.led.run))
    if metrics is not None:
        kind = broker.options.broker.metrics_exporter_type
        rows.append(ServiceRow("metrics", _because(f"metricsExporterType={kind}"), metrics.run))
    return tuple(rows)


def role_rows(broker: Broker, rules: RoleRules) -> tuple[ServiceRow, ...]:
    """Return the services that live as long as *broker* has the role that *rules* are for, in the order of their start.

    They stop in the opposite order: what delivers before what copies.

    Raises:
        ValueError: a service would have no row, or two.
    """
    own: dict[Service, Run] = {
        Service.REPLICATION_SERVER: broker.replication.run_master,
        Service.REPLICATION_CLIENT: broker.replication.run_slave,
        Service.METADATA_SYNC: broker.slave_sync.run,
        Service.HEARTBEAT: broker.heartbeats.run,
        Service.MEMBER_VIEW: broker.member_group.run,
        Service.SCHEDULE: broker.schedule.run,
        Service.TIMER: broker.timing.deliver,
        Service.REVIVE: broker.pops.run,
    }
    hosted = rules.services()
    wrong = [each.value for each in Service if (each in own) == (each in hosted)]
    if wrong:
        raise ValueError(f"either the broker or its host runs a service: {', '.join(wrong)}")
    runs = own | dict(hosted)
    extra = (Service.LATE_TAKE_OVER, Service.LOG_TOPICS, Service.MASTER_HOLES)
    rows = [ServiceRow(each.value, _decided(each), run, each not in extra) for each, run in runs.items()]
    wheel = _wanted(broker.options.store.timer_wheel_enable)({})
    if not wheel.run:
        rows = [attrs.evolve(row, condition=lambda decisions: wheel) if row.name == "timer" else row for row in rows]
    return tuple(rows)


def _decided(service: Service) -> Callable[[Decisions], Decision]:
    return lambda decisions: decisions[service]


# --- keeping it true -------------------------------------------------------------------------------------------------


class ServiceKeeper:
    """Makes what runs equal to what the rows of one lifetime say.

    Args:
        rows: the services, in the order of their start.
        supervisor: runs them.
        owner: whose services they are, for the log.
    """

    def __init__(self, rows: Sequence[ServiceRow], supervisor: Supervisor, owner: str) -> None:
        self._rows = rows
        self._owner = owner
        self._decided: dict[str, Decision] = {}
        self.supervisor = supervisor

    async def apply(self, decisions: Decisions) -> None:
        """Stop what must not run, then start what must."""
        before, self._decided = self._decided, {row.name: row.condition(decisions) for row in self._rows}
        self._tell(before)
        for row in reversed(self._rows):
            if not self._decided[row.name].run:
                await self.supervisor.stop(row.name)
        running = self.supervisor.running()
        for row in self._rows:
            decision = self._decided[row.name]
            if decision.run and row.name not in running:
                self.supervisor.start(row.name, row.run, reason=decision.reason, essential=row.essential)

    async def stop(self) -> None:
        """Stop everything, the last row first; each service has its own bound."""
        for row in reversed(self._rows):
            await self.supervisor.stop(row.name)

    def _tell(self, before: Mapping[str, Decision]) -> None:
        for name, new in self._decided.items():
            old = before.get(name)
            if new is _ALWAYS_ON:
                continue  # the roster has it; nothing was decided
            if (old.run if old is not None else False) != new.run:
                log.info("service on" if new.run else "service off", broker=self._owner, service=name, why=new.reason)
            elif old is not None and old.reason != new.reason and name == Service.SCHEDULE.value:
                log.info("still on" if new.run else "still off", broker=self._owner, service=name, why=new.reason)

    def roster(self) -> list[RosterLine]:
        """Return a line for each row."""
        known = {each.name: each for each in self.supervisor.roster()}
        lines = []
        for name, decision in self._decided.items():
            found = known.get(name)
            if found is None:
                lines.append(RosterLine(name, "off", decision.reason, 0))
            else:
                lines.append(RosterLine(name, found.state, found.error or decision.reason, found.started_ms))
        return lines


class BrokerServices:
    """Every service of one broker, whichever lifetime it belongs to."""

    def __init__(self) -> None:
        self._keepers: list[ServiceKeeper] = []

    def add(self, keeper: ServiceKeeper) -> None:
        """List the services of *keeper* from now on."""
        self._keepers.append(keeper)

    def remove(self, keeper: ServiceKeeper) -> None:
        """List them no longer: their lifetime has ended."""
        self._keepers.remove(keeper)

    def running(self) -> frozenset[str]:
        """Return the names of the services that run."""
        return frozenset[str]().union(*(keeper.supervisor.running() for keeper in self._keepers))

    def roster(self) -> list[RosterLine]:
        """Return every service with its state and its reason, those that must not run too, in order of name."""
        return sorted(
            (line for keeper in self._keepers for line in keeper.roster()),
            key=lambda line: line.name,
        )

    async def stop(self, name: str) -> None:
        """Stop service *name* and wait until it is gone; an unknown one is fine."""
        for keeper in self._keepers:
            await keeper.supervisor.stop(name)
