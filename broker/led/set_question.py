"""The question of a led master for another sync-state set, from the log that must be durable to what is in force then.

Source: AutoSwitchHAService.java and ReplicasManager.java (changing the set).
"""

from __future__ import annotations

from understudy.broker.led.controllers import Controllers, RefusedError, UnansweredError
from understudy.broker.led.following import Word
from understudy.broker.led.replication import LedReplication
from understudy.remoting.codes import ResponseCode

SET_AS_IT_IS = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
"""What controllers answer to the question for the set that they have, unless they wait for it."""
NO_GROUP = "Broker metadata is not existed"
"""With the same code they say that they do not know the group."""


async def alter_set(
    replication: LedReplication, controllers: Controllers, leader: str, role: Word, members: frozenset[int]
) -> Word | None:
    """Ask for *members*.

    Args:
        replication: of the master that asks.
        controllers: who are asked.
        leader: address of the one of them that decides.
        role: in which this broker asks.
        members: persistent ids of those who are to be in the set.

    Returns:
        What is in force then; ``None``: it was not asked, for others are wanted by now, somebody in it lacks what is
        confirmed, or the log of who would be alone is not durable.

    Raises:
        UnansweredError: nobody has answered; it may be in force all the same.
        RefusedError: it was refused.
    """
    question = replication.asking(members, role.set_epoch)
    if question is None:
        return None
    if not await question.durable_alone() or not question.leaves():
        return None
    try:
        word = await controllers.alter_set(leader, role, members)
    except (UnansweredError, RefusedError) as error:
        if error.certain:
            question.refused()
        refused = isinstance(error, RefusedError) and error.code == SET_AS_IT_IS
        if not refused or members != role.members or NO_GROUP in str(error):
            raise
        word = role  # they know of nobody else: those who wait to be told that it leads do not answer so
    replication.confirmed(role.epoch)
    return word
