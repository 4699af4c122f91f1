"""A gRPC call made of bytes, without gRPC: for messages that no client of ours would send. HTTP/2 (RFC 9113), just enough."""
import re
import socket
import struct
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header field that nobody remembers, RFC 7541, 6.2.2."""
    name, value = name.encode(), value.encode()
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def message(payload):
    return b"\x00" + struct.pack(">I", len(payload)) + payload


def call(address, method, payload, seconds=10, raw=False, data=None):
    """Sends one message, returns all that came back: bytes of the header blocks, in which gRPC's status and message are plain
    text. `raw`: the payload is no gRPC message, but bytes in its place. `data`: a bytearray for the answer's message, of at
    most 64 KiB with the 5 bytes before it. The payload has at most 16 KiB."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=seconds) as s:
        headers = b"".join(literal(*field) for field in (
            (":method", "POST"), (":scheme", "http"), (":path", method), (":authority", address), ("te", "trailers"),
            ("content-type", "application/grpc")))
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(HEADERS, 4, 1, headers) +
                  frame(DATA, 1, 1, payload if raw else message(payload)))
        answer, buffer, deadline = b"", b"", time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                got = s.recv(1 << 16)
            except OSError:
                break
            if not got:
                break
            buffer += got
            while len(buffer) >= 9:
                size = int.from_bytes(buffer[:3], "big")
                if len(buffer) < 9 + size:
                    break
                kind, flags, body = buffer[3], buffer[4], buffer[9:9 + size]
                buffer = buffer[9 + size:]
                if kind == SETTINGS and not flags & 1:
                    s.sendall(frame(SETTINGS, 1, 0))
                if kind == PING and not flags & 1:
                    s.sendall(frame(PING, 1, 0, body))
                if kind in (HEADERS, GOAWAY):
                    answer += body
                if kind == DATA and data is not None:
                    data += body
                if kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & 1):
                    return answer
        return answer


def unary(address, method, payload, seconds=10):
    """The answer's message of a call that must succeed; raises OSError if it does not."""
    data = bytearray()
    headers = call(address, method, payload, seconds, data=data)
    status = re.search(rb"grpc-status.(\d+)", headers, re.DOTALL)
    if status is None or status[1] != b"0":
        raise OSError(f"{method}: {headers!r}")
    return bytes(data[5:])


def status(address, method, payload, seconds=30, raw=False):
    """gRPC's status of a call that must be answered. None: its stream was reset instead."""
    start = time.monotonic()
    headers = call(address, method, payload, seconds, raw)
    found = re.search(rb"grpc-status.(\d+)", headers, re.DOTALL)
    if found is None and time.monotonic() - start >= seconds:
        raise OSError(f"{method}: no answer within {seconds} s: {headers!r}")
    return found and int(found[1])


def text(field, value):
    """A protobuf field: a string or bytes, or a message's bytes."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def number(field, value):
    return varint(field << 3) + varint(value)


def float32(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def float64(field, value):
    return varint(field << 3 | 1) + struct.pack("<d", value)


def fields(payload):
    """[(field, value)] of a message: numbers, and bytes of all that has a length."""
    found, at = [], 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(payload):
        tag = read()
        size = {0: None, 1: 8, 5: 4}.get(tag & 7, -1)
        if size is None:
            found.append((tag >> 3, read()))
            continue
        if size < 0:
            size = read()
        found.append((tag >> 3, payload[at:at + size]))
        at += size
    return found


def varint(value):
    out = b""
    while True:
        out += bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
        value >>= 7
        if not value:
            return out
