"""A small group of brokers made of the pure decisions alone, and the name servers they talk to; for scenario files.

Nothing in here is a second opinion on what a broker should do: what it registers, sees, trusts, hides from, asks and
runs is decided by the product's own functions. This module carries their actions out, at once and in order, over links
that can be cut, and notes what happened in words. What they are carried out on is a model: name servers are sets of
members, and a take-over is the larger of two commit offsets.
"""

from __future__ import annotations

import math

import attrs
from scenario_copying import RETURN_SECONDS, Copies
from scenario_members import Broker, NameServer

from understudy.broker import absence, group_memory, member_events, member_view, registering
from understudy.broker.announcement import Patience
from understudy.broker.group_memory import GroupMemory
from understudy.broker.member_events import Following, Notice
from understudy.broker.member_view import Own
from understudy.broker.registering import TellResult
from understudy.broker.services import Service
from understudy.container import silence
from understudy.container.acting import acts, services
from understudy.container.preonline import handshake
from understudy.container.preonline.copying import not_copying
from understudy.container.preonline.handshake import Member, Phase

TIMEOUT_SECONDS = 10
PATIENCE_SECONDS = 60
COPY_SECONDS, REMIND_SECONDS = 10, 2
"""How long a returning broker waits until a slave copies, and how often it says so to whom it has told."""
SETTINGS = registering.Settings(timeout_seconds=TIMEOUT_SECONDS)
LIMITS = absence.limits(TIMEOUT_SECONDS * 1000, 1000, 1000)
SILENCE = silence.limits(3000, LIMITS.silence, 1000, 1000)


