"""Changed copies of the arguments of hooks."""

import dataclasses

import pytest

from fairseq_posenc.core import AttentionContext, Positions


def test_a_changed_copy_is_the_copy_of_dataclasses():
    at = Positions.counted(0, 4)
    ctx = AttentionContext(at, at, layer=2, causal=True)
    changes = {"layer": 1, "scale": 0.5}
    found, expected = ctx.replace(**changes), dataclasses.replace(ctx, **changes)
    assert vars(found) == vars(expected) and (ctx.layer, ctx.scale) == (2, 1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.layer = 3
    with pytest.raises(TypeError, match="no field 'layr'"):
        ctx.replace(layr=1)
