"""Why nobody is elected in a group that controllers lead, and the smallest safe thing to do. Pure.

Works with what any controller tells of a group (1006) and any broker of its log (1007), ours or the real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs


@attrs.frozen
class Replica:
    """One replica of a group.

    Attributes:
        broker_id: its persistent id.
        address: ``host:port`` as the controllers know it.
        in_sync: it is in the sync-state set: it lacks nothing that was acknowledged.
        alive: its heartbeats reach the controllers.
        epoch: newest epoch of its log; ``None`` when it did not answer.
        max_offset: end of its log in bytes; ``None`` when it did not answer.
        refusal: why controllers that explain it would elect nobody, this one neither; empty when they do not say so.
    """

    broker_id: int
    address: str
    in_sync: bool
    alive: bool
    epoch: int | None = None
    max_offset: int | None = None
    refusal: str = ""

    @property
    def label(self) -> str:
        return f"broker {self.broker_id} ({self.address})"


def replicas_of(group: Mapping[str, Any]) -> list[Replica]:
    """Return the replicas of one group of an answer to 1006, in the order of their ids."""
    rows = [(row, True) for row in group.get("inSyncReplicas") or ()]
    rows += [(row, False) for row in group.get("notInSyncReplicas") or ()]
    found = [
        Replica(int(row["brokerId"]), str(row["brokerAddress"]), each, bool(row.get("alive"))) for row, each in rows
    ]
    return sorted(found, key=lambda replica: replica.broker_id)


def verdict(replica: Replica, master_id: int | None) -> str:
    """Return which rule keeps *replica* from being elected, or that none does."""
    if replica.broker_id == master_id:
        return "is master" if replica.alive else "was master, and its heartbeats do not arrive"
    if not replica.in_sync:
        return "refused: not in the sync-state set, so it may lack acknowledged messages"
    if replica.alive:
        return f"refused: {replica.refusal}" if replica.refusal else "may be elected"
    if replica.epoch is None:
        return "refused: in the sync-state set, but it does not run"
    return "refused: it runs, but its heartbeats do not reach the controllers"


@attrs.frozen
class Explained:
    """What a controller of ours says of a group when it is asked to explain it.

    Attributes:
        reasons: which rule excludes a replica, by broker id.
        chosen: it would elect one of the others, or has.
        step: what is to be done.
    """

    reasons: Mapping[int, str] = {}
    chosen: bool = False
    step: str = ""

    def refusal(self, broker_id: int) -> str:
        """Return why it would elect nobody, this replica neither; empty when it would elect one."""
        return "" if self.chosen else self.reasons.get(broker_id, "")


def explained(text: str) -> Explained:
    """Return what *text*, its answer to 1050, says."""
    rows = [line.split("\t") for line in text.splitlines()]
    candidates = [row for row in rows if row[0] == "#Candidate" and len(row) > 4]
    excluded = {int(row[1]): row[4] for row in candidates if row[3] == "excluded"}
    step = next((row[1] for row in rows if row[0] == "#NextStep" and len(row) > 1), "")
    return Explained(excluded, len(excluded) < len(candidates), step)


def _elect(name: str, broker_id: int) -> str:
    return f"mqadmin electMaster -a CONTROLLER -c CLUSTER -bn {name} -b {broker_id}"


def next_step(name: str, master_id: int | None, replicas: Sequence[Replica], said: str = "") -> str:
    """Return the smallest safe thing to do.

    Args:
        name: of the group.
        master_id: of its master; ``None`` without one.
        replicas: of the group.
        said: what a controller says that knows more of it; empty where there is none.
    """
    by_id = {replica.broker_id: replica for replica in replicas}
    master = None if master_id is None else by_id.get(master_id)
    if master is not None and master.alive:
        return f"nothing: {master.label} is master"
    if not replicas:
        return "start a broker of this group: the first one to come is master"
    living = [replica for replica in replicas if replica.in_sync and replica.alive]
    able = [replica for replica in living if not replica.refusal]
    if able:
        return f"wait for some seconds; if it stays so: {_elect(name, able[0].broker_id)}"
    silent = [each for each in replicas if each.in_sync and not each.alive and each.epoch is not None]
    if silent:
        return (
            f"let {silent[0].label} reach the controllers: look at its controllerAddr, and at the network between them"
        )
    if living and said:
        return said
    members = [replica for replica in replicas if replica.in_sync]
    step = f"start {' or '.join(each.label for each in members)}: nobody else surely has every acknowledged message"
    if not members:
        step = "no member of the sync-state set is registered any more"
    rest = [replica for replica in replicas if replica.alive and replica.epoch is not None]
    if not rest:
        return step
    best = max(rest, key=lambda each: (each.epoch or 0, each.max_offset or 0, -each.broker_id))
    return (
        f"{step}. Only if that is lost for good: mqadmin updateControllerConfig -a CONTROLLERS "
        f"-k enableElectUncleanMaster -v true; then {best.label} is elected "
        f"(epoch {best.epoch}, {best.max_offset} bytes), and what it lacks is lost"
    )


def told(name: str, group: Mapping[str, Any], replicas: Sequence[Replica], step: str) -> list[str]:
    """Return the lines that are printed.

    Args:
        name: of the group.
        group: as 1006 answers it.
        replicas: of the group.
        step: what is to be done.
    """
    master_id = group.get("masterBrokerId")
    lines = [f"#BrokerName\t{name}", f"#Master\t{master_id if master_id is not None else 'none'}"]
    lines.append(f"#MasterEpoch\t{group.get('masterEpoch')}")
    for replica in replicas:
        log = "no answer" if replica.epoch is None else f"epoch {replica.epoch}, {replica.max_offset} bytes"
        lines.append(f"#Replica\t{replica.broker_id}\t{replica.address}\t{log}\t{verdict(replica, master_id)}")
    return [*lines, f"#NextStep\t{step}"]
