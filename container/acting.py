"""Who acts: a pure function from what a broker is and sees to the services that must run, each with its reason.

The rules of the room:

* A **role** is a set of running services. Who else needs to know whether the broker acts asks the rules of its role
  (:class:`~understudy.broker.session.RoleRules`), which ask here.
* A master runs the master's services. A slave runs the copying ones. A slave **acts** when it has the smallest id of
  all members that the name server sees, no member is a master, and it may (``enableSlaveActingMaster``); then it also
  runs the master's services that look after messages already stored. It never takes sends.
* An **isolated** broker runs nothing that another broker could run at the same time: no acting, no registration, no
  heartbeat. It is what a returning master is until pre-online has finished.
* Becoming acting ends the copying, of the log and of the tables, until the master is seen again or says that it comes
  back: so a master that only the name servers have lost notices that a slave is silent, and delivers nothing beside it.
* A slave acts only after it has copied the metadata of its group once: before that it would answer "no such topic".
* A view that is unknown (no name server answered yet) changes nothing for a master and lets no slave act.
* A slave that has lost every name server for longer than the group's timeout stops acting: its master may be back. So
  two brokers act at once for one timeout at most, whatever part of the network is cut.
* A master that has heard neither a name server nor one of its slaves for longer than that is **cut off**: a slave may
  act for it. It leaves what is stored to that slave, and its heartbeats cease so that name servers that only hear it
  let the slave act; it goes on to take the sends that still reach it. As long as it hears all slaves that it
  knows of, none of them acts, and it goes on without any name server.
* A slave whose log has a hole does not act, unless its master has nothing there either: it would pass what it cannot
  read, and the master would take that over as delivered.
* A master that asks its slaves for what its log lacks before it takes messages leaves what is stored alone meanwhile:
  what is due would be passed where it is missing, and come back a moment later.
* A slave stops acting when its master says that it comes back, before the master reads the slave's progress; so it does
  when a slave of a smaller id says that it acts from now on.

In any single view at most one broker of a group acts: the condition names one id.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from understudy.broker.services import STORED, Decision, Service


@attrs.frozen
class Situation:
    """Everything the decision depends on.

    Attributes:
        broker_id: 0 for a master.
        is_slave: the configured role (or the one the controller gave).
        acting_enabled: ``enableSlaveActingMaster``.
        isolated: pre-online has not finished, or the broker found that it had been away.
        members: ids and addresses that the name server sees in the group; ``None`` while no name server has answered.
        metadata_synced: topics, groups and offsets of the group were copied, in this life or a former one.
        master_returning: the master has just said that it comes back.
        successor: the slave of a smaller id that has just said that it comes, and acts from now on.
        master_declines: the master's own ``enableSlaveActingMaster`` is false.
        contact_lost: no name server has answered for longer than the group's timeout.
        slaves_silent: a slave that the last view shows, or that has come since, has not been heard for as long as that.
        left_out: the slaves without which pre-online went on and that were not heard since, for people.
        topics_missing: the log holds topics that have no row.
        messages_missing: the log has a hole, and the master, or a slave of this master, may have what was there.
        asks_first: the slaves of this master are asked for what is missing now, before it takes or passes anything.
    """

    broker_id: int
    is_slave: bool
    acting_enabled: bool = False
    isolated: bool = False
    members: Mapping[int, str] | None = None
    metadata_synced: bool = True
    master_returning: bool = False
    successor: int | None = None
    master_declines: bool = False
    contact_lost: bool = False
    slaves_silent: bool = False
    left_out: str = ""
    topics_missing: bool = False
    messages_missing: bool = False
    asks_first: bool = False

    @property
    def cut_off(self) -> bool:
        """Whether a slave may act for this master without its knowing."""
        return not self.is_slave and self.acting_enabled and self.contact_lost and self.slaves_silent


def acts(situation: Situation) -> Decision:
    """Return whether a slave acts for its master."""
    if not situation.is_slave:
        return Decision(False, "a master does not act, it is the master")
    if not situation.acting_enabled:
        return Decision(False, "enableSlaveActingMaster=false")
    if situation.isolated:
        return Decision(False, "isolated")
    if situation.members is None:
        return Decision(False, "no name server has answered yet")
    if situation.contact_lost:
        return Decision(False, "no name server has answered for too long: the master may be back")
    if situation.master_returning:
        return Decision(False, "the master is coming back")
    if situation.successor is not None:
        return Decision(False, f"slave {situation.successor} comes and acts from now on")
    if situation.master_declines:
        return Decision(False, "enableSlaveActingMaster=false at the master: it would take nothing back")
    if not situation.members:
        return Decision(False, "the name server sees no member of the group, not even this one")
    smallest = min(situation.members)
    if smallest == 0:
        return Decision(False, f"the master {situation.members[0]} is there")
    if smallest < situation.broker_id:
        return Decision(False, f"slave {smallest} has a smaller id")
    if situation.broker_id not in situation.members:
        return Decision(False, "the name server does not see this broker")
    if not situation.metadata_synced:
        return Decision(False, "topics and offsets of the group were not copied yet")
    if situation.messages_missing:
        return Decision(False, "messages are missing in its log, and the master may have them")
    return Decision(True, "no master, and the smallest id of the group")


def _why_master(situation: Situation) -> str:
    return "cut off: neither a name server nor every slave is heard, so one may act" if situation.cut_off else "master"


def _looks_after(situation: Situation) -> Decision:
    """Return whether a master looks after what is stored."""
    if situation.isolated:
        return Decision(False, "isolated")
    if situation.asks_first and not situation.cut_off:
        return Decision(False, "messages are missing in its log, and its slaves are asked for them first")
    return Decision(not situation.cut_off, _why_master(situation))


def told(situation: Situation) -> Decision:
    """Return whether others may be told of this broker."""
    isolated = situation.isolated
    return Decision(not isolated, "isolated: not to be found yet" if isolated else "always on")


def services(situation: Situation) -> dict[Service, Decision]:
    """Return for every service of a role whether it must run now, with the reason a person reads in the roster."""
    slave, isolated, watched = situation.is_slave, situation.isolated, situation.acting_enabled
    acting = acts(situation)
    role = "slave" if slave else "master"
    if slave:
        stored = Decision(acting.run, f"acting: {acting.reason}" if acting.run else acting.reason)
    else:
        stored = _looks_after(situation)
    copying = Decision(slave and not acting.run, role if not acting.run else "acting: there is no master to copy")
    heard = told(situation) if not situation.cut_off else Decision(False, _why_master(situation))
    enabled = f"enableSlaveActingMaster={str(watched).lower()}"
    return {
        **dict.fromkeys(STORED, stored),
        Service.REPLICATION_SERVER: Decision(not slave, role),
        Service.REPLICATION_CLIENT: copying,
        Service.METADATA_SYNC: copying,
        Service.HEARTBEAT: Decision(watched and heard.run, heard.reason if watched else enabled),
        Service.MEMBER_VIEW: Decision(watched or slave, "slave" if slave else enabled),
        Service.ABSENCE_WATCH: Decision(watched, enabled),
        Service.PRE_ONLINE: Decision(isolated, "isolated" if isolated else "not isolated"),
        Service.LATE_TAKE_OVER: Decision(
            bool(situation.left_out) and not isolated,
            f"left out: {situation.left_out}" if situation.left_out else "no slave is left out",
        ),
        Service.MASTER_HOLES: Decision(
            situation.messages_missing and not (slave or isolated),
            "messages are missing in the log of this master" if situation.messages_missing and not slave else role,
        ),
        Service.LOG_TOPICS: Decision(
            acting.run and situation.topics_missing,
            "topics have no row" if situation.topics_missing else "every topic has its row",
        ),
    }
