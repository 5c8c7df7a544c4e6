"""The table of users and their rules: what is there, and each change that may be made to it.

Source: AuthenticationMetadataManagerImpl.java, AuthorizationMetadataManagerImpl.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from understudy.security.policies import Acl, Entry, Need, Policies, PolicyType, acl_of, decide, pattern_of
from understudy.security.signature import Credentials
from understudy.security.users import NAME_LIMIT, User, UserStatus, UserType, status_of, type_of, user_of

SUBJECT_PREFIX = "User:"
USERS_LIMIT = 10_000
ENTRIES_LIMIT = 1_000
SOURCES_LIMIT = 1_000


class AuthorityError(Exception):
    """A change or a question is refused; nothing was changed.

    Args:
        message: what the caller reads; the reference's words where it has some.
        invalid: it is a missing parameter, which has a code of its own.
    """

    def __init__(self, message: str, *, invalid: bool = False) -> None:
        super().__init__(message)
        self.invalid = invalid


@attrs.frozen
class Content:
    """What a file or another replica says of users.

    Attributes:
        users: by name.
        acls: rules by user name.
    """

    users: Mapping[str, User]
    acls: Mapping[str, Acl]


class Authority:
    """Users by name, and the rules of each.

    Attributes:
        users: by name.
        acls: rules by user name.
        on_change: called after every change.
        revision: how many changes there were.
    """

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.acls: dict[str, Acl] = {}
        self.on_change: list[Callable[[], None]] = []
        self.revision = 0

    # --- questions ---------------------------------------------------------------------------------------------

    def decide(self, name: str, need: Need, address: str) -> Entry | None:
        """Return the entry that decides about *need* of user *name* at *address*, see :func:`decide`."""
        return decide(self.acls.get(name), need, address)

    def user(self, name: str | None) -> User | None:
        """Return a user, ``None`` if there is none. Raises :class:`AuthorityError` for an empty name."""
        return self.users.get(_named(name))

    def list_users(self, part: str | None) -> Iterator[User]:
        """Return the users of this moment that have *part* in their name."""
        return (user for user in list(self.users.values()) if (part or "") in user.name)

    def acl(self, subject: str | None) -> Acl | None:
        """Return the rules of *subject*. Raises :class:`AuthorityError`: there is no such user."""
        name = _subject(subject)
        if name not in self.users:
            raise AuthorityError("The subject is not exist.")
        return self.acls.get(name)

    def list_acls(self, subject: str | None, resource: str | None) -> Iterator[tuple[str, Acl] | None]:
        """Return subjects of this moment with *subject* in their name, with the rules that have *resource* in theirs.

        For a subject that has none of them there is ``None``, so that no step of a long list takes long.
        """
        return (
            _part(SUBJECT_PREFIX + name, acl, subject or "", resource or "") for name, acl in list(self.acls.items())
        )

    def has_super_user(self) -> bool:
        """Return whether somebody may administrate."""
        return any(user.is_super and user.status is UserStatus.ENABLE for user in self.users.values())

    # --- changes -----------------------------------------------------------------------------------------------

    def ensure_supers(self, wanted: Iterable[Credentials]) -> None:
        """Have super users of these names; one that is there already keeps its password."""
        missing = _missing(self.users, wanted)
        if missing:
            self.users |= missing
            self._changed()

    def create_user(self, name: str | None, info: Mapping[str, Any], by: User | None) -> None:
        """Add a user. Raises :class:`AuthorityError`."""
        name = _named(name)
        password = _password(info)
        if name in self.users:
            raise AuthorityError("The user is existed")
        if len(self.users) >= USERS_LIMIT:
            raise AuthorityError(f"there are {USERS_LIMIT} users already, no more are kept")
        user = User(name, password, type_of(info.get("userType")), status_of(info.get("userStatus")))
        _check_super(user, by)
        self.users[name] = user
        self._changed()

    def update_user(self, name: str | None, info: Mapping[str, Any], by: User | None) -> None:
        """Change what *info* names of a user. Raises :class:`AuthorityError`."""
        before = self.users.get(_named(name))
        if before is None:
            raise AuthorityError("The user is not exist")
        after = User(
            before.name,
            _password(info) if info.get("password") is not None else before.password,
            type_of(info["userType"]) if info.get("userType") else before.kind,
            status_of(info["userStatus"]) if info.get("userStatus") else before.status,
        )
        _check_super(before, by)
        _check_super(after, by)
        self._keep_one(before, after)
        self.users[before.name] = after
        self._changed()

    def delete_user(self, name: str | None, by: User | None) -> None:
        """Remove a user and its rules; one that is not there is fine. Raises :class:`AuthorityError`."""
        before = self.users.get(_named(name))
        if before is None:
            return
        _check_super(before, by)
        self._keep_one(before, None)
        del self.users[before.name]
        self.acls.pop(before.name, None)
        self._changed()

    def merge_acl(self, subject: object, policies: Policies) -> None:
        """Put *policies* to those of a user, in place of those about the same resources.

        Raises :class:`AuthorityError`.
        """
        name = _subject(subject)
        if name not in self.users:
            raise AuthorityError(f"The subject of {SUBJECT_PREFIX}{name} is not exist.")
        if not policies:
            raise AuthorityError("The policies is empty.")
        acl = self.acls.get(name, Acl())
        for kind, entries in policies:
            acl = acl.merged(kind, entries)
        if sum(map(len, acl.policies.values())) > ENTRIES_LIMIT:
            raise AuthorityError(f"a user has {ENTRIES_LIMIT} rules at most; use beginnings such as Topic:orders*")
        if sum(len(entry.sources) for rules in acl.policies.values() for entry in rules.values()) > SOURCES_LIMIT:
            raise AuthorityError(f"the rules of a user name {SOURCES_LIMIT} addresses at most; use networks")
        self.acls[name] = acl
        self._changed()

    def delete_acl(self, subject: str | None, policy: str | None, resource: str | None) -> None:
        """Remove the rules of a user, or those about one resource. Raises :class:`AuthorityError`."""
        name = _subject(subject)
        acl = self.acls.get(name)
        if acl is None:
            raise AuthorityError("The acl is not exist.")
        if resource:
            kind = PolicyType.DEFAULT if (policy or "").lower() == "default" else PolicyType.CUSTOM
            try:
                key = pattern_of(resource).key
            except ValueError as error:
                raise AuthorityError(str(error)) from None
            acl = acl.without(kind, key)
        if resource and acl.policies:
            self.acls[name] = acl
        else:
            del self.acls[name]
        self._changed()

    def _keep_one(self, before: User, after: User | None) -> None:
        """Refuse a change after which nobody could administrate any more."""
        others = (user for user in self.users.values() if user is not before)
        left = [*others] if after is None else [*others, after]
        if before.is_super and not any(user.is_super and user.status is UserStatus.ENABLE for user in left):
            raise AuthorityError(f"{before.name} is the last super user that may sign in: create another one first")

    # --- files and replicas ------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the whole table of this moment, its rows made while it is written, which can happen once, anywhere."""
        users, acls = list(self.users.values()), list(self.acls.items())
        return {
            "users": (user.to_json() for user in users),
            "acls": (acl.to_rows(SUBJECT_PREFIX + name) for name, acl in acls),
        }

    def take(self, content: Mapping[str, Any], supers: Iterable[Credentials]) -> None:
        """Have the table of the file in place of this one; *supers* as above. Raises ``ValueError``."""
        self.adopt(read(content), supers)

    def adopt(self, content: Content, supers: Iterable[Credentials]) -> None:
        """Have *content* in place of this table; *supers* as above."""
        self.users = {**content.users, **_missing(content.users, supers)}
        self.acls = dict(content.acls)
        self._changed()

    def _changed(self) -> None:
        self.revision += 1
        for listener in self.on_change:
            listener()


