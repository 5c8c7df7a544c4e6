"""What a broker says to its controllers, and what they answer.

Source: BrokerOuterAPI.java, ControllerRequestProcessor.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from understudy.broker.led.following import Word
from understudy.broker.led.identity_files import Claim, GroupName
from understudy.broker.led.incarnation import StoreIncarnation
from understudy.format.json_dialect import JsonError, dumps
from understudy.remoting.bodies import json_of, read_answer
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import ConnectFailedError, RemotingError
from understudy.runtime.clock import Clock
from understudy.runtime.threads import Threads

CALL_MS = 3_000
FIND_MS = 1_000
SET_MEMBERS_MAX = 10_000
SET_LISTS = ((True, "inSyncReplicas"), (False, "notInSyncReplicas"))


class UnansweredError(Exception):
    """Nobody has answered, or the one who did does not lead.

    Args:
        why: nobody has.
        certain: it was not done; else it may or may not have been.
    """

    def __init__(self, why: str, *, certain: bool = False) -> None:
        super().__init__(why)
        self.certain = certain


class RefusedError(Exception):
    """The leader has refused; the message says why.

    Args:
        code: a :class:`ResponseCode`.
        remark: of the controller.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{code}: {remark}")
        self.code = code

    @property
    def certain(self) -> bool:
        """Whether it was not done; an answer that cannot be read says nothing.

        Nor does that of a JRaft controller whose log refused the entry: it may have lost the lead while others have it.
        """
        return self.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_JRAFT_INTERNAL_ERROR)


class Replica(NamedTuple):
    """What the controllers say of one replica: persistent id, ``host:port``, whether it is in the set, and lives."""

    broker_id: int
    address: str
    in_set: bool
    alive: bool


