"""The contract supports methods with unusual requirements. Each method in probes.py passes checks
of the contract."""

import pytest
import torch

from fairseq_posenc.core.hooks import HOOKS
from fairseq_posenc.testing import checks_attention as attention
from fairseq_posenc.testing import checks_decoding as decoding
from fairseq_posenc.testing import checks_geometry as geometry
from fairseq_posenc.testing import checks_numerics as numerics
from fairseq_posenc.testing import checks_parameters as parameters
from fairseq_posenc.testing.models import build_for, close, differ, fixed, logits, sentences
from tests.contract import probes
from tests.contract.cases import Case, registered

MODEL = [
    *decoding.RUNNING,
    decoding.check_beams,
    geometry.check_order,
    parameters.check_count,
    parameters.check_flags,
    parameters.check_gradients,
    parameters.check_state_dict,
    parameters.check_effect,
    numerics.check_half,
    numerics.check_repeatable,
    numerics.check_checkpointing,
]
PLACES = [geometry.check_shift, geometry.check_uncounted, geometry.check_length]
#: checks for errors that can occur when side inputs are reordered or padded together with the tokens
SIDE = [*decoding.RUNNING, decoding.check_beams, parameters.check_count, parameters.check_effect, geometry.check_length]
ALONE = [attention.check_attention_padding, attention.check_kernels, attention.check_weights]
PROBES = [
    *((probes.Shifted, site, None, MODEL + PLACES) for site in ("encoder", "decoder")),
    *((probes.JustShifted, site, None, ALONE) for site in ("encoder", "decoder")),
    (probes.Graph, "encoder", probes.edges, MODEL + PLACES),
    (probes.TargetGraph, "decoder", probes.pairs, SIDE),
    (probes.Depth, "encoder", probes.depth, MODEL + PLACES),
    (probes.DepthOfKeys, "cross", probes.depth, SIDE),
    (probes.DepthOfTarget, "decoder", probes.plan, SIDE),
    (probes.Countdown, "decoder", probes.length, MODEL + PLACES),
    (probes.CountdownCross, "cross", probes.length, SIDE),
    (probes.QueryTemperature, "encoder", None, MODEL + ALONE),
    *((probes.Halting, site, None, [parameters.check_flags]) for site in ("encoder", "decoder")),
    # check_order is left out: the method multiplies a query by a factor, and this factor does not depend on the word order
    *(
        (probes.QueryTemperature, site, None, [c for c in MODEL if c is not geometry.check_order])
        for site in ("decoder", "cross")
    ),
]


@pytest.fixture(autouse=True)
def fresh():
    yield
    fixed.cache_clear()


def named(value) -> str:
    return value if isinstance(value, str) else value.__name__.removeprefix("check_")


@pytest.mark.parametrize(
    "method, site, side, check",
    [
        pytest.param(method, site, side, check, id=f"{named(method)}-{site}-{named(check)}")
        for method, site, side, checks in PROBES
        for check in checks
    ],
)
def test_probe(method, site, side, check):
    with registered(method):
        assert check(Case(method.card.name, site, side)) is None


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("other", ["alibi_learned", "rope", "t5:share=none", "shaw", "spe_sine"])
def test_one_draw_for_queries_and_keys(other, site):
    """Shifted positions have no effect on a relative method. In training, queries and keys must be shifted equally."""
    source, target = torch.stack(sentences(60, 7, 7)), torch.stack(sentences(61, 6, 6))
    with registered(probes.JustShifted):
        model = build_for(Case(f"{other}+just_shifted", site)).train()
        assert model.training
        torch.manual_seed(62)
        moved = logits(model, source, target)
        close(moved, logits(model.eval(), source, target), 1e-4)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_drawn_anew_in_training_only(site):
    source, target = torch.stack(sentences(63, 7, 7)), torch.stack(sentences(64, 6, 6))
    with registered(probes.Shifted):
        model = build_for(Case("shifted", site))
        close(logits(model, source, target), logits(model, source, target), 0)
        model.train()
        differ(logits(model, source, target), logits(model, source, target), "two steps see the same positions")


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_a_draw_for_each_sentence(site):
    """SHAPE and CAPE shift every sentence by a separate amount. `positions` must therefore know the number of sentences."""
    seen = []

    class PerSentence(probes.Shifted):
        card = probes.card("per_sentence", sites=(site,))

        def positions(self, ids, ctx):
            seen.append(tuple(ids.shape))
            return ids

    source, target = torch.stack(sentences(65, 7, 7, 7)), torch.stack(sentences(66, 6, 6, 6))
    with registered(PerSentence):
        logits(build_for(Case("per_sentence", site)).train(), source, target)
    assert seen and all(rows == 3 for rows, _ in seen), f"positions saw {seen} for a batch of 3"


def test_every_hook_is_used_somewhere():
    """Probes and methods together override every hook of the contract, so that every hook is tested."""
    from fairseq_posenc import registry

    classes = [registry.method_class(name) for name in registry.names()] + [row[0] for row in PROBES]
    used = frozenset().union(*(cls._overridden for cls in classes))
    assert used == frozenset(HOOKS)
