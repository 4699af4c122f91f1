"""A gRPC call made of bytes, without gRPC: for messages that no client of ours would send. HTTP/2 (RFC 9113), just enough."""
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


def call(address, method, payload, seconds=10, raw=False):
    """Sends one message, returns all that came back: bytes of the header blocks, in which gRPC's status and message are plain
    text. `raw`: the payload is no gRPC message, but bytes in its place."""
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
                if kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & 1):
                    return answer
        return answer


def text(field, value):
    """A protobuf field: a string or bytes, or a message's bytes."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def number(field, value):
    return varint(field << 3) + varint(value)


def varint(value):
    out = b""
    while True:
        out += bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
        value >>= 7
        if not value:
            return out
