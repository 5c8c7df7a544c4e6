"""Bodies of REGISTER_BROKER: what a broker tells a name server of its topics (RegisterBrokerBody.java)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable, Iterator

from understudy.broker.topics import TopicConfig
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import Rows, dump_pieces, dumps
from understudy.format.static_topics import TopicMapping

_INT = struct.Struct(">i")


def registration_pieces(
    rows: Iterable[TopicConfig],
    version: DataVersion,
    perm_mask: int,
    static: Iterable[TopicMapping],
    static_version: DataVersion,
) -> Iterator[bytes]:
    """Return the plain body of REGISTER_BROKER, piece by piece.

    Args:
        rows: the topics to tell of.
        version: version of the whole topic table.
        perm_mask: permissions of the broker; topics have no others.
        static: mappings of those of the topics that are static.
        static_version: version of the whole table of static topics.
    """
    return dump_pieces(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": version.to_json(),
                "mappingDataVersion": static_version.to_json(),
                "topicConfigTable": Rows((row.name, row.to_json(perm_mask)) for row in rows),
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {mapping.topic: mapping.info() for mapping in static},
            },
        }
    )


def compressed_body(
    rows: Iterable[TopicConfig], version: DataVersion, perm_mask: int, static: Collection[TopicMapping]
) -> bytes:
    """Return the compressed body of REGISTER_BROKER; it cannot tell of order and system flags of topics.

    Args:
        rows, version, perm_mask, static: as for :func:`registration_pieces`.
    """
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
    parts += [sized(b"[]"), _INT.pack(len(static))]
    parts += [sized(dumps(mapping.info())) for mapping in static]
    return zlib.compress(b"".join(parts), 9)
