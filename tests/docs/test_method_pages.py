"""The page of every method: fairseq accepts its training command, and its scores equal the scores in results/*/report.csv."""

import csv
import json
import re
import shlex

import pytest
from fairseq import options

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures
from fairseq_posenc import registry
from fairseq_posenc.evaluation.report.records import describe
from fairseq_posenc.registry.citations import entries
from posenc_docs import pages
from tests.docs.conftest import ROOT


@pytest.fixture(scope="module")
def scores():
    return pages.Scores(ROOT)


@pytest.mark.parametrize("name", registry.names())
def test_fairseq_accepts_the_command(name, scores):
    page = pages.method(name, pages.Costs(ROOT), scores, "oracle.py")
    (command,) = re.findall(r"```sh\n(fairseq-train .*?)\n```", page, re.DOTALL)
    assert command == pages.training_command(name)  # other tests run this command
    words = shlex.split(command.replace("$(posenc path)", str(ROOT / "fairseq_posenc")).replace("\\\n", ""))
    given = options.parse_args_and_arch(options.get_training_parser(), words[1:])
    specs = {"encoder": given.encoder_position, "decoder": given.decoder_position, "cross": given.cross_position}
    assert specs == registry.card(name).specs


@pytest.mark.parametrize("folder", pages._RESULTS)
def test_scores_are_those_of_the_reports(folder, scores):
    with (ROOT / folder / "report.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            # the page contains only runs with the specs of the architecture
            if row["method"] in registry.names() and describe(registry.card(row["method"]).specs) == row["method"]:
                for part in (name.removesuffix("_bleu_mean") for name in row if name.endswith("_bleu_mean")):
                    seeds, mean = row["seeds"].replace(" ", ", "), float(row[f"{part}_bleu_mean"])
                    line = f"({'../../' + folder}/report.md) | `{part}` | {seeds} | {mean:.1f} |"
                    assert line in scores.of(registry.card(row["method"])), row["method"]


@pytest.mark.parametrize(
    "name, needed", [("shaw", ""), ("zhu", "[side files]"), ("lrpe", "an option ([length]"), ("segments", "`<sep>`")]
)
def test_what_a_command_needs_is_said_before_it(name, needed, scores):
    before = pages.method(name, pages.Costs(ROOT), scores, "oracle.py").split("## Use")[1].split("```sh")[0]
    assert needed in before and (before.strip() == "") == (needed == "")


def test_costs_of_two_devices_are_not_mixed():
    costs = pages.Costs(ROOT)
    for name, devices in {
        "t5": ["AMD EPYC", "Intel(R) Xeon(R)", "NVIDIA H100"],
        "alibi": ["AMD EPYC", "NVIDIA H100"],
        "wall": ["Intel(R) Xeon(R)"],
        "unknown": [],
    }.items():
        found = costs.tables(name)
        assert re.findall(r"Transformer, (AMD EPYC|Intel\(R\) Xeon\(R\)|NVIDIA H100)", found) == devices
        assert ("do not contain this method" in found) == (not devices) and bool(costs.of(name)) == ("AMD EPYC" in devices)


def test_every_method_has_costs_on_a_cpu():
    found = [rows for folder, rows in pages.Costs(ROOT).rows.items() if folder != "nvidia_h100"]
    assert [name for name in registry.names() if not any(name in rows for rows in found)] == []


def test_costs_have_quartiles():
    row = next(
        row
        for row in json.loads((ROOT / "results/bench/amd_epyc_2_cores/bench.json").read_text())["rows"]
        if row["method"] == "t5" and row["site"] == "model"
    )
    shown = "{median:.2f} ({low:.2f} to {high:.2f})".format(**row["training 8x128"])
    assert f"| training time, 8 sentences of 128 words | {shown} |" in pages.Costs(ROOT).tables("t5")


def test_methods_without_results_say_so(scores):
    rows = [scores.of(registry.card(name)) for name in registry.names()]
    assert {row for row in rows if not row.startswith("|")} == {"The committed results do not contain this method.\n"}


def test_a_paper_is_a_link_if_it_has_an_address():
    for key, entry in entries().items():
        shown = pages._paper(key)
        assert shown.strip("[]") and shown.startswith("[") == bool(re.search(r"\b(doi|url) *=", entry)), key
