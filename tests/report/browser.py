"""A headless Chromium, driven through its debugging pipe: opens a page, looks at it, takes pictures.

Nothing but the browser itself is needed. The protocol: JSON messages that end in a zero byte, on file
descriptors 3 and 4 of the browser (https://chromedevtools.github.io/devtools-protocol/).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
          "--no-first-run", "--remote-debugging-pipe", "--user-data-dir")  # fmt: skip


def found() -> str | None:
    """Where a Chromium is, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Look:
    """What was seen. wider: elements that reach beyond the right edge of the window, by tag and class."""

    png: bytes
    width: int
    height: int
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    wider: list[str] = field(default_factory=list)
    background: str = ""


class Browser:
    """One browser; close it, or use it as a context."""

    def __init__(self, folder: Path) -> None:
        path = found()
        if path is None:
            raise FileNotFoundError("there is no Chromium")
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        low, high = (fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs_in, theirs_out))
        flags = [*_FLAGS[:-1], f"{_FLAGS[-1]}={folder}", "about:blank"]

        def place() -> None:
            os.dup2(low, 3)
            os.dup2(high, 4)

        self._process = subprocess.Popen(
            [path, *flags], preexec_fn=place, close_fds=False, stderr=subprocess.DEVNULL
        )
        for fd in (theirs_in, theirs_out, low, high):
            os.close(fd)
        self._out, self._in = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def look(self, file: Path, width: int, height: int = 900, dark: bool = False, whole: bool = True) -> Look:
        """Open a file at a window size, and see what it looks like: as a whole, or what the window shows."""
        if not file.is_file():
            raise FileNotFoundError(file)
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._events.clear()

        def send(method: str, **parameters: Any) -> Any:
            return self._send(method, session, **parameters)

        for domain in ("Page", "Runtime", "Log", "Network"):
            send(f"{domain}.enable")
        send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
             mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        send("Emulation.setEmulatedMedia", features=[scheme])
        send("Page.navigate", url=file.resolve().as_uri())
        self._wait("Page.loadEventFired")
        value = self._evaluate(send, _MEASURE)
        tall = min(value["height"], 16_000) if whole else height
        clip = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
        shot = send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        found = Look(base64.b64decode(shot["data"]), value["width"], value["height"], self._messages(),
                     self._requests(), value["wider"], value["background"])  # fmt: skip
        self._send("Target.closeTarget", targetId=target)
        return found

    def _evaluate(self, send: Any, expression: str) -> Any:
        return send("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    def _messages(self) -> list[str]:
        found = []
        for event in self._events:
            if event["method"] == "Log.entryAdded":
                found.append(event["params"]["entry"]["text"])
            elif event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                found.append(json.dumps(event["params"])[:300])
            elif event["method"] == "Page.javascriptDialogOpening":
                found.append("a dialog")
        return found

    def _requests(self) -> list[str]:
        sent = [e for e in self._events if e["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def _send(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _wait(self, method: str) -> None:
        while not any(event["method"] == method for event in self._events):
            self._read()

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser has gone")
            data += byte
        answer: dict[str, Any] = json.loads(data)
        if "method" in answer:
            self._events.append(answer)
        return answer

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._send("Browser.close")
            self._process.wait(timeout=30)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._out.close()
        self._in.close()


_MEASURE = """(() => {
  const scrolls = (e) => e && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const wide = [...document.body.querySelectorAll("*")].filter(
    (e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5 && !scrolls(e));
  return {
    width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight,
    wider: wide.slice(0, 10).map((e) => `${e.tagName}.${e.getAttribute("class") || ""}`),
    background: getComputedStyle(document.body).backgroundColor,
  };
})()"""
