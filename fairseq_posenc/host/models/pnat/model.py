"""PNAT as a fairseq model. It uses the same code as the autoregressive model for encoder, layers and position methods."""

from __future__ import annotations

import argparse
import dataclasses
import logging
from typing import Any

import torch
from fairseq.iterative_refinement_generator import DecoderOut
from fairseq.models import register_model
from fairseq.tasks.translation_lev import TranslationLevenshteinTask
from torch import Tensor, nn

from ....attention.site_positions import SitePositions
from ....common.option_types import integer, number
from ....core import PositionError, Refusal
from ....core.errors import require_option
from ....registry.architectures import NAT_TASK, PNAT
from ....registry.spec import Spec, build, parse
from ...criterions import NAT_CRITERION
from ..transformer.model import PositionTransformer, dims_at, site_positions
from .bridge import BRIDGES
from .decoder import ParallelDecoder
from .predictor import Reader
from .search import MATCHINGS, accuracy, alignment_loss

logger = logging.getLogger(__name__)

#: value of --position-search that disables the search. Decoder inputs then keep their order, and no positions are predicted
NO_SEARCH = "none"
PREDICTORS = ("matching", "pointer", "relative")
#: losses with a weight option (--LOSS-loss-weight), in addition to the length loss
LOSSES = ("word", "position", "search")


