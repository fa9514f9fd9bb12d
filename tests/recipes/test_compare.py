"""The recipe compare, from parallel text to a table: its commands and its errors."""

import gzip
import json
import random
import re
import shlex
import subprocess

import pytest

from fairseq_posenc.host.checkpoints.read import corpus_name
from tests.recipes.captions import of, value
from tests.recipes.process import ROOT, Process, environment

RECIPE = ROOT / "recipes" / "compare"
GIVEN = {"TRAIN": "x/train", "VALID": "x/valid", "TESTS": "news=x/test2024 web=x/web", "SOURCE": "pt-BR", "TARGET": "en"}
MICRO = {
    "VOCABULARY": "60", "BATCH": "256", "UNITS": "2", "UPDATES": "8", "WARMUP": "2", "BEAM": "2", "SAVE_UPDATES": "4",
    "NAME": "my corpus", "METHODS": "none", "TRAIN_OPTIONS": "--encoder-layers 1 --decoder-layers 1 --log-interval 1",
}  # fmt: skip


def write(folder, languages=("pt-BR", "en")):
    """Write sentences of random words. In the second language, the words are in reverse order.

    The test set `web` has two references, and one of these references is gzipped.
    """
    draw = random.Random(1)
    words = ["".join(draw.choices("abdegiklmnorstu", k=draw.randint(2, 6))) for _ in range(40)]
    folder.mkdir()
    for part, count in {"train": 240, "valid": 16, "test2024": 12, "web": 9}.items():
        sentences = [draw.choices(words, k=draw.randint(3, 8)) for _ in range(count)]
        for language, text in zip(languages, (sentences, [sentence[::-1] for sentence in sentences])):
            (folder / f"{part}.{language}").write_text("".join(" ".join(sentence).capitalize() + ".\n" for sentence in text))
    path = folder / f"web.{languages[1]}"
    (folder / f"web.{languages[1]}.1").write_text(path.read_text().lower())
    (folder / f"web.{languages[1]}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


def run(*arguments, **options):
    given = {**GIVEN, "POSENC_BIN": "/opt/bin", "DRY_RUN": "1", "OUT": "runs/x", **options}
    return subprocess.run([RECIPE, *arguments], env=environment(**given), capture_output=True, text=True)


def commands(*stages, **options):
    done = run(*stages, **options)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines() if not line.startswith("#")]


def refused(*stages, **options):
    done = run(*stages, **options)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done.stdout
    return done.stderr


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_needed_is_named(name):
    assert f"{name}: missing. Expected TRAIN, VALID, TESTS, SOURCE and TARGET" in refused(**{name: ""})


@pytest.mark.parametrize(
    "source, target, codes",
    [
        ("pt-BR", "en", ("pt", "en")),
        ("EN", "zh_Hans", ("en", "zh")),
        ("en-GB", "en-US", ("en_GB", "en_US")),
        ("zh_Hans", "zh-Hant", ("zh_Hans", "zh_Hant")),
    ],
)
def test_file_names_have_codes_that_fairseq_can_separate(source, target, codes):
    found = commands("prepare", SOURCE=source, TARGET=target)
    (data,) = of("parallel", found)
    assert (value(data, "--source"), value(data, "--target")) == (source, target)
    assert tuple(data[data.index("--codes") + 1 :][:2]) == codes
    (preprocess,) = of("fairseq-preprocess", found)
    assert (value(preprocess, "--source-lang"), value(preprocess, "--target-lang")) == codes
    assert "the same language twice" in refused(SOURCE=source, TARGET=source)


def test_the_default_folder_is_named_by_the_users_names():
    found = commands("prepare", OUT="", NAME="my corpus!")
    assert of("parallel", found)[0][5] == "runs/compare/my_corpus__pt-BR-en/tiny/text"


