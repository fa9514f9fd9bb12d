"""Every pair of methods at every site works, or raises an error with the reason."""

import itertools
import random
import re

import pytest
import torch

import fairseq_posenc as posenc
from fairseq_posenc import registry
from fairseq_posenc.attention.site_positions import SitePositions
from fairseq_posenc.core import AttentionContext, PositionError, Positions
from fairseq_posenc.registry import spec as parsing
from fairseq_posenc.testing import checks_attention, checks_decoding
from fairseq_posenc.testing.models import build, close, differ, encode, logits, sentences
from tests.contract import probes
from tests.contract.cases import SMALL, Case, all_cases, registered, specs, standalone


def pairs(text_of=lambda name, site: [name]) -> list:
    found = []
    for site in ("encoder", "decoder", "cross"):
        serving = [text for name in registry.names() if site in registry.card(name).all_sites for text in text_of(name, site)]
        found += [Case(f"{a}+{b}", site) for a, b in itertools.combinations_with_replacement(serving, 2)]
    return found


@pytest.mark.parametrize(
    "spec, words",
    [
        ("diet_rel:scale=head+diet_rel:scale=model", "scale the product of queries and keys differently (diet_rel by"),
        ("tener:scaled=true+tener", "scale the product of queries and keys differently"),
        ("rope_scaled:scaling=dynamic+rope_scaled:scaling=linear", "rotates the queries that rope_scaled reads"),
    ],
)
def test_two_instances_of_one_method_are_two_methods(spec, words):
    assert words in refusal(Case(spec, "decoder"))


def refusal(case: Case):
    """Return None if the pair can be built, or else the error message."""
    try:
        dims = SMALL.at(case.site)
        SitePositions(parsing.build(case.spec, dims, case.site), dims, case.site)
    except PositionError as error:
        return str(error)
    return None


def sample(cases: list, count: int, wanted=lambda case: True) -> list:
    """Return a fixed random sample of the pairs.

    The number of all pairs grows with the square of the number of methods.
    """
    return list(itertools.islice(filter(wanted, random.Random(41).sample(cases, len(cases))), count))


def allowed(case: Case) -> bool:
    return refusal(case) is None


@pytest.mark.slow
def test_every_pair_builds_or_says_why():
    answers = {case: refusal(case) for case in pairs() + sample(pairs(specs), 2000)}
    refused = {case: message for case, message in answers.items() if message is not None}
    assert 0 < len(refused) < len(answers)
    for case, message in refused.items():
        names = {part.name for part in parsing.parse(case.spec).methods}
        assert all(name in message for name in names) and len(message.split()) > 8, f"{case}: {message}"


@pytest.mark.variant
@pytest.mark.parametrize("case", sample(pairs(), 250, lambda case: allowed(case) and standalone(case)), ids=str)
def test_pair_in_an_attention(case):
    """The results are correct with padding and in decoding step by step. They do not depend on the order of both methods."""
    checks_attention.check_attention_padding(case)
    if case.site != "encoder":
        checks_attention.check_attention_steps(case)
    first, second = case.spec.split("+")
    one, other = (checks_attention.attention(found) for found in (case, Case(f"{second}+{first}", case.site)))
    swapped = {"methods.0.": "methods.1.", "methods.1.": "methods.0."}
    given = {re.sub(r"methods\.[01]\.", lambda found: swapped[found[0]], name): x for name, x in one.state_dict().items()}
    other.load_state_dict(given)
    x, source = checks_attention.inputs(case)
    given = checks_attention.side_inputs(one, torch.zeros(x.size(1), len(source), dtype=torch.bool))
    close(other(x, source, source, side_inputs=given)[0], one(x, source, source, side_inputs=given)[0], 1e-9)


@pytest.mark.parametrize("case", sample(pairs(), 25, allowed), ids=str)
def test_pair_in_a_model(case):
    checks_decoding.check_padding(case)
    checks_decoding.check_incremental(case)


