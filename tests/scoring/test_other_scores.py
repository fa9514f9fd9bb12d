"""posenc score with TER, with several references, with scores of another program, and with settings that name a row."""

import json
import re

import pytest
import sacrebleu

from fairseq_posenc.evaluation.scoring.others import given, unpack
from tests.scoring.test_score import HYPOTHESES, REFERENCES, generated, trained  # noqa: F401  a fixture

MORE = ["a dog sees a cat", "the cat sees one dog", "the dogs sleep"]


def score(posenc, run, *options, parts=("test={ref}",)):
    given = [part.replace("{ref}", str(run.parent / "test.sov")) for part in parts]
    status, out, error = posenc("score", run, *options, "--", *given)
    assert status == 0, error
    return json.loads((run / "score.json").read_text())["parts"], out


def refusal(posenc, run, *options, parts=("test={ref}",)):
    given = [part.replace("{ref}", str(run.parent / "test.sov")) for part in parts]
    status, _, error = posenc("score", run, *options, "--", *given)
    assert status == 2 and error.count("\n") == 1 and not (run / "score.json").exists()
    return error


def test_ter_is_that_of_sacrebleu(posenc, trained):  # noqa: F811
    parts, out = score(posenc, trained, "--ter")
    other = parts["test"]["others"]["ter"]
    assert other["score"] == pytest.approx(sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score)
    assert other["metric"].startswith("TER nrefs:1|case:lc|tok:tercom") and "TER 8.333" in out
    edits, lengths = zip(*unpack(other["statistics"]))
    assert (edits, lengths) == ((0, 1, 0), (5, 5, 2))


@pytest.mark.parametrize("tokenize", ["zh", "char"])
def test_ter_of_text_without_spaces_counts_characters(posenc, trained, tokenize):  # noqa: F811
    """By default, TER compares words between spaces. A Chinese sentence would be one word."""
    references = ["猫坐在红色的垫子上。", "我昨天去了商店买苹果。", "他正在读一本关于历史的书。"]
    hypotheses = ["猫坐在红色垫子上。", "我昨天去商店买了苹果。", "他正在读一本历史书。"]
    (trained.parent / "test.sov").write_text("\n".join(references) + "\n")
    logged = (trained / "test.out").read_text().splitlines()[0].partition("generate:")[2]
    (trained / "test.out").write_text(generated(hypotheses, config=logged, targets=references))
    parts, _ = score(posenc, trained, "--ter", "--tokenize", tokenize)
    other = parts["test"]["others"]["ter"]
    wanted = sacrebleu.corpus_ter(hypotheses, [references], normalized=True, asian_support=True).score
    assert other["score"] == pytest.approx(wanted) and wanted < 30
    assert other["metric"].startswith("TER nrefs:1|case:lc|tok:tercom|norm:yes|punct:yes|asian:yes")


def test_other_scores_of_the_same_text_are_kept(posenc, trained):  # noqa: F811
    file = trained.parent / "comet.txt"
    file.write_text("0.5\n0.7\n0.9\n")
    both, _ = score(posenc, trained, "--ter", "--segment-scores", f"comet={file}")
    again, out = score(posenc, trained, "--tokenize", "none")
    assert again["test"]["others"] == both["test"]["others"] and "comet 0.7" in out
    file.write_text("0.5\n0.7\n0.3\n")
    other, _ = score(posenc, trained, "--segment-scores", f"comet={file}")
    assert other["test"]["others"]["comet"]["score"] == pytest.approx(0.5)
    assert other["test"]["others"]["ter"] == both["test"]["others"]["ter"]


@pytest.mark.parametrize("change", ["hypothesis", "reference", "source", "version"])
def test_other_scores_of_another_text_are_removed_with_a_message(posenc, trained, change):  # noqa: F811
    (trained.parent / "comet.txt").write_text("0.5\n0.7\n0.9\n")
    score(posenc, trained, "--ter", "--segment-scores", f"comet={trained.parent}/comet.txt")
    output, reference, scored = trained / "test.out", trained.parent / "test.sov", trained / "score.json"
    if change == "hypothesis":  # the statistics of the sentences do not differ
        output.write_text(output.read_text().replace("the cat sees a dog", "the cat sees o dog"))
    elif change == "reference":
        reference.write_text(reference.read_text().replace("dogs sleep", "dogs  sleep"))
    elif change == "source":
        output.write_text(output.read_text().replace("S-0\tx", "S-0\ty"))
    else:
        scored.write_text(re.sub(r',\s*"hypotheses": "[0-9a-f]+"', "", scored.read_text()))
    status, _, error = posenc("score", trained, f"test={reference}", "--segment-scores", f"comet={trained.parent}/comet.txt")
    assert status == 0 and error.count("\n") == 1
    assert "test may have other hypotheses or references than before, so its earlier scores of ter are removed" in error
    assert set(json.loads(scored.read_text())["parts"]["test"]["others"]) == {"comet"}


