"""The recipe wmt18: its commands, and a complete run on a small mirror."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures
from tests.recipes.captions import assert_same_parameters, of, value
from tests.recipes.news import SIZES, write_mirror
from tests.recipes.process import ROOT, Process, environment, programs

RECIPE = ROOT / "recipes" / "wmt18" / "run"
PAIRS = ("en-de", "de-en", "en-cs", "cs-en")
MICRO = {
    "SIZE": "tiny", "VOCABULARY": "80", "BATCH": "512", "UNITS": "2", "UPDATES": "24", "WARMUP": "5", "BEAM": "2",
    "SAVE_UPDATES": "8", "METHODS": "none", "LENGTH": "64", "JOBS": "1",
    "TRAIN_OPTIONS": "--encoder-layers 1 --decoder-layers 1 --log-interval 1",
}  # fmt: skip


def commands(*stages, **options):
    environ = environment(DRY_RUN="1", **{"POSENC_BIN": "/opt/bin", "OUT": "runs/x", **options})
    shown = subprocess.run([RECIPE, *stages], env=environ, capture_output=True, text=True, check=True).stdout
    return [shlex.split(line) for line in shown.splitlines() if not line.startswith("#")]


# --- commands ---


def test_another_language_in_the_same_folder_is_refused(tmp_path):
    """Both directions of a language pair use the same text files.

    The stamp of these text files (text/.fetch.done) contains the language pair.
    """
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / ".fetch.done").write_text("LANGUAGES=en-de\nCLEAN=none\n")
    for pair in PAIRS:
        given = environment(POSENC_BIN=programs(), OUT=str(tmp_path), PAIR=pair, METHODS="none")
        done = subprocess.run([RECIPE, "table"], env=given, capture_output=True, text=True)
        line = f"{tmp_path}/text: created with other settings (LANGUAGES=en-de, now en-cs)"
        assert (line in done.stderr) == ("cs" in pair) and "Traceback" not in done.stderr


def test_base_has_the_settings_of_tensor2tensor():
    (words, *_) = of("fairseq-train", commands("train"))
    expected = {
        "--arch": "posenc_transformer", "--encoder-position": "sinusoidal", "--dropout": "0.1", "--attention-dropout": "0.1",
        "--activation-dropout": "0.1", "--label-smoothing": "0.1", "--adam-betas": "(0.9, 0.997)", "--adam-eps": "1e-9",
        "--lr": "1e-3",
        "--lr-scheduler": "inverse_sqrt", "--warmup-updates": "8000", "--max-update": "250000", "--max-tokens": "4096",
        "--update-freq": "8", "--max-source-positions": "256", "--upsample-primary": "1",
    }  # fmt: skip
    assert {option: value(words, option) for option in expected} == expected
    assert {"--encoder-normalize-before", "--decoder-normalize-before", "--share-all-embeddings", "--fp16"} <= set(words)
    (words, *_) = of("fairseq-generate", commands("decode"))
    assert value(words, "--beam") == "10" and value(words, "--lenpen") == "0.6" and value(words, "--max-len-b") == "200"
    assert value(words, "--max-tokens") == "8000"
    (words, *_) = of("fairseq-generate", commands("decode", DECODE_TOKENS="2000"))
    assert value(words, "--max-tokens") == "2000"


def test_subwords_change_no_character():
    """SentencePiece's default rule changes characters of targets, such as the sign for a half.

    References keep these characters.
    """
    (words, *_) = of("spm.py", commands("prepare"))
    assert words[2:5] == ["train", "bpe", "identity"]


def test_its_page_states_what_the_paper_leaves_open():
    page = " ".join((ROOT / "recipes" / "wmt18" / "README.md").read_text(encoding="utf-8").split())
    for words in (
        "whether cross-attention is one of these layers",
        "change self-attention",
        "at most 200 subwords (`--max-len-b 200`",
        "16 GB, use `DECODE_TOKENS=4000`",
        "the normalisation rule `identity`",
    ):
        assert words in page, words


def test_its_rows_are_those_of_the_paper():
    for pair in PAIRS:
        found = commands("train", "table", PAIR=pair)
        published = json.loads((ROOT / "recipes" / "wmt18" / "published" / f"{pair}.json").read_text())
        assert [value(words, "--encoder-position") for words in of("fairseq-train", found)] == list(published["figures"])
        assert value(found[-1], "--published") == f"recipes/wmt18/published/{pair}.json"


@pytest.mark.parametrize(
    "workers, start",
    [
        ({"GPUS": "8"}, "fairseq-train"),
        ({"GPUS": "4", "NNODES": "2", "MASTER_ADDR": "m0"}, "torchrun"),
        ({"GPUS": "2", "NNODES": "2", "SLURM": "1"}, "srun"),
        ({"GPUS": "0", "PROCS": "2"}, "fairseq-train"),
    ],
    ids=str,
)
def test_an_update_has_the_same_batch_on_any_number_of_workers(workers, start):
    train = of(start, commands("train", METHODS="none", **workers))
    number = int(workers.get("PROCS", 1)) if workers["GPUS"] == "0" else int(workers["GPUS"]) * int(workers.get("NNODES", 1))
    for words in train:
        assert int(value(words, "--max-tokens")) * int(value(words, "--update-freq")) * number == 32768
        assert int(value(words, "--distributed-world-size")) == number


def test_both_directions_share_archives_text_and_vocabulary():
    one, other = (commands("fetch", "prepare", PAIR=pair) for pair in ("en-cs", "cs-en"))
    for tool in ("wmt18", "spm.py", "parts.py"):
        assert of(tool, one) == of(tool, other) != []
    assert of("fairseq-preprocess", one) != of("fairseq-preprocess", other)


def test_averages_are_decoded_beside_the_last_checkpoint():
    found = commands("train", "decode", "score", AVERAGE="5", METHODS="none")
    assert value(of("fairseq-train", found)[0], "--keep-interval-updates") == "5"
    assert [Path(value(words, "--path")).name for words in of("fairseq-generate", found)] == ["checkpoint_last.pt", "average5.pt"]
    assert [word.split("=")[0] for word in of("score", found)[0][-2:]] == ["newstest2018", "newstest2018_average5"]


@pytest.mark.parametrize(
    "options, line",
    [
        ({"PAIR": "de-cs"}, "PAIR=de-cs: not allowed. Expected one of: en-de de-en en-cs cs-en"),
        ({"CLEAN": "1"}, "CLEAN=1: not allowed. Expected one of: none basic"),
        ({"PRECISION": "fp64"}, "PRECISION=fp64: not allowed. Expected one of: fp16 bf16 fp32"),
        ({"GPUS": "3"}, "UNITS=8: not divisible by the number of workers. Expected a multiple of 3."),
        ({"PART": "0"}, "PART=0: not allowed. Expected a whole number from 1"),
    ],
    ids=str,
)
def test_wrong_options_are_one_line(options, line):
    done = subprocess.run([RECIPE], env=environment(**options), capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1 and line in done.stderr


# --- on a small mirror ---


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mirror")
    write_mirror(folder)
    return folder


def recipe(mirror, out, **options):
    place = {"DATA_FROM": str(mirror), "CHECKSUMS": str(mirror / "sums"), "DOWNLOADS": str(out.parent / "downloads")}
    return Process(RECIPE, out, **{**MICRO, **place, **options})


@pytest.fixture(scope="module")
def whole(mirror, tmp_path_factory):
    found = recipe(mirror, tmp_path_factory.mktemp("wmt18") / "out", AVERAGE="2")
    return found, found.run()


def state(found, pair="en-de", name="checkpoint_last.pt"):
    return torch.load(found.out / pair / "tiny" / "none" / "seed1" / name, weights_only=True)


def prepared(found, pair="en-de"):
    return contents(found.out / "data" / pair)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".bin", ".idx", ".txt")}


@pytest.mark.slow
def test_it_ends_with_the_table_beside_the_published_figures(whole):
    found, printed = whole
    assert "Traceback" not in printed and "not run" not in printed and "published" in printed
    (record,) = found.scores().values()
    assert set(record["parts"]) == {"newstest2018", "newstest2018_average2"} and record["updates"] == 24
    assert "&amp;" in (found.out / "text" / "newstest2018.en-de.de").read_text()


@pytest.mark.slow
def test_the_other_direction_prepares_binary_data_alone(whole):
    found, _ = whole
    printed = found.run(PAIR="de-en", AVERAGE="0")
    assert printed.count("done before") == 3 and "not run" not in printed
    assert prepared(found)["dict.de.txt"] == prepared(found, "de-en")["dict.en.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["en-cs", "cs-en"])
def test_czech(pair, mirror, tmp_path):
    printed = recipe(mirror, tmp_path / "out", PAIR=pair, UPDATES="4", PARACRAWL="1", CLEAN="basic").run()
    assert "not run" not in printed and "Traceback" not in printed
    assert len((tmp_path / "out" / "text" / f"newstest2018.{pair}.en").read_text().splitlines()) == SIZES["test"]


@pytest.mark.slow
def test_parts_and_one_file_train_the_same(whole, mirror, tmp_path):
    """fairseq-preprocess on the whole text writes the same dictionary and the same data as the recipe."""
    one = whole[0]
    many = recipe(mirror, tmp_path / "out", PART="900")
    many.run("fetch", "prepare", "train")
    assert len([name for name in prepared(many) if re.fullmatch(r"train\d*\.en-de\.en\.bin", name)]) > 2
    assert_same_parameters(state(one), state(many), rtol=0, atol=0)
    text = one.out / "text"
    command = [
        f"{programs()}/fairseq-preprocess",
        *"--source-lang en --target-lang de --joined-dictionary --destdir".split(),
        tmp_path / "x",
    ]
    for option, name in (("train", "train"), ("valid", "valid"), ("test", "newstest2018.en-de")):
        command += [f"--{option}pref", text / f"{name}.sub"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    theirs = contents(tmp_path / "x")
    assert theirs == {name: body for name, body in prepared(one).items() if name != "corpus.txt"}


@pytest.mark.slow
def test_two_processes_prepare_the_same(whole, mirror, tmp_path):
    both = recipe(mirror, tmp_path / "out", JOBS="2")
    both.run("fetch", "prepare")
    assert prepared(both) == prepared(whole[0])


@pytest.mark.slow
def test_killed_in_every_stage_and_before_its_stamp_it_ends_the_same(whole, mirror, tmp_path):
    found = recipe(mirror, tmp_path / "out", AVERAGE="2")
    found.kill_in_every_stage()
    found.run()
    assert prepared(found) == prepared(whole[0])
    assert_same_parameters(state(found), state(whole[0]), rtol=0, atol=0)
    ((run, record),) = found.scores().items()
    assert record["parts"] == whole[0].scores()[run]["parts"]


@pytest.mark.slow
def test_a_sentence_beyond_the_positions_is_found_before_training(whole, mirror, tmp_path):
    found = recipe(mirror, tmp_path / "out", LENGTH="12")
    shutil.copytree(whole[0].out / "text", found.out / "text")
    (found.out / "text" / ".subwords.done").unlink()
    printed = found.start("prepare").finish(status=1)
    assert re.search(r"\.sub\.\w\w, line \d+, has \d+ subwords\n.*LENGTH=12: too short", printed)


def test_too_large_a_part_is_refused(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text("a b\n")
    command = f"{programs()}/python recipes/lib/parts.py {1 << 30} {tmp_path}/dict {tmp_path}/list {tmp_path}/train en de"
    done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "Expected at most" in done.stderr and not (tmp_path / "list").exists()
