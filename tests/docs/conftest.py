"""The site, built once for all tests, and a browser that opens it."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.browser import Browser, find

ROOT = Path(__file__).parents[2]
LEFT_OUT = "the tests of the site that need a browser were left out"


def missing() -> str:
    """Return the reason why there is no browser, or an empty text. A browser that CHROMIUM names must exist."""
    if os.environ.get("CHROMIUM") == "none":
        return "CHROMIUM=none"
    try:
        find()
    except LookupError as error:
        return "" if os.environ.get("CHROMIUM") else str(error)
    return ""


def pytest_collection_modifyitems(config, items):
    """Leave out tests of the browser if there is no browser. The summary of the tests states this."""
    if missing():
        left_out = [item for item in items if "browser" in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter):
    if missing():
        terminalreporter.write_line(f"{missing()}: {LEFT_OUT}")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return the folder of the built site. Parallel workers build it once. A warning is an error."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site.done").exists():
            words = ["-m", "sphinx", "-q", "-W", "--keep-going", ROOT / "docs", shared / "site"]
            done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
            assert done.returncode == 0 and not done.stderr.strip(), done.stderr
            (shared / "site.done").touch()
    return shared / "site"


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    find()
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
