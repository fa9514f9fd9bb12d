"""posenc report --output: its files can be read again and need no other files."""

import csv
import json
import re
from html.parser import HTMLParser

import pytest

from fairseq_posenc.cli import main
from fairseq_posenc.evaluation.report.formats import compact, latex, markdown
from fairseq_posenc.evaluation.report.tables import Table
from tests.report import runs


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write one report of two methods with two seeds each, and of one method without runs."""
    root = tmp_path_factory.mktemp("report")
    references = runs.texts(180, 20)
    for spec, rate in (("none", 0.5), ("t5", 0.2)):
        for seed in (1, 2):
            folder = root / "runs" / f"{spec}{seed}"
            folder.mkdir(parents=True)
            (folder / "score.json").write_text(json.dumps(runs.run(spec, seed, rate, references)))
    methods = ["none", "t5", "tupe_rel"]
    assert (
        main(
            [
                "report",
                str(root / "runs"),
                "--output",
                str(root / "out"),
                "--samples",
                "20",
                "--order",
                "given",
                "--methods",
                *methods,
            ]
        )
        == 0
    )
    return root / "out"


def test_all_files_are_there(written):
    plots = {f"{name}.{kind}" for name in ("scores", "learning", "length") for kind in ("svg", "png")}
    assert {path.name for path in written.iterdir()} == plots | {f"report.{kind}" for kind in ("md", "tex", "csv", "html")}
    assert all((written / name).read_bytes()[:4] == b"\x89PNG" for name in plots if name.endswith("png"))


def test_csv_reads_back_as_numbers(written):
    rows = {row["method"]: row for row in csv.DictReader((written / "report.csv").read_text().splitlines())}
    assert list(rows) == ["none", "t5", "tupe_rel"]
    assert float(rows["t5"]["test_bleu_mean"]) > float(rows["none"]["test_bleu_mean"])
    gain = float(rows["t5"]["test_bleu_mean"]) - float(rows["none"]["test_bleu_mean"])
    assert float(rows["t5"]["test_bleu_difference"]) == pytest.approx(gain, abs=1e-3)
    assert [float(p) for p in rows["t5"]["test_bleu_sentences_holm_p"].split()] == pytest.approx([1 / 21] * 2, abs=1e-5)
    assert float(rows["t5"]["test_bleu_low"]) < float(rows["t5"]["test_bleu_mean"]) < float(rows["t5"]["test_bleu_high"])
    assert 0 < float(rows["t5"]["test_bleu_difference_low"]) < gain < float(rows["t5"]["test_bleu_difference_high"])
    assert float(rows["t5"]["test_bleu_holm_p"]) < 0.05 and rows["t5"]["test_bleu_test"] == "pooled"
    assert (rows["t5"]["test_bleu_rank"], rows["none"]["test_bleu_rank"], rows["none"]["test_bleu_difference"]) == (
        "best",
        "",
        "",
    )
    assert (rows["t5"]["seeds"], rows["t5"]["test_bleu_n"], rows["t5"]["parameters_added"]) == ("1 2", "2", "-20")
    assert (rows["tupe_rel"]["seeds"], rows["tupe_rel"]["test_bleu_mean"]) == ("not run", "")


_MARKS = {"bf": "**", "it": "*"}


def test_latex_reads_back_as_the_markdown(written):
    text = (written / "report.tex").read_text()
    tables = re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL)
    plain = {r"\_": "_", r"$\pm$": "±", "$-$": "-", "$<$": "<"}
    rows = []
    for line in "".join(tables).replace("\\midrule\n", "").splitlines():
        line = re.sub(r"\\text(bf|it)\{(.*?)\}", lambda found: f"{_MARKS[found[1]]}{found[2]}{_MARKS[found[1]]}", line)
        for escaped, character in plain.items():
            line = line.replace(escaped, character)
        assert line.endswith("\\\\") and not re.search(r"[\\$]", line[:-2])
        rows.append([cell.strip() for cell in line[:-2].split(" & ")])
    lines = (written / "report.md").read_text().splitlines()
    assert rows == [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == len(tables) == 5
    assert re.findall(r"\\label\{(.*?)\}", text) == [
        "tab:report-scores", "tab:report-difference-to-none", "tab:report-tests-over-sentences", "tab:report-training",
        "tab:report-bleu-by-source-length-test",
    ]  # fmt: skip
    assert r"\caption{Difference to none. test BLEU: t5 (+" in text and "corrected p" in text
    assert text.count("{") == text.count("}") and text.isascii()


def test_special_characters_are_escaped():
    block = Table("50% & more", ["method"], [["a_b|c"], ["-1.0"]])
    assert r"\caption{50\% \& more.}" in latex([block], []) and r"a\_b\textbar{}c \\" in latex([block], [])
    assert r"a_b\|c" in markdown([block], [])
    assert "-{}-length-noise" in latex([Table("--length-noise", ["method"], [["t5"]])], [])  # LaTeX prints -- as a dash


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone(written):
    text = (written / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert not page.open and [tag for tag, _ in page.tags].count("svg") == 3
    assert "http" not in text and "<script" not in text and "url(" not in text.split("</style>")[0]
    references = [value for _, attributes in page.tags for name, value in attributes.items() if name.endswith("href")]
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert all(value.startswith("#") and value[1:] in names for value in references)
    assert all(name in names for name in re.findall(r"url\(#([^)]*)\)", text))
    assert "not run" in text and "paired approximate randomization" in text


def test_the_same_runs_give_the_same_files(written):
    again = written.parent / "again"
    arguments = ["--samples", "20", "--order", "given", "--methods", "none", "t5", "tupe_rel"]
    assert main(["report", str(written.parent / "runs"), "--output", str(again), *arguments]) == 0
    assert {p.name: p.read_bytes() for p in written.iterdir()} == {p.name: p.read_bytes() for p in again.iterdir()}


def test_wide_tables_of_files_are_not_aligned():
    names = [["t5:" + "x" * 90, "1.0"], ["rope | *", "12.5"]]
    narrow = markdown([Table("Scores", ["method", "BLEU"], [names[1]])], ["a  note"])
    assert compact(narrow) == narrow
    wide = markdown([Table("Scores", ["method", "BLEU" + "y" * 40], names)], ["a  note"])
    found = compact(wide).splitlines()
    assert found[:4] == [
        f"| method | BLEU{'y' * 40} |", "|:---|---:|", f"| t5:{'x' * 90} | 1.0 |", "| rope \\| * | 12.5 |",
    ]  # fmt: skip
    assert found[-1] == "* a  note"
