"""Unpack captured store directories, damage them as their manifests say, and open them with our store."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from understudy.runtime.world import World, real_world
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore

DATA = Path(__file__).parents[1] / "data" / "store"
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in DATA.glob("*.tar.gz"))


def manifest(name: str) -> dict[str, Any]:
    """Return the manifest of a captured directory."""
    content: dict[str, Any] = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return content


def unpack(name: str, target: Path) -> Path:
    """Unpack a captured directory below *target* and return it."""
    with tarfile.open(DATA / f"{name}.tar.gz") as archive:
        # Python knows filters from 3.11.4 on; 3.12 warns when none is chosen.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(target)
    return target / name


def damage(root: Path, operations: list[dict[str, Any]]) -> None:
    """Apply the damage that a manifest describes."""
    for operation in operations:
        path = root / operation["path"]
        kind = operation["op"]
        if kind == "remove":
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        elif kind == "truncate":
            os.truncate(path, operation["length"])
        else:
            with path.open("r+b") as file:
                file.seek(operation["offset"])
                if kind == "zero":
                    file.write(bytes(operation["length"]))
                elif kind == "xor":
                    before = file.read(1)
                    file.seek(operation["offset"])
                    file.write(bytes([before[0] ^ operation["mask"]]))
                elif kind == "write":
                    file.write(bytes.fromhex(operation["hex"]))
                else:
                    raise ValueError(f"unknown damage {kind}")


def config_for(name: str, root: Path, content: dict[str, Any]) -> StoreConfig:
    """Return the settings a captured directory was written with."""
    config = content["config"]
    return StoreConfig(
        folder=str(root),
        commit_log_folders=tuple(str(root / path) for path in content["commitLogPaths"]),
        mapped_file_size_commit_log=int(config["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(config["mappedFileSizeConsumeQueue"]),
        mapped_file_size_batch_consume_queue=int(config.get("mapperFileSizeBatchConsumeQueue", 4600)),
        max_hash_slot_num=int(config["maxHashSlotNum"]),
        max_index_num=int(config["maxIndexNum"]),
        enable_multi_dispatch=config.get("enableMultiDispatch") == "true",
        enable_lmq=config.get("enableLmq") == "true",
        memory_bytes=1 << 34,
    )


@asynccontextmanager
async def opened(
    name: str, root: Path, content: dict[str, Any], world: World | None = None
) -> AsyncIterator[MessageStore]:
    """Open a directory with our store, and close it cleanly in the end."""
    store = await MessageStore.open(world or real_world(), config_for(name, root, content), ("127.0.0.1", 10911))
    try:
        yield store
    finally:
        await store.close()


def read_queue(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """Return every record of a queue, pulled as a client does."""
    from understudy.format.record import decode_record

    records: list[bytes] = []
    offset = store.min_queue_offset(topic, queue_id)
    while offset < store.max_queue_offset(topic, queue_id):
        result = store.get(topic, queue_id, offset, 32, 1 << 20)
        assert result.next_begin_offset > offset, f"no progress at {topic}/{queue_id}/{offset}: {result}"
        offset = result.next_begin_offset
        for part in result.parts:
            at = 0
            while at < len(part):
                size = decode_record(part, at).size_bytes
                records.append(bytes(part[at : at + size]))
                at += size
    return records
