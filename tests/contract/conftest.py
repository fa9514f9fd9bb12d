"""Asserts in the modules that hold the checks explain themselves as those in tests do; what decoding makes ahead is short."""

import pytest

from fairseq_posenc.attention import site_positions

pytest.register_assert_rewrite(
    *(f"fairseq_posenc.testing.checks_{name}" for name in ("attention", "decoding", "geometry", "numerics", "parameters"))
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A check that has nothing to say about a case skips its test."""
    from fairseq_posenc.testing.cases import NotApplicable

    try:
        return (yield)
    except NotApplicable as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True, scope="module")
def short_blocks():
    """The few words that the checks decode cross a border between the words for which a bias is made at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_positions, "_WORDS_AHEAD", 4)
        yield
