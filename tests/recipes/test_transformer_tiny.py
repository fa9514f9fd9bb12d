"""The study transformer_tiny: its commands, its text compared with Moses, and a complete run on a small corpus."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.recipes.captions import PARTS, of, value, write_corpus
from tests.recipes.process import ROOT, Process, environment

RECIPE = ROOT / "recipes" / "studies" / "transformer_tiny" / "run"
FOLDER = RECIPE.parent
TESTS = ["test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"]
MICRO = {
    "METHODS": "sinusoidal", "WORDS": "0", "MERGES": "40", "UPDATES": "40", "PATIENCE": "3", "AVERAGE": "2",
    "TRAIN_OPTIONS": "--encoder-layers 1 --decoder-layers 1 --max-tokens 256 --log-interval 1 --warmup-updates 1 --lr 0.5",
}  # fmt: skip


def commands(*stages, **options):
    environ = environment(DRY_RUN="1", **{"POSENC_BIN": "/opt/bin", "OUT": "runs/x", **options})
    shown = subprocess.run([RECIPE, *stages], env=environ, capture_output=True, text=True, check=True).stdout
    return [shlex.split(line) for line in shown.splitlines() if not line.startswith("#")]


def test_it_trains_what_the_authors_do():
    found = of("fairseq-train", commands("train"))
    assert [value(words, "--encoder-position") for words in found] == ["sinusoidal", "none", "t5", "shaw", "rope"]
    words = found[0]
    expected = {
        "--encoder-layers": "4", "--decoder-layers": "4", "--encoder-ffn-embed-dim": "256", "--decoder-ffn-embed-dim": "256",
        "--dropout": "0.3", "--label-smoothing": "0.1", "--lr": "0.005", "--warmup-updates": "2000", "--warmup-init-lr": "1e-7",
        "--adam-betas": "(0.9, 0.98)", "--clip-norm": "25", "--max-tokens": "4096", "--update-freq": "2", "--max-update": "8000",
        "--patience": "10", "--keep-last-epochs": "10",
    }  # fmt: skip
    assert {option: value(words, option) for option in expected} == expected
    assert "--share-all-embeddings" in words and "--save-interval-updates" not in words  # each save would require a validation


def test_rows_differ_in_the_spec_and_the_folder_alone():
    found = commands("train", "decode", METHODS="sinusoidal t5")
    for tool in ("fairseq-train", "average", "fairseq-generate"):
        found_of = of(tool, found)
        one, other = found_of[0], found_of[len(found_of) // 2]
        assert [word.replace("sinusoidal", "*") for word in one] == [re.sub(r"\bt5\b", "*", word) for word in other] != one


def test_the_mean_of_the_last_epochs_translates_all_three_test_parts():
    found = commands("decode", "score", METHODS="t5")
    (average,) = of("average", found)
    assert average[-2:] == ["--last", "10"]
    generate = of("fairseq-generate", found)
    assert [value(words, "--gen-subset") for words in generate] == ["test", "test1", "test2"]
    for words in generate:
        assert value(words, "--path") == average[-4] and value(words, "--beam") == "5"
        assert value(words, "--remove-bpe") == "subword_nmt"
    (score,) = of("score", found)
    assert value(score, "--tokenize") == "none" and [word.split("=")[0] for word in score[-3:]] == TESTS


def test_merges_are_counted_as_the_authors_count_them():
    (learn,) = of("learn-joint-bpe-and-vocab", commands("prepare"))
    assert value(learn, "--symbols") == "10000" and "--total-symbols" not in learn


@pytest.mark.parametrize("options, freq", [({"GPUS": "1"}, "2"), ({"GPUS": "2"}, "1"), ({"UNITS": "1"}, "1")])
def test_an_update_has_the_same_batches_on_one_gpu_and_two(options, freq):
    (words,) = of("fairseq-train", commands("train", METHODS="t5", **options))
    assert value(words, "--update-freq") == freq and value(words, "--max-tokens") == "4096"


def test_the_rows_for_a_gpu_begin_with_those_for_a_cpu():
    few, many = (
        [line for line in (FOLDER / name).read_text().splitlines() if not line.startswith("#")]
        for name in ("methods.txt", "more_methods.txt")
    )
    assert many[: len(few)] == few and json.loads((FOLDER / "published.json").read_text())["figures"].keys() <= set(few)


@pytest.mark.parametrize(
    "options, line",
    [
        ({"PATIENCE": "0"}, "PATIENCE=0: not allowed. Expected a whole number from 1"),
        ({"WORDS": "many"}, "WORDS=many: not allowed. Expected a whole number from 0"),
        ({"GPUS": "3"}, "UNITS=2: not divisible by the number of workers. Expected a multiple of 3."),
        ({"SEEDS": "x"}, "SEEDS=x: not allowed. Expected a list"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(options, line):
    done = subprocess.run([RECIPE], env=environment(**options), capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and line in done.stderr


# --- the text ---


def test_tokens_are_those_of_moses(tmp_path):
    """The expected lines are the output of Moses' scripts lowercase.perl, normalize-punctuation.perl and tokenizer.perl."""
    cases = {
        "en": [
            ('A man\'s T-shirt says "Hi."', "a man &apos;s t-shirt says &quot; hi . &quot;"),
            ("Two dogs , & a   cat…", "two dogs , &amp; a cat ..."),
            ("Motorcycle .`", "motorcycle . &apos;"),
        ],
        "de": [
            ("Auf dem Schild steht „Halt.“", "auf dem schild steht &quot; halt &quot; ."),
            ("Das ist „Hook ’em“ – ja!", "das ist &quot; hook &quot; em &quot; - ja !"),  # noqa: RUF001
            ("FÜNF Übungen z.B. heute.", "fünf übungen z.b. heute ."),
        ],
    }
    for language, pairs in cases.items():
        (tmp_path / f"raw.{language}").write_text("".join(f"{raw}\n" for raw, _ in pairs), encoding="utf-8")
    arguments = [str(word) for lang in cases for word in (lang, tmp_path / f"raw.{lang}", tmp_path / f"tokens.{lang}")]
    subprocess.run([sys.executable, ROOT / "recipes" / "lib" / "moses.py", "multi30k", *arguments], check=True)
    for language, pairs in cases.items():
        assert (tmp_path / f"tokens.{language}").read_text(encoding="utf-8").splitlines() == [tokens for _, tokens in pairs]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions") / "corpus"
    write_corpus(folder, ("en", "de"), {**PARTS, "test_2017_flickr": 8, "test_2017_mscoco": 6})
    return folder


