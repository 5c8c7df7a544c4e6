"""What changes the replicated metadata, and what comes back. Each command carries the leader's view of who lives."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import msgspec
from msgspec import Struct

from understudy.controller.election import Live, Verdict


class ApplyBrokerId(Struct, tag="apply", array_like=True, frozen=True):
    """A broker claims an id; *check_code* is ``host:port;epochMillis`` of its first registration."""

    cluster_name: str
    broker_name: str
    broker_id: int
    check_code: str


class RegisterBroker(Struct, tag="register", array_like=True, frozen=True):
    """A broker with an id says where it can be reached now."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    alive: list[int]


class AlterSyncStateSet(Struct, tag="alter", array_like=True, frozen=True):
    """A master proposes a new sync state set; both epochs are what it believes to be current.

    Args:
        incarnations: of the stores of the set's members, as the leader hears them.
    """

    broker_name: str
    master_id: int
    master_epoch: int
    set_epoch: int
    new_set: list[int]
    alive: list[int]
    incarnations: dict[int, str] = {}


class ElectMaster(Struct, tag="elect", array_like=True, frozen=True):
    """Choose a master for a group.

    Args:
        broker_id: who asks, or who is asked for when *designate*; ``None`` when the controller itself asks.
        designate: make exactly *broker_id* master or nobody.
        live: heartbeat facts of the group's living brokers, as the leader knows them.
        unclean_allowed: enableElectUncleanMaster.
    """

    broker_name: str
    broker_id: int | None
    designate: bool
    live: dict[int, Live]
    unclean_allowed: bool


class CleanBrokerData(Struct, tag="clean", array_like=True, frozen=True):
    """Remove replicas, or the whole group when *broker_ids* is ``None``."""

    broker_name: str
    broker_ids: list[int] | None
    living_too: bool
    alive: list[int]


Command: TypeAlias = ApplyBrokerId | RegisterBroker | AlterSyncStateSet | ElectMaster | CleanBrokerData


class Outcome(Struct, array_like=True):
    """What a command did.

    Args:
        code: response code of the wire protocol, 0 for success.
        remark: its text; empty for none.
        changed: whether the metadata changed.
        master_id, master_address, master_epoch, set_epoch, sync_state_set: the group afterwards, as far as the answer
            shows it; ``None`` where it does not.
        members: address per id, for the answer of an election.
        verdicts: why each replica was or was not chosen.
        unclean: the master was chosen from outside the sync state set.
    """

    code: int = 0
    remark: str = ""
    changed: bool = False
    master_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    set_epoch: int | None = None
    sync_state_set: list[int] | None = None
    members: dict[int, str] | None = None
    cluster_name: str = ""
    verdicts: list[Verdict] = []
    unclean: bool = False


encode = msgspec.msgpack.Encoder().encode
decode_outcome = msgspec.msgpack.Decoder(Outcome)
_decode_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_decode_tag = msgspec.msgpack.Decoder(list[Any])
_TAGS = frozenset(each.__struct_config__.tag for each in get_args(Command))


class UnknownCommandError(ValueError):
    """An entry of a kind that this program does not know: a newer one wrote it."""


class MalformedCommandError(ValueError):
    """A command whose fields are not what its kind asks for: no version can apply it."""


def read_command(payload: bytes) -> Command:
    """Return the command in a log entry.

    Raises:
        UnknownCommandError: its kind is not known here.
        MalformedCommandError: its kind is, and the rest is no such command.
    """
    try:
        return _decode_command.decode(payload)
    except msgspec.DecodeError as error:
        try:
            tag = next(iter(_decode_tag.decode(payload)), None)
        except msgspec.DecodeError:
            raise UnknownCommandError(str(error)) from None
        if tag in _TAGS:
            raise MalformedCommandError(f"{tag}: {error}") from None
        raise UnknownCommandError(str(error)) from None


def write_command(command: Command) -> bytes:
    """Return the log entry of *command*, which every member can read.

    Raises:
        MalformedCommandError: a member could not read it; which part is wrong.
    """
    try:
        payload: bytes = encode(command)
    except OverflowError:
        raise MalformedCommandError("a number of the request is outside the range of 64-bit integers") from None
    except UnicodeEncodeError:
        raise MalformedCommandError("a text of the request has half a character (a lone surrogate)") from None
    if read_command(payload) != command:
        raise MalformedCommandError("a value of the request is of another type than it looks")
    return payload
