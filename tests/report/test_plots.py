"""Plots of a report with many rows and long names: nothing is cut off, and all rows can be distinguished."""

import dataclasses
import io
import itertools
import json

import pytest

from fairseq_posenc.evaluation.report import plots, tables
from fairseq_posenc.evaluation.report.comparison import Difference, Row, Score, Values, make_report
from fairseq_posenc.evaluation.report.options import Options
from fairseq_posenc.evaluation.scoring.record import Record
from fairseq_posenc.plotting import style as plotting
from tests.report import runs

LONG = "+".join(["deberta:terms=c2p/p2c,max_distance=128"] * 8)


def summary_of(*names):
    references = [" ".join(["word"] * (5 + 10 * (i % 2))) for i in range(120)]
    plain = runs.run("none", references=references)
    records = []
    for name in names:
        method = {"encoder": name, "decoder": name, "cross": "none"}
        records.append(Record.model_validate_json(json.dumps({**plain, "method": method})))
    return make_report(records, Options(order="given", samples=5))


def many(number):
    return summary_of(*(f"t5:buckets={n}" for n in range(2, number + 2)))


@pytest.fixture
def figures(monkeypatch):
    """Collect the drawn figures by name. The plotting code still receives the files of each figure."""
    kept = {}
    saved = plotting._saved

    def keep(figure, name, colours):
        kept[name] = figure
        return saved(figure, name, colours)

    monkeypatch.setattr(plotting, "_saved", keep)
    return kept


def inside(figure, box):
    width, height = figure.get_size_inches() * figure.dpi
    return box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1


def size(figure, axis):
    """Return the size of a panel in inches."""
    place = axis.get_position()
    return place.width * figure.get_figwidth(), place.height * figure.get_figheight()


@pytest.mark.parametrize("number", [2, 60])
def test_legends_are_whole_and_tell_all_lines_apart(figures, number):
    plots.draw_plots(many(number))
    number = min(number, plots.MOST_LINES)
    for name in ("learning", "length"):
        figure = figures[name]
        figure.canvas.draw()
        (legend,) = figure.legends
        assert len(legend.get_texts()) == number
        assert inside(figure, legend.get_window_extent())
        assert all(not axis.get_window_extent().overlaps(legend.get_window_extent()) for axis in figure.axes)
        lines = [line for line in figure.axes[0].lines if not line.get_label().startswith("_")]
        assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}) == number


def dots(figure, rows):
    """Return row -> fill style and colour of its dot, in the first panel of the plot of scores."""
    lines = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    return dict(zip(rows, [(line.get_fillstyle(), line.get_markerfacecolor() == "white") for line in lines], strict=True))


FILLED, OPEN, HALF = ("full", False), ("full", True), ("left", False)
TESTED = "Filled dots differ from it (corrected p at most .05)."
UNTESTED = "Half-filled dots were not tested."


def drawn(figures, **tested):
    """Return the dots of a plot of the baseline and the rows in `tested`, and the caption of the plot."""
    report = summary_of("none", *tested)
    scores = report.columns[report.parts[0], "bleu"].scores
    for name, p in tested.items():
        scores[name] = dataclasses.replace(scores[name], difference=Difference(1.0, (3, 3), 0.0, 2.0, p, p))
    plots.draw_plots(report)
    assert report.baseline == "none"
    return dots(figures["scores"], [row.name for row in report.rows]), tables.score_table(report).caption


def test_filled_dots_differ_and_half_filled_dots_were_not_tested(figures):
    found, caption = drawn(figures, t5=0.01, rope=0.3, shaw=None)
    assert found == {"none": FILLED, "t5": FILLED, "rope": OPEN, "shaw": HALF}
    assert caption.endswith(f"The vertical line is the baseline. {TESTED} {UNTESTED}")


def test_the_caption_names_only_dots_of_the_plot(figures):
    report = summary_of("none", "t5")
    for part, metric in report.columns:
        scores = report.columns[part, metric].scores
        scores["t5"] = dataclasses.replace(scores["t5"], difference=Difference(1.0, (3, 3), p=0.3, holm=0.3))
    assert tables.score_table(report).caption.endswith(f"The vertical line is the baseline. {TESTED}")
    found, caption = drawn(figures, t5=None, rope=None)
    assert found == {"none": FILLED, "t5": HALF, "rope": HALF}
    assert caption.endswith(f"The vertical line is the baseline. {UNTESTED}")
    assert tables.score_table(summary_of("none")).caption.endswith("every seed as a small circle.")


def test_a_legend_has_the_order_in_which_lines_end(figures):
    summary = summary_of("none", "t5", "rope")
    for loss, row in zip((2.0, 4.0, 3.0), summary.rows):
        row.runs[0] = row.runs[0].model_copy(update={"learning_curve": [(1, 9 - loss), (2, loss)]})
    plots.draw_plots(summary)
    assert [text.get_text() for text in figures["learning"].legends[0].get_texts()] == ["rope", "t5", "none"]


def test_one_row_has_only_a_learning_curve(figures):
    plots.draw_plots(summary_of("none"))
    assert figures.keys() == {"learning"}