@register_model(PNAT)
class PNATModel(PositionTransformer):
    """A non-autoregressive Transformer that predicts the positions of its decoder inputs (Bao et al., 2019).

    Raise Refusal for the same reasons as PositionTransformer. Raise Refusal also for a task whose sentences have no start symbol,
    for a criterion other than `posenc_nat_loss`, and for options that contradict each other. Raise Refusal for methods in the
    decoder that require a causal mask or read separators.
    """

    criterion = NAT_CRITERION
    #: fairseq's iterative refinement generator reads these two attributes
    allow_length_beam = True
    allow_ensemble = False

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        add = parser.add_argument
        add("--bridge", choices=sorted(BRIDGES), default="copy",
            help="function that computes the decoder inputs from the source vectors (default: %(default)s)")  # fmt: skip
        add("--bridge-states", choices=("embedding", "encoder", "words"), default="encoder",
            help="source vectors that --bridge reads. embedding: word embeddings with sinusoids. encoder: encoder outputs. "
            "words: word embeddings without positions (default: %(default)s)")  # fmt: skip
        add("--position-search", choices=(*sorted(MATCHINGS), NO_SEARCH), default="greedy",
            help="search that assigns target positions to decoder inputs in training. greedy: largest score first. authors: "
            "greedy, with scores normalised before each choice. hungarian: largest sum of scores. none: no search, for a plain "
            "non-autoregressive model (default: %(default)s)")  # fmt: skip
        add("--search-score", choices=("cosine", "words"), default="cosine",
            help="score of the search. cosine: cosine of a decoder input and the embedding of a target token. words: "
            "log-probability of a target token, computed from one decoder input only (default: %(default)s)")  # fmt: skip
        add("--position-predictor", choices=PREDICTORS, default="matching",
            help="predictor of positions: matching (non-autoregressive), pointer (autoregressive), or relative "
            "(classes of distances) (default: %(default)s)")  # fmt: skip
        add("--position-matching", choices=sorted(MATCHINGS), default="greedy",
            help="algorithm that computes a permutation from the scores of the predictor `matching` (default: "
            "%(default)s)")  # fmt: skip
        add("--predicted-positions", type=number, default=0.0, metavar="SHARE",
            help="share of the training sentences that use predicted positions instead of positions from the search "
            "(default: %(default)s)")  # fmt: skip
        add("--relative-classes", type=integer, default=4, metavar="K",
            help="number of distance classes of the predictor `relative`, in each direction (default: %(default)s)")  # fmt: skip
        add(
            "--predictor-layers",
            type=integer,
            default=2,
            metavar="N",
            help="number of layers of the predictor (default: %(default)s)",
        )
        add("--predictor-position", default="sinusoidal", metavar="SPEC",
            help="spec of the position encoding in the predictor. It encodes the order of the decoder inputs "
            "(default: %(default)s)")  # fmt: skip
        for loss, weight, what in (
            ("word", 1.0, "of the words"), ("position", 1.0, "of the predicted positions"),
            ("search", 0.0, "of the search. With --search-score cosine, the loss is the cross-entropy of the assigned "
            "positions, computed from the softmax of the scores. With --search-score words, the loss is the negative "
            "log-likelihood of the target tokens"),
        ):  # fmt: skip
            add(f"--{loss}-loss-weight", type=number, default=weight, metavar="W",
                help=f"weight of the loss {what} (default: %(default)s)")  # fmt: skip

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> PNATModel:
        options = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
        cls.add_args(options)
        options.parse_args([], args)  # an older checkpoint may lack an option, which is then set to its default
        _refuse_task(args, task)
        _refuse_options(args)
        return super().build_model(args, task)

    @classmethod
    def specs_of(cls, args: argparse.Namespace) -> dict[str, Spec]:
        found = super().specs_of(args)
        return found if args.position_search == NO_SEARCH else {**found, "predictor": parse(args.predictor_position)}

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> ParallelDecoder:
        dims = dataclasses.replace(dims_at(cfg, "decoder", cfg.decoder, tgt_dict), causal=False)
        own = SitePositions(build(cfg.decoder.position, dims, "decoder"), dims, "decoder")
        cross = site_positions(cfg, "cross", cfg.decoder, tgt_dict)
        _refuse_methods(own, cross)
        reader = None
        if cfg.position_search != NO_SEARCH:
            layers = cfg.predictor_layers
            dims = dataclasses.replace(dims, num_layers=layers)
            cross_dims = dataclasses.replace(dims_at(cfg, "cross", cfg.decoder, tgt_dict), num_layers=layers)
            positions = SitePositions(build(cfg.predictor_position, dims, "decoder"), dims, "decoder")
            _refuse_methods(positions)
            _refuse_losses(positions)
            reader = Reader(cfg, positions, SitePositions(build("none", cross_dims, "cross"), cross_dims, "cross"))
        return ParallelDecoder(cfg, tgt_dict, embed_tokens, own, cross, reader)

    def __init__(self, args: Any, encoder: nn.Module, decoder: ParallelDecoder):
        super().__init__(args, encoder, decoder)
        self.pad, self.bos, self.eos, self.unk = (getattr(decoder.dictionary, name)() for name in ("pad", "bos", "eos", "unk"))
        self.factors = {loss: getattr(args, f"{loss}_loss_weight") for loss in LOSSES}

    # -- training ----------------------------------------------------------------------------------------------------

    def forward(self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor, tgt_tokens: Tensor) -> dict[str, dict]:
        """Return the losses by name. Each loss is a dictionary that the criterion `posenc_nat_loss` reads."""
        encoder_out = self.encoder(src_tokens, src_lengths)
        words = tgt_tokens.ne(self.pad)
        tokens = self.decoder.without_words(tgt_tokens)
        placement = self.decoder.place(encoder_out, tokens, tgt_tokens)
        logits, extra = self.decoder.logits_at(placement, encoder_out, tokens)
        lengths = self.encoder.length_predictor
        length_loss = lengths.loss(encoder_out, words.sum(1) - 1).mean()  # without the end symbol
        terms = {
            "word_ins": {"out": logits, "tgt": tgt_tokens, "mask": words, "smooth": True, "nll_loss": True,
                         "factor": self.factors["word"]},
            "length": {"loss": length_loss, "factor": lengths.loss_weight},
        }  # fmt: skip
        if placement.read is not None:
            terms.update(self._position_terms(placement))
        for name, added in extra["losses"].items():
            terms[name] = {"loss": added.sum() / words.sum()}
        return {name: term for name, term in terms.items() if term.get("factor", 1.0) > 0}  # the criterion divides by this factor

    def _position_terms(self, placement: Any) -> dict[str, dict]:
        z, inner = placement.searched, placement.inner
        out, tgt, mask = self.decoder.head.terms(placement.read, z, inner)
        position = {"out": out, "tgt": tgt, "mask": mask, "factor": self.factors["position"]}
        if not self.training:
            position["accuracy"] = accuracy(self.decoder.head.positions(placement.read, inner), z, inner)
        weight = self.factors["search"]
        if self.decoder.search_score == "cosine":
            scores = placement.scores.masked_fill(~inner.unsqueeze(1), float("-inf"))
            search = {"out": scores, "tgt": z, "mask": inner, "factor": weight}
        else:
            search = {"loss": weight * alignment_loss(placement.scores, inner), "factor": weight}
        return {"position": position, "search": search}

    # -- interface of fairseq's iterative refinement generator ---------------------------------------------------------

    def forward_encoder(self, encoder_inputs: list[Tensor]) -> dict[str, list[Tensor]]:
        return self.encoder(*encoder_inputs)

    def initialize_output_tokens(self, encoder_out: dict[str, list[Tensor]], src_tokens: Tensor) -> DecoderOut:
        """Return sentences of unknown tokens, with the lengths of the references in `encoder_out`, or with predicted lengths."""
        if "reference" in encoder_out:
            lengths = encoder_out["reference"][0].ne(self.pad).sum(1)
        else:
            predictor = self.encoder.length_predictor
            lengths = predictor.length(predictor(encoder_out).argmax(-1), encoder_out) + 1  # with the end symbol
        return self._unknown_words(lengths)

    def regenerate_length_beam(self, decoder_out: DecoderOut, beam_size: int) -> DecoderOut:
        """Return `beam_size` sentences of unknown tokens per source sentence: [B, T] -> [B * beam_size, T'].

        For each source sentence, the lengths are consecutive numbers around the length in `decoder_out`. All lengths are
        limited to the range from 2 to the maximum length.
        """
        lengths = decoder_out.output_tokens.ne(self.pad).sum(1, keepdim=True)
        lengths = lengths + torch.arange(beam_size, device=lengths.device) - beam_size // 2
        return self._unknown_words(lengths.view(-1))

    def forward_decoder(self, decoder_out: DecoderOut, encoder_out: dict[str, list[Tensor]], **unused: Any) -> DecoderOut:
        """Generate all tokens in one step."""
        tokens = decoder_out.output_tokens
        target = encoder_out["reference"][0] if "reference" in encoder_out else None
        placement = self.decoder.place(encoder_out, tokens, target)
        logits, _ = self.decoder.logits_at(placement, encoder_out, tokens)
        logits = logits.float().log_softmax(-1)
        written = logits.clone()
        written[..., [self.pad, self.bos, self.eos]] = float("-inf")  # start symbol and end symbol are fixed
        best = torch.where(placement.inner, written.argmax(-1), tokens)
        scores = logits.gather(-1, best.unsqueeze(-1)).squeeze(-1).masked_fill(tokens.eq(self.pad), 0.0)
        return decoder_out._replace(output_tokens=best, output_scores=scores)

    def _unknown_words(self, lengths: Tensor) -> DecoderOut:
        """Return sentences that consist of a start symbol, unknown tokens and an end symbol.

        `lengths` [B] are the lengths of the sentences. They are limited to the range from 2 to the maximum length.
        """
        lengths = lengths.clamp(2, self.decoder.max_positions())
        at = torch.arange(int(lengths.max()), device=lengths.device)
        last = lengths.unsqueeze(1) - 1
        tokens = torch.where(at < last, self.unk, self.pad)
        tokens = torch.where(at == last, self.eos, tokens)
        tokens[:, 0] = self.bos
        return DecoderOut(tokens, tokens.new_zeros(tokens.shape, dtype=torch.float32), None, 0, 0, None)


