"""If one method of a spec sets the scale, this scale multiplies products with keys and products with position vectors."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import fairseq_posenc as posenc
from fairseq_posenc.testing import reference
from fairseq_posenc.testing.reference import Oracle

from .cases import HEADS, MAX_POSITIONS, ORACLES, WIDTH, assert_close, padding_mask, place_of, projections_of, randomise, spec_of

HEAD_DIM = WIDTH // HEADS
#: method -> the scale that this method sets for the attention scores
OWNERS = {
    "tupe_abs": (2 * HEAD_DIM) ** -0.5,
    "deberta": (3 * HEAD_DIM) ** -0.5,
    "tener": 1.0,
}
#: methods with a term that the scale multiplies
READERS = [
    ("shaw", {"max_distance": 2}),
    ("shaw_abs", {}),
    ("huang1", {}),
    ("huang3", {}),
    ("huang4", {}),
    ("chang", {"max_distance": 2, "key_term": True}),
    ("xl", {}),
    ("da", {}),
    ("rope_scaled", {"scaling": "dynamic", "trained": 3}),
]
PAIRS = [
    (reader, options, owner, site)
    for reader, options in READERS
    for owner in OWNERS
    for site in ("encoder", "decoder")
    # In the encoder, rope_scaled rotates the queries. deberta and tener compute an added term from queries. A spec cannot
    # combine these methods with rotated queries.
    if reader != "rope_scaled" or site == "decoder" or owner == "tupe_abs"
]


def oracle_of(name: str, options: dict) -> Oracle:
    return next(
        oracle for oracle in ORACLES if oracle.name == name and any(given.items() >= options.items() for given, _ in oracle.cases)
    )


def composed(reader: Oracle, reading, owner: Oracle, owning) -> Oracle:
    """Return an oracle of the spec reader+owner. `owner` sets the scale. This scale also multiplies a term of `reader`.

    The scores of the reader contain the scale 1/sqrt(d_h). They are multiplied by `factor`, so that they have the scale of the
    owner. Then the terms of the owner are added.
    """
    factor = OWNERS[owner.name] * math.sqrt(HEAD_DIM)

    def at_each(at):
        given = {field.name: getattr(at, field.name) for field in dataclasses.fields(at)}
        changing = ("options", "parameters")
        return (
            dataclasses.replace(place, **{k: v for k, v in given.items() if k not in changing}) for place in (reading, owning)
        )

    def row(q, k, column, seen, at):
        of_reader, of_owner = at_each(at)
        t = at.query_ids[column]
        found = []
        for s, own in zip(seen, reference.logits(reader, q, k, column, seen, of_reader)):
            delta = max(-2, min(2, at.key_ids[s] - t))
            apart = of_reader.own("bias_table")[delta + 2] if reader.name == "chang" else 0.0  # a term that is not scaled
            added = owner.score(q[column], k[s], t, at.key_ids[s], of_owner) - OWNERS[owner.name] * (q[column] @ k[s])
            found.append(factor * (own - apart) + apart + added)
        return found

    return Oracle(f"{reader.name}+{owner.name}", [], row=row, value=lambda v, t, s, at: reader.value(v, t, s, next(at_each(at))))


@pytest.mark.parametrize("reader, options, owner, site", PAIRS)
def test_one_scale_multiplies_all_terms(reader, options, owner, site):
    torch.manual_seed(3)
    spec = f"{spec_of(reader, options)}+{owner}"
    attn = randomise(posenc.build_attention(spec, WIDTH, HEADS, site=site, max_positions=MAX_POSITIONS))
    oracles = oracle_of(reader, options), oracle_of(owner, {})
    given = ({**options}, {})
    places = [place_of(method, oracle, own, site) for method, oracle, own in zip(attn.positions.methods, oracles, given)]
    expected = composed(oracles[0], places[0], oracles[1], places[1])
    mask = padding_mask([5, 3], "right")
    x = torch.randn(2, 5, WIDTH, dtype=torch.double)
    outputs, weights = reference.attention(
        expected, dataclasses.replace(places[0], parameters={}), projections_of(attn), *[x.numpy()] * 3, mask.numpy()
    )
    for need_weights in (True, False):
        y = x.transpose(0, 1)
        out, ours = attn(y, y, y, key_padding_mask=mask, need_weights=need_weights)
        assert_close(out.transpose(0, 1), outputs, 1e-5)
        if need_weights:
            assert_close(ours, weights, 1e-5)
    assert np.isfinite(outputs[~mask.numpy()]).all()
