"""Output lengths: units, lengths in training and in decoding, and control of </s> in beam search."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.sequence_generator import EnsembleModelWithAlignment
from torch import Tensor

from ...common.files import read_text
from ...common.messages import shorten
from ...core import PositionError, Refusal
from ...core.errors import require_option
from ...ops.characters import printed_characters
from ...registry.spec import Spec, parse
from ..models.transformer.encoder import side_outputs
from .options import SOURCES, OutputLengthConfig

logger = logging.getLogger(__name__)

#: name of the side input that contains the output lengths
SIDE = "target_length"
#: keys of entries in the encoder output. Beam search reorders these entries together with the beams
_ASKED, _LAST_STEP = "asked_length", "last_step"
_SENTENCES = "sentences"  # key of the sentence ids, for the log


class Unit:
    """Unit in which lengths are counted: tokens without </s>, or printed characters including one space per word."""

    def __init__(self, name: str, dictionary: Dictionary):
        self.name, self.padding_idx = name, dictionary.pad()
        self.characters = printed_characters(dictionary.indices, len(dictionary)) if name == "char" else None

    def of_sentences(self, tokens: Tensor) -> Tensor:
        """Return the length of every sentence: [B, T] -> [B]. `tokens` contains one </s> per sentence.

        Padding and </s> are not counted.
        """
        if self.characters is None:
            return tokens.ne(self.padding_idx).sum(1) - 1
        return self.characters.to(tokens.device)[tokens].sum(1)

    def of_prefixes(self, tokens: Tensor) -> Tensor:
        """Return, for each token, the length [B, T] of the prefix that ends with this token. Prefixes begin with </s>."""
        if self.characters is None:
            return torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
        return self.characters.to(tokens.device)[tokens].cumsum(1)


class OutputLengths:
    """Compute the output lengths of one task. Raise Refusal for invalid options, and for options that do not fit the models."""

    def __init__(self, cfg: OutputLengthConfig, source: Dictionary, target: Dictionary):
        self.noise, self.seed, self.ratio, self.eos = cfg.length_noise, cfg.seed, cfg.length_ratio, str(cfg.length_eos)
        self.dictionaries = source, target
        self.epoch = 1
        self.read_as: str | None = None  # unit of the models that read lengths, or None if no model does
        self.asked_from, self.numbers = _parse(cfg.length_from)
        require_option(self.noise >= 0, "length_noise", self.noise, "at least 0")
        require_option(0 < self.ratio < 1000, "length_ratio", self.ratio, "a number above 0 and below 1000")
        self._set_unit("token")

    def _set_unit(self, name: str) -> None:
        self.source, self.target = (Unit(name, dictionary) for dictionary in self.dictionaries)

    def add_model(self, model: Any) -> None:
        """Store whether this model reads lengths, and in which unit."""
        units = {method.options.unit: method.card.name for method in _readers(model)}
        if self.noise and not units:
            raise Refusal(
                f"--length-noise {self.noise}: no effect. Expected a model that reads the output length. Remove --length-noise."
            )
        for unit, name in units.items():
            if self.read_as not in (None, unit):
                raise Refusal(
                    f"{name}: the output length is counted in unit={unit}, but another method uses unit={self.read_as}. "
                    "Use the same unit for both."
                )
            self.read_as = unit
            self._set_unit(unit)

    # -- training ----------------------------------------------------------------------------------------------------

    def add_reference(self, sample: dict[str, Any], noisy: bool = False) -> None:
        """If a model reads lengths, add the lengths of the references to a batch."""
        if self.read_as is None:
            return
        lengths = self.target.of_sentences(sample["target"])
        if noisy and self.noise:
            lengths = (lengths + self.draw_noise(sample["id"].tolist()).to(lengths)).clamp(min=0)
        sample["net_input"].setdefault("side_inputs", {})[SIDE] = lengths

    def draw_noise(self, numbers: list[int]) -> Tensor:
        """Return one random integer from -W to W per sentence, where W is the value of --length-noise.

        The integer depends only on the sentence id, the epoch and the seed.

        Source: Oka, Chousa, Sudoh and Nakamura (2020), noisy length constraints.
        """
        drawn = [
            np.random.default_rng((self.seed, self.epoch, number)).integers(-self.noise, self.noise + 1) for number in numbers
        ]
        return torch.tensor(drawn)

    # -- generation --------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Return whether decoding uses requested output lengths."""
        return bool(self.asked_from) or self.read_as is not None

    def require_lines(self, sentences: int, split: str) -> None:
        """Raise Refusal if the file of --length-from does not contain one length per sentence of this split."""
        if self.asked_from == "file" and len(self.numbers) != sentences:
            raise Refusal(
                f"--length-from: the file has {len(self.numbers)} lengths. Expected {sentences}, one per sentence of {split}."
            )

    def require_effect(self) -> None:
        """Raise Refusal for --length-eos and --length-ratio if decoding uses no requested output lengths."""
        if self.wanted:
            return
        for option, value, default, needed in (
            ("eos", self.eos, "free", "--length-from"),
            ("ratio", f"{self.ratio:g}", "1", "--length-from and --length-eos min or exact"),
        ):
            if value != default:
                raise Refusal(
                    f"--length-{option} {value}: no effect, because the model reads no output length. Expected {needed}. "
                    f"Add {needed}, or remove --length-{option}."
                )

    def prepare(self, generator: Any, models: list[Any]) -> Any:
        """Make a generator decode with the requested output lengths, and return this generator.

        Raise Refusal if the generator or the models do not support output lengths.
        """
        if not self.wanted:
            return generator
        if not all(hasattr(model.encoder, "side_inputs") for model in models):
            raise Refusal("--length-from: supported only for models of this plugin. Remove --length-from.")
        scored = not hasattr(generator, "model")
        if scored and self.eos != "free":
            raise Refusal(
                f"--length-eos {self.eos}: no effect with --score-reference, which scores given sentences. Expected one of both. "
                "Remove --length-eos."
            )
        if scored and self.read_as is None:
            raise Refusal(
                "--length-from: no effect with --score-reference, because the model reads no output length. Expected one of "
                "both. Remove --length-from."
            )
        if self.eos == "exact" and getattr(generator, "match_source_len", False):
            raise Refusal(
                "--length-eos exact and --match-source-len can contradict each other. Expected one. Leave one of them out."
            )
        if self.asked_from == "predictor":
            if scored:
                raise Refusal("--length-from predictor: not supported with --score-reference. Use --length-from reference.")
            if all(model.encoder.length_predictor is None for model in models):
                raise Refusal(
                    "--length-from predictor: the model has no length predictor. "
                    "Train one with --length-loss-weight, or use another "
                    "value of --length-from."
                )
            if self.target.name == "char":
                raise Refusal(
                    "--length-from predictor: the predictor counts tokens, but the model counts characters (unit=char). "
                    "Use another value of --length-from."
                )
        if not scored:
            generator.model = LengthEnsemble(models, self, generator.min_len).eval()
        what = {"constant": f"{self.numbers[0]}" if self.numbers else "", "": "reference"}.get(self.asked_from, self.asked_from)
        logger.info("output lengths: %s, ratio %g, unit %s, end %s", what, self.ratio, self.target.name, self.eos)
        return generator

    def ask(self, sample: dict[str, Any], generator: Any, prefix: Tensor | None) -> Tensor | None:
        """Add the requested lengths to a batch. Return the prefixes with which the outputs must begin, or None."""
        if not self.wanted:
            return prefix
        lengths = self._asked(sample)
        net_input = sample["net_input"]
        if not isinstance(getattr(generator, "model", None), LengthEnsemble):  # the generator scores references
            if self.read_as is not None:
                net_input["side_inputs"] = {**net_input.get("side_inputs", {}), SIDE: lengths}
            return prefix
        final_step = last_step(generator, net_input)
        if lengths is None and prefix is not None and self.eos != "free":
            raise Refusal(
                f"--length-from predictor: not supported with --prefix-size and --length-eos {self.eos}. "
                "Expected --length-eos free, or another value of --length-from. Remove --prefix-size."
            )
        if lengths is not None:
            lengths = lengths.clamp(min=1)
            self._require_room(sample, lengths, generator, final_step)
            if prefix is not None and self.eos != "free":
                prefix = self._complete(prefix, lengths, generator.eos, generator.pad)
        net_input[_ASKED], net_input[_LAST_STEP], net_input[_SENTENCES] = lengths, final_step, sample.get("id")
        return prefix

    def _asked(self, sample: dict[str, Any]) -> Tensor | None:
        """Return the requested lengths [B], or None if the length predictor must compute them."""
        kind, words = self.asked_from or "reference", sample["net_input"]["src_tokens"]
        if kind == "predictor":
            return None
        if kind == "constant":
            lengths = words.new_full(words.shape[:1], self.numbers[0])
        elif kind == "source":
            lengths = self.source.of_sentences(words)
        elif kind == "reference":
            if sample.get("target") is None:
                raise Refusal(
                    "--length-from: there are no references for the output lengths. "
                    "Expected source, predictor, a number, or a file "
                    "(only in fairseq-generate)."
                )
            lengths = self.target.of_sentences(sample["target"])
        else:
            if "id" not in sample:
                raise Refusal(
                    "--length-from: a file is supported only by fairseq-generate. Expected source, predictor or a number."
                )
            last = int(sample["id"].max())
            if last >= len(self.numbers):  # fairseq-validate with --eval-bleu can decode the training set
                raise Refusal(
                    f"--length-from: the file has {len(self.numbers)} lengths. Expected one per sentence of the data set, "
                    f"which has at least {last + 1}."
                )
            lengths = words.new_tensor([self.numbers[number] for number in sample["id"].tolist()])
        return self.scaled(lengths)

    def scaled(self, lengths: Tensor) -> Tensor:
        """Return the lengths multiplied by --length-ratio and rounded. For a length above 0, the result is at least 1."""
        return torch.maximum((lengths * self.ratio + 0.5).floor().long(), lengths.clamp(max=1))

    def _require_room(self, sample: dict[str, Any], lengths: Tensor, generator: Any, last_step: int) -> None:
        if self.target.name == "token" and int(lengths.max()) > last_step:
            row = int(lengths.argmax())
            number = int(sample["id"][row]) if "id" in sample else row
            limit = (
                f"--max-len-a {generator.max_len_a:g}, --max-len-b {generator.max_len_b} and the model's --max-target-positions. "
                "Increase --max-len-b (in validation: max_len_b of --eval-bleu-args), or request a shorter output."
            )
            if generator.match_source_len:
                limit = "--match-source-len. Leave --match-source-len out, or request a shorter output."
            raise Refusal(
                f"sentence {number}: the requested length is {int(lengths[row])}. Expected at most {last_step}, the limit of "
                f"{limit}"
            )
        if self.eos == "exact" and self.target.name != "token" and generator.min_len > 1:
            raise Refusal(
                f"--length-eos exact: the unit of lengths is {self.target.name}, but --min-len {generator.min_len} is a number "
                "of tokens. Expected no --min-len. Leave it out."
            )
        if self.eos == "exact" and int(lengths.min()) < generator.min_len:
            raise Refusal(
                f"--length-eos exact: the requested length is {int(lengths.min())}. Expected at least --min-len "
                f"{generator.min_len}. Reduce --min-len."
            )

    def _complete(self, prefix: Tensor, lengths: Tensor, eos: int, pad: int) -> Tensor:
        """With --length-eos exact, append </s> to each prefix that already has the requested length: [B, T] -> [B, T + 1].

        With --length-eos min, return the prefixes unchanged. Raise Refusal if a prefix contradicts the requested length.
        """
        start = prefix.new_full((len(prefix), 1), eos)
        before = self.target.of_prefixes(torch.cat([start, prefix], 1))  # [B, T + 1]
        left = lengths.unsqueeze(1) - before
        ends, words = prefix.eq(eos), prefix.ne(eos) & prefix.ne(pad)
        wrong = ends & (left[:, :-1] > 0)
        if self.eos == "exact":
            wrong |= words & (left[:, :-1] <= 0)
        if wrong.any():
            row = int(wrong.any(1).nonzero()[0])
            raise Refusal(
                f"--prefix-size {prefix.size(1)} --length-eos {self.eos}: a prefix does not fit the requested length "
                f"{int(lengths[row])}. Reduce --prefix-size, or request a longer output."
            )
        if self.eos != "exact":
            return prefix
        size = words.sum(1)  # number of tokens of every prefix
        full = (left.gather(1, size.unsqueeze(1)) <= 0).squeeze(1)
        prefix = torch.cat([prefix, torch.full_like(start, pad)], 1)
        prefix[full, size[full]] = eos
        return prefix


