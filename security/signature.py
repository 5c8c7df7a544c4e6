"""The signature of a request: who knows the secret of an access key.

HMAC-SHA1 over the values of all header fields but the signature itself, by ascending names, and the body behind them.
It covers neither the code nor the time: what travels in the clear can be sent again by who sees it (TLS prevents that).

Source: AclUtils.java, AclSigner.java, DefaultAuthenticationContextBuilder.java.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping

import attrs

from understudy.remoting.command import Command

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_LEFT_OUT_BEFORE = 399  # V4_9_3: requests up to this version do not sign that field


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


def content(ext: Mapping[str, str | None], body: bytes, version: int) -> bytes:
    """Return the bytes that a signature covers.

    Args:
        ext: header fields as they are sent.
        body: payload.
        version: of the sender, which says whether one field counts.
    """
    names = [name for name in ext if name != SIGNATURE]
    if version <= _LEFT_OUT_BEFORE and _UNIQUE_KEY_QUERY in ext:
        names.remove(_UNIQUE_KEY_QUERY)
    if all(map(str.isascii, names)):
        names.sort()
    else:
        names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))  # as Java compares texts
    values = [ext[name] for name in names]
    text = "".join(["null" if value is None else value for value in values])
    return text.encode("utf-8", "replace") + body


def sign(secret: str, data: bytes) -> str:
    """Return the signature of *data* as it stands in a header."""
    return base64.b64encode(hmac.digest(secret.encode(), data, "sha1")).decode()


def verify(secret: str, data: bytes, signature: str) -> bool:
    """Return whether *signature* is that of *data*; takes as long for a wrong one."""
    try:
        given = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(given, hmac.digest(secret.encode(), data, "sha1"))


def signer(credentials: Credentials) -> Callable[[Command], None]:
    """Return what signs a request with *credentials* before it is sent; an older signature is replaced."""

    def sign_it(command: Command) -> None:
        command.ext = signed_fields(credentials, command.ext, command.body, command.version)

    return sign_it


def signed_fields(credentials: Credentials, ext: Mapping[str, str] | None, body: bytes, version: int) -> dict[str, str]:
    """Return the header fields of a request with those that sign it; an older signature is replaced.

    Args:
        credentials: who signs.
        ext: fields of the header; ``None`` for none.
        body: of the request.
        version: of the protocol, as the request's header says it.
    """
    fields = {name: text for name, text in (ext or {}).items() if name != SIGNATURE}
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.token is not None:
        fields[SECURITY_TOKEN] = credentials.token
    fields[SIGNATURE] = sign(credentials.secret_key, content(fields, body, version))
    return fields
