"""recipes/reproduce repeats committed training runs.

For every folder under results/ with a file `recipe`, the commands have the options that are stored with the committed runs.
"""

import functools
import json
import lzma
import re
import shlex
import shutil
import subprocess

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.evaluation.report.records import SeedVariance
from fairseq_posenc.evaluation.report.reproduction import compare, recipe_arguments
from fairseq_posenc.evaluation.scoring import archive
from fairseq_posenc.evaluation.scoring.record import Record
from fairseq_posenc.host.checkpoints import read
from fairseq_posenc.registry.spec import sites_of
from tests.recipes.process import ROOT, environment, programs
from tests.report.runs import run as made_up

FOLDERS = sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.glob("results/**/recipe"))
RUN = "results/multi30k_en-de/tiny/t5/seed1"
CONTROL = "results/all_methods/float32/posenc_tpe_random/seed1"  # a run with random structure
#: options that fairseq changes after reading them
LATER = {"share_decoder_input_output_embed"}


@functools.cache
def runs_of(folder):
    """Return path of a run -> record."""
    return {path.parent.relative_to(ROOT): record for path, record in archive.find(ROOT / folder).items()}


def reproduce(*arguments, **options):
    command = [ROOT / "recipes" / "reproduce", *arguments]
    given = environment(DRY_RUN="1", POSENC_BIN=programs(), **options)
    return subprocess.run(command, env=given, capture_output=True, text=True)


def parsed(command):
    """Return the arguments that fairseq-train parses from a command line."""
    from fairseq import options

    words = shlex.split(command)
    arguments = words[words.index(next(word for word in words if word.endswith("fairseq-train"))) + 1 : words.index(">>")]
    return options.parse_args_and_arch(options.get_training_parser(), arguments)


def names_of(folder) -> list[str]:
    """Return the paths of the runs. The statistics of sentences are not decoded, because this takes long."""
    found: list[str] = []
    for path in (ROOT / folder).rglob(archive.FILE):
        records = lzma.decompress(path.read_bytes()).partition(b"\0")[0]
        found += [str(path.parent.relative_to(ROOT) / name) for name in json.loads(records)["runs"]]
    return sorted(found)


@pytest.mark.parametrize("run", [*(run for folder in FOLDERS for run in names_of(folder)[:2]), CONTROL])
def test_the_recipe_has_the_options_of_the_committed_run(run):
    done = reproduce(run, OUT="runs/x")
    assert done.returncode == 0, done.stderr
    (command,) = [line for line in done.stdout.splitlines() if "fairseq-train" in line]
    given = vars(parsed(command))
    record = next(runs_of(folder)[path] for folder in FOLDERS for path in runs_of(folder) if str(path) == run)
    committed = {name: value for name, value in record.settings.items() if name in given and name not in LATER}
    assert len(committed) > 50
    shown = json.loads(json.dumps({name: given[name] for name in committed}, default=str))
    assert {name: (committed[name], shown[name]) for name in committed if str(committed[name]) != str(shown[name])} == {}
    assert given["seed"] == record.seed


def folder_of(row: str) -> str:
    """Return the folder name of a row. `run_folder` in recipes/lib/methods.sh computes the same name."""
    return re.sub(r"[^A-Za-z0-9.,=+_-]", "_", row)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_recipe_trains_the_row_of_the_run(folder):
    """The row in METHODS has the folder of the run. If and only if the run has random structure, the row ends with @random."""
    for run, record in runs_of(folder).items():
        row = recipe_arguments(ROOT / folder, run, record)[-2].removeprefix("METHODS=")
        assert folder_of(row) == run.parent.name
        assert row.endswith("@random") == (record.settings.get("random_structure") is not None)


