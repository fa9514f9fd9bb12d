"""Measure the largest attention scores and output logits of all methods in float16, whose largest number is 65,504.

    python -m tests.device.magnitudes [FILE] [SPEC ...]

FILE is results/bench/float16.md by default. Models have their initial values, and read one sentence of 512 tokens on the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from tabulate import tabulate

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures
from fairseq_posenc import registry
from fairseq_posenc.attention.multihead import Attention
from fairseq_posenc.bench import actions, models
from fairseq_posenc.common.files import replace_file
from fairseq_posenc.common.progress import Progress

FILE = Path("results/bench/float16.md")
SIZE, LENGTH = "_small", 512
HEAD = f"""# Largest numbers in float16

The table contains the largest absolute attention score before the softmax, and the largest absolute logit of the output.
Models of size {SIZE.lstrip("_")} with their initial values read one sentence of {LENGTH} tokens.
Scores include those of cross-attention.
The largest number in float16 is {torch.finfo(torch.float16).max:,.0f}. `python -m tests.device.magnitudes` writes this table.

"""


@contextmanager
def largest_scores() -> Iterator[list[float]]:
    """Replace fused attention by single operators, and collect the largest absolute score of each call of an attention.

    Scores that a mask hides are not included.
    """
    found: list[float] = []
    explicit, logits, hidden = Attention.explicit, Attention.logits, []

    def recorded(self, positions, ctx, q, k, v, mask):
        allowed = torch.ones(q.size(2), k.size(2), dtype=torch.bool)
        allowed = allowed.tril(k.size(2) - q.size(2)) if ctx.causal else allowed
        hidden.append(~(allowed if mask.allowed is None else allowed & mask.allowed))
        return explicit(self, positions, ctx, q, k, v, mask)

    def read(positions, ctx, q, k, bias):
        scores = logits(positions, ctx, q, k, bias)
        seen = scores.masked_fill(hidden.pop(), 0.0)
        found.append(float(seen.masked_fill(seen.isneginf(), 0.0).abs().max()))
        return scores

    def fused(self, *given):
        return recorded(self, *given)[0], None

    replaced = {"explicit": recorded, "logits": staticmethod(read), "fused": fused, "in_blocks": fused}
    with patch.multiple(Attention, **replaced):
        yield found


@torch.no_grad()
def magnitudes(spec: str, size: str = SIZE, length: int = LENGTH) -> tuple[float, float]:
    """Return the largest absolute attention score and the largest absolute logit of a method in float16.

    Raise ValueError if a score or a logit is not finite.
    """
    cpu = torch.device("cpu")
    model = models.build(models.Variant.of(spec, "model"), size, length + 2, cpu, torch.float16).eval()
    source, target = actions.sentences(1, length, cpu)
    with largest_scores() as scores:
        logits, _ = model(source, None, target, **actions.extras(actions.methods(model), source))
    numbers = torch.tensor([*scores, float(logits.abs().max())])
    if not numbers.isfinite().all():
        raise ValueError(f"{spec}: a score or a logit is not finite in float16")
    return max(scores), float(numbers[-1])


def main(arguments: list[str]) -> int:
    path = Path(arguments[0]) if arguments else FILE
    rows, progress = [], Progress()
    for spec in arguments[1:] or registry.names():
        progress.show(spec)
        score, logit = magnitudes(spec)
        rows.append([spec, f"{score:.3g}", f"{logit:.3g}"])
    progress.end()
    table = tabulate(
        rows, ["method", "largest score", "largest logit"], "pipe", colalign=("left", "right", "right"), disable_numparse=True
    )
    replace_file(path, lambda made: made.write_text(f"{HEAD}{table}\n", encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