@pytest.mark.variant
@pytest.mark.parametrize("name", [name for name in registry.names() if "decoder" in registry.card(name).all_sites])
def test_a_method_beside_itself_keeps_its_own_state(name):
    """Two instances of one method do not share a decoding state.

    Both instances act at the same layers, or they act at different layers and can have different options.
    """
    both = Case(f"{name}+{name}", "decoder")
    others = [f"{text}{',' if ':' in text else ':'}layers=1" for text in specs(name, "decoder")]
    apart = [Case(f"{name}:layers=0+{other}", "decoder") for other in others]
    built = [case for case in (both, *apart) if refusal(case) is None]
    for case in built:
        checks_decoding.check_incremental(case)
    assert built or all(name in refusal(case) for case in (both, *apart))


@pytest.mark.variant
@pytest.mark.parametrize("case", sample(pairs(), 40, allowed), ids=str)
def test_every_part_has_an_effect(case):
    """In every pair that can be built, both methods have an effect.

    If one method would have no effect, building the pair must raise an error.
    """
    whole = build(**{case.site: case.spec})
    source, target = torch.stack(sentences(42, 40, 40)), torch.stack(sentences(43, 39, 39))
    parts = case.spec.split("+")
    for kept, left_out in (parts, reversed(parts)):
        if registry.card(left_out).reference != "none":
            alone = _like(whole, case.site, kept, parts.index(kept))
            differ(logits(whole, source, target), logits(alone, source, target), f"{left_out} has no effect beside {kept}")
    assert encode(whole, source)["encoder_out"][0].isfinite().all()


@pytest.mark.variant
@pytest.mark.parametrize("case", [case for case in all_cases() if "attend" in case.example.hooks], ids=str)
def test_nothing_is_lost_beside_a_kernel(case):
    """A method's own kernel can leave a projection unused. A second method that acts on this projection raises an error.

    In all other pairs, every parameter has a gradient, and the second method has an effect.
    """
    serving = [name for name in registry.names() if case.site in registry.card(name).all_sites and name != "none"]
    if ":" in case.spec:  # whether two methods can be combined depends on the hooks and projections of the second method
        serving = list({_hooks_of(name): name for name in serving}.values())
    beside = [Case(f"{case.spec}+{name}", case.site) for name in serving]
    built = [pair for pair in beside if refusal(pair) is None]
    for pair in built:
        model = build(**{pair.site: pair.spec}).train()
        torch.manual_seed(44)
        logits(model, torch.stack(sentences(45, 9, 9)), torch.stack(sentences(46, 8, 8))).square().sum().backward()
        idle = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
        assert not idle, f"{pair}: no gradient reaches {idle}"
        other = pair.spec.split("+")[1]
        alone = _like(model, pair.site, case.spec, 0)
        found = [logits(m.eval(), torch.stack(sentences(45, 9)), torch.stack(sentences(46, 8))) for m in (model, alone)]
        differ(*found, f"{other} has no effect beside {case.spec}")


def _hooks_of(name: str) -> tuple:
    method = registry.method_class(name)
    return method._overridden, method.projections, registry.declaration(name).family


def test_factors_of_queries_multiply_beside_a_constant_scale():
    """Scales that are tensors multiply the queries. They do not change the constant scale of a layer."""
    positions, q = [], torch.randn(2, 4, 5, 4, dtype=torch.float64)
    with registered(probes.QueryTemperature):
        for spec in ("tupe_abs+query_temperature", "query_temperature+query_temperature", "query_temperature"):
            positions.append(SitePositions(parsing.build(spec, SMALL, "encoder"), SMALL, "encoder").double())
    at = Positions.counted(0, 5)
    beside, twice, once = (found.scale_queries(q, found.begin(AttentionContext(at, at))) for found in positions)
    factors = (torch.arange(5.0, dtype=torch.float64) + 2).log().sqrt().view(5, 1)
    close((beside, twice, once), (q * factors, q * factors**2, q * factors))
    assert [found.scale(0) for found in positions] == [8**-0.5, 0.5, 0.5]


