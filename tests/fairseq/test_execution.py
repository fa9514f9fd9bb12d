"""List every place of the installed fairseq that may run code, a command or a pickle.

The tests check the list. A checkpoint cannot run code, a command or a pickle at any of these places.
"""

import ast
import pickle
from pathlib import Path

import fairseq as installed
import pytest
import torch
from fairseq.data import data_utils
from fairseq.data.audio.data_cfg import S2TDataConfig
from fairseq.models.speech_to_text.hub_interface import S2THubInterface
from fairseq.models.text_to_speech.vocoder import HiFiGANVocoder

import fairseq_posenc.host.plugin  # noqa: F401  (importing the plugin makes these places safe)

ROOT = Path(installed.__file__).parent

# --- the list ---

EVALUATED = "eval is compat.evaluation.evaluate in all modules of fairseq"
SAFE_LOAD = "torch.load uses the safe loader for all callers in fairseq (compat.execution)"
OWN_FOLDER = "imports the modules of fairseq's own folder by the names of its files"
CHECKOUT = "fairseq's examples, which only a checkout of fairseq has"
FASTA = "compat.execution refuses every FASTA data set"
NO_PICKLE = "numpy.load reads no pickles by default"
PEERS = "the bytes come from processes of the same training"
FIXED = "the name is a constant"

