"""Small PNAT models, built in memory with fairseq, and sentences for these models.

PNAT is a non-autoregressive Transformer that predicts the positions of its decoder inputs.
"""

from argparse import Namespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures
from fairseq_posenc.host.models.pnat.model import PNATModel
from fairseq_posenc.host.tasks.nat import ParallelTranslation, ParallelTranslationConfig

WORDS = Dictionary()
for _number in range(30):
    WORDS.add_symbol(f"w{_number}")
PAD, BOS, EOS, FIRST = WORDS.pad(), WORDS.bos(), WORDS.eos(), WORDS.nspecial
PREDICTORS = ("matching", "pointer", "relative")


def task(**options) -> ParallelTranslation:
    return ParallelTranslation(ParallelTranslationConfig(**options), WORDS, WORDS)


def arguments(**options) -> Namespace:
    """Return the arguments that fairseq passes to the model.

    They are the options of posenc_pnat_tiny with smaller sizes. The given options have priority.
    """
    import argparse

    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    PNATModel.add_args(parser)
    args = parser.parse_args([])
    args.criterion = "posenc_nat_loss"
    sizes = {"layers": 2, "embed_dim": 16, "attention_heads": 2, "ffn_embed_dim": 24}
    small = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    small.update(dropout=0.0, max_source_positions=64, max_target_positions=64, share_all_embeddings=True)
    vars(args).update({**small, **options})
    ARCH_CONFIG_REGISTRY["posenc_pnat_tiny"](args)
    return args


def build(seed: int = 0, **options) -> PNATModel:
    torch.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY["posenc_pnat_tiny"].build_model(arguments(**options), task())
    with torch.no_grad():  # if the model reads padding, a random embedding changes its results
        model.encoder.embed_tokens.weight[PAD].normal_()
    return model.eval()


def sentences(*lengths: int, seed: int = 1) -> list:
    """Return random words between a first and a last symbol. The lengths do not count these symbols."""
    draw = torch.Generator().manual_seed(seed)
    return [
        torch.cat([torch.tensor([BOS]), torch.randint(FIRST, len(WORDS), (n,), generator=draw), torch.tensor([EOS])])
        for n in lengths
    ]


def batch(rows: list, side: str = "right", extra: int = 0) -> torch.Tensor:
    """Return sentences padded on one side, with `extra` more columns than the longest sentence needs."""
    width = max(map(len, rows)) + extra
    out = torch.full((len(rows), width), PAD)
    for target, row in zip(out, rows):
        start = width - len(row) if side == "left" else 0
        target[start : start + len(row)] = row
    return out


def lengths_of(tokens: torch.Tensor) -> torch.Tensor:
    return tokens.ne(PAD).sum(1)


def run(model: PNATModel, source: torch.Tensor, target: torch.Tensor) -> dict:
    return model(source, lengths_of(source), target, target)