def test_a_line_ends_where_the_first_seed_ends(figures):
    """With --patience, the mean over the seeds that train longer would be the mean of other runs."""
    summary = summary_of("none", "t5")
    row = summary.rows[1]
    row.runs[0] = row.runs[0].model_copy(update={"learning_curve": [(1, 5.0), (2, 4.0)]})
    row.runs.append(row.runs[0].model_copy(update={"learning_curve": [(1, 5.0), (2, 3.0), (3, 1.0)], "seed": 2}))
    plots.draw_plots(summary)
    (line,) = [line for line in figures["learning"].axes[0].lines if line.get_label() == row.name]
    assert [*zip(line.get_xdata(), line.get_ydata())] == [(1, 5.0), (2, 3.5)]


def test_a_line_has_the_validations_that_all_seeds_have(figures):
    summary = summary_of("none", "t5")
    row = summary.rows[1]
    row.runs[0] = row.runs[0].model_copy(update={"learning_curve": [(1, 5.0), (2, 4.0), (3, 3.0)]})
    row.runs.append(row.runs[0].model_copy(update={"learning_curve": [(1, 7.0), (3, 5.0)], "seed": 2}))
    plots.draw_plots(summary)
    (line,) = [line for line in figures["learning"].axes[0].lines if line.get_label() == row.name]
    assert [*zip(line.get_xdata(), line.get_ydata())] == [(1, 6.0), (3, 4.0)]


def test_a_line_ends_with_a_cross_where_a_loss_is_not_finite(figures):
    """The mean over the other seeds would look like the mean over all seeds."""
    summary = summary_of("none", "t5", "rope")
    curves = {"none": [(1, 5.0), (2, 4.0), (3, 3.0)], "t5": [(1, 6.0), (2, 5.0), (3, None)], "rope": [(1, None), (2, None)]}
    for row in summary.rows:
        row.runs[0] = row.runs[0].model_copy(update={"learning_curve": curves[row.name]})
        row.runs.append(row.runs[0].model_copy(update={"learning_curve": curves["none"], "seed": 2}))
    plots.draw_plots(summary)
    lines = {line.get_label(): [*line.get_xdata()] for line in figures["learning"].axes[0].lines}
    crosses = [lines.pop(name) for name in list(lines) if name.startswith("_")]  # crosses are not in the legend
    stopped = {"t5 (not finite at update 3)": [1, 2], "rope (not finite at update 1)": []}
    assert lines == {**stopped, "none": [1, 2, 3]} and [cross for cross in crosses if cross] == [[2]]
    captions = [table.caption for table in tables.all_tables(summary) if table.title == "Training"]
    assert captions[0].endswith("A cross marks the last loss before a seed has a loss that is NaN or infinite.")


def test_of_many_rows_the_best_and_the_baseline_have_lines(figures):
    summary = many(60)
    summary = dataclasses.replace(summary, baseline=summary.rows[0].name)
    for nth, row in enumerate(summary.rows):
        summary.columns[summary.parts[0], "bleu"].scores[row.name] = Score(Values({1: float(nth)}))
    plots.draw_plots(summary)
    for name in ("learning", "length"):
        shown = {text.get_text() for text in figures[name].legends[0].get_texts()}
        assert shown == {row.title for row in [summary.rows[0], *summary.rows[41:]]}


@pytest.mark.parametrize("number", [2, 60])
def test_names_beside_rows_are_whole_and_apart(figures, number):
    summary = summary_of(*(f"t5:buckets={n}" for n in range(2, number + 1)), LONG)
    plots.draw_plots(summary)
    figure = figures["scores"]
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert len(boxes) == number and all(inside(figure, box) for box in boxes)
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    assert figure.get_figheight() < 2.5 + 0.31 * number  # one long name does not increase the height of all rows


def test_a_long_name_does_not_shrink_the_panels(figures):
    plots.draw_plots(summary_of("none", "t5"))
    before = {name: [size(figure, axis) for axis in figure.axes] for name, figure in figures.items()}
    plots.draw_plots(summary_of("none", LONG))
    for name, figure in figures.items():
        for (width, height), axis in zip(before[name], figure.axes):
            assert size(figure, axis)[0] > 0.9 * width and size(figure, axis)[1] > 0.9 * height
    figures["scores"].canvas.draw()
    labels = figures["scores"].axes[0].get_yticklabels()
    assert all(inside(figures["scores"], label.get_window_extent()) for label in labels)
    assert not labels[0].get_window_extent().overlaps(labels[1].get_window_extent())


def test_labels_break_between_options():
    assert plotting.label_text("encoder rope, decoder t5:buckets=32,max_distance=128+segments") == (
        "encoder rope, decoder t5:buckets=32,\nmax_distance=128+segments"
    )
    assert plotting.label_text("x" * 90).replace("\n", "") == "x" * 90
    assert plotting.label_text("a $x$") == r"a \$x\$"


def test_no_two_methods_look_the_same():
    styles = [tuple(plotting.line_style(index).values()) for index in range(224)]
    assert len(set(styles)) == len(styles)


def test_svg_is_that_of_the_figure():
    plot = plotting.render("empty", lambda: plotting.new_figure(2, 2)[0])
    assert plot.svg.startswith("<?xml") and io.BytesIO(plot.png).read(4) == b"\x89PNG"
    assert plotting.render("nothing", lambda: None) is None
    assert Row("t5", []).title == "t5"