class Controllers:
    """The controllers of one broker.

    Args:
        client: connections to them.
        clock: changes are asked for at its wall time.
        threads: where large answers are read.
        name: names of cluster and group.
        incarnation: of the broker's store.
    """

    def __init__(
        self, client: RemotingClient, clock: Clock, threads: Threads, name: GroupName, incarnation: StoreIncarnation
    ) -> None:
        self._client = client
        self._clock = clock
        self._threads = threads
        self._name = name
        self._incarnation = incarnation

    async def find_leader(self, addresses: Iterable[str]) -> str:
        """Ask one controller after the other who leads (1005); returns its address, ``""`` when nobody knows."""
        for address in addresses:
            try:
                command = request(RequestCode.CONTROLLER_GET_METADATA_INFO)
                answer = await self._client.invoke(address, command, FIND_MS)
            except RemotingError:
                continue
            leader = (answer.ext or {}).get("controllerLeaderAddress")
            if answer.code == ResponseCode.SUCCESS and leader:
                return leader
        return ""

    async def next_id(self, leader: str) -> int:
        """Return the next free id (1012). Raises as all questions: :class:`UnansweredError`, :class:`RefusedError`."""
        answer = await self._ask(leader, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, self._names())
        return _number(answer, "nextBrokerId")

    async def apply(self, leader: str, claim: Claim) -> None:
        """Apply for an id (1013)."""
        fields = {**self._names(), "appliedBrokerId": str(claim.broker_id), "registerCheckCode": claim.code}
        await self._ask(leader, RequestCode.CONTROLLER_APPLY_BROKER_ID, fields)

    async def register(self, leader: str, broker_id: int, address: str) -> Word:
        """Say where the broker is now (1003); returns what its group is like."""
        own = {"brokerId": str(broker_id), "brokerAddress": address}
        fields = {**self._names(), **own, **self._time(), **self._life()}
        return word_of(await self._ask(leader, RequestCode.CONTROLLER_REGISTER_BROKER, fields))

    async def replicas(self, leader: str) -> Word:
        """Return what the group is like (1004)."""
        return word_of(await self._ask(leader, RequestCode.CONTROLLER_GET_REPLICA_INFO, self._group_name()))

    async def elect(self, leader: str, broker_id: int) -> Word:
        """Have a master elected, if there is none (1002)."""
        fields = {**self._names(), "brokerId": str(broker_id), "designateElect": "false", **self._time()}
        still = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        return word_of(await self._ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, fields, accept=(still,)))

    async def alter_set(self, leader: str, role: Word, members: frozenset[int]) -> Word:
        """Have the sync-state set of the master of *role* changed (1001); returns what is in force then."""
        master = {"masterBrokerId": str(role.master_id), "masterEpoch": str(role.epoch)}
        fields = {**self._group_name(), **master, **self._time()}
        body = dumps({"syncStateSet": sorted(members), "syncStateSetEpoch": role.set_epoch})
        answer = await self._ask(leader, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body)
        members, set_epoch = set_of(answer)
        return Word(role.master_id, role.master_address, role.epoch, members, set_epoch)

    async def addresses(self, leader: str) -> Mapping[int, str]:
        """Return where the replicas of the group are, by persistent id (1006); nobody of a group that is not known."""
        return {replica.broker_id: replica.address for replica in await self._group(leader)}

    async def living_members(self, leader: str) -> frozenset[int]:
        """Return who of the sync-state set lives, as the controllers see it, by persistent id (1006)."""
        return frozenset(each.broker_id for each in await self._group(leader) if each.in_set and each.alive)

    async def _group(self, leader: str) -> list[Replica]:
        answer = await self._ask(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, dumps([self._name.broker]))
        try:
            group = json_of(answer)["replicasInfoTable"].get(self._name.broker)
            if group is None:
                return []
            rows = [(row, in_set) for in_set, name in SET_LISTS for row in group[name]][:SET_MEMBERS_MAX]
            return [
                Replica(int(row["brokerId"]), str(row["brokerAddress"]), in_set, row.get("alive") is not False)
                for row, in_set in rows
            ]
        except (AttributeError, JsonError, LookupError, TypeError, ValueError) as error:
            raise _unreadable(answer, f"replicas of the group: {error!r}") from None

    async def heartbeat(self, address: str, fields: Mapping[str, str]) -> None:
        """Tell one controller that the broker lives, and how far its log goes (904)."""
        command = request(RequestCode.BROKER_HEARTBEAT, {**self._names(), **fields, **self._life()}, oneway=True)
        try:
            await self._client.invoke_oneway(address, command, FIND_MS)
        except RemotingError:
            return  # it is away; the next heartbeat tries again

    def _names(self) -> dict[str, str]:
        return {"clusterName": self._name.cluster, **self._group_name()}

    def _group_name(self) -> dict[str, str]:
        return {"brokerName": self._name.broker}

    def _time(self) -> dict[str, str]:
        """By it every member of a quorum of the JRaft kind judges who lives when it applies the change."""
        return {"invokeTime": str(self._clock.wall_ms())}

    def _life(self) -> dict[str, str]:
        return {"storeIncarnation": self._incarnation.value} if self._incarnation.value else {}

    async def _ask(
        self,
        leader: str,
        code: RequestCode,
        fields: dict[str, str] | None,
        body: bytes = b"",
        accept: Iterable[int] = (),
    ) -> Command:
        try:
            answer = await self._client.invoke(leader, request(code, fields, body), CALL_MS)
        except RemotingError as error:
            raise UnansweredError(str(error), certain=isinstance(error, ConnectFailedError)) from None
        if answer.code in (ResponseCode.SUCCESS, *accept):
            await read_answer(self._threads, answer)
            return answer
        if answer.code in (ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY):
            certain = answer.code != ResponseCode.SYSTEM_ERROR
            raise UnansweredError(f"{leader} answered {answer.code}: {answer.remark}", certain=certain)
        raise RefusedError(answer.code, answer.remark or "")


def word_of(command: Command) -> Word:
    """Return what *command*, an answer or a push, says of the group. Raises :class:`RefusedError`: nothing readable."""
    fields = command.ext or {}
    members, set_epoch = set_of(command)
    if "masterBrokerId" not in fields:
        return Word(None, "", _number(command, "masterEpoch", 0), members, set_epoch)
    master_id, epoch = _number(command, "masterBrokerId"), _number(command, "masterEpoch")
    return Word(master_id, fields.get("masterAddress") or "", epoch, members, set_epoch)


def set_of(command: Command) -> tuple[frozenset[int], int]:
    """Return the sync-state set in *command* and its epoch. Raises :class:`RefusedError`: nothing readable."""
    try:
        body: Any = json_of(command) if command.body else {}
    except JsonError as error:
        raise _unreadable(command, str(error)) from None
    members = body.get("syncStateSet") if isinstance(body, dict) else None
    if members is None:
        members = []
    if not isinstance(members, list) or len(members) > SET_MEMBERS_MAX or not all(type(one) is int for one in members):
        raise _unreadable(command, "syncStateSet is no list of ids")
    epoch = body.get("syncStateSetEpoch") if isinstance(body, dict) else None
    if type(epoch) is not int:
        epoch = _number(command, "syncStateSetEpoch", _number(command, "newSyncStateSetEpoch", 0))
    return frozenset(members), epoch


def _number(command: Command, name: str, default: int | None = None) -> int:
    text = (command.ext or {}).get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise _unreadable(command, f"{name}={(text or '')[:50]!r} is no number") from None


def _unreadable(command: Command, why: str) -> RefusedError:
    return RefusedError(command.code, f"cannot be read: {why}")
