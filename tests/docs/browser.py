"""Chromium without a window, controlled through a pipe with its DevTools protocol."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

_NAMES = (os.environ.get("CHROMIUM") or "chromium", "chromium-browser", "google-chrome")
_OPTIONS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe"


def find() -> str:
    """Return the path of a browser. Raise LookupError if there is none."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        raise LookupError("no Chromium is here: install it (apt-get install chromium), or name one, CHROMIUM=/path/to/it")
    return found


class Browser:
    """A browser with one page. Every call of `open` loads an address in this page."""

    def __init__(self, profile: Path):
        (inner, self._out), (self._in, outer) = os.pipe(), os.pipe()
        # Chromium reads from descriptor 3 and writes to descriptor 4. The shell creates these two descriptors from one end of
        # each pipe. Both ends are first duplicated to descriptors with numbers of at least 10. Otherwise, the ends could have
        # the numbers 3 and 4
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (inner, outer)]
        words = ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", find(), *_OPTIONS.split()]
        self._process = subprocess.Popen(
            [*words, f"--user-data-dir={profile}"], pass_fds=ends, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        for end in (inner, outer, *ends):
            os.close(end)
        self._buffer, self._number, self._session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters):
        """Send a request and wait for the answer. Events that arrive before the answer are stored."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found)
                return found["result"]
            self.events.append(found)

    def _read(self) -> dict:
        while b"\0" not in self._buffer:
            piece = os.read(self._in, 1 << 16)
            assert piece, "the browser has ended"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def open(self, address: str, width: int = 1200) -> None:
        """Load a page. Return when loading has ended."""
        self.resize(width)
        self.events.clear()
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())
        self.value("new Promise(requestAnimationFrame)")  # scripts that run at loading have ended

    def resize(self, width: int) -> None:
        """Change the width of the window. A browser with less than 600 pixels is the browser of a telephone."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)

    def value(self, expression: str):
        """Return the value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def problems(self) -> list[str]:
        """Return console errors, exceptions and failed requests since the page was opened."""
        found = []
        for event in self.events:
            name, more = event.get("method"), event.get("params", {})
            if name == "Runtime.exceptionThrown":
                found.append(str(more["exceptionDetails"]))
            elif name == "Runtime.consoleAPICalled" and more["type"] in ("error", "assert"):
                found.append(str(more["args"]))
            elif name == "Log.entryAdded" and more["entry"]["level"] == "error":
                found.append(more["entry"]["text"] + " " + more["entry"].get("url", ""))
            elif name == "Network.loadingFailed":
                found.append(more["errorText"])
        return found

    def requests(self) -> list[str]:
        """Return the addresses that the page has requested."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def close(self) -> None:
        os.close(self._out)  # the browser ends when its pipe is closed
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
