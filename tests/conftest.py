"""Two tiers of tests (quick and full), the order of the tests, and the list of skipped tests."""

import gc
from pathlib import Path

import pytest
import torch

_LINES = Path(__file__).with_name("skipped.txt").read_text(encoding="utf-8").splitlines()
#: tests that must be skipped on every machine. If such a test passes, the result is changed to a failure. If a test is skipped
#: and is in neither SKIPPED nor SKIPPED_SOMEWHERE, the result is also changed to a failure
SKIPPED = frozenset(line for line in _LINES if " # " not in line)
#: tests that are skipped on some machines. In tests/skipped.txt, the line of such a test ends with the reason
SKIPPED_SOMEWHERE = frozenset(line.split(" # ")[0] for line in _LINES if " # " in line)

#: folders of tests of methods, of the attention, and of imports between folders. The quick tier imports no other folder
QUICK = {"contract", "layering", "oracles", "parity"}
#: markers of tests in these folders that run only in the full tier
FULL = ("slow", "variant")


def pytest_addoption(parser):
    parser.addoption(
        "--tier", choices=("quick", "full"), default="full", help="quick: tests of methods, without slow tests and variants"
    )


def pytest_configure():
    gc.disable()


def pytest_collection_finish():
    """Collect garbage rarely, and never search the imported modules and the collected tests.

    They are hundreds of thousands of objects, and one search of all of them takes longer than most tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_ignore_collect(collection_path, config):
    """In the quick tier, import only the tests in the folders of `QUICK`."""
    other = collection_path.parent == Path(__file__).parent and collection_path.is_dir() and collection_path.name not in QUICK
    return True if other and config.getoption("--tier") == "quick" else None


def pytest_collection_modifyitems(config, items):
    """Remove tests that are not in the tier.

    Put files with slow tests first. Otherwise, at the end, some cores would wait for a core that runs a slow test.
    """
    if config.getoption("--tier") == "quick":
        left_out = {item for item in items if any(map(item.get_closest_marker, FULL))}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True, scope="session")
def no_seeds_of_missing_devices():
    """Skip seeding accelerators that do not exist. torch.manual_seed would store each seed with a stack trace, which is slow."""
    with pytest.MonkeyPatch.context() as patch:
        for device in (getattr(torch, name, None) for name in ("cuda", "xpu", "mtia")):
            if hasattr(device, "manual_seed_all") and not device.is_available():
                patch.setattr(device, "manual_seed_all", lambda seed: None)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    listed = item.nodeid in SKIPPED
    if report.skipped and not listed and item.nodeid not in SKIPPED_SOMEWHERE:
        report.outcome, report.longrepr = "failed", f"{item.nodeid} is skipped and not listed in tests/skipped.txt"
    elif report.when == "call" and report.passed and listed:
        report.outcome, report.longrepr = "failed", f"{item.nodeid} is listed in tests/skipped.txt and was not skipped"
    return report
