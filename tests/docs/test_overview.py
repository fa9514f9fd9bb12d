"""The results section of README, which docs/renew.py writes from committed runs."""

import json
import re
import shutil
from pathlib import Path

import pytest

from fairseq_posenc.core import PositionError
from posenc_docs import overview
from tests.report import runs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path):
    """Return a checkout with README and the benchmarks, but without runs."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(overview.without((ROOT / "README.md").read_text(encoding="utf-8")), encoding="utf-8")
    for file in overview.BENCHMARKS:
        (tmp_path / file).parent.mkdir(parents=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def add(checkout, *records):
    for record in records:
        folder = checkout / overview.RUNS / record["method"]["encoder"] / f"seed{record['seed']}"
        folder.mkdir(parents=True)
        (folder / "score.json").write_text(json.dumps(record))


def readme(checkout):
    overview.write(checkout)
    return (checkout / "README.md").read_text(encoding="utf-8")


def run(spec, seed, rate):
    settings = {"encoder_layers": 2, "decoder_layers": 3, "encoder_embed_dim": 128, "max_epoch": 10}
    return runs.run(spec, seed, rate, part=overview.PART, settings=settings)


def test_without_runs_readme_stays_as_it_is(checkout):
    before = (checkout / "README.md").read_bytes()
    assert readme(checkout).encode() == before and not (checkout / overview.PICTURE).exists()


def test_with_runs_it_has_one_table_and_one_picture(checkout):
    """In the table, each difference to the baseline equals the mean of the method minus the mean of the baseline."""
    plain = (checkout / "README.md").read_text(encoding="utf-8")
    seeds = [run("sinusoidal", seed, rate) for seed, rate in enumerate((0.30, 0.32, 0.34, 0.32), 1)]
    add(checkout, *seeds, run("t5", 1, 0.31), run("none", 1, 0.9), run("synthesizer_dense", 1, 0.2))
    text = readme(checkout)
    assert overview.without(text) == plain and readme(checkout) == text
    found = text.split("## Results\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == ["method", *sorted(
        ("sinusoidal", "t5", "none", "synthesizer_dense"), key=lambda spec: -mean(checkout, spec)
    )]  # fmt: skip
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["sinusoidal"][0] == "4" and by_name["sinusoidal"][2] == "baseline"
    means = {name: float(cells[1].split()[0]) for name, cells in by_name.items() if name != "method"}
    for name in ("t5", "none"):
        assert by_name[name][0] == "1" and re.fullmatch(r"\S+ \[\S+, \S+\]", by_name[name][1])
        assert float(by_name[name][2].split()[0]) == pytest.approx(means[name] - means["sinusoidal"], abs=0.11)
    assert by_name["none"][3] == f"{1000 + 10 * len('none'):,}"
    words = " ".join(found.split())
    difference = r"`none` \(-\S+ BLEU, 95 % interval -\S+ to -\S+\) differs? from `sinusoidal` \("
    assert re.search(difference, words) and "not distinguishable" in words
    assert "2 encoder layers, 3 decoder layers and width 128. Training has 10 epochs." in words
    assert f"]({overview.PICTURE})" in found
    assert (checkout / overview.PICTURE).read_bytes().startswith(b"\x89PNG")


def mean(checkout, spec):
    scores = [json.loads(path.read_text()) for path in (checkout / overview.RUNS / spec).rglob("score.json")]
    return sum(score["parts"][overview.PART]["bleu"] for score in scores) / len(scores)


def test_a_row_with_the_specs_of_an_architecture_has_its_cost(checkout):
    alibi = {"method": {"encoder": "alibi_symmetric", "decoder": "alibi", "cross": "none"}}
    add(checkout, run("sinusoidal", 1, 0.3), {**run("alibi", 1, 0.3), **alibi})
    (row,) = [line for line in readme(checkout).splitlines() if line.startswith("| encoder alibi_symmetric, decoder alibi |")]
    assert re.search(r"\| +\d\.\d\d \| +\d\.\d\d \|$", row)


def test_runs_that_do_not_compare_are_an_error(checkout):
    add(checkout, run("sinusoidal", 1, 0.3), {**run("t5", 1, 0.3), "data": "other"})
    with pytest.raises(PositionError, match="differ in data"):
        overview.write(checkout)


def test_the_readme_of_the_checkout_shows_its_results(tmp_path):
    """If this test fails, regenerate the section with: python docs/renew.py"""
    for name in ("README.md", "results"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs").mkdir()
    assert readme(tmp_path) == (ROOT / "README.md").read_text(encoding="utf-8")