def _refuse_task(args: argparse.Namespace, task: Any) -> None:
    if not isinstance(task, TranslationLevenshteinTask):
        raise Refusal(f"{PNAT}: wrong task. Expected --task {NAT_TASK}, whose sentences begin with <s>.")
    given = getattr(args, "criterion", NAT_CRITERION)
    if given != NAT_CRITERION:
        raise Refusal(
            f"{PNAT}: wrong --criterion {given}. Expected --criterion {NAT_CRITERION}, which adds the losses of {PNAT}."
        )


def _refuse_methods(*sites: SitePositions) -> None:
    """Raise PositionError for a method that reads separators, and for a method that requires a causal mask.

    A method requires a causal mask if its card lists neither the site encoder nor the site cross.
    """
    for method in (method for positions in sites for method in positions.methods):
        name = method.card.name
        if method.card.documents:
            raise PositionError(
                f"{name}: the decoder of {PNAT} writes all words at once, so it cannot read separators before. "
                f"Expected a method for single sentences. Use {name} in the encoder only."
            )
        if not {"encoder", "cross"} & {*method.card.all_sites}:
            raise PositionError(
                f"{name}: the method requires a causal mask, but the decoder of {PNAT} has none. "
                "Expected a method for site encoder or cross. Use another method, for example shaw."
            )


