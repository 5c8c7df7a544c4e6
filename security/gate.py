"""The gate of a server: each request passes it before its handler, or is refused with the reference's code.

First the signature, over the bytes as they came; only then, once the body is read, what the user may do. Refusals say
to the peer what the reference says, and to the log who was refused what.

Source: AuthenticationPipeline.java, AuthorizationPipeline.java, DefaultAuthenticationHandler.java,
UserAuthorizationHandler.java, AclAuthorizationHandler.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence

from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Handler
from understudy.remoting.fields import CommandError
from understudy.runtime.log import get_logger
from understudy.security.authority import Authority
from understudy.security.needs import NEEDS, OfFields, reading_of
from understudy.security.policies import Entry, Need
from understudy.security.settings import SecuritySettings
from understudy.security.signature import ACCESS_KEY, Verifier
from understudy.security.users import NOBODY, User, UserStatus

log = get_logger("security")

_ENABLED = UserStatus.ENABLE
_WRONG = "check signature failed."

FOR_USER, FROM_ADDRESS = "onBehalfOf", "onBehalfFrom"
"""Header fields of a super user's request that is another one's: who asks, and from where. Proxies send them."""
LINES_OF_ADDRESS = 5
"""Refusals of one address that are told in a second."""
PASSES, PASS_CHARACTERS = 8_192, 256
"""How many requests that had what they need are remembered, and how long their texts may be: three megabytes."""
ADDRESSES_TOLD = 20
"""Addresses whose refusals are told in a second; the others share one more."""


def _refused(remark: str) -> CommandError:
    return CommandError(ResponseCode.NO_PERMISSION, remark)


class Gate:
    """Who may ask one server what.

    Args:
        authority: users and rules.
        settings: what is asked for.
        cluster: name of the cluster as a resource.
        now: monotonic seconds, for the pace of log lines.
    """

    def __init__(
        self, authority: Authority, settings: SecuritySettings, cluster: str, now: Callable[[], float]
    ) -> None:
        self.authority = authority
        self._settings = settings
        self._cluster = cluster
        self._refusals = Refusals(now)
        self._passed = _Passed(authority)

    def authenticate(self, command: Command, address: str) -> None:
        """Check the signature of a request. One that needs none and is not signed by whom it names, names nobody after.

        Args:
            command: the request, as it came.
            address: IP address of who sent it.

        Raises:
            CommandError: 16, it is not signed by an enabled user.
        """
        why = self._why_not(command)
        if not why:
            return
        if command.code in self._settings.unsigned:
            (command.ext or {}).pop(ACCESS_KEY, None)
            return
        raise self._not_authenticated(command, address, why)

    def _why_not(self, command: Command) -> str:
        """Return why nobody has signed *command*; empty where an enabled user has."""
        ext = command.ext or {}
        name = ext.get(ACCESS_KEY)
        if not name:
            return "username cannot be null."
        user = self.authority.users.get(name)
        if user is None:
            return f"User:{name[:255]} is not found."
        if user.status is not _ENABLED:
            return f"User:{name} is disabled."
        return "" if user.secret.has_signed(ext, command.body, command.version) else _WRONG

    def _not_authenticated(self, command: Command, address: str, remark: str) -> CommandError:
        self._refusals.tell("not authenticated", (command.ext or {}).get(ACCESS_KEY), address, command.code, remark)
        return _refused(remark)

    def authorize(self, command: Command, address: str) -> None:
        """Check what the user who signed a request may do.

        Args:
            command: the request, its signature checked and its body read.
            address: IP address of who sent it.

        Raises:
            CommandError: 16, it needs what its user may not.
        """
        for _ in self.authorize_in_steps(command, address):
            pass

    def guarded(self, code: int, handler: Handler) -> Handler:
        """Return *handler* for requests that pass both checks, whose bodies need not be read for the second one.

        Args:
            code: of all these requests.
            handler: called for those that pass; they raise what the checks raise if they do not.
        """

        def check_first(connection: Connection, command: Command) -> Answer:
            self.authenticate(command, connection.source)
            self.authorize(command, connection.source)
            return handler(connection, command)

        rule = NEEDS.get(code)
        if type(rule) is not OfFields or code in self._settings.unsigned:
            return check_first
        first, second, passed, authority = rule.first, rule.second, self._passed, self.authority
        verifiers = passed.verifiers

        def look_first(connection: Connection, command: Command) -> Answer:
            ext = command.ext
            if ext is None:
                return check_first(connection, command)
            one = ext.get(ACCESS_KEY), code, connection.source, ext.get(first), ext.get(second)
            verifier = verifiers.get(one) if passed.revision == authority.revision else None
            if verifier is None:
                self.authenticate(command, connection.source)
                self.authorize(command, connection.source)
                passed.add(one)
            elif not verifier.has_signed(ext, command.body, command.version):
                raise self._not_authenticated(command, connection.source, _WRONG)
            return handler(connection, command)

        return look_first

    def authorize_in_steps(self, command: Command, address: str) -> Generator[None, None, None]:
        """Check what :meth:`authorize` checks, with a step for each thing that the request needs."""
        user = self._limited(command)
        if user is not None:
            yield from self._check(user, command, address)

    def may(self, command: Command, need: Need, address: str) -> bool:
        """Return whether *command*, which has passed, is signed, and by a user who may do something more.

        Args:
            command: the request.
            need: what else it would do.
            address: IP address of who sent it.
        """
        user, settings = self.caller(command), self._settings
        if user is None or user.status is not _ENABLED:
            return False
        if user.is_super or not settings.authorizes:
            return True
        entry = self.authority.decide(user.name, need, address)
        return entry is not None and entry.allow

    def tells_secrets(self, command: Command) -> bool:
        """Return whether passwords may be told to who sent *command*: a super user who has signed it.

        Where no signatures are asked for, nobody's password opens anything.

        Args:
            command: the request, which has passed.
        """
        settings, user = self._settings, self.caller(command)
        if not settings.authenticates:
            return True
        return user is not None and user.is_super and user.status is _ENABLED

    def changes_by(self, command: Command) -> User | None:
        """Return who changes users with *command*, which has passed; ``None`` where no signatures are asked for.

        Nobody who has not signed is taken for a user.
        """
        return (self.caller(command) or NOBODY) if self._settings.authenticates else None

    def check_reading(self, command: Command, topics: Sequence[str], address: str) -> None:
        """Check what only its handler knows of a request: which message it names by a position in the log.

        Args:
            command: the request, which has passed.
            topics: by each of which the message could be read; the right to one of them is enough.
            address: IP address of who sent it.

        Raises:
            CommandError: 16, its sender, or who is named by :data:`FOR_USER`, may not read such messages.
        """
        if not self._settings.authorizes:
            return
        user, ext = self._limited(command), command.ext or {}
        if user is None and FOR_USER in ext:
            user, address = self.authority.users.get(ext[FOR_USER] or ""), ext.get(FROM_ADDRESS) or address
            if user is None:
                raise _refused("who asks by way of a proxy is not found")
        if user is None or user.is_super:
            return
        needs = [reading_of(topic) for topic in topics]
        found = [self.authority.decide(user.name, need, address) for need in needs]
        if not any(entry is not None and entry.allow for entry in found):
            raise self._not_allowed(user, command, address, needs[0], found[0])

    def _limited(self, command: Command) -> User | None:
        """Return the user who signed *command*; ``None`` when nothing limits what it may do."""
        settings = self._settings
        if not settings.authorizes or command.code in settings.unsigned or command.code in settings.unlimited:
            return None
        name = (command.ext or {}).get(ACCESS_KEY) or ""
        user = self.authority.users.get(name)
        if user is None or user.status is not _ENABLED:  # changed since it was authenticated
            raise _refused(f"User:{name[:255]} is not found.")
        return None if user.is_super else user

    def _check(self, user: User, command: Command, address: str) -> Generator[None, None, None]:
        rule = NEEDS.get(command.code)
        if rule is None:
            remark = f"User:{user.name} has no permission for requests of code {command.code}"
            self._refusals.tell("not authorized", user.name, address, command.code, remark)
            raise _refused(remark)
        for need in rule(command, self._cluster):
            entry = self.authority.decide(user.name, need, address)
            if entry is None or not entry.allow:
                raise self._not_allowed(user, command, address, need, entry)
            yield

    def _not_allowed(self, user: User, command: Command, address: str, need: Need, entry: Entry | None) -> CommandError:
        why = "no matched policies" if entry is None else "the decision is deny"
        remark = f"User:{user.name} has no permission to access {need} from {address}, {why}."
        self._refusals.tell("not authorized", user.name, address, command.code, remark)
        return _refused(remark)

    def caller(self, command: Command) -> User | None:
        """Return the user who signed *command*, which has passed; ``None`` where none did, and none had to."""
        return self.authority.users.get((command.ext or {}).get(ACCESS_KEY) or "")


_Pass = tuple[str | None, int, str, str | None, str | None]
"""User, request code, address, and the two header fields that decide what the request needs."""


class _Passed:
    """Which requests had what they need: what is remembered counts until the next change of any user or rule.

    Args:
        authority: users and rules.

    Attributes:
        revision: of *authority*, for which it counts.
        verifiers: what compares the signatures of such requests, each by its own bytes.
    """

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self.revision = authority.revision
        self.verifiers: dict[_Pass, Verifier] = {}

    def add(self, one: _Pass) -> None:
        """Remember *one*, which has just passed; of too many or too long ones none is kept."""
        if self.revision != self._authority.revision:
            self.verifiers.clear()
            self.revision = self._authority.revision
        user = self._authority.users.get(one[0] or "")
        if user is not None and sum(len(text) for text in one if isinstance(text, str)) <= PASS_CHARACTERS:
            if len(self.verifiers) >= PASSES:
                self.verifiers.clear()
            self.verifiers[one] = Verifier(user.secret)


class Refusals:
    """Log lines about refused requests: a few of each address a second, so that nobody fills a disk with them.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._second = -1
        self._told: Counter[str] = Counter()

    def tell(self, what: str, user: str | None, address: str, code: int | str, why: str) -> None:
        """Log one refusal, unless its address, or all of them, had their share of this second.

        Args:
            what: became of it, such as ``not authorized``.
            user: who asked; ``None`` where that is not known.
            address: that it came from.
            code: of the request, or its name.
            why: it was refused.
        """
        second = int(self._now())
        if second != self._second:
            left_out = sum(max(count - LINES_OF_ADDRESS, 0) for count in self._told.values())
            if left_out:
                log.warning("more refusals than are told", left_out=left_out, seconds=second - self._second)
            self._second = second
            self._told.clear()
        if len(self._told) >= ADDRESSES_TOLD and address not in self._told:
            address = "others"
        self._told[address] += 1
        if self._told[address] <= LINES_OF_ADDRESS:
            log.warning(what, user=user, peer=address, code=code, why=why)
