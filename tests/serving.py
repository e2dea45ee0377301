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


def free_port():
    """Return a free port that the system does not hand out by itself before the server is up."""
    for port in range(20_000 + os.getpid() % 5_000, 32_000):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


@contextlib.contextmanager
def serving(command, path, log, **environment):
    """Run a server on a free port while the block runs; yield its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = [str(Path(sys.executable).parent / command[0]), *command[1:], "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as file:
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
