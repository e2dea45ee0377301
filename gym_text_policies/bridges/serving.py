"""The server of an application: uvicorn's, with limits. OpenEnv itself limits the sessions."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gym_text.errors import import_extra

MOST_SESSIONS = 64
"""Most sessions at once; one more is refused with ``CAPACITY_REACHED``."""
MOST_BYTES = 65_536
"""Most bytes of a message. A longer one ends its connection with code 1009."""


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
        OSError: If the port is taken, or the host is not an address of this machine.
    """
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024)


def server_of(app: Any) -> Any:
    """Return uvicorn's server of an application. Its ``run(sockets=[listen()])`` blocks until Ctrl-C or SIGTERM."""
    uvicorn = import_extra("uvicorn", "openenv")
    config = uvicorn.Config(
        app,
        ws_max_size=MOST_BYTES,
        ws_per_message_deflate=False,
        timeout_keep_alive=30,  # uvicorn's 5 s are httpx's too: each could end what the other is just using
        timeout_graceful_shutdown=5,
        access_log=False,
        log_level="warning",
    )
    return uvicorn.Server(config)


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application in a thread of this process, and yield its URL. The server ends with the ``with`` block."""
    with listen() as listener:
        server = server_of(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="openenv-server")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