def _missing(users: Mapping[str, User], wanted: Iterable[Credentials]) -> dict[str, User]:
    return {
        each.access_key: User(each.access_key, each.secret_key, UserType.SUPER)
        for each in wanted
        if each.access_key not in users
    }


def read(content: Mapping[str, Any]) -> Content:
    """Read what :meth:`Authority.to_json` made. Raises ``ValueError`` naming an entry that is none."""
    users = {user.name: user for user in (user_of(each, "users: an entry") for each in _rows(content, "users"))}
    acls = {}
    for row in _rows(content, "acls"):
        subject = row.get("subject") if isinstance(row, Mapping) else None
        if not isinstance(subject, str) or subject.removeprefix(SUBJECT_PREFIX) not in users:
            raise ValueError("acls: an entry whose subject is no user")
        acl = Acl()
        for kind, entries in acl_of(row):
            acl = acl.merged(kind, entries)
        acls[subject.removeprefix(SUBJECT_PREFIX)] = acl
    return Content(users, acls)


def _part(subject: str, acl: Acl, of_subject: str, of_resource: str) -> tuple[str, Acl] | None:
    """Return *subject* and the rules that have *of_resource* in their resource, if it has *of_subject* in its name."""
    if of_subject not in subject:
        return None
    policies = {
        kind: {key: entry for key, entry in rules.items() if of_resource in key} for kind, rules in acl.policies.items()
    }
    left = {kind: rules for kind, rules in policies.items() if rules}
    return (subject, Acl(left)) if left else None


def _rows(content: Mapping[str, Any], name: str) -> Iterable[Any]:
    rows = content.get(name) or []
    if not isinstance(rows, list):
        raise ValueError(f"{name} is no list")
    return rows


def _named(name: str | None) -> str:
    if not name or not name.strip():
        raise AuthorityError("The username is blank", invalid=True)
    if len(name) > NAME_LIMIT or not name.isprintable() or any(each in name for each in ", /"):
        raise AuthorityError(f"a user name has at most {NAME_LIMIT} characters, none of them a comma, slash or blank")
    return name


def _subject(subject: object) -> str:
    if not isinstance(subject, str) or not subject.strip():
        raise AuthorityError("The subject is blank", invalid=True)
    kind, separator, name = subject.partition(":")
    if not separator:
        return subject
    if kind.lower() != "user":
        raise AuthorityError("The subject is not exist.")
    return name


def _password(info: Mapping[str, Any]) -> str:
    password = info.get("password")
    if not isinstance(password, str) or not password.strip():
        raise AuthorityError("password can not be blank")
    if len(password) > 1024:
        raise AuthorityError("a password has at most 1024 characters")
    return password


def _check_super(user: User, by: User | None) -> None:
    """Let only super users make or change super users; *by* is ``None`` inside this process."""
    if user.is_super and by is not None and not by.is_super:
        raise AuthorityError("The super user can only be create by super user")
