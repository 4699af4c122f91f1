"""A TCP proxy that delivers every byte late, in order."""
import collections
import socket
import threading
import time

from cluster import free_port


class SlowProxy:
    """Listens on loopback and hands on to `target` ("host:port"), each way `seconds` late."""

    def __init__(self, target, seconds):
        self.host, self.port = target.rsplit(":", 1)
        self.seconds = seconds
        self.address = f"127.0.0.1:{free_port()}"
        self.server = socket.create_server(("127.0.0.1", int(self.address.rsplit(":", 1)[1])))
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.server.close()

    def accept(self):
        while True:
            try:
                near, _ = self.server.accept()
                far = socket.create_connection((self.host, int(self.port)))
            except OSError:
                if self.server.fileno() < 0:
                    return
                continue
            for a, b in ((near, far), (far, near)):
                self.forward(a, b)

    def forward(self, source, sink):
        queue, arrived = collections.deque(), threading.Condition()

        def read():
            data = b"x"
            while data:
                try:
                    data = source.recv(1 << 16)
                except OSError:
                    data = b""
                with arrived:
                    queue.append((time.monotonic() + self.seconds, data))
                    arrived.notify()

        def write():
            while True:
                with arrived:
                    arrived.wait_for(lambda: queue)
                    due, data = queue.popleft()
                time.sleep(max(0, due - time.monotonic()))
                try:
                    if not data:
                        sink.shutdown(socket.SHUT_RDWR)
                        return
                    sink.sendall(data)
                except OSError:
                    source.close()
                    return
        threading.Thread(target=read, daemon=True).start()
        threading.Thread(target=write, daemon=True).start()
