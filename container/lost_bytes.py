"""Lost bytes of a log that others may have: loaded when there are some, which nearly no broker ever sees."""

from __future__ import annotations

from understudy.broker.broker import Broker


async def fill_holes(broker: Broker) -> None:
    """Ask the slaves of a master for what its log lacks; see :class:`understudy.container.master_holes.MasterHoles`."""
    from understudy.container.master_holes import MasterHoles

    await MasterHoles(broker).run()


async def heal(broker: Broker, hole: int) -> None:
    """See :func:`understudy.container.master_holes.heal`."""
    from understudy.container import master_holes

    await master_holes.heal(broker, hole)
