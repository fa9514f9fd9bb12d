"""Measure the cost of an update with several processes and machines, and write the table of the tutorial on clusters.

    python -m tests.recipes.cost_of_machines

Run it as root on an idle Linux computer. Root is needed to create two network namespaces. It takes about five minutes.
"""

import json
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from tabulate import tabulate

from fairseq_posenc.bench.settings import processor
from tests.recipes.captions import RECIPE, Recipe, write_corpus
from tests.recipes.machines import Machine, Network
from tests.recipes.process import ROOT

FILE = ROOT / "results" / "machines.json"
PAGE = ROOT / "docs" / "tutorials" / "from_one_gpu_to_a_cluster.md"
BEGIN, END = "<!-- table of the cost of an update -->", "<!-- end of the table -->"
#: number of machines, processes per machine, batches per update, options of fairseq-train
SETTINGS = [
    (1, 1, 4, ""),
    (1, 2, 4, ""),
    (1, 4, 4, ""),
    (2, 1, 4, ""),
    (2, 2, 4, ""),
    (2, 1, 8, ""),
    (2, 1, 4, "--fp16 --fp16-init-scale 4"),
    (2, 1, 4, "--bf16"),
]
WARM, UPDATES = 4, 24  # number of updates before the measurement, and number of all updates
TOKENS = 512  # tokens of a batch


def measure(network: Network, prepared: Recipe, out: Path, setting: tuple) -> dict:
    """Return the setting, the number of parameters, the median seconds per update, and the sent bytes per update.

    The number of sent bytes is divided by the size of the gradients in fp32. With two machines, this function uses the bytes of
    the machine that has sent more.
    """
    machines, processes, batches, options = setting
    given = f"--log-interval 1 --max-update {UPDATES} {options}".strip()
    recipe = prepared.beside(
        out,
        METHODS="none",
        EPOCHS="50",
        UNITS=str(batches),
        BATCH=str(TOKENS * batches),
        PROCS=str(processes),
        TRAIN_OPTIONS=given,
    )
    before = [network.sent(side) for side in (0, 1)]
    if machines == 1:
        recipe.run("train")
    else:
        sides = [
            Machine(network, side, RECIPE, recipe.out, **{**recipe.options, "DATA_FROM": str(recipe.corpus)}) for side in (0, 1)
        ]
        for machine in sides:
            machine.start("train")
        for machine in sides:
            machine.finish()
    sent = max(network.sent(side) - before[side] for side in (0, 1)) / UPDATES
    rates = [float(rate) for rate in re.findall(r"train_inner .* ups=([\d.]+)", recipe.log())]
    assert len(rates) == UPDATES, recipe.log()
    parameters = int(re.search(r"num\. trained: ([\d,]+)", recipe.log())[1].replace(",", ""))
    return {
        "machines": machines,
        "processes": processes,
        "batches": batches,
        "options": options,
        "seconds": round(1 / statistics.median(rates[WARM:]), 3),
        "sent": round(sent / (4 * parameters), 2),
        "parameters": parameters,
    }


def render(found: dict) -> str:
    """Return the table in Markdown, after a paragraph about the measurement."""
    columns = {
        "machines": lambda row: row["machines"],
        "processes on each": lambda row: row["processes"],
        "gradients": lambda row: (re.findall(r"--([bf]p?f?16)", row["options"]) or ["fp32"])[0],
        "batches per update": lambda row: row["batches"],
        "seconds per update": lambda row: f"{row['seconds']:.3f}",
        "bytes sent by a machine / bytes of the gradients": lambda row: f"{row['sent']:.2f}",
    }
    rows = [[value(row) for value in columns.values()] for row in found["rows"]]
    text = f"""
The next table was measured on {found["cores"]} cores ({found["processor"]}, torch {found["torch"]}), which the two simulated
machines share. Each process has one thread, and no other program ran. The model has
{found["rows"][0]["parameters"] / 1e6:.1f} million parameters, and a batch has {TOKENS} target tokens. The seconds are the median
of {UPDATES - WARM} updates. The bytes are counted on the network interface. They include network headers, training statistics and
the traffic at the start of the training run. The last column contains the bytes that one machine sends per update, divided by
the size of the gradients in fp32 (4 bytes per parameter).
"""
    return f"{text}\n{tabulate(rows, list(columns), tablefmt='github', disable_numparse=True)}\n"


def write(found: dict) -> None:
    """Put the table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(f"{page[:begin]}\n{render(found)}\n{page[end:]}", encoding="utf-8")


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder) / "corpus", parts={"train": 4000, "val": 24, "test_2016_flickr": 16})
        prepared = Recipe(Path(folder) / "corpus", Path(folder) / "prepared")
        prepared.run("fetch", "prepare")
        network = Network().open()
        try:
            for number, setting in enumerate(SETTINGS):
                rows.append(measure(network, prepared, Path(folder) / str(number), setting))
                print(rows[-1], file=sys.stderr, flush=True)
        finally:
            network.close()
    found = {"cores": os.cpu_count(), "processor": processor(), "torch": torch.__version__, "rows": rows}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write(found)


if __name__ == "__main__":
    main()
