"""Enable detailed assertion messages in the modules of the checks.

Reduce the number of steps for which decoding computes a bias in advance.
"""

import pytest

from fairseq_posenc.attention import site_positions

pytest.register_assert_rewrite(
    *(f"fairseq_posenc.testing.checks_{name}" for name in ("attention", "decoding", "geometry", "numerics", "parameters"))
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Skip a test if its check does not apply to a case."""
    from fairseq_posenc.testing.cases import NotApplicable

    try:
        return (yield)
    except NotApplicable as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True, scope="module")
def short_blocks():
    """Let decoding compute a bias for only 4 steps in advance.

    Decoding then computes a bias several times, even for the short sentences of the checks.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_positions, "_WORDS_AHEAD", 4)
        yield
