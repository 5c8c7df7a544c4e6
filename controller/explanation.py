"""Says in plain words who is master of a group, who could be, who not and why, and what is safe to do next."""

from __future__ import annotations

from understudy.controller.election import Live, elect
from understudy.controller.group import Group
from understudy.controller.liveness import Liveness


def explain(group: Group, liveness: Liveness, now: float, unclean_allowed: bool) -> str:
    """Return the explanation of one group, one line each fact.

    Args:
        group: replicated facts.
        liveness: what this controller, the leader, hears.
        now: monotonic seconds.
        unclean_allowed: enableElectUncleanMaster.
    """
    live = liveness.alive(group.broker_name, now)
    lines = [
        f"#brokerName\t{group.broker_name}",
        f"#clusterName\t{group.cluster_name}",
        f"#Master\t{_master(group, live)}",
        f"#MasterEpoch\t{group.master_epoch}",
        f"#SyncStateSet\t{group.sync_state_set} (epoch {group.set_epoch})",
        f"#UncleanElection\t{'on' if unclean_allowed else 'off'}",
    ]
    living_master = group.master_id if group.master_id in live else None
    lost = group.lost(live)
    decision = elect(group.electable(live), group.replicas, live, living_master, None, unclean_allowed, lost)
    for verdict in decision.verdicts:
        replica = group.replicas[verdict.broker_id]
        mark = "would be chosen" if verdict.chosen else "excluded"
        heard = _heard(liveness, group.broker_name, verdict.broker_id, now)
        lines.append(f"#Candidate\t{verdict.broker_id}\t{replica.address}\t{mark}\t{verdict.reason}\t{heard}")
    lines.append(f"#NextStep\t{_next_step(group, live, decision.master_id, unclean_allowed)}")
    return "\n".join(lines) + "\n"


def _master(group: Group, live: dict[int, Live]) -> str:
    if group.master_id is None:
        return "none"
    state = "alive" if group.master_id in live else "not alive"
    return f"{group.master_id} at {group.master_address()} ({state})"


def _heard(liveness: Liveness, broker_name: str, broker_id: int, now: float) -> str:
    record = liveness.record(broker_name, broker_id)
    if record is None:
        return "no heartbeat since this controller started"
    age = f"last heartbeat {now - record.heard:.1f} s ago, timeout {record.timeout_seconds:g} s"
    return age if not record.end_reason else f"{age}, {record.end_reason}"


def _next_step(group: Group, live: dict[int, Live], chosen: int | None, unclean_allowed: bool) -> str:
    name = group.broker_name
    if not group.replicas or group.master_epoch == 0:
        # nothing was acknowledged to anybody yet, so nothing can be lacking
        return "start a broker of this group; the first one to ask becomes master"
    electable = group.electable(live)
    if group.master_id in electable and group.master_id in live:
        in_set = set(group.sync_state_set) - {group.master_id}
        others = [broker_id for broker_id in electable if broker_id in in_set and broker_id in live]
        if others:
            command = f"mqadmin electMaster -a CONTROLLER -c {group.cluster_name} -bn {name} -b {others[0]}"
            return f"nothing is wrong; to move the role safely: {command}"
        return "nothing is wrong, but nobody could follow: wait until another replica is in the sync state set"
    if chosen is not None:
        return f"wait: the controller is about to make broker {chosen} master"
    members = [broker_id for broker_id in electable if broker_id in group.replicas]
    if group.lost(live) and members and not unclean_allowed:
        awaited = " and ".join(f"{broker_id} ({group.replicas[broker_id].address})" for broker_id in members)
        return (
            f"start broker {awaited}: who has lost its memory waits for the others of its set; when all are back, the "
            f"longest log leads. Only if it is lost for good: mqadmin cleanBrokerMetadata -a CONTROLLER -bn {name} -b "
            f"'{';'.join(map(str, members))}': the longest log of the others leads then, and what it lacks is lost"
        )
    if members:
        addresses = ", ".join(f"{broker_id} ({group.replicas[broker_id].address})" for broker_id in members)
        step = (
            f"start broker {' or '.join(map(str, members))}: only {addresses} surely holds every acknowledged message"
        )
    else:
        step = "no replica of the sync state set is registered any more"
    if not live:
        step = f"no broker of it is heard: look whether this controller is cut off from them; if they are down, {step}"
    if unclean_allowed:
        return f"{step}; unclean election is on, so any started replica of the group will be promoted"
    living = sorted(set(live) & group.replicas.keys())
    if living:
        best = min(living, key=lambda broker_id: (-live[broker_id].epoch, -live[broker_id].max_offset_bytes))
        return (
            f"{step}. Only if it is lost for good: set enableElectUncleanMaster=true and broker {best} (epoch "
            f"{live[best].epoch}, max offset {live[best].max_offset_bytes}) is promoted; acknowledged messages it "
            "lacks are lost"
        )
    return step