class LengthEnsemble(EnsembleModelWithAlignment):
    """Decode with requested lengths. They are added to the encoder output, so that beam search reorders them with the beams."""

    def __init__(self, models: list[Any], lengths: OutputLengths, least: int = 1):
        super().__init__(models)
        self.lengths, self.least = lengths, max(least, 1)
        self.start, self.end = lengths.dictionaries[1].bos(), lengths.dictionaries[1].eos()

    def forward_encoder(self, net_input: dict[str, Any]) -> list[dict[str, list[Tensor]]]:
        known = {name: value for name, value in net_input.items() if name not in (_ASKED, _LAST_STEP, _SENTENCES)}
        outs = super().forward_encoder(known)
        asked, last_step = net_input[_ASKED], net_input[_LAST_STEP]
        if asked is None:
            asked = self._predict(outs, last_step)
        _log(asked, net_input[_SENTENCES])
        if self.lengths.read_as is not None:
            outs = [{**out, **side_outputs({SIDE: asked})} for out in outs]
        outs[0] = {**outs[0], _ASKED: [asked], _LAST_STEP: [torch.full_like(asked, last_step)]}
        return outs

    def _predict(self, outs: list[dict[str, list[Tensor]]], last_step: int) -> Tensor:
        """Return the most likely lengths [B] under the predictors of all models, multiplied by --length-ratio.

        The lengths are at least --min-len, and at most `last_step`.
        """
        pairs = [(model.encoder.length_predictor, out) for model, out in zip(self.models, outs)]
        found = [predictor(out).log_softmax(-1) for predictor, out in pairs if predictor is not None]
        likely = torch.stack(found).logsumexp(0).argmax(-1)
        lengths = next(predictor.length(likely, out) for predictor, out in pairs if predictor is not None)
        wanted = self.lengths.scaled(lengths)
        kept = wanted.clamp(self.least, last_step)
        if not kept.equal(wanted):
            changed = int(kept.ne(wanted).sum())
            logger.warning("%d predicted lengths were not from %d to %d", changed, self.least, last_step)
        return kept

    def forward_decoder(
        self, tokens: Tensor, encoder_outs: list, incremental_states: list, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor | None]:
        scores, attention = super().forward_decoder(tokens, encoder_outs, incremental_states, temperature)
        if self.lengths.eos == "free":
            return scores, attention
        left = encoder_outs[0][_ASKED][0] - self.lengths.target.of_prefixes(tokens)[:, -1]  # [B]
        # in the last step, every sentence must end, so </s> is allowed
        early = (left > 0) & (encoder_outs[0][_LAST_STEP][0] > tokens.size(1) - 1)
        scores[early, self.end] = -torch.inf
        scores[:, self.start] = -torch.inf  # <s> is not printed, so it must not count as a word
        if self.lengths.eos == "exact":
            ending = scores[:, self.end].clone()
            scores[left <= 0] = -torch.inf
            scores[:, self.end] = ending
        return scores, attention


