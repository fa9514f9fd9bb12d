"""The tables under results/ are the output of posenc report and posenc bench for the stored results in the same folder.

The folder results/ is small.
"""

import csv
import json
import re
import shlex
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import special
from scipy.stats import spearmanr

from fairseq_posenc import cli, registry
from fairseq_posenc.bench import counts, files
from fairseq_posenc.evaluation.report import statistics as tests
from fairseq_posenc.evaluation.report import tables
from fairseq_posenc.evaluation.scoring import archive
from fairseq_posenc.plotting import style

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(ROOT.glob("results/**/command"))
BENCHMARKS = sorted(ROOT.glob("results/**/bench.json"))
COUNTS = sorted(ROOT.glob("results/**/count.json"))
WITH_PIXELS = ROOT / "results/transformer_tiny/command"  # the report whose plots are saved. test_report_files.py also saves plots
METHODS = ("diet_rel", "diet_abs")  # methods of the study diet
OTHERS = {ROOT / "results" / "pnat" / data for data in ("language", "multi30k_en-de")}  # see tests/recipes/test_pnat.py


def test_there_are_results():
    assert COMMANDS and BENCHMARKS and COUNTS


def test_every_archive_has_a_report():
    archives = {path.parent for path in ROOT.glob(f"results/**/{archive.FILE}")}
    assert archives == {path.parent for path in COMMANDS} | OTHERS


def left_out() -> list[str]:
    """Return the patterns of files that Git ignores, because the stored command of their folder makes them."""
    lines = (ROOT / "results" / ".gitignore").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_results_are_small():
    """The stored files must stay small. Files that Git ignores are not counted."""
    files = [path for path in (ROOT / "results").rglob("*") if path.is_file()]
    files = [path for path in files if not any(path.match(pattern) for pattern in left_out())]
    assert len(files) < 250 and sum(path.stat().st_size for path in files) < 6 * 2**20


def without_pixels(figure, name, colours):
    """Run all code that draws the figure, but do not compute pixels. Saving a figure as SVG and PNG takes five times as long."""
    figure.draw_without_rendering()
    return style.Plot(svg="<svg/>", png=b"")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_report(command, tmp_path, monkeypatch):
    assert WITH_PIXELS in COMMANDS
    monkeypatch.chdir(ROOT)
    if command != WITH_PIXELS:
        monkeypatch.setattr(style, "_saved", without_pixels)
    arguments = shlex.split(command.read_text(encoding="utf-8"))
    folder = Path(arguments[arguments.index("--output") + 1])
    arguments[arguments.index("--output") + 1] = str(tmp_path)
    assert cli.main(arguments[1:]) == 0
    assert folder == command.parent.relative_to(ROOT)
    made = [path for path in tmp_path.iterdir() if path.suffix in (".md", ".csv")]
    assert {path.suffix for path in made} == {".md", ".csv"}
    for path in made:
        if path.name not in left_out():
            assert path.read_text(encoding="utf-8") == (ROOT / folder / path.name).read_text(encoding="utf-8"), path.name
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {path.name for path in (ROOT / folder).glob("*.png")}


