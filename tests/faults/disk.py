"""A small disk of its own that can be filled and emptied. Needs root."""
import contextlib
import os
import pathlib
import subprocess
import threading

from cluster import Skip


class SmallDisk:
    """`files`: how many it may have, its own folder among them."""

    def __init__(self, folder, megabytes, files=0):
        self.folder, self.megabytes, self.files = pathlib.Path(folder), megabytes, files

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("mounting a small disk needs root")
        self.folder.mkdir(parents=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.megabytes}m,nr_inodes={self.files}", "none", str(self.folder)],
                              capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise Skip(f"cannot mount a tmpfs: {done.stderr.strip()}")
        return self

    def __exit__(self, *unused):
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, timeout=30)

    @property
    def ballast(self):
        return self.folder / "ballast"

    def leave(self, megabytes):
        """So much room, until it has been full."""
        self.ballast.write_bytes(bytes((self.megabytes - megabytes) << 20))

    def fill(self):
        with open(self.ballast, "ab", buffering=0) as out:
            try:
                while True:
                    out.write(bytes(1 << 12))
            except OSError:
                pass

    @contextlib.contextmanager
    def kept_full(self):
        """Also when something on it is removed; there is room again afterwards."""
        over = threading.Event()

        def keep():
            while not over.wait(0.02):
                self.fill()
        self.fill()
        keeper = threading.Thread(target=keep)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()
            self.ballast.unlink()


def flip(path, offset):
    """One bit of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def zero_page(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset // 4096 * 4096)
        file.write(bytes(min(4096, os.path.getsize(path) - offset // 4096 * 4096)))
