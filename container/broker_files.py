"""The configuration of one broker of a container: read from its file, checked, and completed by the container."""

from __future__ import annotations

import os.path
from collections.abc import Mapping

import attrs

from understudy.broker.config import BrokerOptions, Machine
from understudy.container.config import BrokerContainerConfig, ContainerOptions
from understudy.runtime.configuration import value_text
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.properties import ConfigError, Properties, located
from understudy.runtime.property_file import find_file, read_properties_file
from understudy.security.settings import INNER

log = get_logger("container")


class AddBrokerError(Exception):
    """A broker was not added; the message is the remark of the answer.

    Args:
        remark: what the caller of ADD_BROKER reads; the reference's words where it has some.
        detail: what the user of this host reads instead, when the remark leaves out what is wrong.
    """

    def __init__(self, remark: str, detail: str = "") -> None:
        super().__init__(remark)
        self.detail = detail or remark


def read_broker_file(path: str, disk: Disk, home: str | None) -> Properties:
    """Return the keys and texts of the file *path*.

    Args:
        path: as the operator gave it.
        disk: of this host.
        home: where a file is looked for too, see :func:`~understudy.runtime.property_file.read_properties_file`.

    Raises:
        AddBrokerError: there is no path, no such file, or nothing in it.
    """
    if not path:
        raise AddBrokerError("addBroker config path is empty")
    try:
        properties = read_properties_file(disk, path, home)
    except ConfigError as error:
        log.warning("broker file cannot be read", reason=error)
        raise AddBrokerError("addBroker properties empty", str(error)) from None
    if not properties:
        raise AddBrokerError("addBroker properties empty", f"broker file {path} has no key=value line")
    return properties


def name_server_keys(container: BrokerContainerConfig) -> dict[str, str]:
    """Return what a broker is given of its container's way to the name servers, as keys of the broker."""
    return {
        "namesrvAddr": container.namesrv_addr or "",
        "fetchNameSrvAddrByDnsLookup": value_text(container.fetch_name_srv_addr_by_dns_lookup),
        "updateNameServerAddrPeriod": value_text(container.update_namesrv_addr_interval),
    }


def check_hosted(options: BrokerOptions, values: Properties) -> None:
    """Refuse what a broker of a container cannot have. Raises ``ConfigError``."""
    store = options.store
    if store.duplication_enable:
        place = values.where("duplicationEnable")
        raise ConfigError(f"{place}: duplicationEnable=true is not supported in a container")
    if not store.total_replicas >= store.in_sync_replicas >= store.min_in_sync_replicas:
        raise ConfigError("invalid replicas number")


def asked_file(path: str, options: ContainerOptions, disk: Disk) -> str:
    """Return the file that a peer asks a container to read, its links followed.

    Args:
        path: as the peer gave it.
        options: of the container; they say where the file may lie.
        disk: of this host.

    Raises:
        AddBrokerError: there is no path or no file, it is no regular file, or lies elsewhere.
    """
    if not path:
        raise AddBrokerError("addBroker config path is empty")
    try:
        real = disk.regular_file(find_file(disk, path, options.container.rocketmq_home))
    except ConfigError as error:
        log.warning("broker file cannot be read", reason=error)
        raise AddBrokerError("addBroker properties empty", str(error)) from None
    folders = [os.path.realpath(folder) for folder in options.asked_folders()]
    if real is not None and any(_is_below(real, folder) for folder in folders):
        return real
    if not disk.exists(path) and any(_is_below(os.path.realpath(path), folder) for folder in folders):
        raise AddBrokerError("addBroker properties empty", f"broker file {path} is not there")
    log.warning("broker file refused, it is no regular file below the folders for them", path=path, folders=folders)
    raise AddBrokerError(
        f"{path} is no regular file below {', '.join(folders)}: put the broker's file there, or name its folder in "
        "addBrokerFolders of the container's file"
    )


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def broker_options(
    properties: Mapping[str, str], source: str, container: ContainerOptions, disk: Disk, machine: Machine | None
) -> BrokerOptions:
    """Check a broker's configuration as the reference's container does (BrokerContainerProcessor.java).

    Of a broker that a controller leads, role and id mean nothing but that its file's id names it in the container.

    Args:
        properties: the reference's keys to text.
        source: name of the file, for messages; when it is there, the options name it.
        container: whose name servers the broker gets.
        disk: of this host.
        machine: where defaults come from; the real machine when ``None``.

    Raises:
        AddBrokerError: the message says what is wrong.
    """
    led = properties.get("enableControllerMode", "").strip().lower() == "true"
    if properties.get("brokerRole", "").strip() == "SLAVE" and not led:
        broker_id = properties.get("brokerId", "0").strip()
        if broker_id.lstrip("-").isdecimal() and int(broker_id) <= 0:
            raise AddBrokerError("slave broker id must be > 0")
    values = located(properties, source)
    # A broker file's name servers and HA port are the container's business, as in the reference.
    if container.container.namesrv_addr:
        values = values.changed(name_server_keys(container.container), "container")
    port = values.get("listenPort", "").strip()
    if port.isdecimal() and int(port) > 0:
        values = values.changed({"haListenPort": str(int(port) + 1)}, values.where("listenPort"))
    try:
        options, warnings = BrokerOptions.from_properties(values, machine=machine)
    except ConfigError as error:
        raise AddBrokerError(str(error)) from None
    for warning in warnings:
        log.warning(warning)
    try:
        check_hosted(options, values)
    except ConfigError as error:
        raise AddBrokerError(str(error)) from None
    options.checks.append(check_hosted)
    inner = options.security.inner
    if inner is not None and inner != container.security.inner:
        raise AddBrokerError(
            f"{values.where(INNER)}: {INNER}: brokers of a container sign with what its own file names; set it there"
        )
    if led:  # it has connections of its own, because controllers take their end for its end
        own, calls = options.security, container.security
        tls = attrs.evolve(own.tls, client=own.tls.client or calls.tls.client)
        options.security = attrs.evolve(own, inner=calls.inner, tls=tls)
    store = options.store
    if not led and (options.broker.broker_id == 0) != (store.broker_role != "SLAVE"):
        place = values.where("brokerId")
        raise AddBrokerError(
            f"{place}: brokerId={options.broker.broker_id} does not fit brokerRole={store.broker_role}: a master "
            "has id 0, a slave an id above 0"
        )
    options.broker.is_in_broker_container = True
    options.path = source if disk.exists(source) else None
    return options
