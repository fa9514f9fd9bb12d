"""The study of concatenated captions: its commands, its scores, and a complete run on little data."""

import json
import re
import runpy
import shlex
import shutil
import subprocess

import pytest

from tests.recipes.captions import Recipe, write_corpus
from tests.recipes.process import ROOT, Process, environment, programs

RECIPE = ROOT / "recipes" / "studies" / "concatenation"
SCORES = runpy.run_path(str(ROOT / "recipes" / "lib" / "concatenation.py"))
VOCABULARY = "150"


def shown(**options) -> list:
    given = environment(DRY_RUN="1", POSENC_BIN=programs(), **options)
    found = subprocess.run([RECIPE], env=given, capture_output=True, text=True, check=True).stdout
    return [shlex.split(re.sub(r" >>? \S+\s*$", "", line)) for line in found.splitlines() if not line.startswith("#")]


def after(words, option):
    return words[words.index(option) + 1]


def test_training_texts_and_tests():
    found = shown(OUT="runs/x", SINGLE="none", DOCUMENTS="rope posenc_group", SEEDS="1 2", DATA_SEED="7")
    texts = [words for words in found if "concat" in words]
    mixes = {words[5]: words for words in texts if "--mix" in words and words[5].endswith("train")}
    assert {path: after(words, "--mix") for path, words in mixes.items()} == {
        "runs/x/L1/text/train": "1-1", "runs/x/L2/text/train": "1-2", "runs/x/L6/text/train": "1-6",
    }  # fmt: skip
    # Each training example of the text L1 is a single sentence. L1 does not need a separator
    assert [after(words, "--separator") for words in mixes.values()] == ["", "<sep>", "<sep>"]
    assert {after(words, "--seed") for words in mixes.values()} == {"7"}
    assert all(after(words, "--sentences") == "1-6" for words in texts if "--mix" not in words)
    (learned,) = [words for words in found if "recipes/lib/spm.py" in words and "train" in words]
    assert "--symbol=<sep>" in learned
    trained = [words for words in found if any(word.endswith("fairseq-train") for word in words)]
    assert len(trained) == 2 * (1 + 2 + 2)
    decoded = [words for words in found if words[0].endswith("fairseq-generate")]
    assert len(decoded) == 2 * (6 + 12 + 12 + 12 + 12)
    forced = [words for words in decoded if "--segments-forced" in words]
    assert {after(words, "--segments-forced") for words in forced} == {"<sep>"} and len(forced) == 2 * 24
    assert not [words for words in forced if "/L1/" in words[1]]
    assert found[-1][-5:] == ["table", "runs/x", "L1", "L2", "L6"]


def test_machines_divide_the_runs_of_all_conditions():
    given = {"OUT": "runs/x", "SINGLE": "none", "DOCUMENTS": "rope posenc_group", "SEEDS": "1 2"}
    whole, *shares = (shown(**given, **share) for share in ({}, {"SHARE": "1/3"}, {"SHARE": "2/3"}, {"SHARE": "3/3"}))
    for program, number in (("fairseq-train", 2 * (1 + 2 + 2)), ("fairseq-generate", 2 * (6 + 12 + 12 + 12 + 12))):
        found, *parts = ([words for words in of if any(word.endswith(program) for word in words)] for of in (whole, *shares))
        assert len(found) == number and sorted(words for part in parts for words in part) == sorted(found) and all(parts)


@pytest.mark.parametrize("captions", ["runs/y", str(ROOT / "runs" / "y")])
def test_the_link_to_a_model_of_captions_is_absolute(captions):
    found = shown(OUT="runs/x", CAPTIONS=captions, CONDITIONS="L1", SINGLE="none")
    (link,) = [words for words in found if words[0] == "ln"]
    assert link[2:] == [f"{ROOT}/runs/y/none/seed1/checkpoint_last.pt", "runs/x/L1_captions/none/seed1/checkpoint_last.pt"]


@pytest.mark.parametrize(
    "given, says",
    [
        ({"CONDITIONS": "L3"}, "CONDITIONS=L3"),
        ({"DRAWS": "0"}, "DRAWS=0: not allowed. Expected a whole number from 1"),
        ({"TEST": "59"}, "TEST=59: not allowed. Expected a whole number from 60"),
        ({"SINGLE": "all"}, "all is not allowed. Expected specs or architectures"),
        ({"SINGLE": "shw"}, "method 'shw': unknown"),
        ({"CAPTIONS": "runs/x", "DATA": "language"}, "CAPTIONS=runs/x: not available for DATA=language. Expected DATA=multi30k."),
        ({"CAPTIONS": "runs/x", "CONDITIONS": "L2"}, "CAPTIONS=runs/x: has no effect without L1."),
        ({"CAPTIONS": "no/folder"}, "CAPTIONS=no/folder: text/subwords.model is missing. Expected the output folder of"),
    ],
)
def test_options_that_cannot_be_are_one_line(given, says, tmp_path):
    assert says in Process(RECIPE, tmp_path / "out", **given).fails()


