"""Options and settings of a proxy, alone or beside brokers; what a proxy is made of is imported only for one."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
from typing import TYPE_CHECKING

import attrs

from understudy.runtime.disk import RealDisk
from understudy.runtime.program import UsageError
from understudy.runtime.property_file import HOME_VARIABLE

if TYPE_CHECKING:
    from understudy.proxy.config import ProxyConfig

_LIBRARIES = ("hpack", "google.protobuf", "cryptography")


def add_file_option(parser: argparse.ArgumentParser) -> None:
    """Let *parser* take the file of a proxy."""
    parser.add_argument(
        "-pc", "--proxyConfigPath", metavar="FILE", help="settings of the proxy in JSON (rmq-proxy.json)"
    )


def add_local_options(parser: argparse.ArgumentParser) -> None:
    """Let *parser*, of a program that runs brokers, take what starts a proxy beside them."""
    parser.add_argument("--enable-proxy", action="store_true", help="serve gRPC clients, too, in the same process")
    add_file_option(parser)


def missing_libraries() -> list[str]:
    """Return the libraries that a proxy needs and that are not installed."""
    return [name for name in _LIBRARIES if not _is_there(name)]


def load(*more: str) -> None:
    """Import what a proxy is made of, and *more*: in an event loop that serves others it would take too long."""
    for module in ("understudy.proxy.server", *more):
        importlib.import_module(module)


def read(path: str | None, mode: str | None, name_servers: str | None) -> tuple[ProxyConfig, list[str]]:
    """Return the settings of a proxy and warnings about its file.

    Args:
        path: of the file; without one it is looked for below the reference's homes.
        mode: ``cluster`` or ``local``; above what the file says.
        name_servers: above what the file says.

    Raises:
        ConfigError: the file cannot be read, or a value is no good.
        UsageError: no file is named, or there are no name servers, or a library is missing.
    """
    missing = missing_libraries()
    if missing:
        raise UsageError(f"a proxy needs {', '.join(missing)}: pip install 'understudy[grpc]'")
    from understudy.programs.tls_file import with_tls_file
    from understudy.proxy.config import config_of, default_file, read_config

    environment = dict(os.environ)
    path = path or default_file(environment)
    config: ProxyConfig
    if path is not None:
        config, warnings = read_config(RealDisk(), path, environment.get(HOME_VARIABLE), with_tls_file)
    elif mode == "local":
        config, warnings = config_of({}, "defaults", with_tls_file)
    else:
        raise UsageError("no settings: name a file in JSON by -pc, or set RMQ_PROXY_HOME; {} takes every default")
    if mode is not None:
        config = attrs.evolve(config, proxy_mode=mode)
    if name_servers:
        config = attrs.evolve(config, namesrv_addr=name_servers)
    if not config.namesrv_addr:
        raise UsageError("no name server: name it by -n host:port, or as namesrvAddr in the file")
    return config, warnings


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
