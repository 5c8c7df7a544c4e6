"""A broker as a node: what stays the same about it as long as it lives, whatever it stores, serves or becomes."""

from __future__ import annotations

import attrs

from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity
from understudy.runtime.world import World


@attrs.frozen
class Node:
    """Who one broker is, how it is set up, and the world it runs in.

    Attributes:
        identity: names and addresses, and the role in force.
        options: the settings in force; read at each use, so that live changes count.
        world: clock, network, disk, threads and randomness.
    """

    identity: Identity
    options: BrokerOptions
    world: World