def test_text_of_another_length_is_refused(corpus, tmp_path):
    recipe = Process(RECIPE, tmp_path / "out", **{**MICRO, "WORDS": "12103", "DATA_FROM": str(corpus)})
    line = recipe.fails("fetch", "prepare")
    assert re.search(r"test_2016_flickr\.de: \d+ words\. Expected 12103, as in the study", line)
    recipe.run("prepare", WORDS="0")  # a failed stage does not store its settings, so WORDS can change


# --- a whole run ---


@pytest.mark.slow
def test_it_stops_early_and_when_killed_in_every_stage_at_the_same_update(corpus, tmp_path):
    recipe = Process(RECIPE, tmp_path / "out", **{**MICRO, "DATA_FROM": str(corpus)})
    printed = recipe.run()
    (record,) = recipe.scores().values()
    assert record["updates"] < 40 and list(record["parts"]) == TESTS
    assert {part["decoding"]["averaged_checkpoints"] for part in record["parts"].values()} == {2}
    assert all("tok:none" in part["bleu_signature"] for part in record["parts"].values())
    assert "published test_2016_flickr BLEU" in printed and "until 3 validations without a smaller loss" in printed

    other = Process(RECIPE, tmp_path / "other", **{**MICRO, "DATA_FROM": str(corpus)})
    other.kill_in_every_stage()
    other.run()
    (again,) = other.scores().values()
    assert again["updates"] == record["updates"] and again["parts"] == record["parts"]
