"""Every command that reads score.json prints one line of error if the content does not follow the schema."""

import json

import pytest

from fairseq_posenc.core import PositionError
from fairseq_posenc.evaluation.scoring import record
from fairseq_posenc.evaluation.scoring.sentences import SentenceStatistics
from tests.report import runs

NUMBER = "9" * 5000


@pytest.fixture(scope="module")
def valid():
    return runs.run("t5")


def changed(valid, path, value):
    """Return a record as JSON text. The field at `path` has the JSON text `value`."""
    content = json.loads(json.dumps(valid))
    *parents, last = path.split(".")
    inner = content
    for name in parents:
        inner = inner[name]
    inner[last] = "PLACEHOLDER"
    return json.dumps(content).replace('"PLACEHOLDER"', value)


def test_a_valid_record_reads_as_it_was_written(valid, tmp_path):
    written = record.write(tmp_path / "score.json", valid)
    assert written == record.read(tmp_path / "score.json")
    assert written.parts["test"].bleu == valid["parts"]["test"]["bleu"]
    assert json.loads((tmp_path / "score.json").read_text()) == valid


def test_a_learning_curve_may_contain_losses_that_are_not_finite(valid, tmp_path):
    fields = {**valid, "learning_curve": [[200, 5.3], [400, None], [800, None]]}
    record.write(tmp_path / "score.json", fields)
    assert json.loads((tmp_path / "score.json").read_text(), parse_constant=pytest.fail) == fields
    assert record.read(tmp_path / "score.json").diverged_at == 400
    assert record.parse(json.dumps(valid), "score.json").diverged_at is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("parts.test.bleu", "NaN"),
        ("parts.test.bleu", "Infinity"),
        ("parts.test.bleu", "1e999"),
        ("parts.test.bleu", NUMBER),
        ("parts.test.bleu", "101"),
        ("parts.test.chrf", "-1"),
        ("parts.test.chrf", '"50"'),
        ("parts.test.sentences", "true"),
        ("parts.test.sentences", "0"),
        ("parts.test.decoding", "[]"),
        ("parts.test.decoding.lenpen", NUMBER),
        ("parts.test.statistics", "[1]"),
        ("parts.test", "[]"),
        ("parts", "{}"),
        ("parts", "[]"),
        ("parts", '{"a\\nb": {}}'),
        ("learning_curve", "5"),
        ("learning_curve", '[["a", 1]]'),
        ("learning_curve", "[[1, NaN]]"),
        ("learning_curve", "[[1]]"),
        ("training_seconds", '"a"'),
        ("training_seconds", "1e300"),
        ("tokens_per_second", "-Infinity"),
        ("peak_memory", "3"),
        ("peak_memory", '{"of": "GPU"}'),
        ("settings", '"none"'),
        ("settings.lr", "1e999"),
        ("settings.lr", "[" * 5000 + "]" * 5000),
        ("seed", NUMBER),
        ("updates", "1.5"),
        ("parameters", "-1"),
        ("method.encoder", "7"),
        ("method", '{"encoder": "t5"}'),
        ("arch", r'"\ud800"'),
        ("method.encoder", r'"\ud800"'),
        ("method.encoder", r'"t5\u0000"'),
        ("versions", "[]"),
        ("another", "1"),
    ],
)
def test_a_wrong_field_is_one_line(valid, tmp_path, posenc, path, value):
    (tmp_path / "score.json").write_text(changed(valid, path, value))
    status, out, error = posenc("report", tmp_path, "--full")
    assert status == 2 and not out and error.count("\n") == 1 and len(error) < 400
    assert "score.json: wrong fields (" in error or "score.json: damaged (" in error


def test_the_wrong_fields_are_named(valid):
    text = changed(valid, "parts.test.bleu", "NaN")
    with pytest.raises(PositionError, match=r"wrong fields \(parts.test.bleu\)\. .* Run posenc score again"):
        record.parse(text, "score.json")


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[[1]]", b"\xff\xfe", b"[" * 100000])
def test_what_is_no_record_is_one_line(tmp_path, posenc, content):
    (tmp_path / "score.json").write_bytes(content)
    status, out, error = posenc("report", tmp_path)
    assert status == 2 and not out and error.count("\n") == 1 and "score.json: " in error


def test_mathematics_in_a_name_is_text(valid, tmp_path, posenc):
    name = r"t5 $\\frac{x$ ^_"
    (tmp_path / "score.json").write_text(changed(changed_both(valid, name), "arch", '"$x"'))
    status, _, error = posenc("report", tmp_path, "--output", tmp_path / "out", "--samples", "10")
    assert (status, error) == (0, "")


def changed_both(valid, name):
    method = {"encoder": json.loads(f'"{name}"'), "decoder": json.loads(f'"{name}"'), "cross": "none"}
    return {**valid, "method": method, "signature": {}}


@pytest.mark.parametrize("statistics", ["AAAA", "", "ä"])
def test_damaged_statistics_are_one_line(valid, tmp_path, posenc, statistics):
    (tmp_path / "score.json").write_text(changed(valid, "parts.test.statistics", json.dumps(statistics)))
    status, _, error = posenc("report", tmp_path, "--full")
    assert status == 2 and error.count("\n") == 1 and "are damaged. Run posenc score again" in error


@pytest.mark.parametrize("wrong", [-1, 2**31, 1.0, True, "1", None])
@pytest.mark.parametrize("field", ["bleu", "chrf", "source_words"])
def test_other_values_than_counts_are_an_error(field, wrong):
    fields = {"bleu": [[0] * 10] * 2, "chrf": [[0] * 18] * 2, "source_words": [0, 2**31 - 1]}
    SentenceStatistics(**fields)
    last = fields[field][-1]
    fields[field] = [fields[field][0], wrong if field == "source_words" else [*last[:-1], wrong]]
    with pytest.raises(ValueError, match="are not counts"):
        SentenceStatistics(**fields)


@pytest.mark.parametrize("columns", [9, 11])
def test_a_sentence_with_another_number_of_counts_is_an_error(columns):
    with pytest.raises(ValueError, match="statistics of bleu are not counts"):
        SentenceStatistics(bleu=[[0] * 10, [0] * columns], chrf=[[0] * 18] * 2)


def test_fields_with_different_numbers_of_sentences_are_an_error():
    with pytest.raises(ValueError, match="different numbers of sentences"):
        SentenceStatistics(bleu=[[0] * 10] * 2, chrf=[[0] * 18] * 3)