def test_every_test_set_is_decoded_and_scored():
    found = commands(METHODS="none", TESTS="news=x/test2024 wmt14/full web=x/web")
    decoded = of("fairseq-generate", found)
    assert [value(words, "--gen-subset") for words in decoded] == ["test", "test1", "test2"]
    (score,) = of("score", found)
    assert score[-3:] == [f"{name}=runs/x/text/{name}.en" for name in ("news", "wmt14_full", "web")]
    assert "--ter" in score and found[-1][-2:] == ["--output", "runs/x/report"]


def test_a_sweep_gives_rows_that_name_their_settings():
    found = commands(METHODS="none t5", LR="1e-3 5e-4", DROPOUT="0 0.3", SEEDS="1 2")
    trained = of("fairseq-train", found)
    assert len(trained) == 16 and len({value(words, "--save-dir") for words in trained}) == 16
    assert {(value(words, "--lr"), value(words, "--dropout")) for words in trained} == {
        (lr, dropout) for lr in ("1e-3", "5e-4") for dropout in ("0", "0.3")
    }
    assert all(
        value(words, "--save-dir").split("/")[-2].endswith(f"_LR={value(words, '--lr')}_DROPOUT={value(words, '--dropout')}")
        for words in trained
    )
    assert all(words[words.index("--row") + 1 :][:3] == ["lr", "dropout", "--"] for words in of("score", found))
    assert all("--row" not in words for words in of("score", commands(METHODS="none")))


def test_training_options_reach_fairseq():
    (words,) = of(
        "fairseq-train",
        commands(METHODS="none", SIZE="big", GPUS="4", LAYERS="3", OPTIMIZER="adafactor", SCHEDULE="fixed", EPOCHS="7",
                 WARMUP="5", SMOOTHING="0", PRECISION="bf16"),
    )  # fmt: skip
    expected = {
        "--arch": "posenc_transformer_big", "--encoder-layers": "3", "--decoder-layers": "3", "--optimizer": "adafactor",
        "--lr-scheduler": "fixed", "--max-epoch": "7", "--warmup-updates": "5", "--label-smoothing": "0", "--max-tokens": "2048",
        "--update-freq": "4", "--keep-interval-updates": "1",
    }  # fmt: skip
    assert {name: value(words, name) for name in expected} == expected and "--bf16" in words and "--adam-betas" not in words


def test_averages_are_decoded_in_place_of_the_last_checkpoint():
    found = commands("decode", METHODS="none", AVERAGE="5", LENPEN="0.6")
    (average,) = of("average", found)
    assert average[-4:] == ["--last", "5", "--by", "update"]
    assert all(value(words, "--path").endswith("/average5.pt") for words in of("fairseq-generate", found))
    assert all(value(words, "--lenpen") == "0.6" for words in of("fairseq-generate", found))


@pytest.mark.parametrize(
    "subwords, joined", [("unigram", "sentencepiece"), ("bpe", "sentencepiece"), ("subword-nmt", "subword_nmt"), ("none", None)]
)
def test_subwords(subwords, joined):
    found = commands("prepare", "decode", METHODS="none", SUBWORDS=subwords, VOCABULARY="700")
    (preprocess,) = of("fairseq-preprocess", found)
    assert ("--nwordssrc" in preprocess) == (joined is None)
    for words in of("fairseq-generate", found):
        assert (value(words, "--remove-bpe") if joined else None) == joined and ("--remove-bpe" in words) == bool(joined)
    train = [words for words in of("spm.py", found) if "train" in words]
    assert [words[3:6] for words in train] == ([[subwords, "identity", "700"]] if joined == "sentencepiece" else [])


