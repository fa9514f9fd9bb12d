"""The fairseq model of the Transformer: options and their checks, and loading of checkpoints."""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Mapping
from typing import Any

import torch
from fairseq import utils
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, TransformerModel
from omegaconf import OmegaConf
from torch import Tensor, nn

from ....attention.site_positions import SitePositions
from ....common.option_types import integer, number
from ....core import Dims, PositionError, PositionMethod, Refusal
from ....core.errors import require_option
from ....core.side import declared_by
from ....registry.architectures import MODEL, PNAT, TASK
from ....registry.spec import Spec, build, parse
from ...criterions import CRITERION, NAT_CRITERION
from ..layers.dropout import replace_dropout
from ..layers.halting import HALTING
from .decoder import Decoder
from .encoder import Encoder

logger = logging.getLogger(__name__)

SPEC_OPTIONS = {"encoder": "encoder_position", "decoder": "decoder_position", "cross": "cross_position"}

#: options of fairseq's `transformer` that this model does not support -> the reason, and what to do
_REFUSED = {
    "encoder_learned_pos": "Use --encoder-position learned",
    "decoder_learned_pos": "Use --decoder-position learned",
    "no_token_positional_embeddings": "Use --encoder-position none --decoder-position none",
    "encoder_layers_to_keep": "Position methods can have parameters in each layer. Remove it",
    "decoder_layers_to_keep": "Position methods can have parameters in each layer. Remove it",
    "encoder_xformers_att_config": "The attention of this plugin is used. Remove it",
    "decoder_xformers_att_config": "The attention of this plugin is used. Remove it",
    "adaptive_input": "All embeddings have the same width. Remove it",
    "adaptive_softmax_cutoff": "The output has a single projection. Remove it",
    "merge_src_tgt_embed": "Use a joined dictionary and --share-all-embeddings",
    "offload_activations": "Use --checkpoint-activations",
    "no_cross_attention": "The model is an encoder-decoder. Remove it",
    "cross_self_attention": "Cross-attention has its own positions. Remove it",
    "quant_noise_pq": "Projections are not quantized. Remove it",
    "quant_noise_scalar": "Projections are not quantized. Remove it",
    "char_inputs": "Inputs are tokens. Remove it",
    "base_layers": "Layers are not sparse. Remove it",
    "export": "The model cannot be exported to TorchScript. Remove it",
}

_MOST_LAYERS = 1000  # maximum number of layers