@pytest.mark.parametrize("synthesizer", ["synthesizer_random", "synthesizer_factorised", "synthesizer_dense:form=minus"])
def test_a_factor_of_queries_is_refused_if_no_product_is_computed(synthesizer):
    name = synthesizer.split(":")[0]
    for spec in (f"{synthesizer}+log_length:form=ssmax", f"log_length+{synthesizer}"):
        message = refusal(Case(spec, "decoder"))
        assert message is not None and message.startswith(f"{name}+log_length: {name} does not compute the product"), message
        assert "\n" not in message
    for allowed_one in ("mix=plus", "layers=0"):
        other = "log_length:layers=1" if allowed_one == "layers=0" else "log_length"
        assert refusal(Case(f"synthesizer_random:{allowed_one}+{other}", "decoder")) is None


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("other", ["localness", "localness:window=layer", "grape_a:gate=query", "xl", "shaw", "deberta"])
def test_factors_of_queries_multiply_only_the_product_of_queries_and_keys(other, site):
    """If a method multiplies queries by factors, score terms of other methods read the queries without these factors."""
    if site not in registry.card(other.split(":")[0]).all_sites:
        pytest.skip("the method is not defined at this site")
    torch.manual_seed(48)
    own = posenc.build_attention(other, 16, 2, site=site).double().eval()
    for parameter in own.positions.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.5)
    both = posenc.build_attention(f"{other}+log_length:length=3", 16, 2, site=site).double().eval()
    both.load_state_dict(own.state_dict())
    x = torch.randn(7, 2, 16, dtype=torch.float64)
    with torch.no_grad():
        q, k = (own.project_one(which, x.transpose(0, 1)) for which in ("query", "key"))
        factor = both.positions.methods[-1].scale(AttentionContext(at := Positions.counted(0, 7), at, causal=site == "decoder"))
        added = (factor - 1) * own.positions.scale(0) * (q @ k.mT)
        close(both.scores(x, x), own.scores(x, x) + added, 1e-6)
        close(both(x, x, x, need_weights=False)[0], both(x, x, x)[0], 1e-6)


@pytest.mark.parametrize("hidden", [0, 8])
@pytest.mark.parametrize("mask", ["attn_mask", "window:width=2"])
@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_a_hidden_key_does_not_change_the_window_of_localness(site, mask, hidden):
    """The window is computed from the mean of the keys that a query reads.

    In this test, each query reads only its own key and the neighbouring keys.
    """
    torch.manual_seed(47)
    spec = "localness:window=layer" if mask == "attn_mask" else f"{mask}+localness:window=layer"
    built = posenc.build_attention(spec, 16, 4, site=site).double().eval()
    for parameter in built.positions.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.5)
    x = torch.randn(9, 2, 16, dtype=torch.float64)
    other = x.index_fill(0, torch.tensor([hidden]), 1.0)
    far = ~torch.ones(9, 9, dtype=torch.bool).tril(1).triu(-1) if mask == "attn_mask" else None
    for asked in (False, True):
        found = [built(x, keys, keys, attn_mask=far, need_weights=asked)[0] for keys in (x, other)]
        close(found[1][2:7], found[0][2:7], 1e-12)
        differ(found[1], found[0], "a key that a query reads has no effect")


def _like(whole, site: str, spec: str, part: int):
    """Return a model with one method of the model `whole`, and with its parameters. `part` is the number of the method."""
    alone = build(**{site: spec})
    given = {name.replace(f".methods.{part}.", ".methods.0."): x for name, x in whole.state_dict().items() if ".methods." in name}
    own = alone.state_dict()
    plain = {name: x for name, x in whole.state_dict().items() if ".methods." not in name and name in own}
    mine = {name: x for name, x in given.items() if name in own and own[name].shape == x.shape}
    torch.nn.Module.load_state_dict(alone, {**plain, **mine, "positions_version": own["positions_version"]}, strict=False)
    return alone
