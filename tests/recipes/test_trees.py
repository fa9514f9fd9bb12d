"""The recipe of real trees: its commands, its errors, and a complete run on a small random treebank."""

import gzip
import json
import random
import re
import shlex
import subprocess

import pytest

from tests.recipes.process import ROOT, SMALL, Process, environment, programs

RECIPE = ROOT / "recipes" / "studies" / "trees"


def commands(**options):
    environ = environment(DRY_RUN="1", POSENC_BIN=programs(), OUT="runs/x", **options)
    done = subprocess.run([RECIPE], env=environ, capture_output=True, text=True, check=True)
    return [shlex.split(line) for line in done.stdout.splitlines() if not line.startswith("#")]


def with_words(found, *words):
    return [command for command in found if all(word in command for word in words)]


def treebank(path, size, seed):
    """Write random trees of random words, with multiword tokens and comments."""
    draw, lines = random.Random(seed), []
    for number in range(size):
        count = draw.randrange(2, 9)
        lines += [f"# sent_id = {number}", "1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_"]
        for word in range(1, count + 1):
            head = 0 if word == 1 else draw.randrange(1, word)
            row = [
                str(word),
                draw.choice("abcdefgh") * 2,
                "_",
                "_",
                "_",
                "_",
                str(head),
                draw.choice(["x", "y"]) if head else "root",
            ]
            lines.append("\t".join([*row, f"{head}:z", "_"]))
        lines.append("")
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")


def test_every_method_that_reads_trees_and_its_control():
    found = commands(DATA_FROM="banks", TARGET="cs")
    assert with_words(found, "side", "trees", "banks/en_pud-ud-test.conllu.gz") and with_words(
        found, "banks/cs_pud-ud-test.conllu.gz"
    )
    (side,) = with_words(found, "side", "binarise")
    assert side[side.index("--subwords") + 1] == "sentencepiece" and side[side.index("--testpref") + 1] == "runs/x/text/test"
    trained = [command[command.index("--arch") + 1] for command in found if any("fairseq-train" in word for word in command)]
    assert "posenc_spr_rel_tiny" in trained and "posenc_t5_tiny" not in trained and "posenc_xl_pe_tiny" not in trained
    assert all(trained.count(name) == 2 for name in trained)
    controls = [command for command in found if "--random-structure" in command]
    # Half of the rows are controls. Each control has two commands: training and decoding.
    assert len(controls) == len(trained)
    assert all("--task" in command for command in found if re.search("fairseq-(train|generate)", " ".join(command[:3])))


def test_graphs_are_read_by_methods_with_options():
    found = commands(DATA_FROM="banks", EDGES="enhanced", METHODS="posenc_graformer:graph=edges posenc_zhu:graph=edges@random")
    (made,) = with_words(found, "side", "trees", "banks/en_pud-ud-test.conllu.gz")
    assert made[made.index("--edges") + 1] == "enhanced"
    trained = [command for command in found if any("fairseq-train" in word for word in command)]
    for command, spec in zip(trained, ("sinusoidal+graformer:graph=edges", "sinusoidal+zhu:graph=edges")):
        assert command[command.index("--encoder-position") + 1] == spec
        assert command[command.index("--decoder-position") + 1] == "sinusoidal"
    assert ["--random-structure" in command for command in trained] == [False, True]
    assert trained[0][trained[0].index("--save-dir") + 1].endswith("posenc_graformer_graph=edges/seed1")


def test_a_parser_is_called_for_every_part():
    found = with_words(commands(TEXT_FROM="words", PARSER="parse --model x"), "side", "parse")
    assert [command[5] for command in found] == [f"runs/x/text/{part}.en" for part in ("train", "valid", "test")]
    assert all(command[command.index("--command") + 1] == "parse --model x" for command in found)