@register_model(MODEL)
class PositionTransformer(TransformerModel):
    """A Transformer with three position specs: for the encoder, for the decoder, and for cross-attention.

    Raise Refusal for a wrong spec, for options of fairseq's `transformer` that this model does not support, and for a checkpoint
    with other positions.
    """

    encoder_class, decoder_class = Encoder, Decoder
    #: real numbers per channel of a hidden state: 2 if hidden states are complex
    parts = 1
    #: the criterion that adds the loss terms of methods
    criterion = CRITERION

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        where = {
            "encoder": "the encoder (embeddings and self-attention)",
            "decoder": "the decoder (embeddings and self-attention)",
            "cross": "cross-attention",
        }
        for site, option in SPEC_OPTIONS.items():
            parser.add_argument(
                f"--{option.replace('_', '-')}",
                metavar="SPEC",
                help=f"position encoding of {where[site]}, such as shaw:max_distance=8 (default: the spec of the architecture)",
            )
        for side in ("encoder", "decoder"):
            parser.add_argument(
                f"--tie-{side}-layers",
                action="store_true",
                help=f"one layer with shared parameters for all {side} layers, as in Universal Transformers",
            )
            parser.add_argument(
                f"--{side}-ffn-kernel", type=integer, metavar="K",
                help=f"kernel width of the convolutions in the feed-forward networks of the {side}, in tokens (default: 1, "
                f"linear layers)",
            )  # fmt: skip
            parser.add_argument(
                f"--{side}-freeze-position",
                action="store_true",
                help=f"keep the parameters of --{side}-position fixed in training",
            )
            parser.add_argument(
                f"--{side}-halting", choices=HALTING,
                help=f"adaptive computation time in the {side}: each token halts after at most --{side}-layers steps. Later "
                "steps do not change the output of a halted token. Other tokens still attend to the hidden state of the halted "
                "token. With continue, later steps update this hidden state. With copy, it stays constant (default: no token "
                "halts)",
            )  # fmt: skip
        for site, option in SPEC_OPTIONS.items():
            parser.add_argument(
                f"--{site}-global-layers", type=integer, metavar="C",
                help=f"number of layers with a second attention: the last C layers. This attention uses "
                f"--{option.replace('_', '-')} without the masks that restrict attention to one sentence. A gate combines the "
                f"outputs of both attentions (default: 0)",
            )  # fmt: skip
        parser.add_argument(
            "--halting-epsilon", type=number, metavar="E",
            help="threshold of adaptive computation time: a token halts when the sum of its halting probabilities "
            "exceeds 1 - E (default: 0.01)",
        )  # fmt: skip
        parser.add_argument(
            "--ponder-weight", type=number, metavar="W",
            help="weight of the ponder cost in the training loss. The ponder cost of a token is N + 1 - P, where N is the "
            "number of steps and P is the sum of the first N - 1 halting probabilities (Graves, 2016) (default: 0.01)",
        )  # fmt: skip
        parser.add_argument(
            "--encoder-shuffle-words", type=number, metavar="P",
            help="probability that the tokens of a source sentence are shuffled in training (default: 0)",
        )  # fmt: skip
        parser.add_argument(
            "--encoder-drop-residual", type=integer, metavar="LAYER",
            help="encoder layer without residual connection around its self-attention, counted from 0 (default: none)",
        )  # fmt: skip

        parser.add_argument(
            "--length-loss-weight", type=number, metavar="W",
            help="weight of the loss of the length predictor. This option adds the predictor, which reads the encoder "
            "output, to the model (default: none; for posenc_pnat: 0.1)",
        )  # fmt: skip
        parser.add_argument(
            "--length-stop-gradient",
            action="store_true",
            help="no gradient from the length predictor (--length-loss-weight) to the encoder",
        )
        parser.add_argument(
            "--fast-dropout",
            action="store_true",
            help="on a CPU, --dropout and --activation-dropout with other random numbers, in a third of the time. The "
            "probability is rounded to a multiple of 1/65536",
        )

    @classmethod
    def build_model(cls, args: argparse.Namespace, task: Any) -> PositionTransformer:
        if OmegaConf.is_config(args):  # without the checks of fairseq-train. The criterion and misspelt options are unknown
            raise Refusal(
                "fairseq-hydra-train: not supported by the models of this plugin. Expected fairseq-train. "
                f"Run fairseq-train --arch {getattr(args, '_name', None) or MODEL}."
            )
        _refuse_options(args, task)
        try:
            model = super().build_model(args, task)
        except PositionError as error:
            raise Refusal(error) from None
        except RuntimeError as error:
            if "allocate memory" not in str(error):
                raise
            raise Refusal("the model does not fit into memory. Use smaller sizes.") from None
        _refuse_global_layers(args, model)
        _refuse_task(task, model)
        _refuse_padding(task, model)
        _refuse_criterion(args, model)
        _refuse_shuffled_side_inputs(model)
        for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            if getattr(args, f"{side}_freeze_position", False):
                _freeze(stack.position, f"--{side}-freeze-position")
        if getattr(args, "fast_dropout", False):
            replace_dropout(model)
        model.specs = cls.specs_of(args)
        text = "\n".join(f"{site}: {spec.signature}" for site, spec in model.specs.items())
        # the specs are stored as integers, because averaging of checkpoints does not change equal integers. fairseq's moving
        # average of the parameters skips names that contain "version"
        model.register_buffer("positions_version", torch.tensor(list(text.encode())))
        return model

    @classmethod
    def specs_of(cls, args: argparse.Namespace) -> dict[str, Spec]:
        """Return the spec of every site."""
        return {site: parse(getattr(args, option), site) for site, option in SPEC_OPTIONS.items()}

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> Encoder:
        cfg.source_words = src_dict.indices  # for the decoder, to which fairseq passes only the target dictionary
        positions = site_positions(cfg, "encoder", cfg.encoder, src_dict, cls.parts)
        return cls.encoder_class(cfg, src_dict, embed_tokens, positions)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> Decoder:
        positions = (site_positions(cfg, site, cfg.decoder, tgt_dict, cls.parts) for site in ("decoder", "cross"))
        return cls.decoder_class(cfg, tgt_dict, embed_tokens, *positions)

    def __init__(self, args: Any, encoder: Encoder, decoder: Decoder):
        super().__init__(args, encoder, decoder)
        encoder.side_inputs = declared_by([method.card for method in self.position_methods])
        encoder.max_source_positions = min(encoder.max_source_positions, decoder.cross_position.key_limit)

    def get_normalized_probs(self, net_output: tuple, log_probs: bool, sample: dict | None = None) -> Tensor:
        """Return the probabilities of the tokens, or their logarithms."""
        # fairseq's own function has the decorator torch.jit.export. torch.jit.trace compiles such functions first, and would fail
        # before this plugin raises its one-line error
        return self.get_normalized_probs_scriptable(net_output, log_probs, sample)

    @property
    def position_methods(self) -> list[PositionMethod]:
        """Return the methods of all sites."""
        sites = (self.encoder.position, self.decoder.position, self.decoder.cross_position)
        return [method for positions in sites for method in positions.methods]

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        return_all_hiddens: bool = False,
        features_only: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        side_inputs: Mapping[str, Tensor] | None = None,
    ):
        encoder_out = self.encoder(src_tokens, src_lengths, return_all_hiddens, side_inputs)
        predictor = self.encoder.length_predictor
        if predictor is not None:
            lengths = (~self.decoder.without_target(prev_output_tokens)).sum(1) - 1  # without the first </s>
            encoder_out["loss.length"] = [predictor.loss(encoder_out, lengths)]
        return self.decoder(
            prev_output_tokens,
            encoder_out,
            features_only=features_only,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
        )

    def set_beam_size(self, beam_size: int) -> None:
        """Set the beam size. fairseq's generator calls this function, and then passes `beam_size` rows per sentence."""
        self.decoder.set_beam_size(beam_size)

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True, model_cfg: Any = None, args: Any = None):
        """Load a checkpoint of this plugin, or of fairseq's `transformer`. Raise Refusal if it has other positions."""
        given = state_dict.get("positions_version", self.positions_version)
        differences = _differences(given, self.positions_version)
        if differences:
            raise Refusal(
                f"the checkpoint has other positions than this model ({differences}). "
                "Use the positions of the checkpoint, or another --save-dir. To start with the parameters of the checkpoint, "
                "run posenc checkpoint start-from with the specs of this model."
            )
        # fairseq's moving average of parameters lacks this entry, and is loaded with strict=False
        if strict and "positions_version" not in state_dict:
            self._refuse_foreign(state_dict)
            state_dict = self.with_versions(state_dict)
        state_dict = {**state_dict, "positions_version": self.positions_version}
        try:
            return super().load_state_dict(state_dict, strict, model_cfg, args)
        except RuntimeError as error:
            raise Refusal(
                f"the checkpoint does not fit this model: {_first_problem(error)}. Check --arch and the sizes of the model."
            ) from None

    @staticmethod
    def with_versions(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state dict of stock fairseq's `transformer`, with the versions of the stacks.

        The first checkpoints of fairseq lack these entries. fairseq reads these checkpoints as version 1.
        """
        return {**{f"{side}.version": torch.ones(1) for side in ("encoder", "decoder")}, **state_dict}

    def _refuse_foreign(self, state_dict: Mapping[str, Tensor]) -> None:
        """Raise Refusal if a checkpoint of stock fairseq does not fit the position specs of this model.

        Without learned positions, such a checkpoint does not record whether the model has sinusoidal positions or none. In this
        case, both specs are accepted.
        """
        plain = str(self.specs["cross"]) == "none"
        for site in ("encoder", "decoder"):
            fitting = ("learned",) if f"{site}.embed_positions.weight" in state_dict else ("sinusoidal", "none")
            if not plain or str(self.specs[site]) not in fitting:
                raise Refusal(
                    f"the checkpoint is of stock fairseq and does not fit --{site}-position {self.specs[site]} and "
                    f"--cross-position {self.specs['cross']}. Expected --{site}-position {' or '.join(fitting)} and "
                    "--cross-position none. For other positions, run posenc checkpoint start-from."
                )


def site_positions(cfg: Any, site: str, side: Any, dictionary: Any, parts: int = 1) -> SitePositions:
    """Build the methods of one site from its spec and the sizes of its stack."""
    dims = dims_at(cfg, site, side, dictionary, parts)
    spec = getattr(side if site != "cross" else cfg, "position" if site != "cross" else "cross_position")
    return SitePositions(build(spec, dims, site), dims, site)


def dims_at(cfg: Any, site: str, side: Any, dictionary: Any, parts: int = 1) -> Dims:
    """Return the sizes of the attention at one site."""
    own, other = cfg.max_target_positions, cfg.max_source_positions
    return Dims(
        embed_dim=parts * side.embed_dim,
        num_heads=side.attention_heads,
        num_layers=side.layers,
        max_positions=other if site == "encoder" else own,
        max_key_positions=own if site == "decoder" else other,
        padding_idx=dictionary.pad(),
        vocab_size=len(dictionary),
        words=dictionary.indices,
        source_words=getattr(cfg, "source_words", dictionary.indices),
        relations=getattr(cfg, "relations", 0),  # the task sets this option
        key_embed_dim=parts * cfg.encoder.embed_dim if site == "cross" else 0,
    ).at(site)


def _refuse_options(args: argparse.Namespace, task: Any) -> None:
    defaults = TransformerConfig()
    for option, reason in _REFUSED.items():
        given = getattr(args, option, None)
        if given and given != getattr(defaults, option, None):
            raise Refusal(f"--{option.replace('_', '-')} is not supported. {reason}.")
    settings = getattr(task, "cfg", None) or getattr(task, "args", None)  # some tasks of fairseq have only `args`
    if utils.eval_bool(str(getattr(settings, "left_pad_target", False))):
        raise Refusal("--left-pad-target is not supported. Target positions are counted from the left. Remove it.")
    if getattr(args, "ddp_backend", None) == "fully_sharded":
        raise Refusal("--ddp-backend fully_sharded is not supported. Expected legacy_ddp or pytorch_ddp.")
    for side in ("encoder", "decoder"):
        _refuse_sizes(args, side)
        width, heads = getattr(args, f"{side}_embed_dim"), getattr(args, f"{side}_attention_heads")
        if width % heads:
            raise Refusal(
                f"--{side}-embed-dim {width}: not divisible by --{side}-attention-heads {heads}. "
                "Expected a multiple of the number "
                "of heads."
            )
    _refuse_layer_options(args)
    for option in ("decoder_input_dim", "decoder_output_dim"):
        if getattr(args, option, args.decoder_embed_dim) != args.decoder_embed_dim:
            raise Refusal(f"--{option.replace('_', '-')} is not supported. Expected the value of --decoder-embed-dim.")


def _refuse_task(task: Any, model: PositionTransformer) -> None:
    """Raise Refusal if a method reads side inputs but the task does not add them to batches."""
    declared = next(iter(model.encoder.side_inputs.values()), None)
    if declared is not None and not hasattr(task, "side_inputs"):
        given = getattr(getattr(task, "cfg", None), "_name", None) or type(task).__name__
        raise Refusal(
            f"--task {given}: the model reads the side input {declared.name!r}, which this task does not provide. "
            f"Expected --task {TASK}."
        )


def _refuse_padding(task: Any, model: PositionTransformer) -> None:
    """Raise Refusal if --required-seq-len-multiple can pad sentences to more positions than a method supports."""
    settings = getattr(task, "cfg", None) or getattr(task, "args", None)
    multiple = getattr(settings, "required_seq_len_multiple", None) or 1
    longest = {"source": model.encoder.max_positions(), "target": model.decoder.max_positions()}
    for positions in (model.encoder.position, model.decoder.position, model.decoder.cross_position):
        for method, side, limit in positions.limits():
            tokens = min(longest[side], getattr(settings, f"max_{side}_positions", None) or math.inf)
            padded = math.ceil(tokens / multiple) * multiple
            if padded > max(tokens, limit):
                option = f"--required-seq-len-multiple {multiple}"
                raise Refusal(
                    f"{option}: sentences of {tokens} tokens are padded to {padded} tokens, but {method.card.name} "
                    f"({positions.site}) supports only {limit} positions. Expected a multiple of {multiple} as "
                    f"--max-{side}-positions. Use --max-{side}-positions {padded}, or remove {option}."
                )


def _refuse_criterion(args: argparse.Namespace, model: PositionTransformer) -> None:
    """Raise Refusal if the criterion ignores loss terms or side inputs of the model, or needs attention weights in training."""
    wanted = model.criterion
    given = getattr(args, "criterion", wanted)
    if given == "label_smoothed_cross_entropy_with_alignment":
        raise Refusal(
            f"--criterion {given}: it reads attention weights in training, which this model does not compute. "
            f"Expected --criterion {wanted}."
        )
    if given == NAT_CRITERION and given != wanted:
        raise Refusal(f"--criterion {given}: only for {PNAT}. Expected --criterion {wanted}.")
    if given == "label_smoothed_cross_entropy_with_rdrop" and model.encoder.side_inputs:
        name = next(iter(model.encoder.side_inputs.values())).name
        raise Refusal(
            f"--criterion {given}: it repeats a batch without the side input {name!r} of this model. "
            f"Expected --criterion {wanted}."
        )
    adding = [f"--{side}-halting" for side in ("encoder", "decoder") if getattr(model, side).halting is not None]
    adding += ["--length-loss-weight"] * (model.encoder.length_predictor is not None)
    adding += [method.card.name for method in model.position_methods if method.card.losses]
    if adding and given != wanted:
        raise Refusal(
            f"--criterion {given}: {adding[0]} adds a term to the training loss, which this criterion ignores. "
            f"Expected --criterion {wanted}."
        )


def _refuse_shuffled_side_inputs(model: PositionTransformer) -> None:
    """Raise Refusal if source words are shuffled but a method reads side inputs of source tokens.

    These side inputs are for the original order of the words.
    """
    side = next((side for side in model.encoder.side_inputs.values() if side.of == "source" and side.words), None)
    if model.encoder.shuffle is not None and side is not None:
        raise Refusal(
            f"--encoder-shuffle-words: not supported with the side input {side.name!r}, which belongs to words in their order. "
            "Remove --encoder-shuffle-words."
        )


def _freeze(positions: SitePositions, option: str) -> None:
    """Exclude the parameters of these methods from training, as Liu et al. (2021b) do in fine-tuning."""
    parameters = list(positions.parameters())
    if not parameters:
        raise Refusal(f"{option}: the methods at this site have no parameters. Remove {option}.")
    for parameter in parameters:
        parameter.requires_grad_(False)


def _refuse_layer_options(args: argparse.Namespace) -> None:
    for side in ("encoder", "decoder"):
        kernel = getattr(args, f"{side}_ffn_kernel", None)
        odd = side == "encoder"
        allowed = kernel is None or (kernel >= 1 and (kernel % 2 == 1 or not odd))
        require_option(allowed, f"{side}_ffn_kernel", kernel, f"a positive{' odd' * odd} number")
        _refuse_halting(args, side)
    shuffled = getattr(args, "encoder_shuffle_words", None) or 0.0
    require_option(0 <= shuffled <= 1, "encoder_shuffle_words", shuffled, "a probability from 0 to 1")
    weight = getattr(args, "length_loss_weight", None) or 0.0
    require_option(0 <= weight < math.inf, "length_loss_weight", weight, "at least 0")
    if getattr(args, "length_stop_gradient", False) and not weight:
        raise Refusal("--length-stop-gradient: no effect. Expected --length-loss-weight above 0. Remove --length-stop-gradient.")
    dropped = getattr(args, "encoder_drop_residual", None)
    if dropped is None:
        return
    if not 0 <= dropped < args.encoder_layers:
        raise Refusal(
            f"--encoder-drop-residual {dropped}: there is no layer {dropped}. Expected layers 0 to {args.encoder_layers - 1}."
        )
    if getattr(args, "tie_encoder_layers", False) or getattr(args, "encoder_layerdrop", 0):
        raise Refusal(
            "--encoder-drop-residual: cannot be combined with --tie-encoder-layers or --encoder-layerdrop. Remove one of them."
        )


def _refuse_global_layers(args: argparse.Namespace, model: PositionTransformer) -> None:
    """Raise Refusal if --*-global-layers exceeds the number of layers, or if the layers are tied.

    --*-global-layers adds a second attention, the global attention, to the last layers. In each of these layers,
    a method must restrict the first attention to a sentence. Otherwise, both attentions would have the same mask, and the
    function also raises Refusal.
    """
    sites = {"encoder": model.encoder.position, "decoder": model.decoder.position, "cross": model.decoder.cross_position}
    for site, positions in sites.items():
        count = getattr(args, f"{site}_global_layers", None) or 0
        layers, option = positions.dims.num_layers, f"--{site}-global-layers {count}"
        if not 0 <= count <= layers:
            raise Refusal(f"{option} is not allowed. Expected a number from 0 to {layers}. The stack has {layers} layers.")
        if count and getattr(args, f"tie_{'encoder' if site == 'encoder' else 'decoder'}_layers", False):
            raise Refusal(f"{option}: all layers are one. Expected layers that are not tied. Leave one of the options out.")
        if not all(positions.restricts(layer) for layer in range(layers - count, layers)):
            raise Refusal(
                f"{option}: no method restricts these layers to a sentence. Expected a method such as group. "
                f"Add group to --{SPEC_OPTIONS[site].replace('_', '-')}."
            )


def _refuse_halting(args: argparse.Namespace, side: str) -> None:
    """Set the default values of the halting options. Raise Refusal if other options do not allow halting."""
    for option, default, largest in (("halting_epsilon", 0.01, 1.0), ("ponder_weight", 0.01, math.inf)):
        given = default if getattr(args, option, None) is None else getattr(args, option)
        limit = "of at least 0" if largest == math.inf else "from 0 to less than 1"
        require_option(0 <= given < largest, option, given, f"a finite number {limit}")
        halting = any(getattr(args, f"{stack}_halting", None) for stack in ("encoder", "decoder"))
        if given != default and not halting and side == "encoder":  # one warning, not one per side
            name = option.replace("_", "-")
            logger.warning("--%s %s has no effect without --encoder-halting or --decoder-halting", name, given)
        setattr(args, option, given)
    if not getattr(args, f"{side}_halting", None):
        return
    if not getattr(args, f"tie_{side}_layers", False):
        raise Refusal(f"--{side}-halting: requires one shared layer. Add --tie-{side}-layers.")
    if getattr(args, f"{side}_layerdrop", 0):
        raise Refusal(f"--{side}-halting: cannot be combined with --{side}-layerdrop. Remove one of the two.")


def _refuse_sizes(args: argparse.Namespace, side: str) -> None:
    """Raise Refusal for impossible sizes, which may come from a damaged checkpoint."""
    layers = getattr(args, f"{side}_layers")
    require_option(0 <= layers <= _MOST_LAYERS, f"{side}_layers", layers, f"0 to {_MOST_LAYERS}")
    for option in (f"{side}_{kind}" for kind in ("embed_dim", "attention_heads", "ffn_embed_dim")):
        require_option(getattr(args, option) >= 1, option, getattr(args, option), "at least 1")


def _differences(given: Tensor, own: Tensor) -> str:
    """Return a text such as 'encoder: t5:... instead of rope:...' for the sites whose specs differ, or ""."""
    lines = [bytes(text.tolist()).decode().split("\n") for text in (given, own)]
    rows = [dict(line.partition(": ")[::2] for line in text) for text in lines]
    return "; ".join(
        f"{site}: {rows[0].get(site)} instead of {spec}"
        for site, spec in rows[1].items()
        if not _same_spec(rows[0].get(site, ""), spec)
    )


def _same_spec(given: str, own: str) -> bool:
    """Return whether two texts are the same spec. Options that an earlier version did not have get their default values."""
    try:
        return parse(given) == parse(own)
    except PositionError:
        return given == own


def _first_problem(error: RuntimeError) -> str:
    """Return the first problem in torch's error message, which lists all problems."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line.rstrip(".") for line in lines[1:] if line), lines[0])