class Group(Copies):
    """The members 0 to n and their name servers, in virtual time."""

    # --- faults ----------------------------------------------------------------------------------------------------

    def start(self, broker: Broker) -> None:
        broker.alive, broker.frozen = True, False
        for other in self.brokers:  # a connection to its former process is none to this one
            other.connected = None if other.connected == broker.address else other.connected
        own = Own(broker.broker_id, broker.address, broker.broker_id > 0, broker.acting_enabled)
        broker.view, broker.awaits_since = member_view.State(own, memory=broker.memory), None
        broker.registration = registering.State()
        broker.presence = absence.State(broker.broker_id, broker.address, self._moment())
        broker.said, broker.locks, broker.follows, broker.connected = {}, {}, None, None
        broker.heard, broker.left, broker.silence, broker.patience = {}, {}, silence.State(), Patience()
        self._presence(broker, absence.Began(broker.broker_id, broker.broker_id > 0, broker.acting_enabled))
        self._live(broker)

    def power_off(self, broker: Broker) -> None:
        """End the process so that nobody hears of it."""
        broker.alive, broker.returning = False, None

    def kill(self, broker: Broker) -> None:
        self.power_off(broker)
        for server in self.servers:
            if server.up and broker.broker_id in server.members:
                self._drop(server, broker.broker_id)
        self._everybody_decides()

    def drop(self, server: NameServer, broker_id: int) -> None:
        self._drop(server, broker_id)
        self._everybody_decides()

    def watch(self, broker: Broker, acting_enabled: bool) -> None:
        """Change ``enableSlaveActingMaster`` of a running member."""
        broker.acting_enabled = acting_enabled
        broker.view = attrs.evolve(broker.view, own=attrs.evolve(broker.view.own, acting_enabled=acting_enabled))
        self._presence(broker, absence.Guarded(acting_enabled))
        self._decide(broker)

    # --- time ------------------------------------------------------------------------------------------------------

    def second(self) -> None:
        """Let one second pass."""
        self.now += 1
        for server in self.servers:
            for broker_id, heard in list(server.heard.items()):
                if server.up and self.now - heard > TIMEOUT_SECONDS:
                    self._drop(server, broker_id)
        for broker in self.brokers:
            if broker.runs:
                self._live(broker)
        self._everybody_decides()

    def _live(self, broker: Broker) -> None:
        self._presence(broker, absence.Looked())
        self._heartbeat(broker)
        self._look_at_group(broker)
        self._come_online(broker)
        self._register(broker)
        self._take_over_late(broker)
        self._copy(broker)
        self._listen(broker)
        self._decide(broker)

    # --- registration ----------------------------------------------------------------------------------------------

    def _withheld(self, broker: Broker) -> bool:
        return broker.presence.isolated or broker.presence.out_of_touch(self._moment(), LIMITS)

    def _heartbeat(self, broker: Broker) -> None:
        beats = services(self._situation(broker))[Service.HEARTBEAT].run
        if not beats or self._withheld(broker):
            return
        for name in self._names():
            server = self._server(broker, name)
            if server is not None and broker.broker_id in server.members:
                server.hear(broker, self.now)
            elif server is not None:
                self._registering(broker, registering.FoundLost())

    def _register(self, broker: Broker) -> None:
        while actions := self._registering(broker, registering.Look(self._names(), self._withheld(broker))):
            for action in actions:
                if not isinstance(action, registering.Register):
                    continue
                told = []
                for name in action.servers:
                    server = self._server(broker, name)
                    result = TellResult.MISSED if server is None else TellResult.TOOK
                    if server is not None:
                        self._list(server, broker)
                        self._viewing(broker, member_events.Registered())
                        told.append(name)
                    self._registering(broker, registering.Answered(name, result))
                if told:
                    self.say(broker, f"registers at {' '.join(told)}")
                self._registering(broker, registering.Told(action.regular))

    def _registering(self, broker: Broker, event: registering.Event) -> tuple[registering.Action, ...]:
        broker.registration, actions = registering.step(broker.registration, event, self.now, SETTINGS)
        for action in actions:
            if isinstance(action, registering.StayAway):
                self.say(broker, f"heartbeats do not arrive: stays away for {action.seconds:g} s")
        return actions

    def _list(self, server: NameServer, broker: Broker) -> None:
        before = min(server.members, default=0)
        server.members[broker.broker_id] = broker.address
        server.hear(broker, self.now)
        server.members = dict(sorted(server.members.items()))
        master = server.members.get(0)
        if broker.broker_id and master is not None:
            broker.follows = master
        if broker.broker_id < before:
            self._notify(server, Notice(broker.broker_id, broker.address, None, f"{broker.address}:ha"))

    def _drop(self, server: NameServer, broker_id: int) -> None:
        was_smallest = broker_id == min(server.members)
        address = server.members.pop(broker_id)
        server.heard.pop(broker_id, None)
        self.note(f"{server.name}: drops {broker_id}")
        if was_smallest and server.members:
            smallest = min(server.members)
            self._notify(server, Notice(smallest, server.members[smallest], address, None))

    def _notify(self, server: NameServer, notice: Notice) -> None:
        for broker_id in list(server.members):
            broker = self.brokers[broker_id]
            if broker.runs and self.linked(broker.name, server.name) and broker_id != notice.min_broker_id:
                self._viewing(
                    broker, member_events.Noticed(notice, len(self.servers), following=self._following(broker))
                )
        if notice.offline_address is not None and notice.min_broker_id is not None:
            smallest = self.brokers[notice.min_broker_id]
            if smallest.runs and self.linked(smallest.name, server.name):
                self._viewing(
                    smallest, member_events.Noticed(notice, len(self.servers), following=self._following(smallest))
                )

    # --- the view of the group -------------------------------------------------------------------------------------

    def _look_at_group(self, broker: Broker) -> None:
        if broker.acting_enabled:
            self._viewing(broker, member_events.Due(self._names()))

    def _following(self, broker: Broker) -> Following:
        if not broker.broker_id:
            return Following()
        return Following(broker.follows, self.now - broker.announced_at < RETURN_SECONDS, broker.follows is not None)

    def _viewing(self, broker: Broker, event: member_events.Event) -> None:
        broker.view, actions = member_view.step(broker.view, event, self.now)
        for action in actions:
            following = self._following(broker)
            if isinstance(action, member_events.Ask):
                server = self._server(broker, action.server)
                if server is None:
                    self._viewing(broker, member_events.NoAnswer(action.server, following))
                else:
                    found = dict(server.members)
                    self._viewing(broker, member_events.Answered(action.server, found, self._names(), following))
            elif isinstance(action, member_events.AskOthers):
                answers = [self._server(broker, name) for name in action.servers]
                views = tuple(dict(each.members) for each in answers if each is not None)
                self._viewing(broker, member_events.Opinions(views, following))
            elif isinstance(action, member_events.AskAgain):
                self._look_at_group(broker)
            elif isinstance(action, member_events.Contact):
                self._presence(broker, absence.Contact(action.found, action.before, action.remembered))
            elif isinstance(action, member_events.Lost):
                self._registering(broker, registering.FoundLost())
            elif isinstance(action, member_events.TellServers):
                self._registering(broker, registering.Everything())
            elif isinstance(action, member_events.Remember):
                broker.memory = broker.view.memory
            elif isinstance(action, member_events.Follow | member_events.FindLog):
                broker.follows = action.address
            elif isinstance(action, member_events.Arrived):
                broker.announced_at = -math.inf
            elif isinstance(action, member_events.LoseMaster):
                broker.follows = None
            elif isinstance(action, member_events.AskSettings):
                member = self._reachable(broker, action.address)
                said = None if member is None else member.acting_enabled
                self._viewing(broker, member_events.SettingsOf(action.broker_id, action.address, said))
            elif isinstance(action, member_events.Warn):
                self.say(broker, f"warning: {action.text}")
            elif isinstance(action, member_events.Twin):
                self.say(broker, f"another broker has this name and id, at {action.address}")

    # --- presence and pre-online -----------------------------------------------------------------------------------

    def _presence(self, broker: Broker, event: absence.Event) -> None:
        broker.presence, actions = absence.step(broker.presence, event, self._moment(), LIMITS)
        for action in actions:
            if isinstance(action, absence.Isolated):
                self.say(broker, f"isolated: {action.cause}")
            elif isinstance(action, absence.ForgetView):
                broker.view = attrs.evolve(broker.view, members=None, pending=None, left=(), overtaken=True)
            elif isinstance(action, absence.Register):
                self._registering(broker, registering.Everything())

    def _come_online(self, broker: Broker) -> None:
        if not broker.presence.isolated:
            return
        if broker.returning is None:
            former = tuple(Member(*each) for each in (broker.memory.members or {}).items())
            broker.returning = handshake.begin(
                Member(broker.broker_id, broker.address),
                former,
                left_out=tuple(Member(each.broker_id, each.address) for each in broker.memory.left_out),
                lone=broker.memory.lone(broker.broker_id, total_replicas=self.total_replicas),
                now=self.now,
                dropped=broker.presence.cause == absence.DROPPED,
                patience_seconds=PATIENCE_SECONDS,
                timeout_seconds=TIMEOUT_SECONDS,
            )
        elif self.now % REMIND_SECONDS == 0:
            self._remind(broker, broker.returning)
        while broker.returning is not None:
            state = broker.returning
            event = self._phase(broker, state)
            if event is None:
                return
            broker.returning = state = handshake.step(state, event, self.now)
            if isinstance(event, handshake.Failed):
                self.say_once(broker, "pre-online", f"pre-online: {state.trouble}")
            if state.phase is Phase.ONLINE:
                self._online(broker, state)
            elif state.phase is Phase.PAUSE:
                return

    def finish(self, broker: Broker) -> None:
        """An operator ends pre-online."""
        assert broker.returning is not None, "it is not in pre-online"
        self._online(broker, handshake.step(broker.returning, handshake.Finish(), self.now))
        self._register(broker)
        self._everybody_decides()

    def _online(self, broker: Broker, state: handshake.State) -> None:
        self.say(broker, "online" + (f" without {', '.join(map(str, state.given_up))}" if state.given_up else ""))
        broker.returning, broker.log_open = None, False
        left = {each.broker_id: each.address for each in state.given_up}
        self._remember(broker, group_memory.without(broker.view.memory, left, {}))
        self._presence(broker, absence.Online(heard=broker.answered))

    def _await_copy(self, broker: Broker, slave: Broker) -> handshake.Event | None:
        self._copy(slave)
        began = self.now if broker.awaits_since is None else broker.awaits_since
        connected = [each.address for each in self.brokers if each.runs and each.connected == broker.address]
        target, returning = Member(slave.broker_id, slave.address), broker.returning
        assert returning is not None
        copies = target not in not_copying((*returning.copying, target), connected, returning.known)
        broker.awaits_since = began if self.now - began < COPY_SECONDS and not copies else None
        if broker.awaits_since is not None:
            return None
        return handshake.Done() if copies else handshake.Failed(f"{slave.name} does not copy")

    def _phase(self, broker: Broker, state: handshake.State) -> handshake.Event | None:
        """Do what *state* says; ``None``: it takes longer than this moment."""
        if state.phase is Phase.PAUSE:
            return handshake.Done()
        if state.phase is Phase.LEARN:
            for member in state.reachable:
                other = self._reachable(broker, member.address)
                if other is not None:
                    self._take_over(broker, other)
            return handshake.Done()
        if state.phase is Phase.ASK_MEMBERS:
            answers = [self._server(broker, name) for name in self._names()]
            views = [each.members for each in answers if each is not None]
            broker.answered = bool(views)
            if not views and self.servers:
                return handshake.Failed("no name server answers")
            return handshake.Members(tuple({Member(*each) for view in views for each in view.items()}))
        assert state.target is not None
        other = self._reachable(broker, state.target.address)
        if other is None:
            return handshake.Failed("no answer")
        if state.phase is Phase.COMPLETE_LOG:
            self._complete_log(broker, (state.target, *state.waiting))
        elif state.phase is Phase.ANNOUNCE:
            word = "acts from now on" if broker.broker_id else "comes back"
            self.say(broker, f"tells {other.name} that it {word}")
            self._tell(other, broker.broker_id)
            other.follows = other.follows if broker.broker_id else broker.address
            self._decide(other)
        elif state.phase is Phase.AWAIT_COPY:
            return self._await_copy(broker, other)
        elif state.phase is Phase.ASK_MASTER:
            broker.follows = other.address
        elif state.phase is Phase.TAKE_OVER:
            self._take_over(broker, other)
        return handshake.Done()

    def _take_over(self, broker: Broker, other: Broker) -> None:
        if other.commit_offset > broker.commit_offset:
            broker.commit_offset = other.commit_offset
            self.say(broker, f"takes over {other.commit_offset} from {other.name}")

    def _take_over_late(self, broker: Broker) -> None:
        for left in broker.memory.left_out if not broker.presence.isolated else ():
            other = self._reachable(broker, left.address)
            if other is not None:
                self._remember(broker, group_memory.answered(broker.view.memory, left.broker_id, {}))
                self._take_over(broker, other)

    def _remember(self, broker: Broker, memory: GroupMemory) -> None:
        broker.view, broker.memory = attrs.evolve(broker.view, memory=memory), memory

    # --- what runs -------------------------------------------------------------------------------------------------

    def _listen(self, broker: Broker) -> None:
        """A master listens to name servers and to the slaves that copy from it, a slave that acts to the former."""
        if broker.presence.isolated:
            return
        listened = silence.Listened(
            broker.presence.guarded,
            broker.presence.contact_ms,
            len({*(broker.view.members or {}), *(broker.memory.members or {})} - {broker.broker_id}),
            None if broker.broker_id else self._hearing(broker),
            acts(self._situation(broker)).run,
        )
        broker.silence, actions = silence.step(broker.silence, listened, self.now * 1000, SILENCE)
        for action in actions:
            held = f"holds back what is due: {action.why}" if isinstance(action, silence.HoldBack) else ""
            self.say(broker, held or "delivers what is due again")

    def _everybody_decides(self) -> None:
        for broker in self.brokers:
            if broker.runs:
                self._decide(broker)

    def _decide(self, broker: Broker) -> None:
        situation = self._situation(broker)
        decision = acts(situation) if broker.broker_id else services(situation)[Service.SCHEDULE]
        verb = "acts" if broker.broker_id else "delivers"
        if self.changed(broker, "delivers", str(decision.run)):
            first = decision.run or broker.said.get("spoke") == "yes"
            if first:
                self.say(broker, f"{verb if decision.run else f'no longer {verb}'}: {decision.reason}")
            broker.said["spoke"] = "yes"

    def know(self) -> list[str]:
        """Return what everyone knows, a line each."""
        lines = []
        for server in self.servers:
            shown = " ".join(map(str, server.members)) or "nobody"
            lines.append(f"{server.name}: shows {shown}" if server.up else f"{server.name}: down")
        for broker in self.brokers:
            if not broker.alive:
                state = "dead"
            elif broker.frozen:
                state = "frozen"
            elif broker.presence.isolated:
                readable = self._moment().wall_ms <= broker.presence.readable_until_ms(LIMITS)
                state = "isolated" + (", answers readers" if readable else "")
            else:
                decided = services(self._situation(broker))[Service.SCHEDULE].run
                state = "acts" if broker.broker_id and decided else "delivers" if decided else "stands by"
            seen = " ".join(map(str, broker.view.members or ())) if broker.alive else ""
            remembers = " ".join(map(str, broker.memory.members or ())) or "nobody"
            sees = f", sees {seen or 'nobody'}" if broker.alive else ""
            log = f", log ends at {broker.log_end}" if broker.log_end else ""
            lines.append(
                f"{broker.name}: {state}{sees}, remembers {remembers}, commit offset {broker.commit_offset}{log}"
            )
        return lines
