"""What the controller drill runs: processes, their ports and their settings."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from understudy.testkit.drills.ring_processes import DrillError
from understudy.testkit.java_tools import LAUNCHER, missing

_STOP_SECONDS = 60.0


class Processes:
    """Child processes of the drill, killed at the end whatever happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._running[name] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def ended(self) -> list[str]:
        """Return those that ended although nobody killed them."""
        return [name for name, process in self._running.items() if process.poll() is not None]

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a running process."""
        self._running[name].send_signal(number)

    async def stop(self, name: str) -> None:
        """End a process with SIGTERM and wait for it, but not for ever."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            await trio.to_thread.run_sync(process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_all(self) -> None:
        for name in list(self._running):
            self.kill(name)


def find_launcher(given: str | None) -> Path | None:
    """Return the launcher of Java brokers that was given or is found; ``None`` for stub brokers."""
    if given == "none":
        return None
    if given is not None:
        return Path(given)
    return None if missing() else LAUNCHER


def in_folder(play: Callable[[Path], Awaitable[bool]], *, keep: bool = False) -> int:
    """Play in a new folder and return the exit code.

    Args:
        play: returns whether nothing was violated; raises ``DrillError``, alone or in groups.
        keep: leave settings, data and output there; they stay in any case when something went wrong.
    """
    folder = Path(tempfile.mkdtemp(prefix="understudy-drill-"))
    try:
        if not trio.run(play, folder):
            keep = True
            return 1
    except BaseExceptionGroup as group:
        found = group.subgroup(DrillError)
        if found is None:
            raise
        error: BaseException = found
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        print(f"drill: {error}", file=sys.stderr)
        keep = True  # there is something to look at
        return 1
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print("\ndrill: everything happened in time")
    return 0


def properties(settings: Mapping[str, str]) -> str:
    """Return the text of a settings file."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def controller_settings(member: str, api: Mapping[str, int], raft: Mapping[str, int], folder: Path) -> dict[str, str]:
    """Return the settings of one controller.

    Args:
        member: its id.
        api, raft: port of each member for brokers and tools, and for the other members.
        folder: where all of them keep their files.
    """
    return {
        "controllerDLegerGroup": "drill",
        "controllerDLegerPeers": ";".join(f"{m}-127.0.0.1:{p}" for m, p in api.items()),
        "controllerRaftPeers": ";".join(f"{m}-127.0.0.1:{p}" for m, p in raft.items()),
        "controllerDLegerSelfId": member,
        "controllerStorePath": str(folder / member),
        "configStorePath": str(folder / f"{member}.properties"),
        "bindAddress": "127.0.0.1",
        "scanNotActiveBrokerInterval": "300",
        "scanInactiveMasterInterval": "300",
    }


def java_broker_settings(
    group: str, port: int, name_servers: str, controllers: str, store: Path, shown_host: str = "127.0.0.1"
) -> dict[str, str]:
    """Return the settings of a real broker in controller mode, its periods shortened.

    Args:
        group: its broker name.
        port: where it listens; its neighbours are taken, too.
        name_servers, controllers: addresses, separated by semicolons.
        store: its folder.
        shown_host: what it names as its own address; it listens at 127.0.0.1 only.
    """
    return {
        "brokerClusterName": "drill",
        "brokerName": group,
        "brokerId": "-1",
        "brokerRole": "SLAVE",
        "brokerIP1": shown_host,
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": name_servers,
        "enableControllerMode": "true",
        "controllerAddr": controllers,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "mappedFileSizeCommitLog": "1048576",
        "mappedFileSizeConsumeQueue": "6000",
        "totalReplicas": "2",
        "inSyncReplicas": "2",
        "minInSyncReplicas": "1",
        "allAckInSyncStateSet": "true",
        "brokerHeartbeatInterval": "200",
        "controllerHeartBeatTimeoutMills": "5000",
        "syncBrokerMetadataPeriod": "1000",
        "checkSyncStateSetPeriod": "1000",
        "diskMaxUsedSpaceRatio": "95",
        "timerWheelEnable": "false",
    }


def ids_of(group: Mapping[str, Any]) -> dict[str, int]:
    """Return the id of each address: of several the one that lives in the set.

    A real broker to which an answer comes late asks for another id, and the first one stays with its address.

    Args:
        group: of the controllers' answer (1006).
    """
    rows = [*group.get("notInSyncReplicas", []), *group.get("inSyncReplicas", [])]
    rows.sort(key=lambda row: bool(row.get("alive")))  # those that come later win
    return {row["brokerAddress"]: int(row["brokerId"]) for row in rows}
