"""Which broker group serves a queue: the one it is named by, and of a static topic's queue who leads it now."""

from __future__ import annotations

from understudy.format.static_topics import LOGICAL_BROKER_PREFIX
from understudy.mqclient.errors import NotConnectedError
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.route import BrokerAddresses
from understudy.mqclient.session import Session


def group_of(session: Session, queue: MessageQueue) -> BrokerAddresses | None:
    """Return where the group is that serves *queue*, as far as it is known."""
    return session.broker(name_of_group(session, queue))


def name_of_group(session: Session, queue: MessageQueue) -> str:
    """Return the name of the group that serves *queue*; that of a logical queue where nobody is known to lead it."""
    if not queue.broker_name.startswith(LOGICAL_BROKER_PREFIX):
        return queue.broker_name
    route = session.known_route(queue.topic)
    return queue.broker_name if route is None else route.leaders.get(queue.queue_id, queue.broker_name)


def address_of(session: Session, queue: MessageQueue) -> str:
    """Return the address of the master of the group that serves *queue*, or of the smallest id that is there.

    Raises:
        NotConnectedError: there is none.
    """
    group = group_of(session, queue)
    address = group.any_address() if group else None
    if address is None:
        raise NotConnectedError(f"broker {name_of_group(session, queue)} has no address at the moment")
    return address