def _refuse_losses(predictor: SitePositions) -> None:
    """Raise PositionError for a method in the position predictor that adds a loss. The loss of PNAT does not contain it."""
    for method in predictor.methods:
        if method.card.losses:
            raise PositionError(
                f"--predictor-position {method.card.name}: the method adds a training loss, which the position predictor does "
                "not support. Expected a method without a loss. Use another method in --predictor-position."
            )


#: options of PNAT that need a position predictor
_OF_PREDICTOR = (
    "position_predictor", "position_matching", "predictor_layers", "predictor_position", "predicted_positions",
    "relative_classes", "search_score", "search_loss_weight",
)  # fmt: skip


def _warn_of_unread_options(args: argparse.Namespace) -> None:
    """Log a warning for an option that differs from its default although no part of the model reads it.

    This is no error, because a checkpoint of an earlier version may have such options.
    """
    options = argparse.ArgumentParser()
    PNATModel.add_args(options)
    without = {name: "--position-search none" for name in _OF_PREDICTOR if args.position_search == NO_SEARCH}
    for name, reader in (("relative_classes", "relative"), ("position_matching", "matching")):
        if args.position_predictor != reader:
            without.setdefault(name, f"--position-predictor {args.position_predictor}")
    for name, reason in without.items():
        if getattr(args, name) != options.get_default(name):
            logger.warning("--%s %s has no effect with %s", name.replace("_", "-"), getattr(args, name), reason)


def _refuse_options(args: argparse.Namespace) -> None:
    for option in ("predictor_layers", "relative_classes"):
        require_option(getattr(args, option) >= 1, option, getattr(args, option), "at least 1")
    kernel = getattr(args, "decoder_ffn_kernel", None)
    if kernel is not None and kernel % 2 == 0:
        raise Refusal(f"--decoder-ffn-kernel {kernel}: not allowed in {PNAT}. Expected an odd number.")
    share = args.predicted_positions
    require_option(0 <= share <= 1, "predicted_positions", share, "a number from 0 to 1")
    _warn_of_unread_options(args)
    if args.search_score == "words" and not args.search_loss_weight:
        raise Refusal("--search-score words: requires a training loss. Expected --search-loss-weight above 0.")
    if not args.length_loss_weight:
        raise Refusal(f"{PNAT}: requires a length predictor. Expected --length-loss-weight above 0.")
    for option in (f"{loss}_loss_weight" for loss in LOSSES):
        require_option(0 <= getattr(args, option) < float("inf"), option, getattr(args, option), "at least 0")
    if args.encoder_embed_dim != args.decoder_embed_dim:
        raise Refusal(
            f"{PNAT}: --encoder-embed-dim {args.encoder_embed_dim} differs from --decoder-embed-dim {args.decoder_embed_dim}. "
            "Expected equal values, because the decoder input consists of encoder states."
        )
