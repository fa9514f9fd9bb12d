"""Strings that fairseq evaluates as Python. They may come from a checkpoint, so only literals and arithmetic are allowed."""

import ast
import importlib
from pathlib import Path

import fairseq as installed
import pytest
import torch
from fairseq import utils

from fairseq_posenc.host.compat.evaluation import evaluate

ROOT = Path(installed.__file__).parent


def modules_that_name(*builtins: str) -> set:
    """Return the modules of the installed fairseq whose source contains one of these builtins."""
    found = set()
    for file in ROOT.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        if not any(name in source for name in builtins):
            continue
        if {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)} & set(builtins):
            found.add(".".join(["fairseq", *file.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__"))
    return found


# --- all calls of eval in fairseq ---


def test_a_criterion_of_a_checkpoint_runs_no_code(fairseq, shaw, tmp_path):
    marker, path = tmp_path / "it-ran", tmp_path / "checkpoint.pt"
    state = fairseq.state(shaw)
    code = f"(__import__('os').system('touch {marker}'), None, 2.0, -1.0)"
    state["cfg"]["criterion"] = {"_name": "ctc", "wer_args": code, "sentence_avg": False, "post_process": "letter"}
    torch.save(state, path)
    validate = ["--task", "translation", "--path", path, "--cpu", "--batch-size", 4, "--num-workers", 0]
    line = fairseq.run("fairseq-validate", fairseq.data, *validate).refusal()
    assert not marker.exists()
    assert "__import__" in line and "it contains code" in line


def test_fairseq_calls_no_builtin_but_eval():
    assert not modules_that_name("exec", "compile", "execfile", "__builtins__")


def test_every_loaded_module_evaluates_text_by_our_rules():
    named = modules_that_name("eval")
    assert {"fairseq.utils", "fairseq.criterions.ctc", "fairseq.optim.adam", "fairseq.models.fconv"} <= named
    for name in named:
        if not name.startswith("fairseq.examples."):  # no other module of fairseq imports fairseq.examples
            assert importlib.import_module(name).eval is evaluate, name


@pytest.mark.parametrize("name", ["fairseq.examples.criss.save_encoder"])
def test_a_module_that_is_loaded_later_does_too(name):
    assert importlib.import_module(name).eval is evaluate


# --- supported values ---


@pytest.mark.parametrize(
    "text",
    [
        "[(512, 3)] * 20",
        "[(512, 10, 5)] + [(512, 3, 2)] * 4 + [(512,2,2)] + [(512,2,2)]",
        "[0.9, 0.98]",
        "(0.9,0.98)",
        " 4,8",
        "1e-3",
        "-2 ** 3 + 7 // 2 - 7 % 4 / +2",
        "True",
        "not True",
        "None",
        "'letter'",
        "'a' + 'b' * 3",
        "{'en': 1, 'de': [2]}",
        "((32, 3, 2, 2, True),) * 2",
        "2 ** 62",
        "10 ** -8",
        "()",
    ],
)
def test_literals_and_arithmetic_are_understood(text):
    expected = eval(text.strip())
    assert evaluate(text) == expected and type(evaluate(text)) is type(expected)


def test_the_defaults_of_fairseq_are_understood():
    """The test evaluates string constants in modules of fairseq. Each of these constants looks like a list or a tuple."""
    texts = {
        node.value
        for name in modules_that_name("eval") | {"fairseq.models.wav2vec.wav2vec2", "fairseq.dataclass.configs"}
        for node in ast.walk(ast.parse((ROOT.parent / Path(*name.split(".")).with_suffix(".py")).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(("[(", "((", "(0", "[1"))
    }
    assert len(texts) > 10
    for text in texts:
        try:
            expected = eval(text, {"__builtins__": {}})
        except SyntaxError:  # a help text
            continue
        assert evaluate(text) == expected


def test_fairseq_itself_gets_what_it_expects():
    assert utils.eval_str_list(" [(1 + 1) * 3] * 2", type=int) == [6, 6]
    assert utils.eval_str_dict("{'a': 1}") == {"a": 1}
    assert utils.eval_bool("True") is True and utils.eval_bool("0") is False
    assert utils.eval_bool(True, default=7) == 7  # fairseq evaluates only strings. For other types, fairseq returns the default


# --- errors ---


@pytest.mark.parametrize(
    "text, words",
    [
        ("open('it-ran', 'w')", "it contains code"),
        ("().__class__", "it contains code"),
        ("[x for x in (1, 2)]", "it contains code"),
        ("(lambda: 1)()", "it contains code"),
        ("f'{1}'", "it contains code"),
        ("name", "it contains code"),
        ("[1][0]", "it contains code"),
        ("9**9**9**9", "too large"),
        ("2 ** 64", "too large"),
        ("-2 ** 70", "too large"),
        ("10.0 ** 1000", "too large"),
        ("'a' * 10 ** 10", "too large"),
        ("[0] * 10 ** 6", "too large"),
        ("[[[0] * 1000] * 1000] * 1000", "too large"),
        ("[[0] * 9999, [0] * 9999] * 2", "too large"),
        ("[[]] * 9999 * 9999", "too large"),
        ("[''] * 9999 * 9999", "too large"),
        ("{[1]: 2}", "not a Python"),
        ("(((9 ** 9) ** 2) ** 9) ** 9", "too large"),
        ("'%1000000000d' % 1", "it contains code"),
        ("'a' * -1.5", "it contains code"),
        ("1 / 0", "division by zero"),
        ("[1", "not a Python"),
        ("", "not a Python"),
        ("\0", "not a Python"),
        ("-" * 100_000 + "1", "too long"),
        ("[" * 90 + "0" + "] * 9" * 90, "too large"),
        ("~" * 5_000 + "1", "not allowed"),  # too deeply nested for most parsers
    ],
    ids=lambda text: text[:20],
)
def test_everything_else_is_refused_in_one_line(text, words):
    with pytest.raises(SystemExit) as stop:
        evaluate(text)
    message = stop.value.code
    assert message.startswith("fairseq_posenc: ") and words in message
    assert "\n" not in message and "\0" not in message and len(message) < 300


@pytest.mark.parametrize("value", [1, True, None, [1], b"1"])
def test_what_is_no_text_is_refused_as_by_python(value):
    with pytest.raises(TypeError):
        evaluate(value)
