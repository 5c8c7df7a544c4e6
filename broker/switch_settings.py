"""The settings of a broker that a controller leads, as replication wants them."""

from __future__ import annotations

from understudy.broker.absence import limit_ms
from understudy.broker.config import BrokerOptions

ASKED_SECONDS = 10.0
"""How long a question to the controllers counts at least: it is taken at once, and confirmed within 5 s."""


class KeyedSwitchSettings:
    """The settings of controller mode as they stand in a broker's keys now."""

    def __init__(self, options: BrokerOptions) -> None:
        self._keys = options.store
        self._broker_keys = options.broker

    all_must_ack = property(lambda self: self._keys.all_ack_in_sync_state_set)
    patience_s = property(lambda self: self._keys.ha_max_time_slave_not_catchup / 1000)
    last_file_only = property(lambda self: self._keys.sync_from_last_file)
    learner = property(lambda self: self._keys.async_learner)
    sync_flush = property(lambda self: self._keys.flush_disk_type == "SYNC_FLUSH")
    copies = property(lambda self: self._keys.in_sync_replicas)

    @property
    def trust_s(self) -> float:
        """How long the word of a controller holds, in seconds."""
        keys = self._broker_keys
        return limit_ms(keys.controller_heart_beat_timeout_mills, keys.broker_heartbeat_interval) / 1000

    @property
    def asked_s(self) -> float:
        """How long a question for a set that has left may still be accepted, in seconds.

        The network may hold it back for as long as controllers take who asked for one that lives: they let in nobody
        for a master that they have missed, and hang up on it.
        """
        keys = self._broker_keys
        missed_s = (keys.controller_heart_beat_timeout_mills + keys.broker_heartbeat_interval) / 1000
        return max(ASKED_SECONDS, missed_s)
