"""Helper programs of recipes/studies/peers.

peers.py extend ENVIRONMENT              let a new virtual environment also use the packages of this installation
peers.py configure FILE NAME=VALUE...    write the configuration of a training run of Eole, and its vocabulary
peers.py measure PREFIX COMMAND...       run a command. Write its output to PREFIX.log, and its CPU seconds to PREFIX.json
peers.py table OUT SHORT UPDATES THREADS   print the CPU time per target token. Write OUT/training.json and OUT/training.md
"""

import importlib.metadata
import json
import re
import resource
import signal
import statistics
import subprocess
import sys
import sysconfig
from pathlib import Path

from tabulate import tabulate

#: options of Eole that have the same effect as `fairseq_options` in the recipe. `normalize` (in `configure`) multiplies
#: embeddings by the square root of their size, as fairseq does. With sinusoids, Eole multiplies the embeddings even if
#: `normalize` is not set. Without `rope_config`, Eole 0.6.4 fails. Without `add_final_linear_bias`, Eole's encoder has fewer
#: biases than Eole's decoder.
MODEL = {
    "architecture": "transformer", "layers": 2, "hidden_size": 128, "heads": 4, "transformer_ff": 512, "share_embeddings": True,
    "share_decoder_embeddings": True, "generator_bias": False, "add_qkvbias": True, "add_final_linear_bias": True,
    "add_ffnbias": True, "rope_config": {},
}  # fmt: skip
TRAINING = {
    "num_workers": 0, "batch_type": "tokens", "normalization": "tokens", "label_smoothing": 0.1, "attention_dropout": [0.0],
    "optim": "adam", "adam_beta1": 0.9, "adam_beta2": 0.98, "max_grad_norm": 1.0, "decay_method": "noam", "warmup_steps": 100,
    "learning_rate": 1e-3 * (128 * 100) ** 0.5, "param_init": 0.0, "param_init_method": "xavier_uniform",
    "log_attention_entropy": False, "valid_steps": 10**9, "save_checkpoint_steps": 10**9,
}  # fmt: skip
POSITIONS = {"relative": "Relative", "rotary": "Rotary", "alibi": "Alibi", "sinusoidal": "SinusoidalInterleaved"}

#: system -> patterns in its log: updates, mean number of target tokens of an update, parameters and size of the vocabulary
_FAIRSEQ = (r'"num_updates": "(\d+)"', r'"wpb": "([\d.]+)"', r"num\. shared model params: ([\d,]+)", r"dictionary: (\d+) types")
LOGS = {
    "posenc": _FAIRSEQ,
    "eole": (r"Step +(\d+)/", r"bsz: *\d+/ *(\d+)/", r"number of parameters: (\d+)", r"tgt vocab size = (\d+)"),
    "fairseq": _FAIRSEQ,
}
NAMES = {"posenc": "this project", "eole": "Eole", "fairseq": "stock fairseq"}

NOTES = """\
Equal: {threads} thread(s), float32, PyTorch, settings of the memory allocator, text, subwords, vocabulary ({vocabulary} types),
sizes (2 + 2 layers with layer normalisation before each sublayer, width 128, 4 heads, feed-forward width 512, shared embeddings),
number of parameters, dropout and its places, label smoothing, settings of Adam, learning rates, norm of clipped gradients,
maximum number of tokens of an update, and number of updates. Relative positions have the same clipping distance, and one table
for keys and values. ALiBi is symmetric in the encoder.

Not equal:

* The batches have different sentences. Eole counts one token more per target sentence. It takes each source sentence only once
  per batch. The time is therefore divided by the number of target tokens.
* Eole splits and numbers the text while it trains. fairseq reads numbers from a binary file.
* Eole uses PyTorch's Adam and label smoothing. fairseq has its own code for these two.
* Options of fairseq-train that only this project has: {options}.
* On a CPU, Eole does not use PyTorch's fused attention.

Each system trains twice: with {updates} and with {short} updates. The CPU time and the tokens of the short run are subtracted, so
that imports and the first reading of the text do not count. Parentheses contain the smallest and the largest of {repeats}
repetition(s). Ratios compare runs of the same repetition.
"""


def packages(environment: str) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": environment, "platbase": environment}))


def extend(environment: str) -> None:
    """Make the packages of this Python installation available in the virtual environment `environment`, except torchaudio.

    The package transformers would import torchaudio. The wheels of torchaudio do not fit PyTorch's wheels for CPUs.
    """
    lines = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\nimport sys; sys.modules['torchaudio'] = None\n"
    (packages(environment) / "posenc.pth").write_text(lines, encoding="utf-8")