def _readers(model: Any) -> list[Any]:
    """Return the methods of a model that read output lengths."""
    sites = [getattr(model.decoder, name, None) for name in ("position", "cross_position")]
    methods = [method for at in sites if at is not None for method in at.methods]
    return [method for method in methods if SIDE in {wanted.name for wanted in method.card.side_inputs}]


def last_step(generator: Any, net_input: dict[str, Any]) -> int:
    """Return the maximum number of tokens that the generator produces before </s>."""
    if generator.match_source_len:
        return int(net_input["src_lengths"].max())
    longest = int(generator.max_len_a * net_input["src_tokens"].size(1) + generator.max_len_b)
    return min(longest, generator.max_len - 1)


def _log(lengths: Tensor, numbers: Tensor | None) -> None:
    """Log the requested lengths of a batch in one line for `posenc score`: ID:LENGTH, or LENGTH if the batch has no ids."""
    texts = [str(length) for length in lengths.tolist()]
    if numbers is not None:
        texts = [f"{number}:{text}" for number, text in zip(numbers.tolist(), texts)]
    logger.info("asked: %s", " ".join(texts))


def _parse(given: str) -> tuple[str, list[int]]:
    """Return the kind of a value of --length-from, and a list of lengths.

    For a number, the list contains this number. For a file, the list contains all lengths of the file. Otherwise, the list is
    empty.
    """
    if not given or given in SOURCES:
        return given, []
    if given.removeprefix("-").isdecimal():
        return "constant", [_length(given, f"--length-from {given}")]
    if not Path(given).is_file():
        raise Refusal(
            f"--length-from {shorten(given)}: no such file. Expected {', '.join(SOURCES)}, a number, or a file of numbers."
        )
    try:
        lines = read_text(Path(given)).splitlines()
    except PositionError as error:
        raise Refusal(error) from None
    return "file", [_length(line, f"{given}, line {number}") for number, line in enumerate(lines, 1)]


def _length(text: str, where: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 10**6):
        raise Refusal(f"{where}: {shorten(text, 20)!r} is not a length. Expected a whole number from 1 to 999999.")
    return int(text)


def with_smallest_remaining(text: str, noise: int) -> str:
    """Set the option min_remaining to -noise in every method whose option min_remaining has no value. Return the new spec.

    With noise, a target can be longer than its noisy length. The remaining length is then negative.
    """
    return text if not noise else str(Spec(tuple(_with_floor(method, -noise) for method in parse(text).methods)))


def _with_floor(method: Any, floor: int) -> Any:
    if getattr(method.options, "min_remaining", 0) is not None:
        return method
    return dataclasses.replace(method, options=dataclasses.replace(method.options, min_remaining=floor))
