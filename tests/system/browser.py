"""A real browser, without a network, told what to do over a pipe (Chrome DevTools protocol)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

# Chromium expects the pipes at 3 and 4. They are copied first: one may lie where the other goes.
_START = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A browser that was started, at the other end of two pipes."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._heard = b""
        self._number = 0

    @contextmanager
    def tab(self) -> Iterator[Tab]:
        """Open an empty page that knows nothing of others, and close it."""
        whole = Tab(self, "")
        context = whole.call("Target.createBrowserContext")
        target = whole.call("Target.createTarget", {"url": "about:blank", **context})["targetId"]
        attached = whole.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = Tab(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        yield tab
        whole.call("Target.disposeBrowserContext", context)

    def close(self) -> None:
        """End the browser."""
        self.send({"method": "Browser.close", "params": {}})
        while os.read(self._from, 1 << 16):
            pass

    def send(self, message: dict[str, Any]) -> int:
        """Send a message; return the number that its answer will have."""
        self._number += 1
        os.write(self._to, json.dumps({"id": self._number, **message}).encode() + b"\0")
        return self._number

    def receive(self) -> dict[str, Any]:
        """Return the next message, of any tab."""
        while b"\0" not in self._heard:
            more = os.read(self._from, 1 << 20)
            assert more, "the browser ended"
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


class Tab:
    """One page that was opened; collects what its console says and what it asks for."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        self.asked: list[str] = []

    def open(self, page: Path, *, width: int, scheme: Literal["light", "dark"] = "light") -> None:
        """Open a file in a window of that width; return when its charts are drawn."""
        self.visit(page.as_uri(), width=width, scheme=scheme)
        assert self.evaluate(_DRAWN) == []

    def visit(self, url: str, *, width: int, scheme: Literal["light", "dark"] = "light") -> None:
        """Open an address in a window of that width; return when it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        self.prefer(scheme)
        self.call("Page.navigate", {"url": url})
        self._wait_for("Page.loadEventFired")

    def prefer(self, scheme: Literal["light", "dark"]) -> None:
        """Let the person prefer light or dark pages."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", {"features": [feature]})

    def prefer_print(self) -> None:
        """Lay the page out as on paper, for a person who prefers dark pages."""
        feature = {"name": "prefers-color-scheme", "value": "dark"}
        self.call("Emulation.setEmulatedMedia", {"media": "print", "features": [feature]})

    def resize(self, width: int) -> None:
        """Turn the phone, or pull at the window; return when its charts are drawn again."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        assert self.evaluate(_DRAWN) == []

    def evaluate(self, expression: str) -> Any:
        """Return what a JavaScript expression gives in the page."""
        answer = self.call(
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True},
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: Literal["Enter", "Tab", " "]) -> None:
        """Press a key on what has the focus."""
        code = {"Enter": 13, "Tab": 9, " ": 32}[key]
        text = {"Enter": "\r", "Tab": "", " ": " "}[key]
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                {
                    "type": kind,
                    "key": key,
                    "windowsVirtualKeyCode": code,
                    **({"text": text} if text and kind == "keyDown" else {}),
                },
            )

    def print(self, path: Path) -> None:
        """Write the page as PDF, as the print dialogue does."""
        printed = self.call("Page.printToPDF", {"preferCSSPageSize": True})
        path.write_bytes(base64.b64decode(printed["data"]))

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Have the browser do something in this tab; return its answer."""
        session = {"sessionId": self._session} if self._session else {}
        number = self._browser.send({"method": method, "params": parameters or {}, **session})
        while True:
            message = self._receive()
            if message.get("id") == number:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while (message := self._browser.receive()).get("sessionId", "") != self._session:
            pass  # the end of an earlier tab
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                words = [str(each.get("value")) for each in parameters["args"]]
                self.complaints.append(f"{parameters['type']}: {' '.join(words)}")
            case "Log.entryAdded":
                self.complaints.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.asked.append(parameters["request"]["url"])

    def _wait_for(self, method: str) -> None:
        while self._receive().get("method") != method:
            pass


@contextmanager
def opened_browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it."""
    assert PROGRAM is not None
    for_browser, to_browser = os.pipe()
    from_browser, by_browser = os.pipe()

    ends = (str(for_browser), str(by_browser))
    words = [PROGRAM, *OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
    with subprocess.Popen(
        [sys.executable, "-c", _START, *ends, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(for_browser, by_browser),
    ) as process:
        os.close(for_browser)
        os.close(by_browser)
        try:
            browser = Browser(to_browser, from_browser)
            try:
                yield browser
            finally:
                browser.close()
        finally:
            os.close(to_browser)
            os.close(from_browser)
            process.kill()


_DRAWN = """
new Promise((done) => {
  const SHRUNK = 1.03;
  const isDrawn = (holder) => {
    const drawing = holder.matches(".vega-embed") && holder.querySelector("svg");
    if (!drawing) return false;
    const shown = drawing.getBoundingClientRect();
    return shown.width > 0 && drawing.viewBox.baseVal.width <= SHRUNK * shown.width;
  };
  const holders = document.getElementById("charts") ? [...document.querySelectorAll(".chart")] : [];
  const until = performance.now() + 20000;
  const look = () => {
    const open = holders.filter((each) => !isDrawn(each)).map((each) => each.id);
    if (open.length && performance.now() < until) setTimeout(look, 50);
    else requestAnimationFrame(() => requestAnimationFrame(() => done(open)));
  };
  look();
})
"""
"""Gives the charts that are not drawn, or drawn so wide that they are shrunk to the room."""


def assert_drawn(tab: Tab, page: Path, *, figures: int, width: int) -> None:
    """All figures are drawn and fit the window, without a network or a complaint."""
    assert tab.evaluate("document.querySelectorAll('.vega-embed svg').length") == figures
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    too_wide = """[...document.querySelectorAll(".chart svg")]
        .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).length"""
    assert tab.evaluate(too_wide) == 0
    assert tab.complaints == []
    assert set(tab.asked) == {page.as_uri()}