# -- scores --------------------------------------------------------------------------------------------------------------


def test_scores():
    references = ["a b c d <sep> e f g h", "i j k l <sep> m n o p"]
    same = SCORES["measured"](references, references, "<sep>")
    assert same["bleu"] == pytest.approx(100) and same["ratio"] == 1 and same["sentences"] == 1
    assert same["places"] == pytest.approx([100, 100])
    found = SCORES["measured"](["a b c d", "i j k l <sep> x x x x"], references, "<sep>")
    assert found["ratio"] == 12 / 16 and found["sentences"] == 0.5  # the first output lacks one sentence
    assert found["places"][0] == pytest.approx(100) and found["places"][1] < 10
    none = SCORES["measured"](["a", "b"], references, "<sep>")
    assert none["places"] == [None, None] and none["sentences"] == 0
    assert SCORES["split"]("<sep> a  b <sep>", "<sep>") == ["", "a b", ""]
    assert SCORES["split"]("a<sep>b c", "<sep>") == ["a", "b c"]


def write_scores(folder, bleu=10.0):
    folder.mkdir(parents=True)
    numbers = {"bleu": bleu, "chrf": 30.0, "ratio": 0.5, "sentences": 1.0, "places": [1.0] * 6}
    (folder / "concatenation.json").write_text(json.dumps({"plain": {str(k): numbers for k in range(1, 7)}}))


def test_the_table_has_means_over_seeds(tmp_path, capsys):
    for seed, bleu in ((1, 10.0), (2, 20.0)):
        write_scores(tmp_path / "L2" / "rope" / f"seed{seed}", bleu)
    SCORES["table"](str(tmp_path), "L2")
    printed = capsys.readouterr().out
    assert "| L2         | rope     |       2 | 15.0 | 15.0 |" in printed and "forced" not in printed
    assert (tmp_path / "table.md").read_text() == printed and (tmp_path / "bleu.png").exists()
    with pytest.raises(SystemExit, match="has no scored run"):
        SCORES["table"](str(tmp_path), "L1")


@pytest.mark.parametrize(
    "folder, spec",
    [
        ("rope", "rope"), ("posenc_segment_shift", "posenc_segment_shift"),
        ("sinusoidal+segments_place=input", "sinusoidal+segments:place=input"),
        ("posenc_shaw_max_distance=8", "posenc_shaw:max_distance=8"), ("rope_scaled_scaling=yarn", "rope_scaled:scaling=yarn"),
    ],
)  # fmt: skip
def test_rows_are_named_by_their_specs(folder, spec):
    assert SCORES["spec_of"](folder) == spec


def test_rows_are_named_as_the_recipe_names_them(monkeypatch):
    rows = ["rope:layers=0/2", "group:separator=<sep>", "encoder=shaw:max_distance=8;cross=none"]
    monkeypatch.setenv("METHODS", " ".join(rows))
    folders = ["rope_layers=0_2", "group_separator=_sep_", "encoder=shaw_max_distance=8_cross=none"]
    assert list(map(SCORES["spec_of"], folders)) == rows


def test_the_part_of_bleu_that_remains_is_that_of_each_seed():
    """Each score is divided by the score of the same seed. The part is unknown if the score with one sentence is 0."""
    runs = [{"plain": {"1": {"bleu": first}, "3": {"bleu": 5.0}}} for first in (10.0, 20.0, 0.0)]
    found = [SCORES["with_kept"](run) for run in runs]
    assert [run["plain"]["3"]["kept"] for run in found] == [0.5, 0.25, None]
    assert SCORES["mean"](found, "plain", 3, "kept") == 0.375


def test_runs_with_other_settings_are_not_in_one_table(tmp_path):
    for seed, updates in ((1, 50), (2, 6000)):
        folder = tmp_path / "L2" / "rope" / f"seed{seed}"
        write_scores(folder)
        (folder / ".score.done").write_text(f"DATA=language\nUPDATES={updates}\n")
    with pytest.raises(SystemExit, match=r"seed2 has other settings \(UPDATES=6000\) than .*seed1 \(UPDATES=50\)"):
        SCORES["table"](str(tmp_path), "L2")


