"""The site, built for all tests, and a browser that opens it."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_posenc import registry
from fairseq_posenc.plotting import figures, panels
from tests.docs.browser import Browser, find

ROOT = Path(__file__).parents[2]
#: a page with two broken references. Only the copy of the checkout contains this page
BROKEN = "docs/broken_references.md"
#: methods whose pictures the build draws
DRAWN = ("alibi", "rope", "sinusoidal")
LEFT_OUT = "the tests of the site that need a browser were left out"


def missing() -> str:
    """Return the reason why the tests use no browser, or an empty text if the tests use a browser.

    If the environment variable CHROMIUM is "none", the function returns this setting as the reason. If CHROMIUM names a
    browser, the function returns an empty text. The tests then fail if no browser is found.
    """
    if os.environ.get("CHROMIUM") == "none":
        return "CHROMIUM=none"
    try:
        find()
    except LookupError as error:
        return "" if os.environ.get("CHROMIUM") else str(error)
    return ""


def pytest_collection_modifyitems(config, items):
    """If there is no browser, leave out the tests that need a browser. The summary of the test run reports this."""
    if missing():
        left_out = [item for item in items if "browser" in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter):
    if missing():
        terminalreporter.write_line(f"{missing()}: {LEFT_OUT}")


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Build the site. Return the folder with the site, and with the exit status and the errors of the build.

    The page `BROKEN` has two broken references. `test_a_broken_reference_is_an_error` checks that the build has no other errors.
    The other tests read the site without this page. Only one of several parallel workers builds the site.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "documentation"
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "done").exists():
            checkout = copy_of_checkout(shared / "checkout")
            (checkout / BROKEN).write_text("# Broken references\n\n[nowhere](no_such_page.md), $\\unheard{x}$\n")
            copy_pictures(shared / "site" / ".doctrees" / "source" / "docs" / "methods")
            found = build(checkout, shared / "site")
            (shared / "build.json").write_text(json.dumps([found.returncode, found.stderr]))
            (shared / "site" / BROKEN).with_suffix(".html").unlink()
            (shared / "done").touch()
    return shared


@pytest.fixture(scope="session")
def site(built):
    """Return the folder of the site."""
    return built / "site"


def copy_of_checkout(root):
    """Copy the files that the build of the documentation reads."""
    for name in ("docs", "recipes", "results", "data-bin", "fairseq_posenc/methods", "tests/oracles"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CITATION.cff"):
        shutil.copy(ROOT / name, root / name)
    return root


def copy_pictures(folder):
    """Give every method except `DRAWN` a copy of one picture, because the pictures take half of the time of a build.

    tests/plotting tests the numbers in the pictures of all methods.
    """
    folder.mkdir(parents=True)
    first, *others = (folder / f"{name}.png" for name in registry.names() if name not in DRAWN)
    figures.save(figures.draw(panels.of_sources([first.stem], 32, seed=1), curves=True), first)
    for path in others:
        shutil.copy(first, path)


def build(root, out):
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", root / "docs", out]
    return subprocess.run(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    find()
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
