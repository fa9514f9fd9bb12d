"""Cards outside this package are read and never executed.

If a file contains code where only constants are allowed, `posenc list` prints a one-line error.
"""

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.core import Dims, MethodOptions
from fairseq_posenc.core.formula import evaluate
from fairseq_posenc.registry import external
from fairseq_posenc.registry.citations import entries
from fairseq_posenc.registry.declarations import declarations

CARD = """card = posenc.MethodCard(
        name="mine", title="Mine", citations=(), survey="", reference="relative", injection="MAM", learnable=True, recurring=True,
        extrapolation="runs", evidence="paper", sites=("encoder",), parameters="h",
    )"""
FILE = """import os
from dataclasses import dataclass
from typing import Literal, Optional

import fairseq_posenc as posenc
from fairseq_posenc.core import MethodCard, MethodOptions, PositionMethod, SideInput, option

{before}

class Mine(PositionMethod):
    {docstring}

    {options}

    {card}

    {after}
"""
OPTIONS = """@dataclass(frozen=True)
    class Options(MethodOptions):
        size: int = option(3, "a size", minimum=1)
        kind: Literal["a", "b"] = option("a", "a kind")
        width: Optional[int] = option(None, "a width")"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.delenv(external.VARIABLE, raising=False)
    for cache in (declarations, entries):
        cache.cache_clear()
    yield
    monkeypatch.undo()
    for cache in (declarations, entries):
        cache.cache_clear()


@pytest.fixture
def read(tmp_path, monkeypatch, capsys):
    """Return a function that writes a method file with the given changes and runs posenc list.

    The function returns the exit code, the output and the errors.
    """

    def listed(**changes):
        parts = {"before": "", "docstring": '"""Do nothing."""', "options": OPTIONS, "card": CARD, "after": "", **changes}
        file = tmp_path / "mine.py"
        file.write_text(FILE.format(**parts), encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(external.VARIABLE, str(file))
        declarations.cache_clear()
        status = main(["list", "--format", "tsv"])
        out, error = capsys.readouterr()
        assert not (tmp_path / "it-ran").exists() and "it ran" not in out + error
        return status, out, error

    return listed


SIZE = 'option(3, "a size", minimum=1)'
RUN = "open('it-ran', 'w')"
EVIL = {
    "call in a card": {"card": CARD.replace('title="Mine"', f"title=str({RUN})")},
    "copy of a call": {"card": f"card = replace({RUN}, name='mine')"},
    "copy by a function of the file": {
        "before": f"def replace(card, **changes):\n    {RUN}\n    return card",
        "card": CARD.replace("posenc.MethodCard(", "replace("),
    },
    "attribute in a card": {"card": CARD.replace('title="Mine"', "title=().__class__.__name__")},
    "f-string": {"card": CARD.replace('title="Mine"', "title=f'{" + RUN + "}'")},
    "comprehension": {"card": CARD.replace("citations=()", f"citations=tuple({RUN} for x in (1,))")},
    "lambda": {"card": CARD.replace("citations=()", f"citations=(lambda: {RUN})()")},
    "subscript": {"card": CARD.replace('title="Mine"', "title=posenc.__builtins__['open']('it-ran', 'w')")},
    "condition": {"card": CARD.replace('title="Mine"', f"title='a' if {RUN} else 'b'")},
    "arithmetic": {"card": CARD.replace('title="Mine"', "title='a' * 10**10")},
    "double star": {"card": CARD.replace('title="Mine"', "**{'title': 'Mine'}")},
    "walrus": {"card": CARD.replace('title="Mine"', f"title=(x := {RUN})")},
    "builtin by name": {"card": CARD.replace('title="Mine"', "title=open")},
    "private name": {"card": CARD.replace('title="Mine"', "title=__builtins__")},
    "call of another": {"card": f"card = eval({RUN!r})"},
    "card twice": {"card": CARD.replace("card =", "card = os.environ['it-ran'] =")},
    "method of an option": {"options": OPTIONS.replace(SIZE, "option(3, os.system('touch it-ran'))")},
    "factory": {"options": OPTIONS.replace(SIZE, f"dataclasses.field(default_factory=lambda: {RUN})")},
    "decorator": {"options": OPTIONS.replace("@dataclass(frozen=True)", f"@(lambda cls: {RUN})\n    @dataclass")},
    "argument of a decorator": {"options": OPTIONS.replace("frozen=True", f"frozen={RUN}")},
    "statement in options": {"options": f"{OPTIONS}\n        {RUN}"},
    "loop in options": {"options": f"{OPTIONS}\n        for x in (1,): {RUN}"},
    "annotation": {"options": OPTIONS.replace("size: int", f"size: {RUN}")},
    "annotation as text": {"options": OPTIONS.replace("size: int", f'size: "{RUN}"')},
    "literal of a call": {"options": OPTIONS.replace('Literal["a", "b"]', f'Literal["a", {RUN}]')},
    "keyword of a class": {"options": OPTIONS.replace("(MethodOptions)", f"(MethodOptions, metaclass={RUN})")},
    "base": {"options": OPTIONS.replace("(MethodOptions)", f"(MethodOptions, {RUN})")},
    "target of a field": {"options": OPTIONS + f"\n        os.x: int = {RUN}"},
    "helper that is used": {
        "before": f"@dataclass(frozen=True)\nclass Own(MethodOptions):\n    size: int = {RUN}\n", "options": "Options = Own",
    },
    "formula": {"card": CARD.replace('parameters="h"', f"parameters=\"{RUN.replace(chr(39), chr(92) + chr(39))}\"")},
    "attributes in a formula": {"card": CARD.replace('parameters="h"', 'parameters="().__class__.__base__.__subclasses__()"')},
    "power in a formula": {"card": CARD.replace('parameters="h"', 'parameters="9**9**9**9"')},
    "text in a formula": {"card": CARD.replace('parameters="h"', "parameters=\"'a' * 10**10\"")},
    "control characters": {"card": CARD.replace('title="Mine"', 'title="a\\x1b[31m\\nb"')},
    "long title": {"card": CARD.replace('title="Mine"', f'title="{"a" * 5000}"')},
    "sites in a list": {"card": CARD.replace('sites=("encoder",)', 'sites=(["encoder"],)')},
    "no side inputs": {"card": CARD.replace('parameters="h"', 'side_inputs=("heads",)')},
    "brackets": {"before": "X = " + "(" * 5000 + ")" * 5000},
}  # fmt: skip


@pytest.mark.parametrize("changes", EVIL.values(), ids=EVIL)
def test_nothing_of_a_file_runs(read, changes):
    status, out, error = read(**changes)
    assert status == 2 and out == ""
    assert error.count("\n") == 1 and "mine.py" in error and len(error) < 500, error


@pytest.mark.parametrize("changes", [EVIL["call in a card"], EVIL["statement in options"]], ids=["card", "options"])
def test_the_message_has_file_and_line(read, changes):
    error = read(**changes)[2]
    assert "mine.py, line " in error and "read without running the file" in error


HARMLESS = {
    "as it is": {},
    "module": {"before": f"if True:\n    {RUN}\nprint('it ran')\nX = {RUN}\nos.environ['it-ran'] = 'x'\nposenc.core = 3"},
    "class body": {"docstring": f"print('it ran')\n    {RUN}\n    x = {RUN}"},
    "class decorator": {"before": f"@(lambda cls: {RUN})\nclass Helper:\n    x = {RUN}\n"},
    "unused helper": {"before": f"@dataclass\nclass Helper:\n    x: list = {RUN}\n"},
    "check of options": {"options": f"{OPTIONS}\n\n        def __post_init__(self):\n            {RUN}"},
    "names": {"before": "A, B = 'Mine', ('encoder',)", "card": CARD.replace('"Mine"', "A").replace('("encoder",)', "B")},
    "own names": {"before": "option = Literal = dataclass = 'x'\n__builtins__ = {}\nMethodCard.count = 1"},
    "package": {"card": CARD.replace("posenc.MethodCard", "MethodCard")},
    "side input": {"card": CARD.replace('parameters="h"', 'side_inputs=(SideInput("a", "B S", files=("heads",)),)')},
}  # fmt: skip


@pytest.mark.parametrize("changes", HARMLESS.values(), ids=HARMLESS)
def test_what_is_not_read_does_not_matter(read, changes):
    status, out, error = read(**changes)
    assert status == 0, error
    assert [line.split("\t")[1] for line in out.splitlines() if line.startswith("mine\t")] == ["external"]


# --- formulas ---


@pytest.mark.parametrize(
    "formula, value",
    [
        ("2 * d + h // 2 - 7 % 4", 2 * 16 + 4 // 2 - 3), ("d**2 / 4", 64),
        ("-(d) + +d", 0), ("3 if causal and not cross else L", 2),
        ("(h == 4) * 5 + (1 < h <= 4)", 6), ("max(n, m) - min(n, 3)", 5), ("'a/b/c'.count('/') + 1", 3),
        ("(h is not None) * 3", 3), ("None or h", 4), ("True + 1", 2),
    ],
)  # fmt: skip
def test_formulas_are_computed(formula, value):
    assert evaluate(formula, MethodOptions(), Dims(16, 4, 2, 8, 8)) == value


@pytest.mark.parametrize(
    "formula",
    ["__import__('os')", "h.real", "[1][0]", "(lambda: 1)()", "f'{h}'", "9**9**9", "2**65", "'a' * 9", "h + 'a'", "'a'", "x", "",
     "max(h)", "max(*[1, 2])", "'a'.upper()", "h.count(1)", "1e40", "2**64 * 2**64", "1j",
     "(" * 999 + ")" * 999, "h +", "1 " * 2000],
)  # fmt: skip
def test_other_formulas_are_errors(formula):
    with pytest.raises((ValueError, TypeError)):
        evaluate(formula, MethodOptions(), Dims(16, 4, 2, 8, 8))
