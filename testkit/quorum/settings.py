"""Settings of the controllers of a simulated quorum."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.controller.configuration import ControllerConfig
from understudy.testkit.quorum.simulation import SECRET_FILE

API_PORT, RAFT_PORT = 9878, 19878


def member_settings(name: str, addresses: Mapping[str, str], *, unclean: bool = False) -> ControllerConfig:
    """Return the settings of one controller, which looks often.

    Args:
        name: of the member.
        addresses: hosts of all members by name.
        unclean: whether a broker outside the sync-state set may be elected.
    """
    return ControllerConfig(
        controller_d_leger_group="sim",
        controller_d_leger_peers=";".join(f"{each}-{host}:{API_PORT}" for each, host in addresses.items()),
        controller_raft_peers=";".join(f"{each}-{host}:{RAFT_PORT}" for each, host in addresses.items()),
        controller_d_leger_self_id=name,
        controller_store_path="/controller",
        controller_raft_secret_file=SECRET_FILE,
        config_store_path="/controller/controller.properties",
        scan_inactive_master_interval=500,
        scan_not_active_broker_interval=500,
        controller_unknown_broker_grace=3000,
        enable_elect_unclean_master=unclean,
    )
