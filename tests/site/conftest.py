"""The site, built once for all tests, and a browser to open it."""

import fcntl
import os

import pytest

from tests.site.browser import Browser, find

NO_BROWSER = "CHROMIUM=none: the tests of the site that need a browser were left out"


def pytest_collection_modifyitems(config, items):
    """Only who says so leaves the browser out, and the summary names it."""
    if os.environ.get("CHROMIUM") == "none":
        left_out = [item for item in items if "browser" in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter):
    if os.environ.get("CHROMIUM") == "none":
        terminalreporter.write_line(NO_BROWSER)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built site. Workers that test at a time build it once."""
    from fairseq_posenc.cli import main

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site.done").exists():
            assert main(["site", str(shared / "site")]) == 0
            (shared / "site.done").touch()
    return shared / "site"


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    try:
        find()
    except LookupError as error:
        pytest.fail(f"{error}; CHROMIUM=none leaves these tests out", pytrace=False)
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
