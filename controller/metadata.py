"""The replicated metadata: which broker ids a group has, who is in sync, who is master (ReplicasInfoManager.java).

A pure state machine: every check happens where the command is applied, so that a deposed controller cannot have checked
against something old. Laws:

1. The master epoch grows with every change of master, including its loss; the set's epoch with every change of the set.
   A group that is not known, though its logs have epochs (its data were cleaned, or the controllers are new), begins
   above them: no epoch is written by two masters. That is feature 2, in force once all members know it.
   So does the former set: who was elected and confirms that it leads (1001 with its set as it is) is the only one who
   may be elected from then on; until then, all who could have been in its place, for it has acknowledged nothing, and
   its disk may lack what it acknowledged before. That is feature 3; masters that do not say that they confirm are the
   only ones at once, as in the reference. With feature 4 who does not live when a master is elected is none of them:
   it may have lost its memory. With feature 5 it is, if it comes back with the incarnation that its store had when it
   came into the set; and nobody is who lives with another one, unless all do.
2. Ids are given once; the next one is greater than any that was given. Brokers of a group that is not known any more
   have those that they had: that is feature 6.
3. A refused command changes nothing. One that cannot be applied is refused as well, by every member alike.

Differs from the reference: the next id is the greatest plus one (the reference counts additions); a group that already
has no master does not lose it again; a first election takes only registered ids; cleaning looks at the ids given in any
case, and a cleaned master is master no longer; a name in use by another cluster is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from understudy.controller.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    MalformedCommandError,
    Outcome,
    RegisterBroker,
    UnknownCommandError,
    encode,
    read_command,
)
from understudy.controller.election import Live, Verdict, elect
from understudy.controller.group import Group, Replica
from understudy.controller.raft.errors import CommandRefusedError, FatalError
from understudy.remoting.codes import ResponseCode
from understudy.runtime.log import get_logger

log = get_logger("controller.metadata")


FROM_EPOCHS_OF_LOGS = 2
"""The feature version from which on a first epoch is above those of the group's logs."""
FORMER_SET = 3
"""The feature version from which on the former set may be elected until a new master confirms that it leads."""
LIVING_FORMER_SET = 4
"""The feature version from which on only who lives when a master is elected is of the former set."""
INCARNATIONS = 5
"""The feature version from which on who was away then is of it, too, if it comes back with the store that it had.

And a group whose master is not heard may be cleaned, for it is not deposed when nobody is heard.
"""
OWN_IDS = 6
"""The feature version from which on whoever is first in a group that is not known has the id that it had before.

With another one it could get that of a broker that lives: both would be master at the same word.
"""
EPOCHS_APART = 1_000
"""How far: whoever comes first may have missed later terms than its log knows."""
EPOCH_BELIEVED = 1 << 30
"""The greatest epoch that a heartbeat is believed; epochs have 32 bits."""
FAILED = "Failed to elect a new master"
"""The remark of an election that nobody came of."""

_groups_decoder = msgspec.msgpack.Decoder(dict[str, Group])