@pytest.mark.parametrize("measured", BENCHMARKS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_benchmark(measured, tmp_path):
    files.write(json.loads(measured.read_text(encoding="utf-8")), tmp_path)
    assert (tmp_path / "bench.md").read_text(encoding="utf-8") == (measured.parent / "bench.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("counted", COUNTS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_committed_counts(counted):
    assert (counted.parent / "count.md").read_text(encoding="utf-8") == counts.document(counts.read(counted))


# --- the page of results ---


def bleu(precision: str) -> dict[str, float]:
    """Return the mean BLEU on the test set of every row of all_methods."""
    with (ROOT / "results" / "all_methods" / precision / "report.csv").open(encoding="utf-8") as file:
        return {row["method"]: float(row["test_bleu_mean"]) for row in csv.DictReader(file)}


def page() -> str:
    return (ROOT / "results" / "README.md").read_text(encoding="utf-8")


def test_the_page_names_files_that_exist():
    named = set(re.findall(r"`([\w./]+/[\w.]+\.(?:py|sh))`", page()))
    places = [ROOT, ROOT / "fairseq_posenc"]
    assert named and [name for name in named if not any((place / name).exists() for place in places)] == []
    links = re.findall(r"\]\(([^)#\s]+)", page())
    assert [link for link in links if not link.startswith("http") and not (ROOT / "results" / link).exists()] == []


def test_the_page_has_the_numbers_of_its_reports():
    """The BLEU in the text of results/README.md equals the BLEU of the stored runs."""
    text, single, half = " ".join(page().split()), bleu("float32"), bleu("bfloat16")
    for name, seeds in (("tener", "1 seed"), ("none", "3 seeds")):
        assert f"`{name}` has {single[name]:.1f} BLEU in float32 and {half[name]:.1f} BLEU in bfloat16 ({seeds})" in text
    assert "`tener` is not distinguishable from `none`." in text
    assert f"`shape` has {single['shape']:.1f} BLEU (1 seed) and `none` has {single['none']:.1f} BLEU (3 seeds)" in text
    rows = [f"encoder sinusoidal+{name}, decoder sinusoidal" for name in ("laplacian", "tpe")]
    apart = [abs(table[row] - table[f"{row} (random structure)"]) for table in (single, half) for row in rows]
    assert f"`laplacian` and `tpe` to their controls are {min(apart):.1f} to {max(apart):.1f} BLEU" in text


def test_the_page_has_the_effect_of_rounding():
    text, single, half = " ".join(page().split()), bleu("float32"), bleu("bfloat16")
    apart = {row: abs(single[row] - half[row]) for row in single.keys() & half.keys()}
    largest = max(apart, key=apart.get)
    assert f"a median of {statistics.median(apart.values()):.1f} BLEU on the test set" in text
    assert f"For one row in ten, the difference is larger than {np.quantile([*apart.values()], 0.9):.1f} BLEU." in text
    assert f"The largest difference is {apart[largest]:.0f} BLEU (`{largest}`)." in text


def rows_of(folder: str) -> dict[str, dict[str, str]]:
    """Return row -> column -> cell of report.csv."""
    with (ROOT / "results" / folder / "report.csv").open(encoding="utf-8") as file:
        return {row["method"]: row for row in csv.DictReader(file)}


def test_the_page_has_the_scores_of_long_sentences():
    """The table on the page contains BLEU of the five highest rows above 50 words, and of sinusoidal."""
    rows = rows_of("extrapolation/language")
    names = ["sinusoidal+gaussian", "encoder rope, decoder xpos", "cope", "dynamic_bias", "cape", "sinusoidal"]
    lines = page().split("| 70 to 79 words |")[1].splitlines()[2 : 2 + len(names)]
    buckets = ["50-59", "60-69", "70-79"]
    for name, line in zip(names, lines, strict=True):
        wanted = [f"{float(rows[name][f'test_long_bleu_{bucket}_mean']):.0f}" for bucket in buckets]
        assert [cell.strip() for cell in line.split("|")[2:-1]] == wanted, name
    means = {name: sum(float(row[f"test_long_bleu_{bucket}_mean"]) for bucket in buckets) for name, row in rows.items()}
    assert {*sorted(means, key=means.get)[-5:]} == {*names[:-1]}


def pairs_of_rows(folder: str, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], tuple[float, float, float, float]]:
    """Return pair -> (difference of BLEU on the test set, limits of its 95 % interval, p after Holm's correction).

    The rows have one seed. The pooled standard deviation on the logit scale is computed from an interval in report.csv.
    """
    notes = (ROOT / "results" / folder / "report.md").read_text(encoding="utf-8")
    degrees = int(re.search(r"test: standard deviation [\d.]+ logit\(BLEU/100\), (\d+) degrees of freedom", notes)[1])
    rows, quantile = rows_of(folder), special.stdtrit(degrees, 0.975)
    mean = {name: float(row["test_bleu_mean"]) for name, row in rows.items()}
    first = pairs[0][0]
    deviation = (logit(float(rows[first]["test_bleu_high"])) - logit(mean[first])) / quantile
    error, found = deviation * 2**0.5, {}
    apart = np.array([logit(mean[one]) - logit(mean[other]) for one, other in pairs])
    holm = tests.holm(2 * special.stdtr(degrees, -np.abs(apart) / error))
    for (one, other), difference, p in zip(pairs, apart, holm):
        limits = [
            100 * special.expit(logit(mean[other]) + difference + sign * quantile * error) - mean[other] for sign in (-1, 1)
        ]
        found[one, other] = (mean[one] - mean[other], *map(float, limits), float(p))
    return found


@pytest.mark.parametrize(
    ("data", "part", "rows"),
    [
        ("language", "test", {"nat": "below", "nat_absolute": "below", "pnat": "below"}),
        ("multi30k_en-de", "test", {"nat": "below", "nat_absolute": "below", "pnat": "more"}),
        ("multi30k_en-de", "lengths", {"pnat": "more than"}),
        ("multi30k_en-de", "rescored", {"pnat": "more than"}),
    ],
)
def test_the_page_has_the_differences_of_pnat(data, part, rows):
    """The differences to `nat_deep`, their intervals and their p-values are computed again from the stored runs."""
    runs, names = archive.read(ROOT / "results" / "pnat" / data), ["nat_deep", "nat", "nat_absolute", "pnat"]
    scores = np.array([[runs[f"{name}/seed{seed}"].parts[part].bleu for seed in (1, 2, 3)] for name in names])
    found = tests.compare(scores, baseline=0)
    section = " ".join(page().partition(f"\n## pnat/{data}\n")[2].partition("\n## ")[0].split())
    for name, relation in rows.items():
        i = names.index(name)
        difference, low, high = found.difference[i], found.difference_low[i], found.difference_high[i]
        if relation == "below":
            difference, low, high = -difference, -high, -low
        than = "" if relation == "more" else " `nat_deep`"
        limits = f"95 % interval {low:.1f} to {high:.1f}, corrected {tables.p_text(found.holm[i])}"
        assert f"{difference:.1f} BLEU {relation}{than} ({limits})" in section


def logit(score: float) -> float:
    return float(special.logit(score / 100))


def test_the_page_has_the_differences_of_diet():
    def rank(number, share):
        if number == 32:
            return "diet_abs" if share == "layers" else f"diet_abs:share={share}"
        return f"diet_abs:rank={number},share={share}"

    def rel(share):
        return "diet_rel" if share == "none" else f"diet_rel:share={share}"

    shares = [("none", "heads"), ("none", "layers"), ("heads", "layers")]
    ranks = [(rank(a, share), rank(b, share)) for share in ("none", "layers") for a, b in ((64, 32), (32, 16), (64, 16))]
    ranks += [(rank(64, "heads"), rank(16, "heads"))]
    sharing = [(rank(number, a), rank(number, b)) for number in (64, 16) for a, b in shares]
    sharing += [(rank(32, "none"), rank(32, "layers")), *((rel(a), rel(b)) for a, b in shares)]
    places = [(rank(64, "none"), "learned"), (rank(32, "none"), "learned")]
    places += [("diet_rel", "diet_rel:layers=0"), ("diet_abs", "diet_abs:layers=0")]
    places += [(f"{site} {name}", other or name) for site, other in (("decoder", "none"), ("encoder", "")) for name in METHODS]
    places += [("cross diet_abs", "diet_abs"), ("encoder diet_abs, decoder diet_abs, cross diet_abs", "cross diet_abs")]
    found, text = pairs_of_rows("diet/language", [*ranks, *sharing, *places]), " ".join(page().split())
    assert f"The statements below use {len(found)} pairs of rows on the test set" in text
    assert {pair for pair, (*_, p) in found.items() if p <= 0.05} == {
        (rank(64, "none"), rank(32, "none")), (rank(64, "none"), rank(16, "none")), (rank(64, "heads"), rank(16, "heads")),
        (rank(64, "layers"), rank(16, "layers")), (rank(64, "none"), rank(64, "heads")), (rank(64, "none"), "learned"),
        ("cross diet_abs", "diet_abs"),
    }  # fmt: skip

    def better(one, other, first=""):
        difference, low, high, _ = found[one, other]
        return f"{difference:.0f} BLEU ({first}{low:.0f} to {high:.0f})"

    first = "95 % interval "
    below, lowest = better(rank(64, "none"), rank(32, "none"), first), better(rank(64, "none"), rank(16, "none"))
    assert f"Without sharing, rank 64 is better than rank 32 by {below}, and better than rank 16 by {lowest}." in text
    for share in ("heads", "layers"):
        assert f"by {better(rank(64, share), rank(16, share))} with tables shared between {share}" in text
    difference, low, high, _ = found[rank(64, "none"), rank(64, "heads")]
    assert f"At rank 64, the row without sharing has {difference:.0f} BLEU more than the row that shares tables" in text
    assert f"between heads (95 % interval {low:.0f} to {high:.0f})." in text
    rest = {pair: found[pair] for pair in sharing if found[pair][-1] > 0.05}
    largest = max(rest, key=lambda pair: abs(rest[pair][0]))
    assert largest == (rank(16, "heads"), rank(16, "layers"))
    difference, *_, p = rest[largest]
    assert f"The largest of their differences is {-difference:.0f} BLEU" in text
    assert f"between layers (p = {p:.2f}).".replace("0.", ".") in text


def test_the_page_has_the_costs_of_biases():
    file, measure = ROOT / "results" / "bench" / "amd_epyc_2_cores" / "bench.json", "attention 2048"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    cost = {row["method"]: row[measure]["median"] for row in rows if row["site"] == "model" and row.get(measure)}
    text = " ".join(page().split())
    for sentence, names in {
        "{:.1f} times (`{}`) to {:.1f} times (`{}`) as long": ("alibi", "dynamic_bias"),
        "{:.1f} times as long for `{}` and {:.1f} times as long for `{}`": ("cable", "forgetting"),
        "{:.0f} times as long for `{}`": ("fire",),
        "{:.1f} times (`{}`) to {:.1f} times (`{}`) as long.": ("tupe_abs", "tupe_rel"),
    }.items():
        assert sentence.format(*(value for name in names for value in (cost[name], name))) in text
    tables = [name for name in cost if name in registry.names() and ".bias." in registry.lookup.declaration(name).module]
    within = {name for name in tables if round(cost["alibi"], 1) <= round(cost[name], 1) <= round(cost["dynamic_bias"], 1)}
    assert {*tables} - within == {"cable", "forgetting", "fire", "diet_linformer", "window"}


def test_the_page_has_the_times_on_an_intel_xeon():
    file = ROOT / "results" / "bench" / "intel_xeon_2_cores" / "bench.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    text = " ".join(page().split("\n## bench/intel_xeon_2_cores")[1].split("\n## ")[0].split())
    shapes = ["training 32x32", "training 8x128", "training 2x512"]
    apart = max((row[shape]["high"] - row[shape]["low"]) / row[shape]["median"] for row in rows for shape in shapes)
    assert f"are up to {apart:.0%} of its median apart".replace("%", " %") in text
    for shape, beginning in {"8x128": "fairseq for ", "2x512": "they are for "}.items():
        *names, last = [f"`{row['method']}`" for row in rows if row[f"training {shape}"]["low"] >= 1.05]
        assert f"{beginning}{', '.join(names)} and {last}." in text
    most = max(rows, key=lambda row: row["training 2x512"]["median"])
    assert f"`{most['method']}` needs the most time" in text and f"takes {most['training 2x512']['median']:.1f} times" in text
    names = re.findall(r"\w+", text.split("--output FOLDER ")[1].split(" This [")[0])
    assert sorted(row["method"] for row in rows) == sorted(names)


@pytest.mark.parametrize("folder", ["tiny", "more_methods"])
def test_the_page_has_the_differences_on_captions(folder):
    report = (ROOT / "results" / "multi30k_en-de" / folder / "report.md").read_text(encoding="utf-8")
    section = re.search(rf"^## multi30k_en-de/{folder}$(.*?)^## ", page(), re.MULTILINE | re.DOTALL)[1]
    found = re.findall(r"(\w+) \(([+-][\d.]+ (?:BLEU|chrF)), 95 % interval", report)
    assert found
    for method, difference in found:
        # the page contains no chrF of `none`
        assert f"`{method}`" in section and (difference in section or (method == "none" and difference.endswith("chrF")))
    stated = re.findall(r"[+-][\d.]+ (?:BLEU|chrF)", section)
    assert set(stated) <= {difference for _, difference in found}
    with (ROOT / "results" / "multi30k_en-de" / folder / "report.csv").open(encoding="utf-8", newline="") as file:
        assert len({row["seeds"] for row in csv.DictReader(file)}) == 1  # all rows have the same seeds


def test_the_page_names_the_rows_of_more_captions_with_a_lower_mean():
    with (ROOT / "results" / "multi30k_en-de" / "more_methods" / "report.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] != "sinusoidal"]
    differences = {row["method"]: [float(row[name]) for name in row if name.endswith("_difference")] for row in rows}
    assert len(rows) == 15 and all(len(own) == 6 for own in differences.values())
    lower = [f"`{method}`" for method, own in differences.items() if min(own) < 0]
    sentence = f"{', '.join(lower[:-1])} and {lower[-1]} have a lower mean than `sinusoidal` on at least one test set."
    assert f"{sentence} All other rows have a higher mean on all test sets" in " ".join(page().split())


def test_the_page_has_the_speed_on_a_gpu():
    folder, text = ROOT / "results" / "bench", " ".join(page().split())
    rows = json.loads((folder / "nvidia_h100" / "bench.json").read_text(encoding="utf-8"))["rows"]
    counted = json.loads((folder / "nvidia_h100" / "counted.json").read_text(encoding="utf-8"))["rows"]
    counts = {row["method"]: row for row in counted}  # of the version that was measured

    def times(shape: str) -> dict[str, float]:
        return {row["method"]: row[f"training {shape}"]["median"] for row in rows}

    def ratio(method: str, shape: str, *names: str) -> float:
        own, stock = counts[method][f"training {shape}"], counts["stock"][f"training {shape}"]
        return sum(own[name] for name in names) / sum(stock[name] for name in names)

    short, long = times("64x64"), times("8x512")
    assert f"for {len(rows)} methods ([bench.md]" in text
    rest = {name: value for name, value in long.items() if name not in ("huang3", "dape")}
    for sentence, found in {
        "takes {:.2f} (`{}`) to {:.2f} times (`{}`)": short,
        "take {:.2f} (`{}`) to {:.2f} times (`{}`)": rest,
    }.items():
        least, most = min(found, key=lambda name: found[name]), max(found, key=lambda name: found[name])
        assert sentence.format(found[least], least, found[most], most) in text
    assert f"`huang3` takes {long['huang3']:.1f} times and `dape` takes {long['dape']:.1f} times" in text
    correlations = []
    for shape, measured in {"64x64": short, "8x512": long}.items():
        predicted = {name: ratio(name, shape, "launches") for name in measured}
        correlations.append(spearmanr(list(measured.values()), list(predicted.values())).statistic)
        shares = sorted(measured[name] / predicted[name] for name in measured)
        assert shares[len(shares) // 4] >= 0.95 and shares[3 * len(shares) // 4] <= 1.25  # "most methods take 1.0 to 1.2 times"
    assert "is {:.2f} with 64 words and {:.2f} with 512 words".format(*correlations) in text
    bytes_moved = [ratio(name, "8x512", "read", "written") for name in ("huang3", "dape")]
    assert "they read and write {:.1f} and {:.1f} times".format(*bytes_moved) in text
    peers = json.loads((folder / "nvidia_h100" / "peers.json").read_text(encoding="utf-8"))
    medians = [row[shape]["median"] for row in peers["rows"] for shape in peers["settings"]["shapes"]]
    assert f"one attention module takes {min(medians):.2f} to {max(medians):.2f} times as long" in text


def test_the_page_has_the_checks_on_a_gpu():
    first, second = (
        json.loads((ROOT / "results" / "bench" / "nvidia_h100" / name).read_text(encoding="utf-8"))["methods"]
        for name in ("checks.json", "checks_repeated.json")
    )
    text = " ".join(page().split())
    found = {name for name, checks in first.items() if any("finding" in values for values in checks.values())}
    assert f"{len(found)} of the {len(first)} methods had findings" in text and all(f"`{name}`" in text for name in found)
    again = {(name, check) for name, checks in second.items() for check, values in checks.items() if "finding" in values}
    assert found | {"spe_sine"} == set(second) and again == {("huang3", "compile")}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_page_names_the_methods_without_runs(precision):
    folders = [ROOT / "results" / table / precision for table in ("all_methods", "more_methods")]
    trained = [{run.arch for run in archive.read(folder).values()} for folder in folders]
    listed = re.search(r"These methods are in neither table: (.*?)\.", " ".join(page().split()))[1]
    without = [name for name in registry.names() if f"posenc_{name}_tiny" not in trained[0] | trained[1]]
    assert re.findall(r"`(\w+)`", listed) == without
    assert trained[0] & trained[1] == {"posenc_sinusoidal_tiny"}


def test_the_page_has_the_differences_of_more_methods():
    text = " ".join(page().split("\n## more_methods/float32")[1].split("\n## ")[0].split())
    for precision in ("float32", "bfloat16"):
        rows = rows_of(f"more_methods/{precision}")
        score = {name: float(row["test_bleu_mean"]) for name, row in rows.items()}
        scores = [bleu for name, bleu in score.items() if name != "sinusoidal"]
        apart = [
            score[name] - score["sinusoidal"] for name, row in rows.items() if 0 < float(row["test_bleu_holm_p"] or 1) <= 0.05
        ]
        higher, lower = (sum((difference > 0) is up for difference in apart) for up in (True, False))
        assert f"In {precision}, the sixteen methods have {min(scores):.1f} to {max(scores):.1f} BLEU on the test set" in text
        baseline = f"`sinusoidal` has {score['sinusoidal']:.1f} BLEU"
        assert f"{baseline}: {higher} rows differ and are higher, and {lower} rows differ and are lower" in text


def concatenation() -> dict[tuple[str, str, str], dict[str, list[float]]]:
    """Return (score, decoding, training text) -> method -> means for one to six captions per line."""
    found: dict = {}
    with (ROOT / "results" / "concatenation" / "multi30k_en-de" / "table.csv").open(encoding="utf-8", newline="") as file:
        for score, decoding, text, method, seeds, *values in list(csv.reader(file))[1:]:
            assert seeds == "3"
            found.setdefault((score, decoding, text), {})[method] = [float(value) for value in values if value]
    return found


def from_to(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def statements_about_concatenation() -> list[str]:
    found, local = concatenation(), ("posenc_group", "posenc_g_transformer")
    single, kept = found["bleu", "plain", "L1_captions"], found["kept", "plain", "L1_captions"]
    words = [values[5] for values in found["ratio", "plain", "L1_captions"].values()]
    best = sorted(single, key=lambda name: -single[name][5])[:2]
    pairs, parts, forced = (found[score, how, "L2"] for score, how in (("bleu", "plain"), ("kept", "plain"), ("bleu", "forced")))
    sentences, rest = found["sentences", "plain", "L2"], [name for name in pairs if name not in local]
    shift = "posenc_segment_shift"
    others = [pairs[name][5] for name in rest if name != shift]
    file = ROOT / "results" / "concatenation" / "multi30k_en-de" / "scores.json"
    seeds = json.loads(file.read_text(encoding="utf-8"))["L2"][shift].values()
    of_seeds = from_to([seed["plain"]["6"]["bleu"] for seed in seeds], 1)
    highest = " and ".join(f"{single[name][5]:.1f} (`{name}`)" for name in best)
    return [
        f"With one caption per line, they have {from_to([x[0] for x in single.values()], 1)} BLEU.",
        f"With two captions, {from_to([x[1] * 100 for x in kept.values()], 0)} % of this BLEU remains, and with six captions "
        f"{from_to([x[5] * 100 for x in kept.values()], 0)} %.",
        f"The highest BLEU with six captions is {highest}.",
        f"With six captions, the outputs have {from_to([x * 100 for x in words], 0)} % of the words of the references.",
        f"In these two rows, {from_to([parts[name][5] * 100 for name in local], 0)} % of the BLEU remains with six captions "
        f"({from_to([pairs[name][5] for name in local], 1)} BLEU).",
        f"With two captions, the other rows have {from_to([pairs[name][1] for name in rest], 1)} BLEU. With six captions, "
        f"`{shift}` has {pairs[shift][5]:.1f} BLEU ({of_seeds} BLEU in its three seeds), and the other rows have "
        f"{from_to(others, 1)} BLEU.",
        f"For lines of three captions, {from_to([sentences[name][2] * 100 for name in rest], 0)} % of their outputs have three "
        "sentences.",
        f"If the decoder must write six sentences, they have {from_to([forced[name][5] for name in rest], 1)} BLEU.",
    ]


def test_the_page_has_the_scores_of_concatenated_captions():
    section = re.search(r"^## concatenation/multi30k_en-de$(.*?)^## ", page(), re.MULTILINE | re.DOTALL)[1]
    text = " ".join(section.split())
    assert [sentence for sentence in statements_about_concatenation() if sentence not in text] == []
