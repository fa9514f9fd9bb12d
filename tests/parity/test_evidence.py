"""Every card with evidence "peer" has a parity test here whose name contains the method. No other card has such a test."""

import re
from pathlib import Path

import fairseq_posenc as posenc


def peers() -> set:
    """Return the methods whose name is the beginning of the name of a test in this folder.

    If several methods match, such as alibi and alibi_symmetric, the longest name counts.
    """
    others = [path for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name]
    sources = [path.read_text(encoding="utf-8") for path in others]
    names = re.findall(r"^def test_(\w+)\(", "\n".join(sources), re.MULTILINE)
    begun = [[method for method in posenc.names() if f"{name}_".startswith(f"{method}_")] for name in names]
    return {max(methods, key=len) for methods in begun if methods}


def test_cards_claim_the_peers_that_are_tested():
    assert peers() == {name for name in posenc.names() if posenc.card(name).evidence == "peer"}
