"""Lost bytes of a log that others may have: loaded when there are some, which nearly no broker ever sees."""

from __future__ import annotations

from understudy.broker.broker import Broker

PATIENCE_SECONDS = 5.0
"""How long what is due waits at a master for slaves that are asked for damage which was just found."""


def may_come(broker: Broker) -> bool:
    """Return whether messages that *broker* cannot read may be in its log in a moment, or its master has them.

    Damage can be found by who is about to pass it. So it is noted first, which has a slave that acts leave what is
    stored to its master, and a master that lacked nothing before ask its slaves.
    """
    holes = broker.store.holes
    if holes.behind:
        return True
    if broker.role.is_slave:
        return broker.replication.messages_missing
    return holes.first is not None and broker.world.clock.monotonic() - holes.found_s < PATIENCE_SECONDS


async def fill_holes(broker: Broker) -> None:
    """Ask the slaves of a master for what its log lacks; see :class:`understudy.container.master_holes.MasterHoles`."""
    from understudy.container.master_holes import MasterHoles

    await MasterHoles(broker).run()


async def put_again(broker: Broker) -> None:
    """See :func:`understudy.container.put_again.put_again`."""
    if not broker.store.came_back():
        return
    from understudy.container import put_again

    await put_again.put_again(broker)


async def begin_passing(broker: Broker) -> None:
    """See :func:`understudy.container.passed.begin_passing`."""
    if broker.store.hole is None:
        return
    from understudy.container import passed

    await passed.begin_passing(broker)


def skipped(broker: Broker, level: int, first: int, after: int) -> None:
    """See :func:`understudy.container.passed.skipped`."""
    from understudy.container import passed

    passed.skipped(broker, level, first, after)


async def end_passing(broker: Broker) -> None:
    """See :func:`understudy.container.passed.end_passing`."""
    if not broker.store.holes.passed:
        return
    from understudy.container import passed

    await passed.end_passing(broker)


async def heal(broker: Broker, hole: int) -> None:
    """See :func:`understudy.container.master_holes.heal`."""
    from understudy.container import master_holes

    await master_holes.heal(broker, hole)
