"""The contract: every check, on which cases it runs, and what a user would see go wrong where it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.hooks import NEEDS_SCORES
from . import checks_attention as attention
from . import checks_decoding as decoding
from . import checks_geometry as geometry
from . import checks_numerics as numerics
from . import checks_parameters as parameters
from .cases import Case, standalone


def _always(case: Case) -> bool:
    return True


@dataclass(frozen=True)
class Check:
    """One check; `variants` says whether it also runs with options changed, which the contract's own tests do with most."""

    run: Callable[[Case], None]
    goes_wrong: str
    variants: bool = True
    applies: Callable[[Case], bool] = _always

    @property
    def name(self) -> str:
        return self.run.__name__.removeprefix("check_")


def _attends(case: Case) -> bool:
    return standalone(case)


def _masks(case: Case) -> bool:
    return standalone(case) and bool(case.method().hooks & {"mask", "attend"})


def _needs_scores(case: Case) -> bool:
    return standalone(case) and not case.method().hooks.isdisjoint(NEEDS_SCORES)


def _steps(case: Case) -> bool:
    return standalone(case) and case.site != "encoder"


def _moves(case: Case) -> bool:
    """An absolute place in a tree, or one that is counted from tokens, is no number that can be moved."""
    counted = geometry.reads_sentences(case) or case.method().counts_tokens
    return not (counted and case.card.reference in ("absolute", "both"))


def _at_encoder(case: Case) -> bool:
    return case.site == "encoder" and case.spec == case.name


def _has_changed_options(case: Case) -> bool:
    return case.spec != case.name


CONTRACT = (
    Check(decoding.check_padding, "a sentence is translated differently beside longer ones, because padding reaches it"),
    Check(decoding.check_batch, "a sentence is translated differently in a batch than alone"),
    Check(decoding.check_incremental, "beam search sees other numbers than training did"),
    Check(decoding.check_causality, "a word sees the words after it, so that training learns to copy them"),
    Check(decoding.check_full_context, "alignments (--print-alignment, full context) are made from wrong attention"),
    Check(geometry.check_order, "the model does not know, or against its card knows, the order of words"),
    Check(geometry.check_uncounted, "another numbering of the same positions gives other numbers, as beside SHAPE or CAPE"),
    Check(parameters.check_count, "posenc list and tables show a wrong number of parameters"),
    Check(parameters.check_gradients, "a parameter is not trained, or trained along a wrong gradient"),
    Check(parameters.check_effect, "the method, or a parameter of it, does nothing"),
    Check(numerics.check_repeatable, "the same model gives other numbers when it is asked again"),
    Check(attention.check_kernels, "outputs change when attention weights are asked for", applies=_attends),
    Check(attention.check_blocks, "long sentences, served in blocks, get other numbers than short ones", applies=_needs_scores),
    Check(attention.check_weights, "attention weights do not sum to one, or reach padding", applies=_attends),
    Check(attention.check_attention_padding, "build_attention gives other numbers beside padding", applies=_attends),
    Check(attention.check_scores, "attention.scores and posenc plot show other scores than are used", applies=_attends),
    Check(attention.check_fully_masked, "a query that may look nowhere becomes NaN and ends the training", applies=_masks),
    Check(attention.check_attention_steps, "build_attention decodes other numbers step by step", applies=_steps),
    Check(geometry.check_shift, "the card's reference (absolute, relative) is not so", applies=_moves),
    Check(geometry.check_structure, "another tree of the same words changes nothing", applies=geometry.reads_sentences),
    Check(parameters.check_options, "an option does nothing", applies=_has_changed_options),
    Check(geometry.check_direction, "the card's directional is not so", False, _at_encoder),
    Check(decoding.check_beams, "beams of one sentence disturb each other", False),
    Check(geometry.check_length, "sentences longer than the trained ones end in a traceback, or pass a limit unseen", False),
    Check(geometry.check_far, "the card's extrapolation (runs, clips, error) is not so", False),
    Check(parameters.check_flags, "the card's learnable, recurring, stochastic, losses or injection is not so", False),
    Check(parameters.check_state_dict, "a checkpoint does not give the model back", False),
    Check(numerics.check_half, "training with --fp16 or --bf16 fails or is inexact", False),
    Check(numerics.check_autocast, "training under torch.autocast fails or is inexact", False),
    Check(numerics.check_checkpointing, "--checkpoint-activations changes gradients", False),
    Check(decoding.check_tied_layers, "decoding with tied layers (as in posenc_universal) sees other numbers", False),
)