@pytest.mark.parametrize(
    "options, line",
    [
        ({}, "no data. Expected DATA_FROM, a folder of treebanks, or TEXT_FROM, a folder of text, with PARSER."),
        (
            {"TEXT_FROM": "words"},
            "TEXT_FROM=words: PARSER is missing. Expected a command that reads one sentence per line and writes CoNLL-U",
        ),
        ({"DATA_FROM": "x", "METHODS": "posenc_xl_pe"}, "xl_pe: the data has no side files of the required kinds (order)"),
        ({"DATA_FROM": "x", "TARGET": "en"}, "SOURCE=en: equal to TARGET. Expected two languages"),
        ({"DATA_FROM": "x", "TARGET": "pt-BR"}, "pt-BR: a language code with a dash. Expected a code without a dash, such as pt"),
        ({"TEXT_FROM": "x", "PARSER": "p", "TEST": "50"}, "TEST=50: has no effect with TEXT_FROM. Remove TEST."),
        ({"TEXT_FROM": "x", "PARSER": "p", "DATA_FROM": "y"}, "DATA_FROM=y: has no effect with TEXT_FROM. Remove DATA_FROM."),
        ({"DATA_FROM": "x", "PARSER": "p"}, "PARSER=p: has no effect with DATA_FROM. Remove PARSER."),
        ({"DATA_FROM": "x", "EDGES": "all"}, "EDGES=all: not allowed. Expected one of: basic enhanced"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(options, line):
    environ = environment(POSENC_BIN=programs(), OUT="runs/x", **options)
    done = subprocess.run([RECIPE], env=environ, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1 and line in done.stderr


@pytest.mark.parametrize("text", [True, False])
def test_a_changed_input_file_is_refused(tmp_path, text):
    names = [f"{part}.{code}" for part in ("train", "valid", "test") for code in ("en", "de")] if text else ["en", "de"]
    for name in names:
        (tmp_path / (name if text else f"{name}_pud-ud-test.conllu.gz")).write_bytes(gzip.compress(name.encode()))
    given = {"TEXT_FROM": str(tmp_path), "PARSER": "parse"} if text else {"DATA_FROM": str(tmp_path)}
    recipe = Process(RECIPE, tmp_path / "out", METHODS="posenc_tpe", **given)
    stamp = tmp_path / "out" / "text" / ".text.done"
    stamp.parent.mkdir(parents=True)
    stamp.write_text("INPUTS=" + " ".join(f"{name}:0000000000000000" for name in names) + "\n")
    changed = tmp_path / ("train.en" if text else "en_pud-ud-test.conllu.gz")
    assert f"{changed}: changed after an earlier call with OUT={recipe.out}." in recipe.fails("prepare")
    assert len(json.loads((recipe.out / ".inputs").read_text())) == len(names)


@pytest.mark.parametrize(
    "sizes, line",
    [
        ((40, 39), "/text/all: 40 lines in en, but 39 lines in de. Expected one translation per line."),
        ((11, 11), "/text/all: 11 sentence pairs. Expected at least 12, more than VALID=5 and TEST=6 together."),
    ],
)
def test_treebanks_that_do_not_fit_are_refused_before_the_training(tmp_path, sizes, line):
    for size, language in zip(sizes, ("en", "de")):
        treebank(tmp_path / f"{language}_pud-ud-test.conllu.gz", size, 1)
    recipe = Process(RECIPE, tmp_path / "out", DATA_FROM=str(tmp_path), VALID="5", TEST="6", METHODS="posenc_tpe")
    assert line in recipe.fails("prepare")


def test_a_last_line_without_a_line_feed_is_counted(tmp_path):
    for name, text in {"train.en": "a\nb\nc", "train.de": "a\nb\n"}.items():
        (tmp_path / name).write_text(text)
    for name in ("valid.en", "valid.de", "test.en", "test.de"):
        (tmp_path / name).write_text("a\n")
    recipe = Process(RECIPE, tmp_path / "out", TEXT_FROM=str(tmp_path), PARSER="parse", METHODS="posenc_tpe")
    assert "/text/train: 3 lines in en, but 2 lines in de. Expected one translation per line." in recipe.fails("prepare")


def test_other_recipes_refuse_methods_that_need_trees():
    environ = environment(POSENC_BIN=programs(), OUT="runs/x", METHODS="posenc_tpe", DRY_RUN="1")
    done = subprocess.run([ROOT / "recipes" / "multi30k_uk" / "run"], env=environ, capture_output=True, text=True)
    assert done.returncode == 1 and "posenc_tpe: the data has no side files of the required kinds (heads)" in done.stderr


@pytest.mark.slow
def test_a_whole_run_killed_in_every_stage(tmp_path):
    (tmp_path / "banks").mkdir()
    for seed, language in enumerate(("en", "de")):
        treebank(tmp_path / "banks" / f"{language}_pud-ud-test.conllu.gz", 40, seed)
    options = {
        "VALID": "5",
        "TEST": "6",
        "UPDATES": "1",
        "VOCABULARY": "20",
        "METHODS": "posenc_spr_abs posenc_spr_abs@random",
        "TRAIN_OPTIONS": SMALL,
    }
    recipe = Process(RECIPE, tmp_path / "out", DATA_FROM=str(tmp_path / "banks"), **options)
    recipe.kill_in_every_stage()
    printed = recipe.run()
    assert "encoder sinusoidal+spr_abs, decoder sinusoidal (random structure)" in printed
    assert "done before" in recipe.run()
