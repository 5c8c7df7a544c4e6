"""Bodies of REGISTER_BROKER: what a broker tells a name server of its topics (RegisterBrokerBody.java)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from understudy.broker.topics import TopicConfig
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import Rows, dump_pieces, dumps

_INT = struct.Struct(">i")


def registration_pieces(
    rows: Iterable[TopicConfig], version: DataVersion, perm_mask: int, now_ms: int
) -> Iterator[bytes]:
    """Return the plain body of REGISTER_BROKER, piece by piece.

    Args:
        rows: the topics to tell of.
        version: version of the whole topic table.
        perm_mask: permissions of the broker; topics have no others.
        now_ms: version of the (empty) table of static topics.
    """
    return dump_pieces(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": version.to_json(),
                "mappingDataVersion": DataVersion(timestamp=now_ms).to_json(),
                "topicConfigTable": Rows((row.name, row.to_json(perm_mask)) for row in rows),
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
        }
    )


def compressed_body(rows: Iterable[TopicConfig], version: DataVersion, perm_mask: int) -> bytes:
    """Return the compressed body of REGISTER_BROKER; it cannot tell of order and system flags of topics."""
    import json  # few name servers are told so, and every other start would import it

    def sized(data: bytes) -> bytes:
        return _INT.pack(len(data)) + data

    listed = list(rows)
    parts = [sized(dumps(version.to_json())), _INT.pack(len(listed))]
    for row in listed:
        text = (
            f"{row.name} {row.read_queue_nums} {row.write_queue_nums} {row.perm & perm_mask} {row.filter_type} "
            + json.dumps(row.attributes, separators=(",", ":"))
        )
        parts.append(sized(text.encode()))
    parts += [sized(b"[]"), _INT.pack(0)]
    return zlib.compress(b"".join(parts), 9)
