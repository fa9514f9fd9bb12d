"""The list of all checks: the cases to which each check applies, and the problem that a user would observe if it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.hooks import NEEDS_SCORES
from . import checks_attention as attention
from . import checks_decoding as decoding
from . import checks_geometry as geometry
from . import checks_numerics as numerics
from . import checks_parameters as parameters
from .cases import Case, hooks, standalone


@dataclass(frozen=True)
class Check:
    """One check.

    goes_wrong: the problem that a user would observe if the check fails. variants: whether the check also runs with changed
    options. applies: whether the check applies to a case.
    """

    run: Callable[[Case], None]
    goes_wrong: str
    variants: bool = True
    applies: Callable[[Case], bool] = lambda case: True

    @property
    def name(self) -> str:
        return self.run.__name__.removeprefix("check_")


def _masks(case: Case) -> bool:
    return standalone(case) and bool(hooks(case) & {"mask", "attend"})


def _needs_scores(case: Case) -> bool:
    return standalone(case) and not hooks(case).isdisjoint(NEEDS_SCORES)


def _steps(case: Case) -> bool:
    return standalone(case) and case.site != "encoder"


def _shared_by_layers(case: Case) -> bool:
    return not case.example.per_layer


def _moves(case: Case) -> bool:
    """Return whether check_shift applies to a case.

    Some absolute methods compute positions from trees, graphs, reorderings or tokens. Shifting position ids does not change
    the output of these methods, so check_shift does not apply to these methods.
    """
    counted = geometry.reads_sentences(case) or case.example.counts_tokens
    return not (counted and case.card.reference in ("absolute", "both"))


def _at_encoder(case: Case) -> bool:
    return case.site == "encoder" and case.spec == case.name


def _has_changed_options(case: Case) -> bool:
    return case.spec != case.name


CONTRACT = (
    Check(decoding.check_padding, "padding changes the translation of a sentence in a batch with longer sentences"),
    Check(decoding.check_batch, "the translation of a sentence depends on the other sentences of the batch"),
    Check(decoding.check_incremental, "beam search computes other numbers than training"),
    Check(decoding.check_causality, "the decoder attends to later words, so training learns to copy them"),
    Check(decoding.check_full_context, "alignments (--print-alignment, full context) are computed from wrong attention weights"),
    Check(geometry.check_order, "the word order has no effect, or it has an effect that the card excludes"),
    Check(
        geometry.check_uncounted, "given position ids and counted position ids lead to different outputs, as with shape or cape"
    ),
    Check(parameters.check_count, "posenc list and tables print a wrong number of parameters"),
    Check(parameters.check_gradients, "a parameter has no gradient, or a wrong gradient"),
    Check(parameters.check_effect, "the method, or one of its parameters, has no effect"),
    Check(
        geometry.check_fractions,
        "training beside cape, which has fractional positions, ends with a traceback",
        applies=lambda case: case.example.position_type == "any" and bool(case.example.hooks),
    ),
    Check(
        parameters.check_rescale,
        "pairs of methods that cannot be combined are accepted",
        applies=lambda case: "rescale" in case.example.hooks and case.example.rescale_reads in ("positions", "scores"),
    ),
    Check(parameters.check_layers, "all layers have the bias or the mask of one layer", applies=_shared_by_layers),
    Check(numerics.check_repeatable, "two evaluations of the same model have different outputs"),
    Check(attention.check_kernels, "outputs change if attention weights are requested", applies=standalone),
    Check(attention.check_blocks, "outputs of long sentences, which are computed in blocks, are wrong", applies=_needs_scores),
    Check(attention.check_weights, "attention weights do not sum to one, or are not zero at padding", applies=standalone),
    Check(attention.check_attention_padding, "padding changes the outputs of build_attention", applies=standalone),
    Check(
        attention.check_scores, "attention.scores and posenc plot return other scores than the attention uses", applies=standalone
    ),
    Check(attention.check_fully_masked, "a query that cannot attend to any key becomes NaN, and training stops", applies=_masks),
    Check(attention.check_attention_steps, "build_attention computes other numbers in decoding step by step", applies=_steps),
    Check(geometry.check_shift, "the card claims a wrong reference (absolute, relative)", applies=_moves),
    Check(geometry.check_structure, "another tree of the same words has no effect", applies=geometry.reads_sentences),
    Check(parameters.check_options, "an option has no effect", applies=_has_changed_options),
    Check(geometry.check_direction, "the card claims a wrong value of directional", False, _at_encoder),
    Check(decoding.check_beams, "beams of one sentence change each other", False),
    Check(
        geometry.check_length, "longer sentences than in training raise a traceback, or exceed a limit without an error", False
    ),
    Check(geometry.check_far, "the card claims a wrong extrapolation (runs, clips, error)", False),
    Check(
        parameters.check_flags, "the card claims a wrong value of learnable, recurring, stochastic, losses or injection", False
    ),
    Check(parameters.check_state_dict, "a checkpoint does not restore the model", False),
    Check(numerics.check_half, "training with --fp16 or --bf16 fails or is inexact", False),
    Check(numerics.check_autocast, "training under torch.autocast fails or is inexact", False),
    Check(numerics.check_checkpointing, "--checkpoint-activations changes gradients", False),
    Check(
        decoding.check_tied_layers,
        "decoding with tied layers (as in posenc_universal) computes other numbers than training",
        False,
    ),
)