def test_json_has_all_scores(posenc, trained):  # noqa: F811
    (trained.parent / "comet.txt").write_text("0.5\n0.7\n0.9\n")
    _, out = score(posenc, trained, "--ter", "--json", "--segment-scores", f"comet={trained.parent}/comet.txt")
    (shown,) = json.loads(out)
    assert shown["others"] == {"ter": pytest.approx(8.333, abs=1e-3), "comet": pytest.approx(0.7)}


def test_a_part_may_have_several_references(posenc, trained):  # noqa: F811
    (trained.parent / "more.sov").write_text("\n".join(MORE) + "\n")
    one, _ = score(posenc, trained, "--ter")
    two, _ = score(posenc, trained, "--ter", parts=("test={ref}", f"test={trained.parent}/more.sov"))
    references = [REFERENCES, MORE]
    assert two["test"]["bleu"] == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, references).score)
    assert two["test"]["chrf"] == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, references).score)
    assert two["test"]["others"]["ter"]["score"] == pytest.approx(sacrebleu.corpus_ter(HYPOTHESES, references).score)
    assert "nrefs:2" in two["test"]["bleu_signature"] and "nrefs:2" in two["test"]["others"]["ter"]["metric"]
    assert one["test"]["reference"] != two["test"]["reference"]


def test_references_of_other_lengths_are_one_line(posenc, trained):  # noqa: F811
    (trained.parent / "more.sov").write_text("\n".join(MORE[:2]) + "\n")
    line = refusal(posenc, trained, parts=("test={ref}", f"test={trained.parent}/more.sov"))
    assert "more.sov: 2 lines, but" in line and "has 3" in line


def test_scores_of_another_program_are_one_number_per_line(posenc, trained):  # noqa: F811
    file = trained.parent / "comet-test.txt"
    file.write_text("0.5\n-1e-1\n 0.8\n")
    parts, out = score(posenc, trained, "--segment-scores", f"comet={trained.parent}/comet-{{part}}.txt")
    other = parts["test"]["others"]["comet"]
    assert other["score"] == pytest.approx(0.4) and "comet 0.4," in out
    assert unpack(other["statistics"]) == [[0.5], [-0.1], [0.8]]


def test_errors_of_another_program_are_better_when_they_are_smaller(posenc, trained):  # noqa: F811
    (trained.parent / "errors.txt").write_text("1\n2\n3\n")
    parts, _ = score(posenc, trained, "--ter", "--segment-errors", f"metricx={trained.parent}/errors.txt")
    others = parts["test"]["others"]
    assert others["metricx"]["score"] == 2 and others["metricx"]["smaller_is_better"] and others["ter"]["smaller_is_better"]
    file = f"{trained.parent}/errors.txt"
    parts, _ = score(posenc, trained, "--segment-scores", f"human={file}")
    assert not parts["test"]["others"]["human"]["smaller_is_better"]
    (trained / "score.json").unlink()
    twice = ["--segment-scores", f"m={file}", "--segment-errors", f"m={file}"]
    assert "--segment-errors m: given twice" in refusal(posenc, trained, *twice)


@pytest.mark.parametrize(
    "text, line",
    [
        ("0.5\n0.1\n", "2 lines for 3 sentences"),
        ("0.5\n0.1\nx\n", "line 3: not a score"),
        ("0.5\nnan\n0.1\n", "line 2: not a score"),
        ("inf\n0\n0\n", "line 1: not a score"),
        ("9" * 5000 + "\n0\n0\n", "bytes for 3 sentences"),
    ],
)
def test_files_that_are_no_scores_are_one_line(posenc, trained, text, line):  # noqa: F811
    (trained.parent / "scores.txt").write_text(text)
    assert line in refusal(posenc, trained, "--segment-scores", f"comet={trained.parent}/scores.txt")


def test_names_of_scores(posenc, trained):  # noqa: F811
    for item, line in (("comet", "Expected NAME=FILE"), ("bleu=x", "'bleu': not a name"), ("a b=x", "'a b': not a name")):
        assert line in refusal(posenc, trained, "--segment-scores", item)
    twice = ["--segment-scores", "m=x", "--segment-scores", "m=y"]
    (trained.parent / "x").write_text("1\n2\n3\n")
    twice = [word.replace("=x", f"={trained.parent}/x").replace("=y", f"={trained.parent}/x") for word in twice]
    assert "--segment-scores m: given twice" in refusal(posenc, trained, *twice)
    (trained / "b.out").write_text((trained / "test.out").read_text())
    line = refusal(posenc, trained, "--segment-scores", "m=x", parts=("test={ref}", "b={ref}"))
    assert "one file for 2 test sets. Expected {part}" in line


def test_settings_that_name_a_row_are_those_of_the_training(posenc, trained):  # noqa: F811
    assert "--row nonsense: not a setting of the training" in refusal(posenc, trained, "--row", "nonsense")


def test_given_scores_keep_their_order(tmp_path):
    (tmp_path / "scores").write_text("3\n1\n2\n")
    assert unpack(given("human", tmp_path / "scores", 3)["statistics"]) == [[3.0], [1.0], [2.0]]
