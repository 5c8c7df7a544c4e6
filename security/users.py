"""Users: name, password, kind and state, and how they stand in bodies and files (User.java, UserInfo.java)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cached_property
from typing import Any

import attrs

from understudy.format.json_values import name_of
from understudy.security.signature import Secret

NAME_LIMIT = 255


class UserType(Enum):
    """What authorization looks at: a super user may everything."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """Whether a user may sign in."""

    ENABLE = "enable"
    DISABLE = "disable"


@attrs.frozen
class User:
    """One user.

    Attributes:
        name: what requests call the access key.
        password: the secret of its signatures, in the clear because signatures need it.
        kind: super or normal.
        status: whether it may sign in.
    """

    name: str
    password: str = attrs.field(repr=False)
    kind: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether it may everything."""
        return self.kind is UserType.SUPER

    @cached_property
    def secret(self) -> Secret:
        """The password as signatures use it; made once, for a user with another password is another value."""
        return Secret(self.password)

    def to_json(self) -> dict[str, str]:
        """Return its form in the file and for super users."""
        return {**self.to_row(), "password": self.password}

    def to_row(self) -> dict[str, str]:
        """Return its form for those who may not know its password, which is empty."""
        return {
            "password": "",
            "userStatus": self.status.value,
            "userType": self.kind.value,
            "username": self.name,
        }


NOBODY = User("", "")
"""Who has signed nothing: it may do what needs no signature, and is no super user."""


def type_of(word: object) -> UserType:
    """Return the kind that *word* names in any case; normal for every other word, as the reference does."""
    return UserType.SUPER if isinstance(word, str) and word.strip().lower() == "super" else UserType.NORMAL


def status_of(word: object) -> UserStatus:
    """Return the state that *word* names in any case; a word that is none disables (differs: the reference enables)."""
    if word is None or (isinstance(word, str) and word.strip().lower() in ("enable", "")):
        return UserStatus.ENABLE
    return UserStatus.DISABLE


def user_of(value: object, what: str) -> User:
    """Read a user from the file or another replica. Raises ``ValueError`` that begins with *what*."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is no JSON object")
    fields: Mapping[str, Any] = value
    name = name_of(fields.get("username"), f"{what}: username", NAME_LIMIT)
    password = name_of(fields.get("password"), f"{what}: password")
    if not name or not password:
        raise ValueError(f"{what}: username and password must not be empty")
    return User(name, password, type_of(fields.get("userType")), status_of(fields.get("userStatus")))
