"""What several seeds say of chance: beside the rows themselves, and below tables of one seed."""

import json
import statistics

import pytest
import scipy.stats

from fairseq_posenc.evaluation.report.chance import Chance, Spread
from tests.report import runs
from tests.report.test_report import full


@pytest.fixture
def study(tmp_path):
    """Writes runs of several seeds of a method, as the study chance leaves them."""

    def write_study(*records):
        for record in records:
            folder = tmp_path / "chance" / f"{record['data']} {record['settings']['lr'][0]}" / f"seed{record['seed']}"
            folder.mkdir(parents=True)
            (folder / "score.json").write_text(json.dumps(record))
        return tmp_path / "chance"

    return write_study


def seeds(rates, **fields):
    return [runs.run("t5", seed, rate, **fields) for seed, rate in enumerate(rates, 1)]


def note(out):
    return [line for line in out.splitlines() if line.startswith("* chance: ")]


def test_a_table_of_one_seed_says_what_the_study_has_found_for_its_task(posenc, write, study):
    others = seeds([0.05, 0.6], data="other"), seeds([0.05, 0.6], settings={"lr": [0.1], "cpu": True})
    known = seeds([0.2, 0.25, 0.3, 0.35])
    folder = study(*known, *others[0], *others[1])
    tables, out = full(
        posenc, write(runs.run("none", rate=0.3), runs.run("rope", rate=0.28), runs.run("learned", rate=0.9)), "--chance", folder
    )
    deviation = statistics.stdev(record["parts"]["test"]["bleu"] for record in known)
    assert (
        f"of t5, 4 trainings of the study chance, with the same data, model and training: test BLEU {deviation:.1f}, "
        in note(out)[0]
    )
    none, rope = (next(row for row in tables["Difference to learned"] if row[0] == name)[1:] for name in ("none", "rope"))
    assert not any("~" in cell for cell in (*none, *rope)) and "Larger in BLEU: test 2 of 2 (none; rope)" in out


def test_differences_inside_it_are_marked(posenc, write, study):
    folder = study(*seeds([0.2, 0.25, 0.3, 0.35]))
    found = write(runs.run("none", rate=0.3), runs.run("rope", rate=0.28), runs.run("learned", rate=0.9))
    tables, out = full(posenc, found, "--chance", folder, "--baseline", "none")
    difference = {row[0]: row[1] for row in tables["Difference to none"]}
    assert "~ (p" in difference["rope"] and "~" not in difference["learned"]
    assert "~: a difference that is no larger than chance. Larger in BLEU: test 1 of 2 (learned)" in out


def test_of_many_larger_differences_the_number_is_said(posenc, write, study):
    rows = [runs.run(f"t5:buckets={buckets}", rate=0.9) for buckets in range(4, 22, 2)]
    _, out = full(
        posenc, write(runs.run("none", rate=0.3), *rows), "--chance", study(*seeds([0.2, 0.25, 0.3, 0.35])), "--baseline", "none"
    )
    assert "Larger in BLEU: test 9 of 9\n" in out


def test_of_another_task_nothing_is_said(posenc, write, study):
    folder = study(*seeds([0.2, 0.25], data="other"), *seeds([0.2, 0.25], settings={"lr": [0.1]}))
    _, out = full(posenc, write(runs.run("none"), runs.run("rope")), "--chance", folder)
    assert not note(out) and "~" not in out


@pytest.mark.parametrize("known, compared", [(3, 1), (5, 1), (5, 3), (200, 1)])
def test_few_seeds_know_little_of_chance(known, compared):
    """Three seeds ask for a difference of 6.1 times their deviation, 200 of 2.8 times."""
    chance = Chance(["t5"], known, True, False, {("test", "bleu"): Spread(0.5, known - 1)})
    wanted = scipy.stats.t.ppf(0.975, known - 1) * 0.5 * (1 / compared + 1 / compared) ** 0.5
    assert chance.margin("test", "bleu", compared) == pytest.approx(wanted)
    assert chance.margin("test", "chrf") is None


def test_two_seeds_that_are_alike_by_accident_make_no_difference_large(posenc, write, study):
    found = write(runs.run("none", rate=0.3), runs.run("rope", rate=0.9))
    _, out = full(posenc, found, "--chance", study(*seeds([0.2, 0.2])), "--baseline", "none")
    assert note(out)[0].endswith("; too few to say more") and "~" not in out and "Larger" not in out


def test_the_note_says_how_far_two_trainings_are_apart(posenc, write, study):
    known = seeds([0.2, 0.25, 0.3, 0.35])
    _, out = full(posenc, write(runs.run("none"), runs.run("rope")), "--chance", study(*known))
    margin = scipy.stats.t.ppf(0.975, 3) * 2**0.5 * statistics.stdev(record["parts"]["test"]["bleu"] for record in known)
    assert f"19 in 20 pairs of trainings differ by less than test BLEU {margin:.1f}, " in note(out)[0]


def test_seeds_of_the_table_and_of_the_study_count_once(posenc, write, study):
    """The study has a seed of the table, and two others."""
    scores = {1: 0.2, 2: 0.25, 3: 0.3}
    table = [runs.run("none"), runs.run("t5", 1, scores[1]), runs.run("t5", 2, scores[2])]
    _, out = full(posenc, write(*table), "--chance", study(runs.run("t5", 1, 0.9), runs.run("t5", 3, scores[3])))
    wanted = [runs.run("t5", seed, rate)["parts"]["test"]["bleu"] for seed, rate in scores.items()]
    assert "of t5, 3 trainings in this table and of the study chance, with the same data, model and training: " in note(out)[0]
    assert f"test BLEU {statistics.stdev(wanted):.1f}, " in note(out)[0]


def test_several_seeds_speak_for_themselves(posenc, write, study):
    """Pooled over the rows that have them."""
    records = [
        *seeds([0.2, 0.25]),
        runs.run("none", 1, 0.3),
        runs.run("none", 2, 0.35),
        runs.run("none", 3, 0.3),
        runs.run("rope"),
    ]
    _, out = full(posenc, write(*records), "--chance", study(*seeds([0.1, 0.9])))
    scores = {spec: [r["parts"]["test"]["bleu"] for r in records if r["method"]["encoder"] == spec] for spec in ("t5", "none")}
    pooled = (sum((len(found) - 1) * statistics.variance(found) for found in scores.values()) / 3) ** 0.5
    assert f"of none, t5, 5 trainings in this table: test BLEU {pooled:.1f}, " in note(out)[0]


def test_one_method_has_nothing_to_be_larger_than(posenc, write, study):
    _, out = full(posenc, write(*seeds([0.2, 0.25])), "--baseline", "t5")
    assert note(out) and "~" not in out and "Larger" not in out


def test_the_table_on_the_screen_says_it_as_well(posenc, write, study):
    status, out, _ = posenc("report", write(runs.run("none")), "--chance", study(*seeds([0.2, 0.25])))
    assert status == 0 and len(note(out)) == 1 and "~" not in out


def test_a_wrong_folder_is_one_line(posenc, write, tmp_path):
    status, _, error = posenc("report", write(runs.run("none")), "--chance", tmp_path / "nowhere")
    assert status == 2 and error == f"posenc: --chance {tmp_path}/nowhere is no folder; name one with runs of several seeds\n"