def test_settings_that_an_earlier_version_did_not_write_are_not_compared(tmp_path, capsys):
    for seed, settings in ((1, ""), (2, "DATA=language\n"), (3, "DATA=language\nUPDATES=5\n")):
        folder = tmp_path / "L2" / "rope" / f"seed{seed}"
        write_scores(folder)
        (folder / ".score.done").write_text(settings)
    SCORES["table"](str(tmp_path), "L2")
    assert "| L2         | rope     |       3 |" in capsys.readouterr().out


def test_rows_of_different_models_of_captions_are_in_one_table(tmp_path, capsys):
    """The settings contain the checksum of the model of CAPTIONS, which differs between all runs."""
    for number, row in enumerate(("none", "rope")):
        write_scores(tmp_path / "L1_captions" / row / "seed1")
        (tmp_path / "L1_captions" / row / "seed1" / ".score.done").write_text(f"CAPTIONS=runs\nCAPTIONS_MODEL={number} 9\n")
    SCORES["table"](str(tmp_path), "L1_captions")
    assert "| L1_captions | rope " in capsys.readouterr().out


def test_three_seeds_have_an_interval(tmp_path, capsys):
    for seed, bleu in ((1, 10.0), (2, 20.0), (3, 30.0)):
        write_scores(tmp_path / "L2" / "rope" / f"seed{seed}", bleu)
    SCORES["table"](str(tmp_path), "L2")
    printed = capsys.readouterr().out
    # 20 +- t(.975, 2) * 10 / sqrt(3), with t = 4.30265
    assert (
        "| L2         | rope     |       3 | 20.0 [-4.8, 44.8] |" in printed and "Brackets contain the 95 % interval" in printed
    )


def test_models_without_separators_are_left_out_of_the_tables_of_sentences(tmp_path, capsys):
    for condition in ("L1", "L2"):
        write_scores(tmp_path / condition / "rope" / "seed1")
    SCORES["table"](str(tmp_path), "L1", "L2")
    tables = capsys.readouterr().out.split("## ")
    assert {" ".join(table.split()[:2]): "| L1 " in table for table in tables[1:]} == {
        "BLEU by": False, "BLEU divided": True, "chrF by": True, "Words of": True, "Share of": False,
    }  # fmt: skip
    assert "| L1 " in tables[1] and "trained without separators" in tables[-1]


def test_scores_of_several_folders_are_stored_in_one_file(tmp_path, capsys):
    results = tmp_path / "results"
    for seed, bleu in ((1, 10.0), (2, 20.0)):
        write_scores(tmp_path / f"out{seed}" / "L2" / "rope" / f"seed{seed}", bleu)
        SCORES["store"](str(results), str(tmp_path / f"out{seed}"), "L2")
    SCORES["table"](str(results), "L2")
    assert "| L2         | rope     |       2 | 15.0 | 15.0 |" in capsys.readouterr().out


def test_the_committed_table_is_that_of_its_scores(tmp_path):
    committed = ROOT / "results" / "concatenation" / "multi30k_en-de"
    shutil.copy(committed / "scores.json", tmp_path)
    SCORES["table"](str(tmp_path), *json.loads((committed / "scores.json").read_text()))
    for name in ("table.md", "table.csv"):
        assert (tmp_path / name).read_bytes() == (committed / name).read_bytes()
    assert (committed / "bleu.png").exists()


