#!/usr/bin/env python3
"""Makes `proxy/messages/rocketmq_v2.py` and its types of `rocketmq_v2.proto`; needs `pip install grpcio-tools`.

    python tests/tools/generate_messages.py

The classes live in a descriptor pool of their own: whoever embeds a proxy may import an official client of RocketMQ in
the same process, which registers the same names.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "proxy" / "messages"
NAME = "rocketmq_v2"
LINE_BYTES = 48

HEAD = '''"""Messages of the service apache.rocketmq.v2. Made by tests/tools/generate_messages.py; do not edit.

The classes live in a descriptor pool of their own, so that an official client may be imported beside them.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.internal import enum_type_wrapper

_FILE = descriptor_pb2.FileDescriptorProto.FromString(
'''
MIDDLE = """)
_pool = descriptor_pool.DescriptorPool()
for _each in (duration_pb2, timestamp_pb2):
    _pool.AddSerializedFile(_each.DESCRIPTOR.serialized_pb)
_pool.Add(_FILE)
DESCRIPTOR = _pool.FindFileByName(_FILE.name)

"""


def main() -> int:
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc  # type: ignore[import-not-found, unused-ignore]  # needed here only

    with tempfile.TemporaryDirectory() as folder:
        include = Path(protoc.__file__).parent / "_proto"
        arguments = ["protoc", f"-I{FOLDER}", f"-I{include}", f"--pyi_out={folder}"]
        arguments += [f"--descriptor_set_out={folder}/set", f"{NAME}.proto"]
        if protoc.main(arguments):
            return 1
        types = Path(folder, f"{NAME}_pb2.pyi").read_text()
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(folder, "set").read_bytes())
    (description,) = files.file
    description.name = f"understudy/proxy/messages/{NAME}.proto"
    data = description.SerializeToString()
    lines = [f"    {data[at : at + LINE_BYTES]!r}" for at in range(0, len(data), LINE_BYTES)]
    text = HEAD + "\n".join(lines) + "\n" + MIDDLE
    for enum in description.enum_type:
        text += f'{enum.name} = enum_type_wrapper.EnumTypeWrapper(DESCRIPTOR.enum_types_by_name["{enum.name}"])\n'
    text += "globals().update(\n    (name, value.number) for enum in DESCRIPTOR.enum_types_by_name.values()"
    text += " for name, value in enum.values_by_name.items()\n)\n\n"
    for message in description.message_type:
        made = f'message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["{message.name}"])'
        text += f"{message.name} = {made}\n"
    (FOLDER / f"{NAME}.py").write_text(text)
    types = types.replace("ClassVar as", "Any as _Any, ClassVar as")
    types = re.sub(r"\b_Mapping\b(?=[] ])", "_Mapping[str, _Any]", types)
    (FOLDER / f"{NAME}.pyi").write_text("# Made by tests/tools/generate_messages.py; do not edit.\n\n" + types)
    for command in (["check", "--fix-only", "-q"], ["format", "-q"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, str(FOLDER)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
