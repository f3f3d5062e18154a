"""A real browser without a window, driven by chromedriver's own protocol (W3C WebDriver)."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

PROGRAMS = ("chromium", "chromedriver")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # of pages that this project wrote itself, in containers that have none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # what the standard calls a reference
LEFT, RIGHT, END, ENTER = "\ue012", "\ue014", "\ue010", "\ue007"  # keys
PATIENCE_S = 30


def missing() -> list[str]:
    """Which programs are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Browser:
    """Context manager: one window. Sizes in CSS pixels."""

    def __enter__(self) -> Self:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._home = tempfile.TemporaryDirectory()
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._root = f"http://127.0.0.1:{port}"
        try:
            self._wait_for_driver()
            arguments = [*OPTIONS, f"--user-data-dir={self._home.name}"]
            wanted = {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}
            session = self._call("POST", "/session", {"capabilities": wanted})["sessionId"]
        except BaseException:
            self._stop()
            raise
        self._session = f"/session/{session}"
        return self

    def __exit__(self, *what: object) -> None:
        try:
            self._call("DELETE", self._session)
        finally:
            self._stop()

    def open(self, page: Path, fragment: str = "", width: int = 1600, dark: bool = False) -> None:
        """Show a file afresh, until its scripts are through or have failed."""
        self.visit(page.as_uri() + fragment, width, dark)

    def visit(self, address: str, width: int = 1600, dark: bool = False) -> None:
        """Show the page at an address afresh, as `open` does."""
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", features=[theme])
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._call("POST", f"{self._session}/url", {"url": "about:blank"})
        self._call("POST", f"{self._session}/url", {"url": address})
        self.settle()

    def settle(self) -> None:
        """Until what was changed is drawn: two frames."""
        self._call(
            "POST",
            f"{self._session}/execute/async",
            {
                "script": "const done = arguments[0];"
                "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));",
                "args": [],
            },
        )

    def js(self, script: str) -> Any:
        """What an expression is in the page."""
        return self._call(
            "POST", f"{self._session}/execute/sync", {"script": f"return {script}", "args": []}
        )

    def text(self, selector: str) -> str:
        """The words of an element."""
        return str(self.js(f"document.querySelector({json.dumps(selector)}).textContent"))

    def press(self, selector: str, keys: str) -> None:
        """Type at an element, as a person would."""
        self._call("POST", f"{self._at(selector)}/value", {"text": keys})
        self.settle()

    def click(self, selector: str) -> None:
        """Click on the middle of an element."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.js(f"{place}.scrollIntoView({{block: 'center'}})")
        self._call("POST", f"{self._at(selector)}/click", {})
        self.settle()

    def point(self, selector: str, x: float, y: float) -> None:
        """Move the mouse to a place in an element, as shares of its width and height."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.js(f"{place}.scrollIntoView({{block: 'center'}})")
        self.settle()
        box = self.js(f"JSON.parse(JSON.stringify({place}.getBoundingClientRect()))")
        move = {
            "type": "pointerMove",
            "duration": 0,
            "x": round(box["left"] + x * box["width"]),
            "y": round(box["top"] + y * box["height"]),
        }
        mouse = {"type": "pointer", "id": "mouse", "actions": [move]}
        self._call("POST", f"{self._session}/actions", {"actions": [mouse]})
        self.settle()

    def picture(self, selector: str) -> bytes:
        """An element as PNG, wherever the page was scrolled to."""
        self.js(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})"
        )
        self.settle()
        return base64.b64decode(self._call("GET", f"{self._at(selector)}/screenshot"))

    def _at(self, selector: str) -> str:
        found = self._call(
            "POST", f"{self._session}/element", {"using": "css selector", "value": selector}
        )
        return f"{self._session}/element/{found[ELEMENT]}"

    def _devtools(self, command: str, **parameters: Any) -> None:
        body = {"cmd": command, "params": parameters}
        self._call("POST", f"{self._session}/goog/cdp/execute", body)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._root + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.read().decode()[:500]}") from None

    def _wait_for_driver(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._call("GET", "/status")
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _stop(self) -> None:
        self._driver.terminate()
        self._driver.wait()
        self._home.cleanup()
