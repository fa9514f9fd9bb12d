"""Floors: the smallest cost that a training step of a method can have on an accelerator, derived from its equation.

The floor of a method is a sum: the counted cost of the model without positions (`none`) plus the terms of the method. A term is
the cost of a tensor or an operator that the equation requires. These rules apply to all floors:

* PyTorch runs operators one by one. Every operator reads its inputs from memory and writes its result to memory.
* A matrix product reads two tensors and writes one. Its backward pass reads the gradient twice and writes two gradients.
* A matrix product can also read a matrix and add it to the product. The mask of the keys is not counted. This mask is small:
  all queries share a padding mask, and all sentences share a causal mask.
* A sum of products over an axis is a matrix product. A tensor of the elementwise products is not needed. The exceptions are
  the waves of spe_sine, with tens of thousands of products of a matrix with 64 x 11 numbers and a vector. The elementwise
  products are then written, and read by the sum.
* A tensor with one vector for every pair of words is not stored for the backward pass or for another layer. Such a tensor has
  up to two gigabytes per layer for 8 sentences of 512 words. The backward pass of each layer computes the tensor again.
* An elementwise operator has at most three inputs. If an input is broadcast, the operator reads each
  number of this input only once.
* A sum, a cumulative sum, a softmax, an interpolation, a convolution and a cell of a GRU are one operator each.
* The fused attention adds a matrix to the scores. The fused attention reads this matrix in the forward and in the backward
  pass, and writes the gradient of the matrix.
* The scores have half precision, as in the methods without a floor. Exponentials and sums over keys require float32.
* A softmax computes in float32. Its input and its output can have any precision.
* A sigmoid or a softplus can be an operator with two inputs: `torch.logaddexp(x, 0)` is a softplus. Such an operator reads half
  precision and computes in float32.
* An operator with one input, except a softmax, a sigmoid and a softplus, computes in the precision of the input. To compute in
  float32, the input must be converted first. The two inputs of an operator can have different precisions. An operator can
  write any precision, and it can write its result into a part of another tensor.
* The backward pass of an operator reads a gradient and the saved inputs, and writes one gradient. Saving a tensor has no cost.
* If a method adds a projection of the hidden states, the backward pass adds the gradient of this projection to the gradient of
  the hidden states.
* Tensors with one number per word, weights, and tables of positions are small. A tensor of these kinds is counted only if a
  term names it.

A number in a term is a number of passes over a tensor in half precision. In one pass, the tensor is read or written once. A
pass in float32 counts as two passes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from fairseq_posenc.bench import actions, models
from fairseq_posenc.bench.meta import CPU
from fairseq_posenc.ops.trees import NOTHING


@dataclass(frozen=True)
class Sizes:
    """Sizes of a training step: sentences, words per sentence, and the sizes of the base model."""

    batch: int
    length: int
    heads: int = 8
    width: int = 64
    layers: int = 6

    @property
    def pairs(self) -> int:
        """Bytes of a tensor in half precision with one number for every head and every pair of words."""
        return 2 * self.batch * self.heads * self.length**2

    @property
    def words(self) -> int:
        """Bytes of a tensor in half precision with one vector of the model width for every word."""
        return 2 * self.batch * self.length * self.heads * self.width

    @property
    def vectors(self) -> int:
        """Bytes of a tensor in half precision with one vector for every head and every pair of words."""
        return self.pairs * self.width


@dataclass(frozen=True)
class Term:
    """A part of the cost of a method, as numbers of passes over tensors in half precision.

    pairs: passes over tensors with one number per head and pair of words. words: passes over tensors with one vector per word.
    vectors: passes over tensors with one vector per head and pair of words. other: function that returns additional bytes.
    """

    why: str
    pairs: float = 0
    words: float = 0
    vectors: float = 0
    other: Callable[[Sizes], float] = lambda sizes: 0

    def moved(self, sizes: Sizes) -> float:
        passes = self.pairs * sizes.pairs + self.words * sizes.words + self.vectors * sizes.vectors
        return passes + self.other(sizes)


@dataclass(frozen=True)
class Floor:
    """The floor of one method.

    stacks: number of stacks that use the method. of_layer: terms of each layer of these stacks. of_stack: terms of each stack.
    launches: function that returns the number of additional operators, compared with the model without positions. `launches` is
    None if the number of launches of the method is within the limit in test_limits.py.
    """

    stacks: int
    of_layer: tuple[Term, ...]
    of_stack: tuple[Term, ...] = ()
    launches: Callable[[Sizes], int] | None = None

    def moved(self, sizes: Sizes) -> float:
        """Return the additional bytes that the method reads and writes, compared with the model without positions."""
        one = sizes.layers * sum(term.moved(sizes) for term in self.of_layer) + sum(term.moved(sizes) for term in self.of_stack)
        return self.stacks * one


_SCORES = Term("the product of queries and keys writes the scores; two products read their gradient", pairs=3)
_ADDED = Term("the fused attention reads the scores twice and writes their gradient", pairs=3)
_HIDDEN = Term("-inf is added to the scores of hidden keys: read, written", pairs=2)
_SECOND_SCORES = Term("a second product adds to the scores: read, written; backward: two products read the gradient", pairs=4)
_WEIGHTS = Term(
    "a second term reads the weights, so that they are a tensor: softmax 2, read by the product with values; backward: "
    "written 1, softmax 3, weights read 1",
    pairs=8,
)
_SECOND_VALUES = Term(
    "the second term reads the weights; backward: it adds to their gradient 2, and its gradient reads the weights", pairs=4
)
_ROTATION = Term("rotated queries and keys: product 3, two products and sums 4, in both passes", words=28)


#: passes over the hidden units of all words that a GRU computes, in one direction of one layer
_GRU = 54


@functools.cache
def labels_of_paths(batch: int, length: int) -> int:
    """Return the number of labels of all different paths in the sentences of the count, each path counted once."""
    model = models.build(models.Variant.of("cai_lam", "model"), "_tiny", length + 2, CPU, torch.float32)
    source, _ = actions.sentences(batch, length, CPU)
    paths = actions.extras(actions.methods(model), source)["side_inputs"]["cai_lam_path"].flatten(0, 2)
    different = {path.tobytes() for path in paths.numpy()}  # much faster than paths.unique(dim=0)
    return sum(int((np.frombuffer(path, np.int32) != NOTHING).sum()) for path in different)


FLOORS = {
    "path_attention": Floor(
        1,
        (
            _ADDED,
            Term("products of queries, keys and words with words, in float32 6, masks of two products 8", pairs=14),
            Term("the solution of the system 6, its product 6, scores 1, difference 4", pairs=17),
            Term("gradients: scores 2, converted 3, last product 12, system 12, masks 12, products 12", pairs=53),
            Term("vectors of words in float32: low rank 1, product with convolution 2, SiLU 4, length 6, factors 4, queries and "
                 "keys converted 6, products 12", words=35),
            Term("their gradients: products 24, factors 10, queries and keys 8, length 14, SiLU 6, products with convolution 4, "
                 "low rank and hidden states 7", words=73),
            Term("the encoder has rotary positions. " + _ROTATION.why, words=28),
        ),
    ),
    "dape": Floor(  # scores and network are in float32, so that the bias has no rounding errors of half precision
        2,
        (
            _SCORES,
            Term("32 hidden units for 8 heads are 4 numbers in float32 per head: scores 3, written 8, leaky ReLU 16", pairs=27),
            Term("second product 10, plus scores and bias 2, converted 3, and in the encoder hidden keys 2", pairs=15 + 2 / 2),
            _ADDED,
            Term("gradients: converted 3, second product 10, its weights 10, leaky ReLU 24, first product 10, its weights 10",
                 pairs=67),
            Term("gradients of the biases of hidden units and scores: sums over sentences 10; sum of two gradients 5", pairs=15),
        ),
        launches=lambda sizes: 2 * sizes.layers * (
            # single operators compute the scores before the fused attention: scale, copies, a product, the gradients of the
            # product, and the mask of the keys
            13
            # the network: two products that add a matrix, the activation, a sum, the product of the first weight with the bias
            # of the base method (kerple_log), and the gradients of all these operators
            + 16
            # conversions of the scores, in the forward and in the backward pass
            + 2
            # operators of the base method (kerple_log), and of the sums over diagonals. The base method has two scalars per
            # head in the decoder, and four scalars per head in the encoder
            + 18
        )
        # each stack converts six parameters in both passes, and combines the gradients of its layers
        + 2 * 6 * 3,
    ),
    "huang3": Floor(
        2,
        (
            Term("the product of three vectors writes the scores; three products read their gradient", pairs=4),
            Term("products of keys and factors: written, read by the product with queries. The decoder needs half of the pairs",
                 vectors=2 * 3 / 4),
            Term("products of gradients and factors: written, read by two products; products of queries and keys: written, read",
                 vectors=5 * 3 / 4),
            Term("gradients of the factors of all pairs, which all sentences share: written, summed over equal distances",
                 other=lambda sizes: 2 * 3 / 4 * sizes.vectors / sizes.batch),
            _HIDDEN,
            _ADDED,
        ),
    ),
    "spe_sine": Floor(
        2,
        (
            Term("11 waves for queries and for keys: products with waves 12, read by the attention 10", words=2 * 22),
            Term("gradients: attention 20. Of vectors: products read 11 and written 11, sums read 11, written 1. Of waves: "
                 "products read 12 and written 11, sums read 11", words=2 * 88),
            Term("5 cosines and 5 sines of positions, which all sentences share: times gains 15, read 11; backward: "
                 "gradients of waves 6, of gains 15, of frequencies 15",
                 other=lambda sizes: 2 * 62 * 2 * sizes.words / sizes.batch),
        ),
    ),
    "cai_lam": Floor(
        1,
        (
            _SCORES,
            _SECOND_SCORES,
            _SECOND_SCORES,
            Term("products of both vectors of a path: gathered 1, added 3; backward: scattered 1", pairs=5),
            _ADDED,
            Term("vectors of the paths, for their first and their last word: gathered 1, read by two products 2; backward: "
                 "gathered 1, read by two products 2, gradient written 1, added to a product 2, scattered 1", vectors=10),
            Term("queries and keys of every head as vectors of paths: written 8, read 8; gradients 32", words=2 * 48),
        ),
        (
            Term("a GRU with two layers and two directions reads the labels of all different paths. The entry \"rnn\" lists the "
                 "passes",
                 other=lambda sizes: 2 * 2 * _GRU * labels_of_paths(sizes.batch, sizes.length) * sizes.heads * sizes.width),
        ),
    ),
    "floater": Floor(
        2,
        (Term("projected vectors of positions are added by the projections; their gradients are sums over sentences", words=3),),
        (
            Term("4 calls per position read two weights in float32, in both passes",
                 other=lambda sizes: sizes.length * 4 * 4 * 4 * (sizes.heads * sizes.width) ** 2),
            Term("3 paths per layer, in float32. In each call: products 4, new states 3; backward: products 4, ReLU 3, sums of "
                 "gradients 3, products for the gradients of weights 4",
                 other=lambda sizes: sizes.length * 4 * 21 * 4 * 3 * sizes.layers * sizes.heads * sizes.width),
        ),
        launches=lambda sizes: 2 * sizes.length * (
            # 4 calls of the network. Forward: product with ReLU, product added to a multiple of a state. Backward: product,
            # ReLU, product added to a multiple of a gradient
            4 * (2 + 3)
            # forward: two differences of states, and a sum of three turned states
            + 5
            # backward: a turned gradient, two differences, and a sum of three gradients and the gradient of the step
            + 6
        ),
    ),
    "rnn": Floor(
        2,
        (),
        (
            Term("every step reads the matrix of the hidden state in both passes",
                 other=lambda sizes: sizes.length * 2 * 2 * 3 * (sizes.heads * sizes.width) ** 2),
            Term("products of inputs 4 and states 4, cells 13; backward: cells 13, states 5, sum of two gradients 3, weights 8, "
                 "inputs 4", words=_GRU),
        ),
        launches=lambda sizes: 2 * sizes.length * (
            2  # forward pass: one product with the hidden state, and one cell
            + 3  # backward pass: cell, product, sum of two gradients
        ),
    ),
}  # fmt: skip
FLOORS["rr"] = Floor(
    2,
    (_SCORES, _SECOND_SCORES, _WEIGHTS, _SECOND_VALUES),
    FLOORS["rnn"].of_stack,
    lambda sizes: FLOORS["rnn"].launches(sizes) + 2 * sizes.layers * 35,  # type: ignore[misc]
)