@pytest.mark.parametrize("ending", ["", "@random"])
@pytest.mark.parametrize(
    ("row", "arch"),
    [
        ("posenc_deberta:terms=c2p/p2c,max_distance=8", "posenc_deberta_small"),
        ("posenc_tpe:degree=4", "posenc_tpe"),
        ("posenc_universal_halting", "posenc_universal_halting_tiny"),
        ("sinusoidal+tpe:degree=4", "posenc_transformer_tiny"),
        ("encoder=sinusoidal+tpe;cross=t5", "posenc_transformer_tiny"),
    ],
)
def test_a_row_may_have_options_and_random_structure(tmp_path, row, arch, ending):
    (tmp_path / "recipe").write_text("recipes/quickstart")
    specs = sites_of(row) if "posenc" not in row else {"encoder": "sinusoidal", "decoder": "none", "cross": "none"}
    if ":" in row and "posenc" in row:
        specs["encoder"] += "+" + row.removeprefix("posenc_")
    record = next(iter(runs_of(FOLDERS[0]).values()))
    settings = {**record.settings, "random_structure": 1 if ending else None}
    record = record.model_copy(update={"arch": arch, "method": specs, "settings": settings, "seed": 3})
    run = tmp_path / folder_of(row + ending) / "seed3"
    assert recipe_arguments(tmp_path, run, record) == ["recipes/quickstart", f"METHODS={row}{ending}", "SEEDS=3"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_new_option_does_not_separate_earlier_runs(folder):
    """Every option in the record of a new run is also in the records of committed runs.

    A report can therefore compare new runs with committed runs.
    """
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    run, record = next(iter(runs_of(folder).items()))
    (command,) = [line for line in reproduce(str(run), OUT="runs/x").stdout.splitlines() if "fairseq-train" in line]
    config = convert_namespace_to_omegaconf(parsed(command))
    state = {"cfg": config, "model": {}, "optimizer_history": [{"num_updates": 0}]}
    assert set(read.training_of(state).settings) - set(record.settings) == set()


@pytest.fixture
def committed(tmp_path, monkeypatch):
    """Copy the results of five seeds of sinusoidal.

    Return a function that writes a run with the content of one of these runs and with changed fields.
    """
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "results/chance/multi30k_en-de", tmp_path / "results")
    runs = {f"{record.seed}": record for record in archive.find(tmp_path / "results").values()}

    def repeat(of="1", **changed):
        content = runs[of].model_dump(mode="json", exclude_unset=True)
        content = {**content, "seed": 1, **changed}
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "score.json").write_text(json.dumps(content))
        return content

    repeat.runs = runs
    return repeat


def verify(*arguments):
    return main(["verify", "results/sinusoidal/seed1", "run", *arguments])


def test_the_same_numbers(committed, capsys):
    committed()
    assert verify() == 0
    assert capsys.readouterr().out.endswith("The repetition has exactly the committed numbers.\n")


def test_another_seed_is_within_seed_variance(committed, capsys):
    committed(of="2")
    assert verify() == 0
    printed = capsys.readouterr().out
    assert printed.endswith("The difference is within seed variance (95 %).\n") and "range of another seed" in printed


def test_a_score_that_another_seed_would_not_have(committed, capsys):
    content = committed()
    part = next(iter(content["parts"]))
    content["parts"][part]["bleu"] -= 10
    committed(parts=content["parts"])
    assert verify() == 1
    assert capsys.readouterr().out.endswith(f"Further away than another seed would be: {part} BLEU.\n")


def test_a_repetition_may_have_more_test_sets_and_metrics(committed, capsys):
    content = committed()
    (part,) = content["parts"]
    scores = {
        **content["parts"][part],
        "others": {"ter": {"metric": "nrefs:1|case:lc", "score": 60.0, "smaller_is_better": True, "statistics": "x"}},
    }
    committed(parts={part: scores, "web": content["parts"][part]})
    assert verify() == 0
    assert capsys.readouterr().out.endswith("The repetition has exactly the committed numbers.\n")


def test_committed_runs_have_no_hashes_of_side_files(committed, capsys):
    content = committed()
    committed(settings={**content["settings"], "side_files": {"text": "T", "heads": "A"}})
    assert verify() == 0, capsys.readouterr().out


