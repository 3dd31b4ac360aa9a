"""A file with one thing changed, by what it is: JSON, safetensors, an archive, a pickle, a graph, a table, or bytes."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable

from .values import changed_tree, number, text

__all__ = ["mutated"]

Random = random.Random


def mutated(rng: Random, name: str, data: bytes) -> bytes:
    """A file with one to three things changed.

    Args:
        rng: the source of chance.
        name: the file's name, whose suffix says what it is.
        data: its bytes.

    Returns:
        Other bytes; often still a file of its kind, sometimes none.
    """
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        way = _bytes if rng.random() < 0.15 else _way(name, data)
        try:
            data = way(rng, data)
        except Exception:  # noqa: BLE001 - what was changed before is no file of its kind any more
            data = _bytes(rng, data)
    return data


def _way(name: str, data: bytes) -> Callable[[Random, bytes], bytes]:
    if data[:2] == b"PK":
        return _archive
    if data[:2] == b"\x1f\x8b":
        return _gzip
    if data[:6] == b"\x93NUMPY":
        return _npy
    if data[8:9] == b"{":
        return _safetensors
    if name.endswith(".json"):
        return _json
    if name.endswith(".csv"):
        return _table
    if name.endswith(".onnx"):
        return _graph
    if name.endswith(".pkl"):
        return _pickle
    return _idx if "ubyte" in name else _bytes


def _bytes(rng: Random, data: bytes) -> bytes:
    out = bytearray(data)
    at = rng.randrange(len(out) + 1)
    way = rng.randrange(6)
    if way == 0:
        del out[at:]
    elif way == 1:
        del out[at : at + rng.choice((1, 2, 8, 64))]
    elif way == 2:
        out[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 16))))
    elif way == 3:
        start = rng.randrange(len(out) + 1)
        out[at:at] = out[start : start + rng.choice((1, 8, 64, 1024))]
    elif way == 4:
        form = rng.choice(("<I", ">I", "<Q", "<H"))
        room = struct.calcsize(form)
        out[at : at + room] = struct.pack(
            form, rng.choice((0, 1, 2**8 * room - 1, 2 ** (8 * room) - 1, 2 ** (8 * room - 1)))
        )
    elif out:
        for _ in range(rng.choice((1, 1, 4, 32))):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _json(rng: Random, data: bytes) -> bytes:
    whole = data.decode("utf-8")
    if rng.random() < 0.1:  # what a tree cannot say: keys twice, endless numbers
        places = [m.start() for m in re.finditer(r'"[a-z_]+": ', whole)] or [1]
        at = rng.choice(places)
        more = rng.choice(
            ('"a": 1, ' * 2, f'"digest": {"9" * 5000}, ', '"x": 1e400, ', '"y": -Infinity, ', '"\\ud800": 0, ')
        )
        return (whole[:at] + more + whole[at:]).encode()
    tree = changed_tree(rng, json.loads(whole))
    if isinstance(tree, dict) and "digest" in tree and rng.random() < 0.8:
        return _sealed(tree)
    return json.dumps(tree, indent=1).encode("utf-8", "surrogatepass")


def _sealed(tree: dict) -> bytes:  # type: ignore[type-arg]
    """A certificate whose digest is right again, so that what is behind the digest is tried."""
    from stability.kernel.format.serialization import seal

    body = {k: v for k, v in tree.items() if k != "digest"}
    return seal(body).encode("utf-8", "surrogatepass")


def _safetensors(rng: Random, data: bytes) -> bytes:
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    way = rng.random()
    meta = header.get("__metadata__") or {}
    inner = [k for k, v in meta.items() if v[:1] in "{["]
    if inner and way < 0.5:  # JSON inside the metadata
        key = rng.choice(inner)
        meta[key] = json.dumps(changed_tree(rng, json.loads(meta[key])))
    elif way < 0.85:
        header = changed_tree(rng, header)
    elif way < 0.95:
        body = _numbers(rng, body)
    else:
        body = _bytes(rng, body)
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if rng.random() < 0.95 else int(number(rng)) & (2**64 - 1)) + raw + body


def _numbers(rng: Random, body: bytes) -> bytes:
    """Another float in the place of one."""
    form = rng.choice(("<f", "<d"))
    room = struct.calcsize(form)
    out = bytearray(body)
    at = rng.randrange(max(1, len(out) // room)) * room
    value = rng.choice((float(number(rng)), float("nan"), float("inf")))
    if form == "<f" and abs(value) > 3e38:
        value = float("-inf")
    out[at : at + room] = struct.pack(form, value)
    return bytes(out)


def _archive(rng: Random, data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        members = [(m.filename, source.read(m)) for m in source.infolist()]
    at = rng.randrange(len(members))
    name, content = members[at]
    way = rng.random()
    if way < 0.6:
        likely = [k for k, (n, _) in enumerate(members) if n.endswith((".pkl", ".npy"))] or [at]
        at = rng.choice(likely)
        name, content = members[at]
        members[at] = (name, mutated(rng, name, content))
    elif way < 0.7:
        del members[at]
    elif way < 0.8:
        members.append((rng.choice((name, rng.choice(members)[0], "../" + name, text(rng, name) or "e")), content))
    elif way < 0.9:
        members[at] = (
            rng.choice(("A", "W", "B", "C", "D", "E", "U", "b", "F", "dt", "slope", "activation")) + ".npy",
            content,
        )
    else:
        members[at] = (text(rng, name).replace("\0", "") or "e", content)
    out = io.BytesIO()
    packed = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(out, "w", packed) as target:
            for name, content in members:
                target.writestr(name.encode("utf-8", "replace").decode(), content)
    return _bytes(rng, out.getvalue()) if rng.random() < 0.1 else out.getvalue()


def _npy(rng: Random, data: bytes) -> bytes:
    end = data.index(b"\n", 10) + 1
    header, body = data[10:end].decode("latin-1"), data[end:]
    way = rng.random()
    if way < 0.3:
        sizes = ", ".join(str(abs(int(number(rng)))) for _ in range(rng.choice((0, 1, 2, 2, 3, 70))))
        header = re.sub(r"\([^)]*\)", f"({sizes},)" if sizes else "()", header)
    elif way < 0.5:
        kinds = ("<f4", "<f8", ">f8", "<f2", "<c16", "<i8", "|b1", "|O", "<U8", "|S3", "|V8", "<M8[s]", "<U999999999")
        header = re.sub(r"'descr': '[^']*'", f"'descr': '{rng.choice(kinds)}'", header)
    elif way < 0.6:
        header = text(rng, header)
    elif way < 0.9:
        body = _numbers(rng, body)
    else:
        body = _bytes(rng, body)
    raw = header.encode("latin-1", "replace")
    return data[:8] + struct.pack("<H", len(raw) & 0xFFFF) + raw + body


def _pickle(rng: Random, data: bytes) -> bytes:
    """Other opcodes, numbers and names in the place of those that are there."""
    import pickletools

    ops = [(op.name, arg, at) for op, arg, at in pickletools.genops(data)]
    index = rng.randrange(len(ops))
    name, _, start = ops[index]
    end = ops[index + 1][2] if index + 1 < len(ops) else len(data)
    size = rng.choice((0, 1, 255, 2**16, 2**31 - 1, -1))
    pieces = (
        *(
            b"",
            b"N",
            b"}",
            b"]",
            b"(",
            b"t",
            b"\x85",
            b"\x86",
            b"R",
            b"s",
            b"u",
            b"a",
            b"b",
            b"0",
            b".",
            b"h\x00",
            b"h\x05",
        ),
        *(b"K\x05", b"J" + struct.pack("<i", size), b"\x8a\x09" + b"\xff" * 8 + b"\x00", b"X\x03\x00\x00\x00abc"),
        *(b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n", data[start:end] * 2),
    )
    if name.startswith("BININT") and rng.random() < 0.7:
        return data[:start] + b"J" + struct.pack("<i", size) + data[end:]
    if name == "BINUNICODE" and rng.random() < 0.7:
        said = text(rng, data[start + 5 : end].decode("utf-8", "replace")).encode("utf-8", "replace")
        return data[:start] + b"X" + struct.pack("<I", len(said)) + said + data[end:]
    return data[:start] + rng.choice(pieces) + (data[end:] if rng.random() < 0.6 else data[start:])


def _graph(rng: Random, data: bytes) -> bytes:
    """A field of one of the messages set, cleared, doubled or moved."""
    import onnx

    model = onnx.load_model_from_string(data)
    messages, stack = [], [model]
    while stack and len(messages) < 2000:
        message = stack.pop()
        messages.append(message)
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                stack.extend(value if field.is_repeated else [value])
    message = rng.choice(messages)
    fields = message.ListFields()
    if not fields or rng.random() < 0.1:
        fields = [(f, getattr(message, f.name)) for f in message.DESCRIPTOR.fields if f.type != f.TYPE_MESSAGE]
    field, value = rng.choice(fields)
    if field.is_repeated:
        way, items = rng.randrange(4), list(value)
        if field.type == field.TYPE_MESSAGE:
            kept = [copy_of(v) for v in items]
            kept = {0: kept[:-1], 1: kept + [copy_of(v) for v in kept[:1]], 2: kept[::-1], 3: kept[1:]}[way]
        else:
            kept = {
                0: items[:-1],
                1: [*items, _scalar(rng, field)],
                2: items[::-1],
                3: [_scalar(rng, field)] * len(items),
            }[way]
        message.ClearField(field.name)
        getattr(message, field.name).extend(kept)
    elif field.type == field.TYPE_MESSAGE or rng.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(rng, field, value))
    return model.SerializeToString()


def copy_of(message):  # type: ignore[no-untyped-def]
    """The message again."""
    out = type(message)()
    out.CopyFrom(message)
    return out


def _scalar(rng: Random, field, like=None):  # type: ignore[no-untyped-def]
    if field.type == field.TYPE_STRING:
        names = (
            "h",
            "x",
            "X",
            "W",
            "R",
            "Tanh",
            "Concat",
            "Expand",
            "Reshape",
            "Tile",
            "Identity",
            "Loop",
            "Cast",
            "GRU",
        )
        return rng.choice((*names, text(rng, like or "").encode("utf-8", "replace").decode()))
    if field.type == field.TYPE_BYTES:
        return _bytes(rng, like or b"abc")
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return max(-3e38, min(3e38, float(number(rng))))
    if field.type == field.TYPE_ENUM:
        return rng.choice(list(field.enum_type.values_by_number))
    low, high = (-(2**31), 2**31 - 1) if field.type == field.TYPE_INT32 else (-(2**63), 2**63 - 1)
    if field.type == field.TYPE_UINT64:
        low, high = 0, 2**64 - 1
    return max(low, min(high, int(number(rng))))


def _table(rng: Random, data: bytes) -> bytes:
    lines = [line.split(",") for line in data.decode("utf-8").split("\n")]
    line = rng.choice(lines)
    way = rng.random()
    if way < 0.6:
        line[rng.randrange(len(line))] = rng.choice((str(number(rng)), text(rng), "inf", "nan", "", "-inf", "9" * 400))
    elif way < 0.7:
        for row in lines:  # a column goes
            del row[min(len(row) - 1, 1) :][:1]
    elif way < 0.8:
        lines[0][rng.randrange(len(lines[0]))] = text(rng, "epoch")
    elif way < 0.9:
        lines.insert(rng.randrange(len(lines)), list(line))
    else:
        column, cell = rng.randrange(len(lines[0])), rng.choice(("inf", "nan", "", "x", "0", "1e308"))
        for row in lines[1:]:
            row[min(column, len(row) - 1)] = cell
    return "\n".join(",".join(row) for row in lines).encode("utf-8", "surrogatepass")


def _gzip(rng: Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        return _bytes(rng, data)
    return gzip.compress(_idx(rng, gzip.decompress(data)), mtime=0)


def _idx(rng: Random, data: bytes) -> bytes:
    out = bytearray(data)
    if rng.random() < 0.6:
        at = 4 + 4 * rng.randrange(max(1, out[3]))
        out[at : at + 4] = struct.pack(">I", rng.choice((0, 1, 2**31, 2**32 - 1, len(out), 2**16)))
    else:
        out[rng.randrange(4)] = rng.randrange(256)
    return bytes(out)
