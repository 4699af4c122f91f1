"""Reads the rows of a checkpoint by the page on its format (common/checkpoint/FORMAT.md), without the programs under test."""
import json
import pathlib
import struct

BLOCK = struct.Struct("<4sIIIQQ")
TRAILER = struct.Struct("<QQQ8s")
ENTRY = struct.Struct("<IIIIQQQ")


def read_table(folder, table):
    """{key: (numbers of its embedding)}, layers put together."""
    folder = pathlib.Path(folder)
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    names = [t["spec"]["name"] for t in manifest["tables"]]
    index = names.index(table)
    dim = manifest["tables"][index]["spec"]["dim"]
    rows = {}
    for file in sorted(manifest["files"], key=lambda f: f.get("layer", 0)):
        data = (folder / file["name"]).read_bytes()
        at, entries, _, magic = TRAILER.unpack_from(data, len(data) - TRAILER.size)
        assert magic == b"TSSREND1", f"{file['name']}: no trailer"
        for i in range(entries):
            found, _, floats, _, offset, _, count = ENTRY.unpack_from(data, at + i * ENTRY.size)
            if found != index:
                continue
            record = struct.Struct(f"<QIQ{floats}f")
            offset += BLOCK.size
            for _ in range(count):
                key, _, _, *values = record.unpack_from(data, offset)
                offset += record.size
                if floats == 0:
                    rows.pop(key, None)
                else:
                    rows[key] = tuple(values[:dim])
    return rows