@pytest.mark.parametrize(
    "scored, end",
    [
        (["L2", "L6"], None),
        (["L1_captions"], "trained by recipes/multi30k_uk."),
        (["L1_captions", "L6"], "than the models of L6. Compare the models of L1_captions only with each other."),
        (["L1_captions", "L2", "L6"], "than the models of L2 and L6. Compare the models of L1_captions only with each other."),
    ],
)
def test_the_table_names_models_that_cannot_be_compared(scored, end, tmp_path, capsys):
    for condition in scored:
        write_scores(tmp_path / condition / "rope" / "seed1")
    SCORES["table"](str(tmp_path), "L1_captions", "L2", "L6")
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("The models")]
    assert len(notes) == (end is not None)
    assert all(note.endswith(end) for note in notes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The recipe multi30k_uk with one trained model from English to German."""
    folder = tmp_path_factory.mktemp("trained")
    write_corpus(folder / "corpus", ("en", "de"), {"train": 300, "val": 24, "test_2016_flickr": 60}, most=4)
    recipe = Recipe(folder / "corpus", folder / "captions", TARGET="de", METHODS="none", EPOCHS="1", VOCABULARY=VOCABULARY)
    recipe.run("fetch", "prepare", "train")
    return recipe


def study_of(trained, out, **options):
    """Return the study that decodes the models of `trained` as L1. With CAPTIONS="", the study trains a small model."""
    given = {
        "DATA_FROM": str(trained.corpus), "CAPTIONS": str(trained.out), "CONDITIONS": "L1", "SINGLE": "none", "BEAM": "1",
        "VOCABULARY": VOCABULARY, "DRAWS": "1", "UPDATES": "1", "TRAIN_OPTIONS": "--encoder-layers 1 --decoder-layers 1",
    }  # fmt: skip
    return Process(RECIPE, out, **{**given, **options})


@pytest.mark.slow
def test_it_trains_decodes_and_compares(trained, tmp_path):
    own = {"CAPTIONS": "", "UPDATES": "3", "DRAWS": "2"}
    recipe = study_of(trained, tmp_path / "out", CONDITIONS="L1 L2", DOCUMENTS="posenc_g_transformer", **own)
    printed = recipe.run()
    assert "BLEU by sentences per line" in printed and "number of sentences forced" in printed
    rows = (recipe.out / "table.csv").read_text().splitlines()
    forced = next(row for row in rows if row.startswith("sentences,forced,L2,posenc_g_transformer"))
    assert forced.split(",")[5:] == ["1.0"] * 6
    whole = recipe.out / "L1" / "none" / "seed1" / "concatenation.json"

    killed = study_of(trained, tmp_path / "killed", **own)
    killed.kill_in_every_stage()
    killed.run()
    assert (killed.out / "L1" / "none" / "seed1" / "concatenation.json").read_text() == whole.read_text()


@pytest.mark.slow
def test_it_prepares_the_artificial_language(tmp_path):
    recipe = Process(RECIPE, tmp_path / "out", DATA="language", SENTENCES="60", TEST="60", CONDITIONS="L2", VOCABULARY="120")
    recipe.run("prepare")
    lines = {path.name: path.read_text().splitlines() for path in (recipe.out / "L2" / "text").glob("*.svo")}
    assert len(lines["test.k1.svo"]) == 60 and len(lines["test.k6.svo"]) == 10
    assert all(line.count("<sep>") == 5 for line in lines["test.k6.svo"])
    assert {line.count("<sep>") for line in lines["train.svo"]} == {0, 1}
    assert (recipe.out / "L2" / "data" / "test5.svo-sov.sov.bin").exists()


@pytest.mark.slow
def test_models_of_captions_are_decoded_without_training(trained, tmp_path):
    recipe = study_of(trained, tmp_path / "out")
    printed = recipe.run()
    assert "| L1_captions | none" in printed and "fairseq-train" not in printed
    checkpoint = recipe.out / "L1_captions" / "none" / "seed1" / "checkpoint_last.pt"
    assert checkpoint.resolve() == trained.checkpoint().resolve()
    assert json.loads((checkpoint.parent / "concatenation.json").read_text())["plain"].keys() == set("123456")
    for stamp, name in (
        (recipe.out / "L1_captions/data/.preprocess.done", "SUBWORDS"),
        (checkpoint.parent / ".train.done", "MODEL"),
    ):
        written = stamp.read_text()
        stamp.write_text(re.sub(rf"CAPTIONS_{name}=\d+", f"CAPTIONS_{name}=1", written))  # as if this file has changed since
        assert f"(CAPTIONS_{name}=1 " in study_of(trained, recipe.out).fails()
        stamp.write_text(written)
    changed = study_of(trained, recipe.out, CAPTIONS=f"{trained.out}/")
    assert f"(CAPTIONS={trained.out}, now {trained.out}/)" in changed.fails()
    line = study_of(trained, tmp_path / "more", SINGLE="none rope").fails()
    assert f"{trained.out}/rope/seed1: not trained, or not completely. Expected a run of rope with seed 1." in line
    assert not (tmp_path / "more").exists()
    model = trained.checkpoint()
    model.rename(model.with_name("aside"))
    try:  # the finished stages do not need the checkpoint
        assert "| L1_captions | none" in recipe.run("table")
        line = study_of(trained, tmp_path / "late").fails("prepare", "train")
        assert f"{model}: no such file. Expected the model of CAPTIONS." in line
    finally:
        model.with_name("aside").rename(model)


@pytest.mark.slow
def test_models_of_captions_and_models_of_the_study_have_separate_folders(trained, tmp_path):
    before = trained.checkpoint().read_bytes()
    recipe = study_of(trained, tmp_path / "out")
    recipe.run("prepare", "train")
    (recipe.out / "L1_captions" / "none" / "seed1" / ".train.done").unlink()  # as if killed before the stamp was written
    recipe.run("prepare", "train", CAPTIONS="")
    checkpoint = recipe.out / "L1" / "none" / "seed1" / "checkpoint_last.pt"
    assert checkpoint.exists() and not checkpoint.is_symlink() and trained.checkpoint().read_bytes() == before
    files = recipe.files(recipe.out / "L1")
    recipe.run("prepare", "train")
    assert recipe.files(recipe.out / "L1") == files
