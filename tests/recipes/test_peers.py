"""The study of peers: its commands, the configuration of Eole, and the table of measured times."""

import itertools
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.recipes.process import ROOT, Process, environment

RECIPE = ROOT / "recipes" / "studies" / "peers"
HELPER = ROOT / "recipes" / "lib" / "peers.py"
PINS = ROOT / "recipes" / "lib" / "peers.txt"


def commands(*stages, **options):
    """Return every command that the recipe would run, as lists of words without redirections."""
    given = environment(DRY_RUN="1", **{"POSENC_BIN": "bin", "OUT": "runs/x", **options})
    shown = subprocess.run([RECIPE, *stages], env=given, capture_output=True, text=True, check=True).stdout
    lines = [re.sub(r" >>? \S+\s*$", "", line) for line in shown.splitlines() if not line.startswith("#")]
    return [shlex.split(line) for line in lines]


def measured(found):
    """Return (folder, measured command) of every training run that recipes/lib/peers.py measures."""
    return [(words[3], words[4:]) for words in found if words[1:3] == ["recipes/lib/peers.py", "measure"]]


def helper(*arguments, status=0):
    done = subprocess.run([sys.executable, HELPER, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_the_systems_take_turns():
    found = [
        folder for folder, _ in measured(commands("train", REPEATS="2", POSITIONS="rotary sinusoidal", SHORT="3", UPDATES="7"))
    ]
    systems = [("rotary", "posenc"), ("rotary", "eole"), *(("sinusoidal", system) for system in ("posenc", "eole", "fairseq"))]
    folders = [f"runs/x/{positions}/{system}/{repeat}" for repeat in "12" for positions, system in systems]
    assert found == [f"{folder}/{updates}" for folder in folders for updates in "37"]


def test_training_runs_differ_in_their_system_and_positions_alone():
    found = dict(measured(commands("train", REPEATS="1", CLIP="5", TRAIN_OPTIONS="--loss-in-blocks")))
    ours = {name.split("/")[2]: words for name, words in found.items() if "/posenc/1/200" in name}
    specs = {
        positions: [words[words.index(f"--{site}-position") + 1] for site in ("encoder", "decoder")]
        for positions, words in ours.items()
    }
    assert specs == {
        "relative": ["shaw:max_distance=5,tie=true"] * 2,
        "rotary": ["rope"] * 2,
        "alibi": ["alibi_symmetric", "alibi"],
        "sinusoidal": ["sinusoidal"] * 2,
    }
    stock = found["runs/x/sinusoidal/fairseq/1/200"]
    common = list(itertools.takewhile(lambda word: word != "--arch", stock))
    assert all(words[: len(common)] == common and words[-1] == "--loss-in-blocks" for words in map(without_plugin, ours.values()))
    assert "--user-dir" not in stock and "--loss-in-blocks" not in stock
    short = found["runs/x/sinusoidal/fairseq/1/20"]
    assert [pair for pair in zip(short, stock) if len(set(pair)) > 1] == [("20", "200")] * 2  # updates and log interval


def without_plugin(words):
    at = words.index("--user-dir")
    return words[:at] + words[at + 2 :]


def test_eole_has_the_sizes_and_settings_of_fairseq():
    """The recipe contains the values for fairseq. peers.py contains the values for Eole."""
    (stock,) = (words for name, words in measured(commands("train", REPEATS="1")) if name.endswith("/fairseq/1/200"))
    given = dict(itertools.pairwise(stock))
    names = runpy.run_path(str(HELPER))
    model, training = names["MODEL"], names["TRAINING"]
    for site in ("encoder", "decoder"):
        assert model["layers"] == int(given[f"--{site}-layers"])
        assert model["hidden_size"] == int(given[f"--{site}-embed-dim"])
        assert model["heads"] == int(given[f"--{site}-attention-heads"])
        assert model["transformer_ff"] == int(given[f"--{site}-ffn-embed-dim"])
    assert training["label_smoothing"] == float(given["--label-smoothing"])
    assert training["attention_dropout"] == [float(given["--attention-dropout"])]
    assert training["max_grad_norm"] == float(given["--clip-norm"])
    assert f"({training['adam_beta1']}, {training['adam_beta2']})" == given["--adam-betas"]
    assert training["warmup_steps"] == int(given["--warmup-updates"])
    # In Eole, learning_rate is a factor of the schedule `noam`. With the value in peers.py, the largest learning rate of Eole
    # equals the largest learning rate of fairseq (inverse_sqrt).
    peak = training["learning_rate"] * model["hidden_size"] ** -0.5 * training["warmup_steps"] ** -0.5
    assert peak == pytest.approx(float(given["--lr"]))


def test_seeds_of_repetitions():
    found = commands("train", REPEATS="3", POSITIONS="rotary", SEED="4")
    seeds = [words[words.index("--seed") + 1] for _, words in measured(found) if "--seed" in words]
    assert seeds == ["4", "4", "5", "5", "6", "6"]
    eole = [word for words in found if "configure" in words for word in words if word.startswith("seed=")]
    assert eole == [f"seed={seed}" for seed in seeds]


def test_the_environment_is_below_the_output_folder():
    made, extended, installed, compared = (words for words in commands("install", "attention", ROUNDS="3") if words[0] != "mkdir")
    assert made == ["bin/python", "-m", "venv", "--clear", "runs/x/environment"]
    assert extended == ["bin/python", "recipes/lib/peers.py", "extend", "runs/x/environment"]
    assert installed == ["runs/x/environment/bin/python", *"-m pip install --requirement recipes/lib/peers.txt".split()]
    assert compared[0] == "runs/x/environment/bin/python" and compared[3:6] == ["bench", "--peers", "--rounds"]


def test_every_package_is_pinned():
    lines = [line for line in PINS.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines) and len({line.lower() for line in lines}) == len(lines)
    assert {line.partition("==")[0] for line in lines} >= {"eole", "transformers", "x-transformers"}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"SHORT": "30", "UPDATES": "30"}, "SHORT=30: too large. Expected less than UPDATES=30."),
        ({"POSITIONS": "rotary shaw"}, "Expected a list in which each value is one of: relative rotary alibi sinusoidal"),
        ({"CLIP": "0"}, "CLIP=0: not allowed. Expected a whole number from 1 to"),
    ],
)
def test_wrong_options_are_one_line(options, message):
    done = subprocess.run([RECIPE], env=environment(DRY_RUN="1", **options), capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1


def test_an_extended_environment_has_the_packages_of_this_one(tmp_path):
    """The virtual environment hides torchaudio, because transformers would import torchaudio.

    The wheels of torchaudio do not fit PyTorch's wheels for CPUs.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    helper("extend", tmp_path)
    code = "import importlib.util as u, torch; print(torch.__file__, u.find_spec('torchaudio'))"
    shown = [
        subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        for python in (sys.executable, tmp_path / "bin" / "python")
    ]
    assert shown[0][0] == shown[1][0] and shown[1][1] == "None"


def configured(folder, **changes):
    (folder / "dict.txt").write_text("▁a 3\n▁b 1\nmadeupword0000 0\n", encoding="utf-8")
    (folder / "source").write_text("▁a\n▁b\n▁a\n", encoding="utf-8")
    given = {"positions": "relative", "seed": 2, "updates": 7, "tokens": 90, "clip": 5, "dropout": 0.1}
    given |= {"dictionary": folder / "dict.txt", "source": folder / "source", "target": "target"} | changes
    helper("configure", folder / "7.yaml", *(f"{name}={value}" for name, value in given.items()))
    return json.loads((folder / "7.yaml").read_text(encoding="utf-8"))


def test_a_configuration_of_eole(tmp_path):
    found = configured(tmp_path)
    assert (tmp_path / "7.vocabulary").read_text(encoding="utf-8") == "▁a\n▁b\nmadeupword0000\n"
    assert found["src_vocab"] == found["tgt_vocab"] == str(tmp_path / "7.vocabulary") and found["share_vocab"]
    assert found["data"] == {"train": {"path_src": str(tmp_path / "source"), "path_tgt": "target"}}
    assert (found["seed"], found["report_every"], found["training"]["train_steps"]) == (2, 7, 7)
    training = {name: found["training"][name] for name in ("batch_size", "batch_type", "dropout", "bucket_size")}
    assert training == {"batch_size": 90, "batch_type": "tokens", "dropout": [0.1], "bucket_size": 3}
    embeddings = {"word_vec_size": 128, "position_encoding_type": "Relative", "n_positions": 5, "normalize": True}
    assert found["model"]["embeddings"] == embeddings


@pytest.mark.parametrize(
    "positions, name, scaled", [("rotary", "Rotary", 1), ("alibi", "Alibi", 1), ("sinusoidal", "SinusoidalInterleaved", 0)]
)
def test_position_encodings_of_eole(tmp_path, positions, name, scaled):
    embeddings = configured(tmp_path, positions=positions)["model"]["embeddings"]
    assert embeddings["position_encoding_type"] == name and embeddings["normalize"] == bool(scaled)


def test_a_measured_command(tmp_path):
    """The CPU time contains the time of processes that the command starts."""
    work = "import os; [os.urandom(2**20) for _ in range(30)]"
    nested = f"import subprocess, sys; print('done'); subprocess.run([sys.executable, '-c', {work!r}])"
    for name, code in (("own", "pass"), ("nested", nested)):
        helper("measure", tmp_path / name, sys.executable, "-c", code)
    own, both = (json.loads((tmp_path / f"{name}.json").read_text())["cpu_seconds"] for name in ("own", "nested"))
    assert 0 < own < both and (tmp_path / "nested.log").read_text() == "done\n"


def test_a_failed_command_is_named_with_its_log(tmp_path):
    error = helper("measure", tmp_path / "20", sys.executable, "-c", "print(*range(9), sep='\\n'); raise SystemExit(3)", status=1)
    assert error == f"4\n5\n6\n7\n8\npeers.py: {sys.executable} failed. The complete output is in {tmp_path / '20.log'}.\n"
    assert not (tmp_path / "20.json").exists()


def test_a_command_ends_with_its_helper(tmp_path):
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    started = subprocess.Popen([sys.executable, HELPER, "measure", tmp_path / "x", sys.executable, "-c", code])
    log = tmp_path / "x.log"
    while not (log.exists() and log.read_text().endswith("\n")):
        assert started.poll() is None
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    assert started.wait(timeout=60) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


FAIRSEQ_LOG = """\
2026-11-25 10:00:00 | INFO | fairseq.tasks.translation | [sov] dictionary: 296 types
2026-11-25 10:00:00 | INFO | fairseq_cli.train | num. shared model params: 968,064 (num. trained: 968,064)
2026-11-25 10:00:09 | INFO | train_inner | {{"epoch": 1, "update": 0.1, "loss": "7.9", "wpb": "{tokens}", "bsz": "60", \
"num_updates": "{updates}", "lr": "0.0002"}}
2026-11-25 10:00:09 | INFO | train | {{"epoch": 1, "train_loss": "7.9", "train_wpb": "1.0", "train_num_updates": "{updates}"}}
"""
EOLE_LOG = """\
[2026-11-25 17:23:55,065 INFO] * number of parameters: 968064
[2026-11-25 17:23:55,065 INFO]  * src vocab size = 296
[2026-11-25 17:23:55,065 INFO]  * tgt vocab size = 296
[2026-11-25 17:24:14,022 INFO] Step {updates:2}/{updates:5}; acc: 6.0; ppl: 218.99; xent: 5.39; aux: 0.000; \
mtp: 0.000; attn_ent: 0.000; lr: 9.62e-04; sents:    2565; bsz:  894/ {tokens}/64; 1887/1865 tok/s;     19 sec;
"""


def write_runs(out, times):
    """Write the files of runs that were measured with 2 and with 10 updates of 100 tokens.

    The measured CPU times include 3 seconds for starting the program.
    """
    for (positions, system), seconds in times.items():
        for repeat, second in enumerate(seconds, start=1):
            folder = out / positions / system / str(repeat)
            folder.mkdir(parents=True)
            (folder / ".train.done").touch()
            for updates in (2, 10):
                log = (EOLE_LOG if system == "eole" else FAIRSEQ_LOG).format(updates=updates, tokens=100)
                (folder / f"{updates}.log").write_text(log)
                (folder / f"{updates}.json").write_text(json.dumps({"cpu_seconds": 3 + second * updates}))


def test_a_table(tmp_path):
    times = {
        ("rotary", "posenc"): [0.020, 0.030, 0.022],
        ("rotary", "eole"): [0.030, 0.033, 0.033],
        ("sinusoidal", "fairseq"): [0.025],
    }
    write_runs(tmp_path, times)
    (tmp_path / "rotary" / "eole" / "4").mkdir()  # a run that has not finished
    shown = helper("table", tmp_path, 2, 10, 1)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines()]
    assert [cells[0], *cells[2:]] == [
        ["positions", "system", "CPU ms per target token", "divided by this project", "parameters"],
        ["rotary", "this project", "0.2200 (0.2000-0.3000)", "", "968,064"],
        ["rotary", "Eole", "0.3300 (0.3000-0.3300)", "1.50 (1.10-1.50)", "968,064"],
        ["sinusoidal", "stock fairseq", "0.2500 (0.2500-0.2500)", "", "968,064"],
    ]
    found = json.loads((tmp_path / "training.json").read_text())
    ours, eole, _ = found["rows"]
    assert ours["repetitions"] == pytest.approx({"1": 0.2, "2": 0.3, "3": 0.22})
    assert eole["ratio"] == pytest.approx({"median": 1.5, "low": 1.1, "high": 1.5}) and eole["vocabulary"] == 296
    settings = {name: found["settings"][name] for name in ("threads", "short", "updates", "repeats")}
    assert settings == {"threads": 1, "short": 2, "updates": 10, "repeats": 3} and "torch" in found["settings"]["versions"]
    written = (tmp_path / "training.md").read_text()
    assert shown in written and "vocabulary (296 types)" in written and "3\nrepetition(s)" in written


def test_no_table_of_missing_or_unfinished_runs(tmp_path):
    assert "no training run. Run the stage train first." in helper("table", tmp_path, 2, 10, 1, status=1)
    write_runs(tmp_path, {("rotary", "posenc"): [0.02]})
    log = tmp_path / "rotary" / "posenc" / "1" / "10.log"
    log.write_text(FAIRSEQ_LOG.format(updates=9, tokens=100))
    assert f"{log}: not the log of 10 updates" in helper("table", tmp_path, 2, 10, 1, status=1)


def test_no_table_of_unequal_models(tmp_path):
    write_runs(tmp_path, {("rotary", "posenc"): [0.02], ("rotary", "eole"): [0.03]})
    for log in (tmp_path / "rotary" / "eole" / "1").glob("*.log"):
        log.write_text(log.read_text().replace("968064", "968320"))
    assert "the numbers of parameters or the vocabularies differ" in helper("table", tmp_path, 2, 10, 1, status=1)


#: prints Eole's log for a configuration. The number of parameters is computed from the sizes in the configuration
FAKE_EOLE = f"""#!{sys.executable}
import json, sys
config = json.load(open(sys.argv[-1]))
model, types = config["model"], sum(1 for _ in open(config["src_vocab"], encoding="utf-8")) + 4
d, f, n = model["hidden_size"], model["transformer_ff"], model["layers"]
attention, feed_forward = 4 * (d * d + d), 2 * d * f + f + d
tables = (2 * model["embeddings"]["n_positions"] + 1) * d // model["heads"]
parameters = types * d + n * (3 * attention + 2 * feed_forward + 5 * 2 * d) + 2 * 2 * d
parameters += 2 * n * tables * (model["embeddings"]["position_encoding_type"] == "Relative")
log = {EOLE_LOG!r}.format(updates=config["training"]["train_steps"], tokens=100)
print(log.replace("968064", str(parameters)).replace("296", str(types)))
"""


@pytest.mark.slow
def test_killed_in_every_stage_a_small_study_ends_with_its_table(tmp_path):
    """fairseq really trains its models. A program that prints the output of Eole replaces Eole."""
    small = {"SENTENCES": "100", "VOCABULARY": "300", "REPEATS": "1", "UPDATES": "3", "SHORT": "1", "MAX_TOKENS": "200"}
    study = Process(RECIPE, tmp_path / "out", POSITIONS="relative sinusoidal", FORK_PROGRAMS_IN_ARGUMENTS="1", **small)
    program = study.out / "environment" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE_EOLE)
    program.chmod(0o755)
    (study.out / ".environment.done").touch()
    study.kill_in_every_stage("prepare", "train")
    printed = study.run("prepare", "train", "table")
    assert "| sinusoidal" in printed and "stock fairseq" in printed
    rows = json.loads((study.out / "training.json").read_text())["rows"]
    assert [(row["positions"], row["system"]) for row in rows] == [
        ("relative", "posenc"),
        ("relative", "eole"),
        *(("sinusoidal", system) for system in ("posenc", "eole", "fairseq")),
    ]
    before = study.files()
    assert study.run("prepare", "train").count("done before") == 8
    assert study.files() == before


def test_the_page_of_results_states_the_committed_ratios():
    folder = ROOT / "results" / "bench" / "peers"
    text = " ".join((ROOT / "results" / "README.md").read_text().split())
    for name, with_fairseq in (("training", "Stock fairseq needs"), ("training_language", "stock fairseq needs")):
        rows = json.loads((folder / f"{name}.json").read_text())["rows"]
        ratios = {(row["positions"], row["system"]): row["ratio"]["median"] for row in rows if "ratio" in row}
        eole = [ratio for (_, system), ratio in ratios.items() if system == "eole"]
        assert f"Eole needs {min(eole):.2f} to {max(eole):.2f} times the CPU time of this project" in text
        assert f"{with_fairseq} {ratios['sinusoidal', 'fairseq']:.2f} times" in text
    modules = json.loads((folder / "peers.json").read_text())["rows"]
    found = [shape["median"] for row in modules for shape in row.values() if isinstance(shape, dict)]
    assert f"take {min(found):.2f} to {max(found):.2f} times as long as the modules of transformers 5" in text
