"""Real servers on this machine, each in a process that ends with the block that started it; for tests and benchmarks."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

START = 300
"""Seconds within which a server must be there."""


def wait_for(process, url, log):
    """Return when the server answers; fail when it has ended, or is too late."""
    end = time.monotonic() + START
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text()}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"{url} did not answer within {START} s: {log.read_text()}")


@contextlib.contextmanager
def reserved_port():
    """Yield a TCP port that no process has and no other block like this yields: its UDP twin is bound while the block runs.

    A server binds its port seconds after it was chosen, and two of llama.cpp's share one silently.
    """
    for port in range(20_000, 32_000):  # the system does not hand these out by itself
        with socket.socket(type=socket.SOCK_DGRAM) as twin:
            try:
                twin.bind(("127.0.0.1", port))
                with socket.socket() as free:
                    free.bind(("127.0.0.1", port))
            except OSError:
                continue
            yield port
            return
    raise RuntimeError("no port is free")


@contextlib.contextmanager
def serving(command, path, log, **environment):
    """Run a server on a free port while the block runs; yield its address."""
    with reserved_port() as port, log.open("w") as file:
        url = f"http://127.0.0.1:{port}"
        arguments = [str(Path(sys.executable).parent / command[0]), *command[1:], "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(arguments, stdout=file, stderr=file, env=os.environ | environment, cwd=log.parent)
        try:
            wait_for(process, url + path, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
