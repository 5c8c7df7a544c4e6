"""What brokers ask controllers and name servers, by broker."""

from __future__ import annotations

from understudy.testkit.drills.request_relay import Asked, Relays


def asked_by(relays: Relays, address: str, since: int = 0) -> list[Asked]:
    """Return what the broker at *address* asked over all its connections, from the entry *since* on."""
    own = {each.connection for each in relays.asked if _speaker(each.ext) == address}
    return [each for each in relays.asked[since:] if each.connection in own]


def _speaker(ext: dict[str, str]) -> str:
    """Return the address a broker gives of itself in a request, or an empty text."""
    return ext.get("brokerAddr") or ext.get("brokerAddress") or ext.get("registerCheckCode", "").partition(";")[0]
