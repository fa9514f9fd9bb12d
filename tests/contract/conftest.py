"""Asserts in the modules that hold the checks explain themselves as those in tests do."""

import pytest

pytest.register_assert_rewrite(
    *(f"tests.contract.checks_{name}" for name in ("attention", "decoding", "geometry", "numerics", "parameters"))
)