@pytest.mark.parametrize(
    "lines, updates, vocabulary, warmup",
    [(0, 500, 500, 125), (9_990, 999, 1248, 249), (29_000, 2900, 3625, 400), (2_000_000, 100_000, 32_000, 400)],
)
def test_defaults_follow_the_size_of_the_text(tmp_path, lines, updates, vocabulary, warmup):
    (tmp_path / "train.pt-BR").write_bytes(b"\n" * lines)
    found = commands(METHODS="none", TRAIN=str(tmp_path / "train"))
    (train,) = of("fairseq-train", found)
    assert [value(train, name) for name in ("--max-update", "--warmup-updates")] == [str(updates), str(warmup)]
    assert of("spm.py", found)[0][5] == str(vocabulary)
    (tmp_path / "train.pt-BR.gz").write_bytes(gzip.compress((tmp_path / "train.pt-BR").read_bytes()))
    (tmp_path / "train.pt-BR").unlink()
    assert of("fairseq-train", commands(METHODS="none", TRAIN=str(tmp_path / "train"))) == [train]


@pytest.mark.parametrize(
    "options, line",
    [
        ({"UPDATES": "5", "EPOCHS": "5"}, "UPDATES=5 EPOCHS=5: cannot be combined"),
        ({"SCHEDULE": "polynomial_decay", "EPOCHS": "5"}, "SCHEDULE=polynomial_decay: not supported with EPOCHS. Use UPDATES"),
        ({"AVERAGE": "1"}, "AVERAGE=1: not allowed. Expected 0"),
        ({"AVERAGE": "5", "EPOCHS": "5"}, "AVERAGE=5: not supported with EPOCHS"),
        ({"WARMUP": "400 0"}, "WARMUP=0: not supported with SCHEDULE=inverse_sqrt. Expected at least 1."),
        ({"SUBWORDS": "subword-nmt", "SUBWORD_LINES": "9"}, "SUBWORD_LINES=9: has no effect with SUBWORDS=subword-nmt"),
        ({"GPUS": "3"}, "UNITS=2: not divisible by the number of workers"),
        ({"TESTS": "news=x/n news.sub=x/m"}, "TESTS: news.sub begins with news and a dot, so that files of the two test sets"),
        ({"SOURCE": "pt BR"}, "SOURCE=pt BR: not allowed. Expected a language code"),
        ({"LR": "1e-3 x"}, "LR=1e-3 x: not allowed. Expected a list in which each value is a decimal number"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(options, line):
    assert line in refused(**options)


@pytest.mark.parametrize(
    "target, tokens", [("zh_Hans", "zh"), ("zho_Hant", "zh"), ("yue", "zh"), ("jpn_Jpan", "char"), ("TH", "char"), ("deu", "13a")]
)
def test_languages_without_blanks_have_their_tokenizer(target, tokens):
    assert {value(words, "--tokenize") for words in of("score", commands("score", METHODS="none", TARGET=target))} == {tokens}


# --- whole runs ---


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "corpus"
    write(folder)
    return folder


def compare(corpus, out, **options):
    tests = f"news={corpus}/test2024 web={corpus}/web"
    texts = {"TRAIN": f"{corpus}/train", "VALID": f"{corpus}/valid", "TESTS": tests, "SOURCE": "pt-BR", "TARGET": "en"}
    return Process(RECIPE, out, **{**texts, **MICRO, **options})


@pytest.mark.slow
def test_own_text_to_a_table_that_carries_its_names(corpus, tmp_path):
    recipe = compare(corpus, tmp_path / "out", METHODS="none t5:layers=0")
    printed = recipe.run()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    assert rows[0][0] == "method" and rows[0][1:4] == ["news BLEU", "news chrF", "news TER"] and "web BLEU" in rows[0]
    assert [row[0] for row in rows[2:4]] == ["none", "t5:layers=0"]
    assert "my corpus pt-BR-en" in printed and "Traceback" not in printed and "flickr" not in printed.lower()
    assert corpus_name(recipe.out / "data") == "my corpus pt-BR-en"
    parts = json.loads((recipe.out / "none" / "seed1" / "score.json").read_text())["parts"]
    assert (
        list(parts) == ["news", "web"] and "nrefs:2" in parts["web"]["bleu_signature"] and parts["web"]["others"]["ter"]["score"]
    )
    written = {path.suffix: path.read_text() for path in (recipe.out / "report").iterdir() if path.suffix in (".md", ".tex")}
    assert all("news" in text for text in written.values()) and {".md", ".tex"} <= set(written)
    before = recipe.files(recipe.out / "none")
    assert "made" not in recipe.run("prepare", "train", "decode", "score").lower() and recipe.files(recipe.out / "none") == before
    line = recipe.fails(BEAM="3")
    assert "decoded with other settings (BEAM=2, now 3)" in line and "-name .decode.done -o -name .score.done" in line


@pytest.mark.slow
def test_a_sweep_ends_with_one_table(corpus, tmp_path):
    compare(corpus, tmp_path / "out", LR="1e-3", TESTS=f"news={corpus}/test2024", UPDATES="2").run("prepare")  # no rows yet
    recipe = compare(corpus, tmp_path / "out", LR="1e-3 5e-4", TESTS=f"news={corpus}/test2024", UPDATES="2")
    rows = [line.split("|")[1].strip() for line in recipe.run().splitlines() if line.startswith("|")]
    assert rows[2:4] == ["none (lr=0.0005)", "none (lr=0.001)"]
    error = compare(corpus, tmp_path / "out", LR="1e-3", TESTS=f"news={corpus}/test2024", UPDATES="2").fails()
    assert f"OUT={tmp_path}/out: the options with several values were LR, and now are none. Expected the same options" in error


@pytest.mark.slow
@pytest.mark.parametrize("subwords", ["none", "subword-nmt"])
def test_moses_tokens_are_joined_before_scoring(corpus, tmp_path, subwords):
    recipe = compare(corpus, tmp_path / "out", TOKENIZE="moses", SUBWORDS=subwords, UPDATES="2", TESTS=f"news={corpus}/test2024",
                     VOCABULARY="" if subwords == "none" else "60")  # fmt: skip
    recipe.run("prepare", "train", "decode", "score")
    printed = (recipe.out / "none" / "seed1" / "news.out").read_text()
    assert all(line.endswith(" .") for line in (recipe.out / "text" / "news.en").read_text().splitlines())
    assert not any(line.endswith(" .") for line in (recipe.out / "raw" / "news.en").read_text().splitlines())
    targets, outputs = (re.findall(rf"^{kind}-\d+\t(?:-[^\t]*\t)?(.*)$", printed, re.MULTILINE) for kind in "TD")
    assert len(targets) == len(outputs) == 12 and not any(line.endswith(" .") for line in (*targets, *outputs))


@pytest.mark.slow
def test_killed_in_every_stage_it_ends_the_same(corpus, tmp_path):
    killed, whole = (
        compare(corpus, tmp_path / name, TESTS=f"news={corpus}/test2024", UPDATES="4") for name in ("killed", "whole")
    )
    killed.kill_in_every_stage("prepare", "train", "decode", "score")
    for recipe in (killed, whole):
        recipe.run("prepare", "train", "decode", "score")
    (one,), (other,) = killed.scores().values(), whole.scores().values()
    assert one["parts"] == other["parts"]


@pytest.mark.slow
def test_text_that_does_not_fit_is_one_line(corpus, tmp_path):
    recipe = compare(corpus, tmp_path / "out")
    assert re.search(
        r"size 72000: too large for this text\. Expected at most (\d+) pieces \(unigram\)\. Set VOCABULARY to at most \1\.$",
        recipe.fails("prepare", VOCABULARY="72000"),
    )
    assert "the text is too small for 9000 subwords" in compare(corpus, tmp_path / "b").fails(
        "prepare", VOCABULARY="9000", SUBWORDS="subword-nmt"
    )
    missing = compare(corpus, tmp_path / "c", TRAIN=f"{corpus}/nothing")
    line = missing.start("prepare").finish(status=2).splitlines()[-1]
    assert "nothing.pt-BR: no such file" in line
    assert "LENGTH=3: too short" in recipe.fails("prepare", LENGTH="3")