def test_requested_lengths_are_not_a_repetition(committed, capsys):
    content = committed()
    (part,) = content["parts"]
    asked = {"source": "reference", "ratio": 1.0, "unit": "token", "end": "free"}
    committed(parts={part: {**content["parts"][part], "asked": asked}})
    assert verify() == 1
    assert "Not a repetition: " in capsys.readouterr().out


def test_the_range_of_a_score_is_at_most_100():
    contents = [made_up("t5", seed) for seed in (1, 2, 3)]
    for content, score in zip(contents, (99.0, 85.0, 92.0)):
        content["parts"]["test"]["bleu"] = score
    records = [Record.model_validate_json(json.dumps(content)) for content in contents]
    bleu = compare(records, records[0], records[0], SeedVariance())[0]
    assert bleu.name == "test BLEU" and 0 < bleu.low < 90 and bleu.high == 100


def test_another_experiment_is_not_a_repetition(committed, capsys):
    content = committed()
    committed(settings={**content["settings"], "dropout": 0.25}, parameters=content["parameters"] + 1)
    assert verify() == 1
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("Not a repetition: parameters (") and "settings.dropout (0.1 and 0.25)" in line


def test_a_repetition_that_did_not_end_is_one_line(committed, capsys):
    content = committed()
    committed(settings={**content["settings"], "patience": 10}, ended=False)
    assert verify() == 2
    assert capsys.readouterr().err.startswith(
        "posenc: run: the training run did not end. Expected a training run that has ended."
    )


def test_a_repetition_that_diverged_has_another_learning_curve(committed, capsys):
    content = committed()
    (updates, _), *more = content["learning_curve"]
    committed(learning_curve=[[updates, None], *more])
    assert verify() == 1
    printed = capsys.readouterr().out
    assert f"\nLearning curves: after {updates:,} updates, only one of the two losses is finite.\n" in printed
    assert printed.endswith("Only one of the two runs has a validation loss that is NaN or infinite.\n")


def test_another_version_is_named(committed, capsys):
    content = committed()
    committed(versions={**content["versions"], "torch": "9.9"})
    assert verify() == 0
    assert f"torch: {content['versions']['torch']} and 9.9.\n" in capsys.readouterr().out


def test_a_run_of_a_version_with_fewer_options_is_repeated(committed):
    content = committed()
    fewer = {site: text.replace("layers=all,", "") for site, text in content["signature"].items()}
    assert fewer != content["signature"]
    committed(signature=fewer)
    assert verify() == 0


def test_without_a_run_it_prints_the_command(committed, capsys):
    assert main(["verify", "results/sinusoidal/seed1"]) == 0
    assert capsys.readouterr().out == "recipes/multi30k_uk/run TARGET=de METHODS=sinusoidal SEEDS=1\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([f"{RUN}5"], f"posenc: {RUN}5: no such run. Expected one of"),
        (["README.md"], "posenc: README.md: no parent folder contains a file with the name 'recipe'."),
        ([RUN, "BEEM=3"], "recipes/multi30k_uk/run: BEEM: unknown option. Did you mean BEAM?"),
        ([RUN, "SEEDS=3"], "recipes/reproduce: SEEDS: not an option here"),
        ([RUN, "table"], "recipes/reproduce: table: not an option. Expected NAME=VALUE"),
        (["DATA_FROM=x"], "recipes/reproduce: DATA_FROM=x: not a run."),
    ],
)
def test_wrong_input_is_one_line(arguments, line):
    done = reproduce(*arguments)
    assert done.returncode and done.stderr.startswith(line) and done.stderr.count("\n") == 1, done.stderr


def test_help_is_the_comment_of_the_recipe():
    done = reproduce("--help")
    assert done.returncode == 0 and "recipes/reproduce results/" in done.stdout and "set -euo" not in done.stdout
