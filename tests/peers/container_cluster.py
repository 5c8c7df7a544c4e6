"""A name server and a container of masters, of either kind, in processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from peer_processes import filled_template, running, server
from peer_requests import await_registered

from understudy.testkit.port_blocks import PortBlocks


@dataclass(frozen=True)
class ContainerCluster:
    """What a client and an operator know of it: addresses, and the file of each broker, whether it is hosted or not."""

    namesrv: str
    address: str
    brokers: dict[str, str]
    files: dict[str, Path]


@contextlib.contextmanager
def container_cluster(
    kind: str, folder: Path, ports: PortBlocks, hosted: Collection[str], other: Collection[str] = ()
) -> Iterator[ContainerCluster]:
    """Run a container that hosts some brokers; further ones have a file only, to be added later.

    Args:
        kind: whose servers.
        folder: stores and logs.
        ports: where the ports come from.
        hosted: names of the brokers that it hosts from the start.
        other: names of the others.

    Yields:
        The cluster; all its hosted brokers are registered.
    """
    namesrv_port, container_port = ports.take(), ports.take()
    namesrv = f"127.0.0.1:{namesrv_port}"
    brokers, files = {}, {}
    for name in (*hosted, *other):
        port = ports.take() + 10
        keys = {"NAME": name, "PORT": port, "HA_PORT": port + 2, "NAMESRV": namesrv, "DIR": folder / name}
        files[name] = folder / f"{name}.conf"
        files[name].write_text(filled_template("broker", **keys))
        brokers[name] = f"127.0.0.1:{port}"
    paths = ":".join(str(files[name]) for name in hosted)
    keys = {"PORT": container_port, "NAMESRV": namesrv, "BROKERS": paths, "DIR": folder}
    namesrv_text = filled_template("namesrv", PORT=namesrv_port, DIR=folder / "namesrv")
    with running(
        server(kind, "namesrv", "namesrv", folder / "namesrv", namesrv_text),
        server(kind, "container", "container", folder / "container", filled_template("container", **keys)),
    ):
        await_registered(namesrv, hosted)
        yield ContainerCluster(namesrv, f"127.0.0.1:{container_port}", brokers, files)
