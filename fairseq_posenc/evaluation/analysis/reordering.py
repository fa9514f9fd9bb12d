"""Detection of word reordering: train a classifier that finds a moved word and its original position from encoder states.

Yang, Wang, Wong, Chao and Tu (2019), Assessing the Ability of Self-Attention Networks to Learn Word Order. As in the authors'
code, words are the tokens of the data, sentences have 6 to 49 tokens, and the last token is not moved.
"""

from __future__ import annotations

import argparse
import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...common.progress import Progress
from ...core import PositionError
from . import moves
from .results import Result, plot_by_distance
from .runs import Run, Runs, batch_of, pairs

_SHORTEST, _LONGEST = 6, 49  # minimum and maximum number of tokens of a sentence
_PATIENCE = 5  # training stops after this number of validations without improvement
#: mode -> default learning rate
_RATES = {"frozen": 1e-3, "scratch": 1e-5}
#: the accuracy of a bucket is shown only if the bucket has at least this number of instances
_FEWEST = 50


class Pointers(nn.Module):
    """The output layer: states [B, S, C] -> logits [B, S] for the moved word, and logits [B, S] for its original position.

    Equation: [Q, K, V] = W H + b; P_I = softmax(u . tanh(Q) + c); v = sum_s P_I[s] V_s; P_O = softmax(K v / sqrt(d)). P_I[s] is
        the probability that token s was moved. P_O[s] is the probability that token s followed the moved token before the move.
    """

    def __init__(self, width: int):
        super().__init__()
        self.project = nn.Linear(width, 3 * width)
        self.score = nn.Linear(width, 1)

    def forward(self, states: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.project(states).chunk(3, -1)  # [B, S, C] each
        inserted = self.score(q.tanh()).squeeze(-1).masked_fill(outside, -1e9)  # [B, S]
        moved = torch.einsum("bs,bsc->bc", inserted.softmax(-1), v)
        original = torch.einsum("bsc,bc->bs", k, moved) * k.size(-1) ** -0.5
        return inserted, original.masked_fill(outside, -1e9)


@dataclass(frozen=True)
class Instance:
    """A sentence in which one token was moved, with its labels (`moves.labels`)."""

    words: list[int]
    inserted: int
    original: int


@dataclass(frozen=True)
class Accuracies:
    """Accuracies on a test set, as fractions.

    both: the fraction of instances for which the predictions of both labels (`moves.labels`) are correct.
    inserted, original: the fraction of instances for which the prediction of this label is correct.
    buckets: one pair per bucket of distances: the number of instances, and the fraction with two correct predictions. The
    distance is |inserted - original|, the difference of the two labels.
    """

    both: float
    inserted: float
    original: float
    buckets: list[tuple[int, float]]


class Detector(nn.Module):
    """An encoder, and an output layer (`Pointers`) for sentences in which one token was moved.

    The output layer predicts the index of the moved token. It also predicts the index of the token that followed the moved
    token before the move.

    A frozen encoder is evaluated without gradients.
    """

    def __init__(self, encoder: nn.Module, width: int, first: int, *, frozen: bool):
        """Add an output layer to an encoder with hidden states of `width` channels.

        `first` is the index of the first word of a sentence.
        """
        super().__init__()
        self.encoder, self.first, self.frozen = encoder, first, frozen
        self.pointers = Pointers(width)
        encoder.shuffle = None  # shuffled words would be at other places than their labels
        if frozen:
            encoder.requires_grad_(False)
        # the embeddings of the translation model are frozen, also in a new encoder
        encoder.embed_tokens.requires_grad_(False)

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        self.encoder.train(self.training and not self.frozen)
        with torch.set_grad_enabled(self.training and not self.frozen):
            states = self.encoder(tokens)["encoder_out"][0].transpose(0, 1)[:, self.first :]  # [S, B, C] -> [B, S, C]
        outside = torch.arange(states.size(1)) >= lengths.unsqueeze(1)  # True for </s> and padding
        return self.pointers(states, outside)


def instance(words: Sequence[int], random: Random, least: int) -> Instance | None:
    """Return the sentence with one token moved. Return None if no token can be moved far enough."""
    drawn = moves.draw(len(words), random, least)
    return None if drawn is None else Instance(moves.move(words, *drawn), *moves.labels(*drawn))


def detector(run: Run, mode: str, seed: int) -> Detector:
    """Return a detector.

    In the mode "frozen", the detector contains the encoder of the run. In the mode "scratch", it contains a new encoder with
    the same settings and the same embeddings.
    """
    if mode == "frozen":
        encoder = run.model.encoder
    else:
        torch.manual_seed(seed)
        encoder = run.task.build_model(run.settings.model).float().encoder
        encoder.embed_tokens.load_state_dict(run.model.encoder.embed_tokens.state_dict())
    torch.manual_seed(seed)
    width = encoder.embed_tokens.embedding_dim * run.model.parts
    return Detector(encoder, width, len(run.begin), frozen=mode == "frozen")


def train(
    found: Detector,
    run: Run,
    training: Sequence[Sequence[int]],
    valid: Sequence[Instance],
    args: argparse.Namespace,
    progress: Progress,
) -> int:
    """Train a detector, and load the state with the lowest validation loss. Return the number of updates at this state.

    Training stops after `_PATIENCE` validations without improvement, and after at most `args.updates` updates.
    """
    learned = [parameter for parameter in found.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learned, args.lr or _RATES[args.mode])
    random, best, reached, state = Random(args.seed), float("inf"), 0, None
    for update in range(1, args.updates + 1):
        drawn = [instance(words, random, args.min_distance) for words in random.choices(training, k=args.batch)]
        found.train()
        loss = _loss(found, run, drawn)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress.show(f"reordering, {args.mode}: {run.title}, update {update} of {args.updates}, loss {loss.item():.3f}")
        if update % args.every == 0 or update == args.updates:
            found.eval()
            with torch.no_grad():
                parts = _batches(valid, args.batch)
                value = sum(float(_loss(found, run, part)) * len(part) for part in parts) / len(valid)
            if value < best:
                best, reached, state = value, update, copy.deepcopy(found.state_dict())
            elif update - reached >= _PATIENCE * args.every:
                break
    if state is None:
        raise PositionError(f"{run.path}: the loss of the detection is not finite. Reduce the learning rate with --lr.")
    found.load_state_dict(state)
    return reached


def accuracies(found: Detector, run: Run, tested: Sequence[Instance], size: int) -> Accuracies:
    found.eval()
    hits: list[tuple[bool, bool]] = []
    with torch.no_grad():
        for part in _batches(tested, size):
            inserted, original = (logits.argmax(-1).tolist() for logits in found(*_tensors(run, part)))
            hits += [(i == one.inserted, o == one.original) for one, i, o in zip(part, inserted, original)]
    places = [moves.bucket(abs(one.inserted - one.original)) for one in tested]
    by_bucket = [[all(hit) for hit, own in zip(hits, places) if own == number] for number in range(moves.BUCKETS)]

    def mean(values: Sequence[bool]) -> float:
        return sum(values) / max(len(values), 1)

    return Accuracies(
        mean([all(hit) for hit in hits]), mean([hit[0] for hit in hits]), mean([hit[1] for hit in hits]),
        [(len(bucket), mean(bucket)) for bucket in by_bucket],
    )  # fmt: skip


def _batches(instances: Sequence[Instance], size: int) -> list[Sequence[Instance]]:
    return [instances[first : first + size] for first in range(0, len(instances), size)]


def _tensors(run: Run, instances: Sequence[Instance]) -> tuple[Tensor, Tensor]:
    return batch_of([one.words for one in instances], run), torch.tensor([len(one.words) for one in instances])


def _loss(found: Detector, run: Run, instances: Sequence[Instance]) -> Tensor:
    inserted, original = found(*_tensors(run, instances))
    wanted = torch.tensor([[one.inserted, one.original] for one in instances])
    return F.cross_entropy(inserted, wanted[:, 0]) + F.cross_entropy(original, wanted[:, 1])


def _sentences(run: Run, subset: str, least: int) -> list[list[int]]:
    found = [source for source, _ in pairs(run, subset)]
    kept = [words for words in found if max(_SHORTEST, least + 2) <= len(words) <= _LONGEST]
    if not kept:
        raise PositionError(
            f"{run.path}: no sentence of {subset!r} can be used. Expected sentences of {_SHORTEST} to {_LONGEST} tokens in which "
            f"a token can be moved by {least}. Reduce --min-distance, or use other data with --data."
        )
    return kept


def _instances(sentences: Sequence[Sequence[int]], seed: int, least: int, number: int) -> list[Instance]:
    random = Random(seed)
    return [instance(words, random, least) for words in sentences for _ in range(number)]


def analyse(args: argparse.Namespace) -> Result:
    runs, numbers = Runs(args.runs, args.data), []
    rows: list[list[Any]] = []
    drawn: dict[str, tuple[float, list[float | None]]] = {}
    for run in runs.measured(rows, 4 + moves.BUCKETS, site="encoder"):
        training, valid, tested = (_sentences(run, subset, args.min_distance) for subset in ("train", "valid", args.subset))
        symbols = run.words.symbols
        sentences = (words for subset in (training, valid, tested) for words in subset)
        runs.require_same_sentences(run, ([symbols[word] for word in words] for words in sentences))
        model = detector(run, args.mode, args.seed)
        instances = _instances(valid, args.seed, args.min_distance, args.instances)
        updates = train(model, run, training, instances, args, runs.progress)
        instances = _instances(tested, args.seed, args.min_distance, args.instances)
        own = accuracies(model, run, instances, args.batch)
        numbers = [number for number, _ in own.buckets]
        by_bucket = [100 * both if number >= _FEWEST else None for number, both in own.buckets]
        rows.append([run.title, updates, 100 * own.both, 100 * own.inserted, 100 * own.original, *by_bucket])
        drawn[run.title] = 100 * own.both, by_bucket
    shown = [bucket for bucket, number in enumerate(numbers) if number]
    names = [f"both, {moves.bucket_names()[bucket]} apart (n = {numbers[bucket]})" for bucket in shown]
    rows = [[*row[:5], *(row[5 + bucket] for bucket in shown)] for row in rows]
    rate = args.lr or _RATES[args.mode]
    what = {
        "frozen": "the frozen encoder of the translation model",
        "scratch": "a new encoder with the embeddings of the translation model",
    }
    notes = [
        f"Encoder: {what[args.mode]}. The accuracies are percentages of {sum(numbers)} instances of {args.subset!r}, with "
        f"{args.instances} instances per sentence.",
        f"The sentences have {_SHORTEST} to {_LONGEST} tokens of the prepared data. The last token is never moved. A "
        f"move is at least {args.min_distance} tokens long.",
        f"The classifier was trained with Adam, learning rate {rate:g}, {args.batch} sentences per update, and at most "
        f"{args.updates} updates. The column updates contains the update with the lowest validation loss.",
        "apart: number of tokens between the moved token and its place, which is the token that followed it before the move.",
        f"'-': fewer than {_FEWEST} instances.",
    ]  # fmt: skip
    if args.min_distance == 1:
        notes.append("If two neighbours change places, either word may have been moved, so an accuracy of 100 is not possible.")
    notes += runs.notes()
    head = ["method", "updates", "both", "moved word", "its place", *names]
    name = f"reordering_{args.mode}"
    titles = "both places found, per cent", "by distance"
    plot = functools.partial(plot_by_distance, drawn, moves.bucket_names(), titles, "tokens apart")
    return Result(name, f"Word reordering detection: {what[args.mode]}", head, rows, notes, plot, digits=1)