def configure(file: str, *options: str) -> None:
    """Write a configuration of Eole and its vocabulary. Eole reads YAML. The file is JSON, which is valid YAML."""
    given, path = dict(option.split("=", 1) for option in options), Path(file)
    vocabulary, positions = path.with_suffix(".vocabulary"), given["positions"]
    types = [line.rpartition(" ")[0] for line in Path(given["dictionary"]).read_text(encoding="utf-8").splitlines()]
    vocabulary.write_text("".join(f"{word}\n" for word in types), encoding="utf-8")
    with open(given["source"], encoding="utf-8") as text:
        sentences = sum(1 for _ in text)
    embeddings = {
        "word_vec_size": MODEL["hidden_size"], "position_encoding_type": POSITIONS[positions],
        "n_positions": int(given["clip"]), "normalize": positions != "sinusoidal",
    }  # fmt: skip
    training = {
        **TRAINING, "model_path": str(path.parent / "model"), "train_steps": int(given["updates"]),
        "batch_size": int(given["tokens"]), "dropout": [float(given["dropout"])], "bucket_size": sentences,
    }  # fmt: skip
    settings = {
        "seed": int(given["seed"]), "share_vocab": True, "src_vocab": str(vocabulary), "tgt_vocab": str(vocabulary),
        "report_every": int(given["updates"]), "transforms": [],
        "data": {"train": {"path_src": given["source"], "path_tgt": given["target"]}},
        "model": {**MODEL, "embeddings": embeddings}, "training": training,
    }  # fmt: skip
    path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def measure(prefix: str, *command: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # when SystemExit is raised, subprocess.run kills the command
    with open(f"{prefix}.log", "wb") as log:
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode
    if status:
        print(*Path(f"{prefix}.log").read_text(encoding="utf-8", errors="replace").splitlines()[-5:], sep="\n", file=sys.stderr)
        sys.exit(f"peers.py: {command[0]} failed. The complete output is in {prefix}.log.")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(f"{prefix}.json").write_text(json.dumps({"cpu_seconds": used.ru_utime + used.ru_stime}) + "\n", encoding="utf-8")


def read(folder: Path, system: str, updates: int) -> dict[str, float]:
    """Return measurements of one training process.

    The measurements are its CPU seconds, the number of target tokens, the number of parameters, and the size of the vocabulary.
    """
    seconds = json.loads((folder / f"{updates}.json").read_text(encoding="utf-8"))["cpu_seconds"]
    log = (folder / f"{updates}.log").read_text(encoding="utf-8", errors="replace")
    found = [re.findall(pattern, log) for pattern in LOGS[system]]
    if not all(found) or int(found[0][0]) != updates:
        sys.exit(f"peers.py: {folder / f'{updates}.log'}: not the log of {updates} updates. Remove {folder}, and train again.")
    tokens, parameters, types = (float(values[0].replace(",", "")) for values in found[1:])
    return {"seconds": seconds, "tokens": tokens * updates, "parameters": int(parameters), "vocabulary": int(types)}


def milliseconds(short: dict[str, float], full: dict[str, float]) -> float:
    """Return the CPU time per target token, without the start of the process."""
    return 1000 * (full["seconds"] - short["seconds"]) / (full["tokens"] - short["tokens"])


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def rows_of(out: Path, short: int, updates: int) -> list[dict]:
    """Return one row per position encoding and system. `repetitions` contains the times of all repetitions."""
    rows = []
    for positions in POSITIONS:
        for system in LOGS:
            folders = sorted((out / positions / system).glob("*/.train.done"), key=lambda stamp: int(stamp.parent.name))
            runs = {
                folder.parent.name: [read(folder.parent, system, number) for number in (short, updates)] for folder in folders
            }
            if runs:
                times = {name: milliseconds(*pair) for name, pair in runs.items()}
                sizes = {name: next(iter(runs.values()))[1][name] for name in ("parameters", "vocabulary")}
                rows.append(
                    {"positions": positions, "system": system, **sizes, **spread([*times.values()]), "repetitions": times}
                )
    return rows


def add_ratios(rows: list[dict]) -> None:
    """Add ratios to the rows of other systems.

    A ratio is the time of the system, divided by the time of this project in the same repetition.
    """
    ours = {row["positions"]: row["repetitions"] for row in rows if row["system"] == "posenc"}
    for row in rows:
        own = ours.get(row["positions"], {})
        ratios = [time / own[name] for name, time in row["repetitions"].items() if name in own]
        if ratios and row["system"] != "posenc":
            row["ratio"] = spread(ratios)


def cell(values: dict[str, float] | None, digits: int) -> str:
    return "" if values is None else "{median:.{0}f} ({low:.{0}f}-{high:.{0}f})".format(digits, **values)


def table(out: str, short: str, updates: str, threads: str, options: str = "") -> None:
    from fairseq_posenc.bench.settings import processor
    from fairseq_posenc.version import __version__

    rows = rows_of(Path(out), int(short), int(updates))
    if not rows:
        sys.exit(f"peers.py: {out}: no training run. Run the stage train first.")
    for positions in POSITIONS:
        if len({(row["parameters"], row["vocabulary"]) for row in rows if row["positions"] == positions}) > 1:
            sys.exit(f"peers.py: {out}/{positions}: the numbers of parameters or the vocabularies differ. Expected equal sizes.")
    add_ratios(rows)
    names = [importlib.metadata.packages_distributions()[package][0] for package in ("fairseq", "torch")]
    versions = {"posenc": __version__} | {name: importlib.metadata.version(name) for name in names}
    eole = importlib.metadata.distributions(name="eole", path=[str(packages(f"{out}/environment"))])
    facts = {
        "device": processor(), "versions": versions | {found.name: found.version for found in eole}, "threads": int(threads),
        "short": int(short), "updates": int(updates), "repeats": max(len(row["repetitions"]) for row in rows),
        "options": options or "none",
    }  # fmt: skip
    head = ["positions", "system", "CPU ms per target token", "divided by this project", "parameters"]
    body = [
        [row["positions"], NAMES[row["system"]], cell(row, 4), cell(row.get("ratio"), 2), f"{row['parameters']:,}"]
        for row in rows
    ]
    text = tabulate(body, head, tablefmt="github", disable_numparse=True, colalign=("left", "left", "right", "right", "right"))
    types = "/".join(sorted({str(row["vocabulary"]) for row in rows}))
    used = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    title = f"# CPU time of training\n\n{facts['device']}, {used}.\n"
    Path(out, "training.md").write_text(f"{title}\n{text}\n\n{NOTES.format(vocabulary=types, **facts)}", encoding="utf-8")
    Path(out, "training.json").write_text(json.dumps({"settings": facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    {"extend": extend, "configure": configure, "measure": measure, "table": table}[sys.argv[1]](*sys.argv[2:])
