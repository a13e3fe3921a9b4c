"""A headless Chromium for tests and pictures, driven over its debugging socket.

Needs a Chromium of the system (``chromium`` on PATH, or named by ``TUBEMQ_CHROMIUM``) and nothing
else; nothing is downloaded. Listens on loopback, keeps its profile in a directory that is deleted,
and is ended by its starter. Blocking; every wait has a limit.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tools.devkit.patience import PATIENCE

__all__ = ["Tab", "chromium_path", "open_tab", "picture_arguments"]

_START_S = 90.0


def chromium_path() -> str | None:
    """Return the path of Chromium, or None if there is none."""
    named = os.environ.get("TUBEMQ_CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


def picture_arguments() -> tuple[Path, str]:
    """Return the directory of the command line, created if need be, and the path of Chromium. Ends
    the program if there is no Chromium."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    path = chromium_path()
    if path is None:
        raise SystemExit("no chromium on PATH; name one with TUBEMQ_CHROMIUM")
    return target, path


class Tab:
    """One page of the browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.messages: list[str] = []
        """Console output of the page, including errors."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Run one command; return its result. Raises `RuntimeError` if the browser refuses it."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=90))
            if message.get("id") == self._number:
                break
            self._note(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return dict(message["result"])

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        params = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", **params)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 90.0) -> None:
        """Wait until an expression is true. Raises `TimeoutError` with the page's text."""
        deadline = time.monotonic() + seconds * PATIENCE
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                shown = self.evaluate("document.body.innerText")
                raise TimeoutError(f"{condition}; console: {self.messages}; page: {shown}")
            time.sleep(0.1)

    def go(self, url: str, *, token: str | None = None) -> None:
        """Load a page; `token` is Airflow's session cookie for it."""
        if token is not None:
            self.call("Network.setCookie", name="_token", value=token, url=url)
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window's size in CSS pixels, and the preferred colour scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """Save the window's content as PNG."""
        screenshot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(screenshot["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.messages.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.messages.append(str([argument.get("value") for argument in params["args"]]))
            case "Log.entryAdded":
                self.messages.append(str(params["entry"]["text"]))
            case _:
                pass


@contextmanager
def open_tab(path: str) -> Iterator[Tab]:
    """Yield a tab of a fresh headless browser, which is removed when the context ends."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                path,
                "--headless",
                # Root cannot use Chromium's sandbox; only pages of this machine are opened.
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--remote-debugging-address=127.0.0.1",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(_debugger(Path(profile), process), max_size=None) as browser:
                yield Tab(browser)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _debugger(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the socket of the first tab, as soon as there is one."""
    import httpx

    deadline = time.monotonic() + _START_S * PATIENCE
    active = profile / "DevToolsActivePort"
    while time.monotonic() < deadline and process.poll() is None:
        lines = active.read_text().splitlines() if active.exists() else []
        if lines:
            pages = httpx.get(f"http://127.0.0.1:{lines[0]}/json/list", timeout=10).json()
            tabs = [page for page in pages if page["type"] == "page"]
            if tabs:
                return str(tabs[0]["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise RuntimeError(f"Chromium did not start (status {process.poll()})")
