"""Tree positional encodings: the branches on the path from a word to the root. The nearest branch is first."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, Sentence, SideInput, option
from ...ops.precision import at_least_float32
from ...ops.trees import Tree, by_token


class TreePositions(PositionMethod):
    r"""Encode the branches from a word up to the root as one-hot vectors, weighted by powers of learned factors. Add the result
    to the embeddings.

    Equation: $X_t = U_t + E(x_t)$, $x(\mathrm{root}) = 0$. For the child $c$ of $p$ at branch $b$, $x(c) =
        [\operatorname{onehot}(b); x'(p)]$, where $x'(p)$ is $x(p)$ without its last branch. For level $i$, branch $b$ and
        learned factor $p_j = \tanh(w_j)$, $E$ contains $x_{ib} p_j^i \sqrt{(1 - p_j^2) d / 2}$. Shiv and Quirk (2019),
        section 3.
    Shapes: embed [B, S, C] -> [B, S, C].
    Source: Shiv and Quirk (2019). Code: microsoft/icecaps. Survey, section 4.3.1.
    Deviations:
        * Initial factors are spread between 0.7 and 0.999. The authors' code draws w from Xavier's uniform distribution, so that
          the factors are near 0.
        * By default, dependency trees are converted to binary trees. One branch leads to the first child, and the other branch
          leads to the next sibling. With branches=K, trees are not converted. Each child then has its own branch, but children
          from the K-th on share the last branch.
        * In narrow models, the number of channels limits the number of levels.
        * The encoding is padded with zeros to the model width. The authors' code maps the encoding to the model width with a
          linear layer.
        * All tokens of a word have the encoding of this word. </s> is the last child of the root.
        * Words deeper than `depth` lose the branches near the root.
    Cost: floor(d / (K depth)) parameters per stack, with K = 2 for binary trees. O(S depth) in the data loading workers.
    Raises: PositionError for more branches than channels of the model.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        depth: int = option(32, "number of levels, counted from the word", minimum=1, maximum=4096)
        branches: int | None = option(
            None,
            "number K of branches, one per child (none: binary tree of first child and next sibling)",
            minimum=1,
            maximum=1024,
        )

    card = MethodCard(
        name="tpe",
        title="Tree positional encodings",
        citations=("shiv-quirk-2019-novel",),
        survey="4.3.1",
        reference="absolute",
        injection="APE",
        learnable=True,
        recurring=False,
        extrapolation="clips",
        evidence="paper",
        sites=("encoder",),
        parameters="d // ((branches or 2) * max(1, min(depth, d // (branches or 2))))",
        survey_parameters="d / D_max",
        side_inputs=(SideInput("tpe_branches", "B S", padding=-1, files=("heads",)),),
        default_specs={"encoder": "sinusoidal+tpe", "decoder": "sinusoidal"},
    )

    @classmethod
    def side_values(cls, sentence: Sentence, options: Options) -> dict[str, np.ndarray]:
        heads = sentence.heads
        assert heads is not None  # the card requires this side file
        number, before = Tree(heads).siblings
        if options.branches is None:
            above, branch = np.where(before >= 0, before, heads), (before >= 0).astype(int)
        else:
            above, branch = heads, np.minimum(number, options.branches - 1)
        # the first `depth` branches join the first depth + 1 words of the path
        up = Tree(above).up[:, : options.depth + 1]
        found = np.full((len(above), options.depth), -1, np.int16)
        found[:, : up.shape[1] - 1] = np.where(up[:, 1:] >= 0, branch[up[:, :-1]], -1)
        return {"tpe_branches": by_token(found, sentence.words)}

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        self.branches = options.branches or 2
        self.depth = min(options.depth, dims.embed_dim // self.branches)
        if self.depth == 0:
            raise PositionError(
                f"tpe: branches={self.branches} is too large. Expected at most the embedding dimension {dims.embed_dim}."
            )
        copies = dims.embed_dim // (self.branches * self.depth)
        self.factor = nn.Parameter(torch.linspace(0.7, 0.999, copies).atanh())

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        branch = ctx.side["tpe_branches"][..., : self.depth].long()  # [B, S, depth]
        taken = branch.unsqueeze(-1) == torch.arange(self.branches, device=branch.device)  # [B, S, depth, branches]
        added = taken.unsqueeze(-1) * self._weights().to(x.dtype)  # [B, S, depth, branches, copies]
        return x + nn.functional.pad(added.flatten(2), (0, x.size(-1) - added[0, 0].numel()))

    def _weights(self) -> Tensor:
        """Return p^level sqrt((1 - p^2) d / 2): [depth, 1, copies]."""
        p = torch.tanh(at_least_float32(self.factor))
        # PyTorch's gradient of 0^0 is finite for exponents in a tensor. cumprod would wait for the GPU in the backward pass
        powers = p.pow(torch.arange(self.depth, device=p.device).unsqueeze(-1))  # [depth, copies]
        return (powers * ((1 - p.square()) * self.dims.embed_dim / 2).sqrt()).unsqueeze(1)
