"""What the tests of this folder have in common: all oracles and their cases, and modules with random parameters."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from fairseq_posenc import spec as parsing
from fairseq_posenc.attention.positional import PositionalAttention
from fairseq_posenc.attention.site_positions import SitePositions
from fairseq_posenc.core import AttentionContext, Dims, Sentence, SideInputs
from fairseq_posenc.core.side import declared_by
from fairseq_posenc.data.side import examples
from fairseq_posenc.registry import card

from .reference import Oracle, Place

WIDTH, HEADS, MAX_POSITIONS = 16, 4, 12

_MODULES = [importlib.import_module(f".{file.stem}", __package__) for file in sorted(Path(__file__).parent.glob("oracle_*.py"))]
ORACLES = [oracle for module in _MODULES for oracle in module.ORACLES]


def spec_of(name: str, options: dict) -> str:
    texts = {True: "true", False: "false"}
    pairs = [f"{key}={texts[value] if isinstance(value, bool) else value}" for key, value in options.items()]
    return name + (":" + ",".join(pairs) if pairs else "")


def cases(wanted) -> list:
    """(oracle, options, site) of every oracle that is wanted, named by spec and site."""
    return [
        pytest.param(
            oracle, options, site, id=f"{spec_of(oracle.name, options)}-{site}", marks=[pytest.mark.variant] * bool(options)
        )
        for oracle in ORACLES
        if wanted(oracle)
        for options, sites in oracle.cases
        for site in sites.split()
    ]


def randomise(module: torch.nn.Module) -> torch.nn.Module:
    """float64, evaluation, and no parameter left at an initial value that could hide a mistake."""
    module.double().eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.randn_like(parameter))
            if name.split(".")[-2:-1] in (["q_proj"], ["k_proj"], ["v_proj"], ["out_proj"], ["query_proj"], ["key_proj"]):
                parameter.div_(WIDTH**0.5)  # a softmax that is saturated would hide mistakes
    return module


def attention_of(oracle: Oracle, options: dict, site: str, seed: int = 0):
    """-> an attention with random parameters, its place and its projections in numpy.

    `build_attention` refuses methods that act outside of attention too; here their part in attention is compared.
    """
    torch.manual_seed(seed)
    dims = Dims(WIDTH, HEADS, 1, MAX_POSITIONS, MAX_POSITIONS, relations=examples.RELATIONS).at(site)
    methods = parsing.build(spec_of(oracle.name, options), dims, site)
    attn = randomise(PositionalAttention(SitePositions(methods, dims, site), dropout=0.0))
    return attn, place_of(attn.position, oracle, options, site), projections_of(attn)


def place_of(method: torch.nn.Module, oracle: Oracle, options: dict, site: str, **changes) -> Place:
    parameters = {name: parameter.detach().numpy() for name, parameter in method.named_parameters()}
    return Place(site, HEADS, {**oracle.defaults, **options}, parameters, **{"max_positions": MAX_POSITIONS, **changes})


def projections_of(attn: torch.nn.Module) -> dict:
    """{"q": (weight, bias), ...} of those that the attention has."""
    found = {name: getattr(attn, f"{name}_proj", None) for name in ("q", "k", "v", "out")}
    return {name: (x.weight.detach().numpy(), x.bias.detach().numpy()) for name, x in found.items() if x is not None}


def reads_sentences(oracle: Oracle) -> bool:
    """Whether the method reads the structure of a sentence."""
    return any(side.files for side in card(oracle.name).side_inputs)


def sentences_of(oracle: Oracle, lengths: list) -> list[Sentence]:
    """A random tree for every sentence, where the method reads any."""
    return [examples.random_sentence(range(length)) for length in lengths] if reads_sentences(oracle) else []


def side_inputs_of(methods, sentences: list, length: int, padding: str = "right") -> dict[str, torch.Tensor]:
    """What the methods read of these sentences, or of one in place of all where the structure of none is read."""
    return examples.side_inputs(methods, sentences or [examples.random_sentence(range(length))], length, padding == "left")


def with_side(ctx: AttentionContext, method, oracle: Oracle, sentences: list, padding="right", rows=2) -> AttentionContext:
    """The context with what a method prepares, and the side inputs that it reads: made of sentences, or as the oracle says."""
    given = side_inputs_of([method], sentences, ctx.keys.ids.size(1), padding)
    for name in oracle.side(0):
        given[name] = torch.tensor([oracle.side(row)[name] for row in range(rows)])
    ctx = ctx.replace(side=SideInputs(given, declared_by([method.card])))
    return ctx.replace(prepared={method: method.prepare(ctx)}) if "prepare" in method.hooks else ctx


def padding_mask(lengths: list, side: str) -> torch.Tensor:
    """bool [B, S], True at padding."""
    longest = max(lengths)
    rows = [[True] * (longest - n) + [False] * n if side == "left" else [False] * n + [True] * (longest - n) for n in lengths]
    return torch.tensor(rows)


def assert_close(ours: torch.Tensor, reference: np.ndarray, atol: float) -> None:
    """Equal wherever the reference says anything."""
    known = ~np.isnan(reference)
    assert known.any()
    np.testing.assert_allclose(ours.detach().numpy()[known], reference[known], rtol=0, atol=atol)