#: (file, name) -> (number of places, reason why neither a checkpoint nor a file in its folder can run code there)
ALLOWED = {
    ("checkpoint_utils.py", "torch.load"): (2, SAFE_LOAD),
    ("criterions/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("criterions/ctc.py", "eval"): (1, EVALUATED),
    ("criterions/ctc.py", "import examples"): (1, CHECKOUT),
    ("data/audio/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("data/audio/audio_utils.py", "np.load"): (2, NO_PICKLE),
    ("data/audio/data_cfg.py", "yaml.load"): (1, "compat.execution reads the file with PyYAML's safe loader"),
    ("data/audio/feature_transforms/global_cmvn.py", "np.load"): (1, NO_PICKLE),
    ("data/audio/raw_audio_dataset.py", "eval"): (1, EVALUATED),
    ("data/codedataset.py", "eval"): (1, EVALUATED),
    ("data/codedataset.py", "np.load"): (5, NO_PICKLE),
    ("data/codedataset.py", "torch.load"): (3, SAFE_LOAD),
    ("data/encoders/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("data/fasta_dataset.py", "np.load"): (1, FASTA),
    ("data/fasta_dataset.py", "shell=True"): (2, FASTA),
    ("data/fasta_dataset.py", "subprocess.check_output"): (2, FASTA),
    ("data/plasma_utils.py", "subprocess.Popen"): (3, "starts plasma_store, without a shell; a path is its only argument"),
    ("distributed/utils.py", "pickle.UnpicklingError"): (1, "an exception"),
    ("distributed/utils.py", "pickle.dumps"): (1, "writes"),
    ("distributed/utils.py", "pickle.loads"): (1, PEERS),
    ("distributed/utils.py", "subprocess.CalledProcessError"): (1, "an exception"),
    ("distributed/utils.py", "subprocess.check_output"): (1, "runs scontrol of Slurm, without a shell, on a variable of Slurm"),
    ("distributed/utils.py", "torch.load"): (1, f"{PEERS}; compat.distributed replaces the function"),
    ("file_utils.py", ".extractall"): (1, "compat.archives replaces the function"),
    ("file_utils.py", "from torch.hub import _get_torch_home"): (1, "the name of a folder"),
    ("model_parallel/criterions/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("model_parallel/models/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("models/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("models/ema/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("models/fconv.py", "eval"): (3, EVALUATED),
    ("models/fconv_lm.py", "eval"): (2, EVALUATED),
    ("models/fconv_self_att.py", "eval"): (9, EVALUATED),
    ("models/hubert/hubert.py", "eval"): (1, EVALUATED),
    ("models/huggingface/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("models/lightconv_lm.py", "eval"): (1, EVALUATED),
    ("models/speech_to_text/hub_interface.py", "torch.hub.load"): (1, "compat.execution refuses synthesize_speech"),
    ("models/speech_to_text/s2t_wav_transformer.py", "eval"): (2, EVALUATED),
    ("models/speech_to_text/xm_transformer.py", "torch.load"): (1, SAFE_LOAD),
    ("models/text_to_speech/vocoder.py", "torch.load"): (3, SAFE_LOAD),
    ("models/transformer_lm.py", "eval"): (1, EVALUATED),
    ("models/wav2vec/wav2vec.py", "eval"): (2, EVALUATED),
    ("models/wav2vec/wav2vec2.py", "eval"): (2, EVALUATED),
    ("modules/quantization/pq/em.py", "torch.load"): (3, SAFE_LOAD),
    ("optim/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("optim/adafactor.py", "eval"): (1, EVALUATED),
    ("optim/adam.py", "eval"): (1, EVALUATED),
    ("optim/adamax.py", "eval"): (1, EVALUATED),
    ("optim/cpu_adam.py", "eval"): (1, EVALUATED),
    ("optim/fused_adam.py", "importlib.import_module"): (2, FIXED),
    ("optim/fused_lamb.py", "eval"): (1, EVALUATED),
    ("optim/lr_scheduler/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("scoring/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("speech_generator.py", "import examples"): (1, CHECKOUT),
    ("speech_generator.py", "np.load"): (1, NO_PICKLE),
    ("tasks/__init__.py", "importlib.import_module"): (1, OWN_FOLDER),
    ("tasks/audio_pretraining.py", "subprocess.call"): (1, "runs after a save of a training, whose task the command line gives"),
    ("tasks/simultaneous_translation.py", "import examples"): (1, CHECKOUT),
    ("tasks/speech_to_speech.py", "import examples"): (1, CHECKOUT),
    ("tasks/speech_to_text.py", "import examples"): (2, CHECKOUT),
    ("tasks/text_to_speech.py", "np.load"): (1, NO_PICKLE),
    ("utils.py", "eval"): (3, EVALUATED),
    ("utils.py", "importlib.import_module"): (1, "--user-dir, which only the command line and Python's caller give"),
}

#: names that may run code, a command or a pickle
NAMES = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "np.load", "numpy.load", "yaml.load",
    "yaml.unsafe_load", "yaml.full_load", "importlib.import_module", "imp.load_source",
}  # fmt: skip
PREFIXES = ("subprocess.", "pickle.", "torch.hub.", "os.exec", "os.spawn", "hydra.utils.", "importlib.util.")
METHODS = {"extractall", "extract", "unpack_archive", "Unpickler", "find_class"}
MODULES = ("dill", "cloudpickle", "joblib", "shelve", "marshal", "runpy", "commands", "pty", "jsonpickle")
# modules in which only some names may run code, a command or a pickle
MEMBERS = ("os", "subprocess", "pickle", "importlib", "torch.hub", "yaml", "torch", "numpy")


def constructs(source: str) -> list[str]:
    """Return the names in a module that may run code, a command or a pickle."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += ["import examples" for name in node.names if name.name.split(".")[0] == "examples"]
            found += [f"import {name.name}" for name in node.names if name.name.split(".")[0] in MODULES]
            found += [f"import {name.name} as {name.asname}" for name in node.names if name.asname and name.name in MEMBERS[:6]]
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] == "examples":
                found.append("import examples")
            members = [f"{node.module}.{name.name}" for name in node.names]
            dangerous = [name for name in members if name in NAMES or name.startswith(PREFIXES)]
            if node.module.split(".")[0] in MODULES or dangerous:
                found += [f"from {node.module} import {name.name}" for name in node.names]
        elif isinstance(node, (ast.Attribute, ast.Name)):
            name = ast.unparse(node)
            if name in NAMES or name.startswith(PREFIXES):
                found.append(name)
            elif isinstance(node, ast.Attribute) and node.attr in METHODS:
                found.append(f".{node.attr}")
        elif isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle", "trust_remote_code"):
            found.append(f"{node.arg}={ast.unparse(node.value)}")
    return found


def test_every_place_that_runs_something_is_listed():
    """The test fails if a version of fairseq has a place that is not in the list.

    The test also fails if a place in the list no longer exists.
    """
    counts: dict[tuple[str, str], int] = {}
    for file in sorted(ROOT.rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith("examples/"):
            for construct in constructs(file.read_text(encoding="utf-8")):
                counts[name, construct] = counts.get((name, construct), 0) + 1
    assert counts == {key: count for key, (count, _) in ALLOWED.items()}


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.system('x')", "from os import system", "import os as o",
        "import subprocess\nsubprocess.run('x', shell=True)",
        "from subprocess import run", "import pickle\npickle.load(f)", "from pickle import Unpickler", "import joblib",
        "import torch\ntorch.load(f)", "from torch import load", "torch.hub.load(a, b)", "archive.extractall()",
        "eval(x)", "exec(x)",
        "import yaml\nyaml.load(f)", "importlib.import_module(x)", "from importlib import import_module", "__import__(x)",
        "np.load(f, allow_pickle=True)", "from examples.a import b", "run(x, shell=flag)",
    ],
)  # fmt: skip
def test_the_scan_finds_every_kind(source):
    assert constructs(source)


# --- checkpoints that try to run code ---


def test_the_shell_command_of_fasta_never_runs(fairseq, shaw, tmp_path):
    """For a FASTA file, fairseq inserts the path into a shell command. The name of a language is part of this path."""
    state, path = fairseq.state(shaw), tmp_path / "checkpoint.pt"
    language = "$(touch it-ran)"
    data = tmp_path / "data"
    data.mkdir()
    for name in (language, "bw"):
        (data / f"dict.{name}.txt").write_bytes((fairseq.data / "dict.fw.txt").read_bytes())
        for suffix in ("idx", "bin", "fasta"):
            (data / f"valid.{language}-bw.{name}.{suffix}").write_text(">x\na b\n")
    changes = {"source_lang": language, "target_lang": "bw", "data": str(data)}
    state["cfg"]["task"].update(changes, dataset_impl="fasta")
    torch.save(state, path)
    validate = ["--task", "translation", "--path", path, "--cpu", "--batch-size", 4, "--num-workers", 0]
    running = fairseq.start("fairseq-validate", data, *validate)
    line = running.finish().refusal()
    assert "the data set format fasta is not supported" in line
    assert not list(tmp_path.rglob("it-ran")) and not (running.folder / "it-ran").exists()


def test_a_fasta_data_set_is_refused(tmp_path):
    (tmp_path / "train.fasta").write_text(">x\na\n")
    for format in ("fasta", None):
        with pytest.raises(SystemExit, match="the data set format fasta is not supported") as stop:
            data_utils.load_indexed_dataset(str(tmp_path / "train"), None, format)
        assert "\n" not in stop.value.code


class Code:
    """Print a line when unpickled."""

    def __reduce__(self):
        return print, ("it ran",)


def test_pickles_that_the_configuration_of_a_model_names_do_not_run(tmp_path, capsys):
    """The pickle is the checkpoint file of a vocoder. A configuration contains the path of this file.

    fairseq reads the file with torch.load.

    fairseq calls torch.load without weights_only, so torch before version 2.6 would run the pickle.
    """
    torch.save({"generator": Code()}, tmp_path / "vocoder.pt")
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"generator": Code()}))
    sizes = {"resblock_kernel_sizes": [3], "upsample_rates": [2], "upsample_kernel_sizes": [4], "upsample_initial_channel": 4}
    config = {**sizes, "resblock_dilation_sizes": [[1, 3, 5]], "model_in_dim": 4}
    for path in tmp_path.iterdir():
        with pytest.raises(SystemExit, match="safe loader cannot read it") as stop:
            HiFiGANVocoder(str(path), config)
        assert "\n" not in stop.value.code
    assert "it ran" not in capsys.readouterr().out


def test_torch_load_of_others_is_as_it_was(tmp_path):
    torch.save({"value": {1, 2}, "path": Path("x")}, tmp_path / "own.pt")
    assert torch.load(tmp_path / "own.pt", weights_only=False)["path"] == Path("x")


def test_a_speech_configuration_constructs_no_objects(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("vocab_filename: dict.txt\n")
    assert S2TDataConfig(path).vocab_filename == "dict.txt"
    path.write_text("a: !!python/object/apply:os.system ['touch it-ran']\n")
    with pytest.raises(SystemExit, match="Expected plain YAML") as stop:
        S2TDataConfig(path)
    assert "\n" not in stop.value.code


def test_speech_synthesis_runs_no_repository():
    with pytest.raises(SystemExit, match="synthesize_speech: not supported"):
        S2THubInterface.get_prediction(None, None, None, None, synthesize_speech=True)