class Metadata:
    """All groups; satisfies the quorum's machine interface.

    Attributes:
        groups: by name.
        revision: number of changes since the start.
        skipped: entries of the log that could not be applied, and were skipped, since the start.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.revision = self.skipped = 0

    # -- the quorum's interface ----------------------------------------------------------------------------------

    def apply(self, index: int, now_ms: int, features: int, payload: bytes) -> bytes:
        try:
            command = read_command(payload)
        except UnknownCommandError as error:
            raise FatalError(
                f"log entry {index} holds an unknown controller command ({error}); it was written by a newer version: "
                "upgrade this program, then start it again"
            ) from None
        except MalformedCommandError as error:
            # The same on every member, so that all skip it; to stop would stop all of them for good.
            raise self._skip(index, str(error)) from None
        before = _copy(self.groups.get(command.broker_name))
        try:
            outcome = self._run(command, features)
        except Exception as error:
            if before is None:
                self.groups.pop(command.broker_name, None)
            else:
                self.groups[command.broker_name] = before
            raise self._skip(index, repr(error)) from None
        if outcome.changed:
            self.revision += 1
        return encode(outcome)

    def _skip(self, index: int, why: str) -> CommandRefusedError:
        self.skipped += 1
        log.error("a log entry cannot be applied and is skipped", index=index, why=why)
        return CommandRefusedError(f"log entry {index} cannot be applied ({why}) and was skipped")

    def _run(self, command: Command, features: int) -> Outcome:
        if isinstance(command, ApplyBrokerId):
            return self._apply_broker_id(command, features)
        if isinstance(command, RegisterBroker):
            return self._register(command)
        if isinstance(command, AlterSyncStateSet):
            return self._alter(command, features)
        if isinstance(command, ElectMaster):
            return self._elect(command, features)
        return self._clean(command, features)

    def snapshot(self) -> bytes:
        return encode(self.groups)

    def restore(self, data: bytes) -> None:
        try:
            self.groups = _groups_decoder.decode(data)
        except msgspec.DecodeError as error:
            raise ValueError(f"the broker metadata in it is undecodable: {error}") from None
        self.revision += 1

    # -- commands ------------------------------------------------------------------------------------------------

    def _apply_broker_id(self, command: ApplyBrokerId, features: int) -> Outcome:
        name, broker_id = command.broker_name, command.broker_id
        group = self.groups.get(name)
        if group is None:
            if broker_id < 1 or (broker_id > 1 and features < OWN_IDS):
                return Outcome(
                    ResponseCode.CONTROLLER_BROKER_ID_INVALID,
                    f"Broker-set: {name} hasn't been registered in controller, but broker try to apply brokerId: "
                    f"{broker_id}",
                )
            group = self.groups[name] = Group(command.cluster_name, name)
        elif command.cluster_name and group.cluster_name and command.cluster_name != group.cluster_name:
            return Outcome(
                ResponseCode.CONTROLLER_BROKER_ID_INVALID,
                f"Broker-set: {name} belongs to cluster {group.cluster_name}; give the brokers of cluster "
                f"{command.cluster_name[:100]} another brokerName",
            )
        known = group.replicas.get(broker_id)
        if known is not None and known.check_code == command.check_code:
            return Outcome(cluster_name=group.cluster_name)
        if known is not None or broker_id < 1:
            return Outcome(
                ResponseCode.CONTROLLER_BROKER_ID_INVALID, f"Fail to apply brokerId: {broker_id} in broker-set: {name}"
            )
        group.replicas[broker_id] = Replica(command.check_code.partition(";")[0], command.check_code)
        group.greatest_id = max(group.greatest_id, broker_id)
        return Outcome(changed=True, cluster_name=group.cluster_name)

    def _register(self, command: RegisterBroker) -> Outcome:
        outcome = self.registration(command.broker_name, command.broker_id, command.alive)
        group = self.groups.get(command.broker_name)
        if group is None or outcome.code:
            return outcome
        replica = group.replicas[command.broker_id]
        if command.address and replica.address != command.address:
            replica.address = command.address
            outcome = self.registration(command.broker_name, command.broker_id, command.alive)
            outcome.changed = True
        return outcome

    def registration(self, broker_name: str, broker_id: int, alive: Iterable[int]) -> Outcome:
        """Return what a registering broker is told, without changing anything."""
        group = self.groups.get(broker_name)
        if group is None:
            return Outcome(
                ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                f"Broker-set: {broker_name} hasn't been registered in controller",
            )
        if broker_id not in group.replicas:
            return Outcome(
                ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                f"BrokerId: {broker_id} hasn't been registered in broker-set: {broker_name}",
            )
        if group.master_id is not None and group.master_id in set(alive):
            return _show(group, Outcome())
        return Outcome(set_epoch=group.set_epoch, sync_state_set=list(group.sync_state_set))

    def _alter(self, command: AlterSyncStateSet, features: int) -> Outcome:
        group = self.groups.get(command.broker_name)
        rejecting = "Rejecting alter syncStateSet request because "
        failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        if group is None:
            return Outcome(failed, "Broker metadata is not existed")
        new_set = sorted(set(command.new_set))
        confirms = features >= FORMER_SET and bool(group.former_set)
        if new_set == group.sync_state_set and not confirms:
            return Outcome(
                failed, "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet"
            )
        if group.master_id is None or group.master_id != command.master_id:
            leader = "null" if group.master_id is None else group.master_id
            return Outcome(
                ResponseCode.CONTROLLER_INVALID_MASTER,
                f"{rejecting}the current leader is:{{{leader}}}, not {{{command.master_id}}}",
            )
        if group.master_epoch != command.master_epoch:
            return Outcome(
                ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
                f"{rejecting}the current master epoch is:{{{group.master_epoch}}}, not {{{command.master_epoch}}}",
            )
        if group.set_epoch != command.set_epoch:
            return Outcome(
                ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
                f"{rejecting}the current syncStateSet epoch is:{{{group.set_epoch}}}, not {{{command.set_epoch}}}",
            )
        alive = set(command.alive)
        for broker_id in new_set:
            if broker_id not in group.replicas:
                return Outcome(
                    ResponseCode.CONTROLLER_INVALID_REPLICAS,
                    f"{rejecting}the replicas {{{broker_id}}} don't exist",
                )
            if broker_id not in alive:
                return Outcome(
                    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"{rejecting}the replicas {{{broker_id}}} don't alive"
                )
        if group.master_id not in new_set:
            return Outcome(
                failed, f"{rejecting}the newSyncStateSet {new_set} don't contains origin leader {{{group.master_id}}}"
            )
        group.former_set = []
        if new_set != group.sync_state_set:
            group.sync_state_set = new_set
            group.set_epoch += 1
        group.note_incarnations(command.incarnations if features >= INCARNATIONS else {})
        return Outcome(changed=True, set_epoch=group.set_epoch, sync_state_set=list(new_set))

    def _elect(self, command: ElectMaster, features: int) -> Outcome:
        group = self.groups.get(command.broker_name)
        if group is None:
            return Outcome(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered")
        if group.master_epoch == 0 and command.broker_id is not None:
            return self._elect_first(group, command.broker_id, command, features)
        decision = elect(
            group.electable(command.live),
            group.replicas,
            command.live,
            group.master_id,
            command.broker_id if command.designate else None,
            command.unclean_allowed,
            group.lost(command.live),
        )
        chosen = decision.master_id
        if chosen is None:
            return self._nobody(group, command, decision.verdicts)
        if chosen == group.master_id:
            return _show(
                group,
                Outcome(
                    ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
                    f"The old master {chosen} is still alive, not need to elect new master for broker "
                    f"{group.broker_name}",
                    verdicts=decision.verdicts,
                ),
            )
        facts = command.live.get(chosen)
        confirms = features >= FORMER_SET and facts is not None and facts.confirms and not decision.unclean
        if not confirms:
            group.former_set = []
        elif features >= INCARNATIONS:
            group.keep_former(command.live, chosen)
        else:
            living_only = features >= LIVING_FORMER_SET
            group.former_set = [one for one in group.in_step if not living_only or one in command.live]
        group.install(chosen)
        if not confirms:
            group.note_incarnations({})
        return _show(
            group,
            Outcome(changed=True, members=_members(group), verdicts=decision.verdicts, unclean=decision.unclean),
        )

    def _elect_first(self, group: Group, broker_id: int, command: ElectMaster, features: int) -> Outcome:
        # the first to ask wins; its request proves that it lives, its first heartbeat may still be on the way
        if broker_id not in group.replicas or (command.designate and broker_id not in command.live):
            return Outcome(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, FAILED)
        known = max((facts.epoch for facts in command.live.values() if facts.epoch <= EPOCH_BELIEVED), default=0)
        if known > 0 and features >= FROM_EPOCHS_OF_LOGS:
            group.master_epoch = known + EPOCHS_APART
        group.install(broker_id)
        return _show(group, Outcome(changed=True, members=_members(group)))

    def _nobody(self, group: Group, command: ElectMaster, verdicts: list[Verdict]) -> Outcome:
        if command.broker_id is not None:
            return Outcome(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, FAILED, verdicts=verdicts)
        changed = group.master_id is not None
        if changed:
            group.master_id = None
            group.master_epoch += 1
        return Outcome(
            ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
            FAILED,
            changed,
            master_epoch=group.master_epoch,
            set_epoch=group.set_epoch,
            verdicts=verdicts,
        )

    def _clean(self, command: CleanBrokerData, features: int) -> Outcome:
        invalid = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        name, group = command.broker_name, self.groups.get(command.broker_name)
        if not command.living_too:
            leads = group is not None and group.master_id is not None
            if leads and features >= INCARNATIONS:  # a master that is not heard is not deposed when nobody is
                leads = group is not None and group.master_id in command.alive
            if command.broker_ids is None and leads:
                return Outcome(invalid, f"Broker {name} is still alive, clean up failure")
            for broker_id in command.broker_ids or ():
                if broker_id in command.alive:
                    return Outcome(invalid, f"Broker [{name},  {broker_id}] is still alive, clean up failure")
        if group is None:
            return Outcome(invalid, f"Broker {name} is not existed,clean broker data failure.")
        for broker_id in list(group.replicas) if command.broker_ids is None else command.broker_ids:
            group.replicas.pop(broker_id, None)
        if not group.replicas:
            del self.groups[name]
            return Outcome(changed=True)
        group.former_set = [broker_id for broker_id in group.former_set if broker_id in group.replicas]
        kept = [broker_id for broker_id in group.sync_state_set if broker_id in group.replicas]
        if kept != group.sync_state_set:
            group.sync_state_set = kept
            group.set_epoch += 1
        group.note_incarnations(group.incarnations)
        if group.master_id is not None and group.master_id not in group.replicas:
            group.master_id = None
            group.master_epoch += 1
        return Outcome(changed=True)

    # -- questions -----------------------------------------------------------------------------------------------

    def next_broker_id(self, broker_name: str) -> int:
        """Return the id a new broker of the group should apply for."""
        group = self.groups.get(broker_name)
        return 1 if group is None else group.next_id

    def replica_info(self, broker_name: str) -> Outcome:
        """Return master, epochs and set of a group."""
        group = self.groups.get(broker_name)
        if group is None:
            return Outcome(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed")
        return _show(group, Outcome())

    def needs_election(
        self,
        broker_name: str,
        live: Mapping[int, Live],
        master_may_live: Callable[[int], bool],
        unclean_allowed: bool,
    ) -> bool:
        """Return whether the controller should elect for a group on its own: the master is gone or does not live.

        Args:
            broker_name: the group.
            live: facts of those who live.
            master_may_live: whether an id lives or cannot be judged yet.
            unclean_allowed: replicas outside the set may lead.
        """
        group = self.groups.get(broker_name)
        if group is None or group.master_epoch == 0:
            return False
        if group.master_id is not None:
            return not master_may_live(group.master_id) or group.master_id in group.lost(live)
        eligible = group.replicas if unclean_allowed else group.electable(live)
        return any(broker_id in live and broker_id in group.replicas for broker_id in eligible)


def _copy(group: Group | None) -> Group | None:
    if group is None:
        return None
    return msgspec.structs.replace(
        group,
        replicas={broker_id: msgspec.structs.replace(each) for broker_id, each in group.replicas.items()},
        sync_state_set=list(group.sync_state_set),
        former_set=list(group.former_set),
        incarnations=dict(group.incarnations),
    )


def _members(group: Group) -> dict[int, str]:
    return {broker_id: group.replicas[broker_id].address for broker_id in sorted(group.replicas)}


def _show(group: Group, outcome: Outcome) -> Outcome:
    outcome.master_id = group.master_id
    outcome.master_address = group.master_address()
    outcome.master_epoch = group.master_epoch
    outcome.set_epoch = group.set_epoch
    outcome.sync_state_set = list(group.sync_state_set)
    outcome.cluster_name = group.cluster_name
    return outcome
