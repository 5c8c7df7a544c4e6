"""What a broker does that the controllers take for the master it was in a former life: others in its set come first.

It may have lost its power and lack what the others in its set have, and would have them cut it. And it would lead once
more in an epoch in which it has written: slaves that have something of that epoch could not tell one life from the
other. So it is silent until the controllers have another master, or none: then it is elected, if it is, in a new epoch.

Who is master is asked with 1004 alone. The answer to the registration (1003) names a master only if the controllers
have heard it, and those that have just started have heard nobody. But the registration tells them that this broker
waits, so it comes before each question for an election.

The silence ends. Controllers elect when they miss a master. Those that have just started, and never heard this one, are
asked (1002), once who lives has had the time to be heard:

* By this broker: ours know then that it is not in office, and elect as soon as they have heard everybody else who may
  be elected; those of the reference take the best of those they have heard.
* In the end by nobody in particular, as controllers of the reference ask themselves: those do not look at a group of
  which nobody lives, and say by this that it has no master. Ours still wait for brokers that they have not heard.
"""

from __future__ import annotations

from contextlib import suppress

import attrs

from understudy.broker.led.controllers import Controllers, RefusedError, UnansweredError
from understudy.broker.led.id_keeper import AGAIN_SECONDS, IdKeeper, Registered
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("broker.led")

NOBODY_IN_PARTICULAR = -1
"""The id with which controllers of the reference ask for an election themselves."""


async def let_others_first(
    clock: Clock, ids: IdKeeper, controllers: Controllers, registered: Registered, heard_s: float, missed_s: float
) -> Registered:
    """Return once the controllers' leader names another master than this broker, or none.

    Args:
        clock: for pauses.
        ids: registers again when the leader does not answer: another one may lead.
        controllers: are asked.
        registered: what the registration has said.
        heard_s: how long a living broker may take to be heard by controllers that have just started, in seconds.
        missed_s: how long controllers may take to miss a silent one, in seconds.

    Returns:
        The newest registration, with the word of the leader in the place of its own.

    Raises:
        OSError: what registering makes durable cannot be.
    """
    named_since: float | None = None
    while True:
        try:
            word = await controllers.replicas(registered.leader)
        except (UnansweredError, RefusedError):
            await clock.sleep(AGAIN_SECONDS)
            registered = await ids.register()
            named_since = None  # who leads now may have heard nobody yet
            continue
        if word.master_id != registered.broker_id:
            return attrs.evolve(registered, word=word)
        if named_since is None:
            named_since = clock.monotonic()
            log.warning("this broker was master in a former life: others in its set come first", epoch=word.epoch)
        waited = clock.monotonic() - named_since
        if waited >= heard_s:
            asks = registered.broker_id if waited < missed_s else NOBODY_IN_PARTICULAR
            # Who has started since the last question does not know that this broker waits, unless it registers.
            former_leader, registered = registered.leader, await ids.register()
            if registered.leader != former_leader:
                named_since = None  # as above
                continue
            with suppress(UnansweredError, RefusedError):  # what came of it, the next answer says
                await controllers.elect(registered.leader, asks)
        await clock.sleep(AGAIN_SECONDS)
