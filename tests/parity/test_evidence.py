"""Every method with the evidence "peer" has a test in this folder. Methods with other evidence have no such test.

The name of the test begins with `test_` and the name of the method.
"""

import re
from pathlib import Path

import fairseq_posenc as posenc


def peers() -> set:
    """Return every method that has a test in this folder: `test_METHOD`, or a name that begins with `test_METHOD_`.

    If several methods match a test, such as alibi and alibi_symmetric, the longest name counts.
    """
    others = [path for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name]
    sources = [path.read_text(encoding="utf-8") for path in others]
    names = re.findall(r"^def test_(\w+)\(", "\n".join(sources), re.MULTILINE)
    begun = [[method for method in posenc.names() if f"{name}_".startswith(f"{method}_")] for name in names]
    return {max(methods, key=len) for methods in begun if methods}


def test_cards_claim_the_peers_that_are_tested():
    assert peers() == {name for name in posenc.names() if posenc.card(name).evidence == "peer"}
