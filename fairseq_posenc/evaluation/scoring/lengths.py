"""Output lengths of one test set: requested lengths from the log, and produced lengths of the hypotheses."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any

from ...core import PositionError
from .sentences import pack_json, unpack_json

_NAMED = re.compile(
    r"output lengths: (?P<source>\S+), ratio (?P<ratio>[0-9]{1,9}(?:\.[0-9]{1,9})?(?:e[+-]?[0-9]{1,2})?), "
    r"unit (?P<unit>token|char), end (?P<end>free|min|exact)$",
    re.MULTILINE,
)
_ASKED = re.compile(r"\basked: ((?:[0-9]{1,9}:[0-9]{1,9} )*[0-9]{1,9}:[0-9]{1,9}) ?$", re.MULTILINE)
_TOKENS = re.compile(r"^P-([0-9]{1,9})\t(.*)$", re.MULTILINE)  # one score per token, and one for </s>

#: tolerances for the difference between produced and requested length
WITHIN = (0, 1, 2, 5)
_SHARE = 0.05  # additional tolerance, as a fraction of the requested length


@dataclass(frozen=True)
class Lengths:
    """Requested and produced lengths of sentences, in the same order and unit."""

    asked: list[int]
    got: list[int]

    def pack(self) -> str:
        """Return the lengths as text, for score.json."""
        return pack_json([self.asked, self.got], (", ", ": "))

    @classmethod
    def unpack(cls, text: str) -> Lengths:
        """Return the lengths that `pack` stored in a text. Raise ValueError if the text is damaged."""
        try:
            asked, got = unpack_json(text)
        except (ValueError, TypeError, RecursionError, zlib.error) as error:
            raise ValueError(f"packed lengths are damaged ({error})") from None
        if len(asked) != len(got) or not all(type(n) is int and n >= 0 for n in (*asked, *got)):
            raise ValueError("packed lengths are not lengths")
        return cls(asked, got)

    def of(self, rows: list[int]) -> Lengths:
        """Return the lengths of the sentences with these indices."""
        return Lengths([self.asked[row] for row in rows], [self.got[row] for row in rows])

    def metrics(self) -> dict[str, float]:
        """Return the mean requested length and the mean produced length.

        Also return the mean squared difference ("variance") and the mean absolute difference between these two lengths. Also
        return the fraction of sentences within each tolerance.
        """
        differences = [got - asked for asked, got in zip(self.asked, self.got)]
        size = len(differences)
        near = [abs(difference) <= _SHARE * asked for difference, asked in zip(differences, self.asked)]
        return {
            "mean_asked": sum(self.asked) / size,
            "mean_got": sum(self.got) / size,
            "variance": sum(difference**2 for difference in differences) / size,
            "mean_absolute_difference": sum(map(abs, differences)) / size,
            **{f"within_{n}": sum(abs(difference) <= n for difference in differences) / size for n in WITHIN},
            "within_5_percent": sum(near) / size,
        }


def parse(text: str, hypotheses: list[str], name: str) -> dict[str, Any]:
    """Return the fields `asked` and `lengths` of PartScores, or {} if no lengths were requested."""
    found = _NAMED.search(text)
    if found is None:
        return {}
    pairs = [pair.split(":") for line in _ASKED.findall(text) for pair in line.split()]
    asked = {int(number): int(length) for number, length in pairs}
    missing = [number for number in range(len(hypotheses)) if number not in asked]
    if missing or len(asked) > len(hypotheses):
        raise PositionError(
            f"{name}: requested lengths for {len(asked)} of {len(hypotheses)} sentences. Expected one per sentence. Decode again."
        )
    if found["unit"] == "char":
        # as in `host.generation.lengths.Unit`, one space is counted for every word, also for the last word
        got = [len(hypothesis) + 1 if hypothesis else 0 for hypothesis in hypotheses]
    else:
        counts: dict[int, int] = {}
        for number, scores in _TOKENS.findall(text):
            counts.setdefault(int(number), len(scores.split()) - 1)  # the first of several hypotheses is the best
        scored = [number for number in range(len(hypotheses)) if number in counts]
        if len(scored) < len(hypotheses):
            raise PositionError(
                f"{name}: scores of tokens (P- lines) for {len(scored)} of {len(hypotheses)} sentences. "
                "Expected one line per sentence. Decode again."
            )
        got = [counts[number] for number in scored]
    source = {"source": found["source"], "ratio": float(found["ratio"]), "unit": found["unit"], "end": found["end"]}
    return {"asked": source, "lengths": Lengths([asked[number] for number in range(len(got))], got).pack()}
