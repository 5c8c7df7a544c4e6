"""What happens to a broker's view of its group, and what its shell has to do then: events and actions as values."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

View = Mapping[int, str]
"""Ids and addresses of members, in order."""

# --- events --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Following:
    """What a slave knows of its master when something happens: its address, whether it, or a slave before this
    one, has just said that it comes, and whether the address of its log is known. A master follows no one."""

    address: str | None = None
    returning: bool = False
    log_known: bool = True


@attrs.frozen
class Due:
    """It is time to ask; these are the name servers."""

    servers: tuple[str, ...]


@attrs.frozen
class Answered:
    """A name server said whom it sees."""

    server: str
    found: View
    servers: tuple[str, ...] = ()
    following: Following = Following()


@attrs.frozen
class NoAnswer:
    """A name server did not answer."""

    server: str
    following: Following = Following()


@attrs.frozen
class Opinions:
    """What the other name servers that answered in time see."""

    views: tuple[View, ...]
    following: Following = Following()


@attrs.frozen
class Notice:
    """What NOTIFY_MIN_BROKER_ID_CHANGE says; absent parts are ``None``."""

    min_broker_id: int | None
    min_broker_address: str | None
    offline_address: str | None
    ha_address: str | None


@attrs.frozen
class Noticed:
    """A notice was pushed.

    Attributes:
        notice: what it says.
        servers: how many name servers there are.
        trusted: it came from the host of one of them; anyone can send one.
        following: see there.
    """

    notice: Notice
    servers: int = 1
    trusted: bool = True
    following: Following = Following()


@attrs.frozen
class Registered:
    """A name server took the registration of this broker: from now on it shows it, whatever the last view said."""


@attrs.frozen
class SettingsOf:
    """A member said what its settings are; ``None``: it did not say."""

    broker_id: int
    address: str
    acting_enabled: bool | None


Event = Due | Answered | NoAnswer | Opinions | Noticed | Registered | SettingsOf

# --- actions -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Ask:
    """Ask this name server for the members."""

    server: str


@attrs.frozen
class AskOthers:
    """Ask these for a second opinion, all at once."""

    servers: tuple[str, ...]


@attrs.frozen
class AskAgain:
    """Begin a round now."""


@attrs.frozen
class Contact:
    """A name server answers: look whether it was silent for too long. Comes before anything else of that answer."""

    found: View
    before: View | None
    remembered: View = attrs.field(factory=dict)


@attrs.frozen
class Lost:
    """The name server that was asked does not know this broker: register there."""


@attrs.frozen
class TellServers:
    """What name servers are told of this broker has changed: register anew."""


@attrs.frozen
class Twin:
    """Another broker has this name and id."""

    address: str


@attrs.frozen
class Shown:
    """The state has a new view."""


@attrs.frozen
class Remember:
    """What is remembered has changed: write it."""


@attrs.frozen
class Follow:
    """The master is there: its address, and that of its log if it is known."""

    address: str | None
    ha_address: str | None


@attrs.frozen
class Arrived:
    """The master that had said that it comes back is there."""


@attrs.frozen
class LoseMaster:
    """The master is gone."""


@attrs.frozen
class FindLog:
    """Ask the master where its log is (906)."""

    address: str


@attrs.frozen
class AskSettings:
    """Ask a member for its configuration."""

    broker_id: int
    address: str


@attrs.frozen
class Warn:
    """Say this to the operator, once."""

    text: str


Action = (
    Ask
    | AskOthers
    | AskAgain
    | Contact
    | Lost
    | TellServers
    | Twin
    | Shown
    | Remember
    | Follow
    | Arrived
    | LoseMaster
    | FindLog
    | AskSettings
    | Warn
)
