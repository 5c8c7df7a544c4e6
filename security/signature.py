"""The signature of a request: who knows the secret of an access key.

HMAC-SHA1 over the values of all header fields but the signature itself, by ascending names, and the body behind them.
It covers neither the code nor the time: what travels in the clear can be sent again by who sees it (TLS prevents that).

Source: AclUtils.java, AclSigner.java, DefaultAuthenticationContextBuilder.java.
"""

from __future__ import annotations

import hashlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from hmac import compare_digest
from operator import itemgetter
from typing import Any

import attrs

from understudy.remoting.command import Command

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_LEFT_OUT_BEFORE = 399  # V4_9_3: requests up to this version do not sign that field

_BLOCK_BYTES = hashlib.sha1().block_size
_INNER, _OUTER = bytes(each ^ 0x36 for each in range(256)), bytes(each ^ 0x5C for each in range(256))

_Orders = dict[tuple[str, ...], Callable[[Mapping[str, Any]], tuple[Any, ...]]]
_later: _Orders = {}
"""From names of header fields as they come to what takes the texts in the order in which they are signed."""
_earlier: _Orders = {}  # of requests that leave out that field
_ORDERS_KEPT = 64
_NAMES_KEPT, _CHARACTERS_KEPT = 64, 1_024  # of one header: a quarter of a megabyte at most for all


@attrs.frozen
class Credentials:
    """What a caller signs with.

    Attributes:
        access_key: the user's name.
        secret_key: the user's password; never printed.
        token: sent and signed beside them, when given.
    """

    access_key: str
    secret_key: str = attrs.field(repr=False)
    token: str | None = attrs.field(default=None, repr=False)


def signed_text(ext: Mapping[str, str | None], version: int) -> bytes:
    """Return the part of what a signature covers that the header has; the body stands behind it.

    Args:
        ext: header fields as they are sent.
        version: of the sender, which says whether one field counts.
    """
    try:
        # Of headers whose fields have come in this order before: nearly all, as peers write each kind in one way.
        return "".join((_later if version > _LEFT_OUT_BEFORE else _earlier)[*ext](ext)).encode()
    except (KeyError, TypeError, UnicodeEncodeError):
        return _unusual_text(ext, version)


def _unusual_text(ext: Mapping[str, str | None], version: int) -> bytes:
    """Return the text of a header with null or broken texts, or in whose order none came; keep its order."""
    came = tuple(ext)
    names = [name for name in came if name != SIGNATURE]
    if version <= _LEFT_OUT_BEFORE and _UNIQUE_KEY_QUERY in ext:
        names.remove(_UNIQUE_KEY_QUERY)
    if all(map(str.isascii, names)):
        names.sort()
    else:
        names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))  # as Java compares texts
    if names and len(came) <= _NAMES_KEPT and sum(map(len, came)) <= _CHARACTERS_KEPT:
        orders = _later if version > _LEFT_OUT_BEFORE else _earlier
        if len(orders) >= _ORDERS_KEPT:
            orders.clear()
        orders[came] = itemgetter(*names)  # of a single name it gives the text itself, which joins to itself
    values = [ext[name] for name in names]
    return "".join(["null" if value is None else value for value in values]).encode("utf-8", "replace")


class Secret:
    """A secret as signatures use it: HMAC-SHA1 (RFC 2104), both of whose hashes are begun once and copied later.

    Args:
        text: the password.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, text: str) -> None:
        key = text.encode()
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha1(key).digest()
        key = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner, self._outer = hashlib.sha1(key.translate(_INNER)), hashlib.sha1(key.translate(_OUTER))

    def digest(self, text: bytes, body: bytes = b"") -> bytes:
        """Return the 20 bytes that only who knows the secret can make of *text* and the *body* behind it."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        inner.update(body)
        outer.update(inner.digest())
        return outer.digest()

    def sign(self, ext: Mapping[str, str | None], body: bytes, version: int) -> str:
        """Return the signature of a request as it stands in a header; arguments as of :func:`signed_text`."""
        return b2a_base64(self.digest(signed_text(ext, version), body), newline=False).decode()

    def has_signed(self, ext: Mapping[str, str | None], body: bytes, version: int) -> bool:
        """Return whether a request has the signature that belongs to it; takes as long for a wrong one."""
        try:
            given = a2b_base64(ext.get(SIGNATURE) or "", strict_mode=True)
        except ValueError:
            return False
        return compare_digest(given, self.digest(signed_text(ext, version), body))


class Verifier:
    """Compares the signatures of requests that one secret signs and whose headers nearly always have the same fields.

    Args:
        secret: that signs them.
    """

    __slots__ = ("_count", "_digest", "_secret", "_take")

    def __init__(self, secret: Secret) -> None:
        self._secret, self._digest = secret, secret.digest
        self._count = 0  # fields of the header that came last
        self._take: Callable[[Mapping[str, Any]], tuple[Any, ...]] = tuple  # their texts, as they are signed

    def has_signed(self, ext: Mapping[str, str | None], body: bytes, version: int) -> bool:
        """Return what :meth:`Secret.has_signed` returns of the same request."""
        if len(ext) != self._count or version <= _LEFT_OUT_BEFORE:
            return self._learn(ext, body, version)
        try:
            given = a2b_base64(ext[SIGNATURE] or "", strict_mode=True)
            # As many fields, the signature is one, and each of the others is there: there is none that is not signed.
            text = "".join(self._take(ext)).encode()
        except (KeyError, TypeError, ValueError):
            return self._learn(ext, body, version)
        return compare_digest(given, self._digest(text, body))

    def _learn(self, ext: Mapping[str, str | None], body: bytes, version: int) -> bool:
        right = self._secret.has_signed(ext, body, version)
        take = _later.get(tuple(ext)) if right else None
        if take is not None:
            self._count, self._take = len(ext), take
        return right


def signer(credentials: Credentials) -> Callable[[Command], None]:
    """Return what signs a request with *credentials* before it is sent; an older signature is replaced."""
    secret, token = Secret(credentials.secret_key), credentials.token

    def sign_it(command: Command) -> None:
        ext = {**command.ext} if command.ext else {}
        ext.pop(SIGNATURE, None)
        ext[ACCESS_KEY] = credentials.access_key
        if token is not None:
            ext[SECURITY_TOKEN] = token
        ext[SIGNATURE] = secret.sign(ext, command.body, command.version)
        command.ext = ext

    return sign_it
