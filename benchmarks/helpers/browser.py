"""Headless Chromium, controlled over a pipe by its DevTools protocol. It needs no driver and no other package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
TIMEOUT = 120.0
"""Seconds to wait for an answer. The machine may be busy."""


def find_browser() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class BrowserError(RuntimeError):
    """The browser did not start, or did not answer."""


class Browser:
    """A browser with one page. `complaints` has its errors, exceptions and console messages.

    Raises:
        BrowserError: If it does not start.
    """

    def __init__(self, path: str) -> None:
        self.complaints: list[str] = []
        self._events: list[dict[str, Any]] = []
        self._number = 0
        self._rest = b""
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # the protocol needs the descriptors 3 and 4; the shell moves the ends of the pipes there
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        arguments = [path, *_FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", *arguments],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": self._folder.name},
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = ""
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result. Events that arrive before it are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        try:
            os.write(self._out, json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise BrowserError(f"{method}: the browser has gone: {error}") from error
        end = time.monotonic() + TIMEOUT
        while True:
            answer = self._read(end, method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._note(answer)

    def open(self, url: str) -> float:
        """Load a page, and return the seconds until its ``load`` event, as the page measures them."""
        self._events.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + TIMEOUT
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._note(self._read(end, "load"))
        while not self.run("performance.timing.loadEventEnd > 0"):
            time.sleep(0.02)
        return float(self.run("performance.timing.loadEventEnd - performance.timing.navigationStart")) / 1000

    def run(self, script: str) -> Any:
        """Evaluate a JavaScript expression in the page and return its value."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, such as ``ArrowRight``."""
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def picture(self, path: str | Path, width: int, height: int | None = None, top: int = 0) -> None:
        """Save the page in a window of this width as PNG. Without a height the whole page is saved."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height or 900, deviceScaleFactor=1, mobile=width < 600)
        whole = int(self.run("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": top, "width": width, "height": height or whole, "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def print(self, path: str | Path) -> None:
        """Print the page to a PDF."""
        Path(path).write_bytes(base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"]))

    def close(self) -> None:
        """Stop the browser."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for end in (self._in, self._out):
            os.close(end)
        self._folder.cleanup()

    def _read(self, end: float, waiting_for: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise BrowserError(f"{waiting_for}: {'the browser has gone' if ready else f'no answer for {TIMEOUT:.0f} s'}")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        logged = event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error"
        if logged or event["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(event["params"]))
