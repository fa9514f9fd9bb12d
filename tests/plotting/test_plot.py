"""posenc plot: its pictures, and its messages about wrong input."""

from pathlib import Path

import pytest
import torch

from fairseq_posenc import registry
from fairseq_posenc.plotting import figures, panels
from posenc_docs import committed

ROOT = Path(__file__).parents[2]


def images(figure):
    return [axis.images[0].get_array() for axis in figure.axes if axis.images]


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_it_writes_a_picture(posenc, tmp_path, suffix, start):
    path = tmp_path / f"picture{suffix}"
    assert posenc("plot", "rope", "window:width=4", "--length", 8, "--curves", "--output", path) == (0, f"wrote {path}\n", "")
    assert path.read_bytes().startswith(start)


def test_a_picture_shows_the_numbers_of_its_panels():
    found = panels.of_sources(["alibi", "disan"], 6, every_head=True)
    shown = images(figures.draw(found))
    assert len(found) == len(shown) == 16
    for panel, image in zip(found, shown):
        assert torch.tensor(image.filled(float("nan"))).nan_to_num(7).equal(panel.values.nan_to_num(7))
    assert len({panel.scale for panel in found[:8]}) == 1  # heads share one scale, so that they can be compared


def test_the_same_numbers_make_the_same_file(tmp_path):
    for name in ("a.svg", "b.svg"):
        figures.save(figures.draw(panels.of_sources(["t5"], 6)), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_row_of_a_query_can_be_chosen(posenc, tmp_path):
    found = panels.of_sources(["alibi"], 8, head=0)
    for query, shown in ((None, 4), (6, 6)):
        row = figures.draw(found, True, query).axes[1]
        assert row.get_title(loc="left") == f"query {shown}"
        assert row.lines[1].get_ydata().tolist() == [(s - shown) / 2 for s in range(shown + 1)]
    for arguments in (["--query", 8, "--curves"], ["--query", 2]):
        status, _, error = posenc("plot", "alibi", "--length", 8, *arguments, "--output", tmp_path / "x.png")
        assert status == 2 and error.endswith(
            f"--query {arguments[1]}: not allowed. Expected --curves and a number from 0 to 7.\n"
        )


def test_a_query_that_sees_nothing_has_no_curve(posenc, tmp_path):
    picture = ["--length", 2, "--output", tmp_path / "x.png"]
    assert posenc("plot", "disan", "--head", 7, "--curves", *picture)[0] == 0


def test_the_atlas_has_every_method_by_family(tmp_path):
    found = panels.atlas(8)
    assert sorted(panel.title for panel in found) == registry.names()
    assert [panel.family for panel in found] == sorted(registry.declaration(name).family for name in registry.names())
    figure = figures.draw_atlas(found)
    assert len(images(figure)) == len(found)
    texts = [text.get_text() for text in figure.texts]
    assert {f"{panel.title} *" if panel.origin.startswith("drawn") else panel.title for panel in found} <= set(texts)
    assert min(text.get_fontsize() for text in figure.texts) >= 7
    assert figure.get_figwidth() * figure.dpi <= 1600


def test_the_atlas_of_the_documentation_has_every_method():
    """Regenerate it with: python docs/renew.py"""
    assert sorted(figures.methods_of_atlas(ROOT / "docs" / "atlas.png")) == registry.names()


def test_the_atlas_of_the_documentation_is_renewed_when_a_method_is_missing(tmp_path, monkeypatch):
    old, found = tmp_path / "atlas.png", panels.atlas(4)
    monkeypatch.setattr(panels, "atlas", lambda length: found)
    figures.write_atlas(found[1:], old)
    committed.renew_atlas(old)
    assert sorted(figures.methods_of_atlas(old)) == registry.names()


def test_a_run_shows_its_learned_parameters(posenc, run_folder, tmp_path):
    found = panels.of_sources([str(run_folder)], 12)
    assert [(panel.site, panel.title) for panel in found] == [("encoder", "t5"), ("decoder", "sinusoidal"), ("cross", "tupe_abs")]
    weight = torch.load(run_folder / "checkpoint_last.pt", weights_only=True)["model"]["encoder.position.methods.0.weight"]
    torch.testing.assert_close(found[0].values[3, 3], weight[0, :, 0].mean())
    torch.testing.assert_close(found[0].values[3, 4], weight[0, :, 17].mean())
    (second,) = panels.of_sources([str(run_folder)], 12, site="encoder", layer=1)
    assert second.title == "t5"  # the decoder has only layer 0
    path = tmp_path / "run.png"
    assert posenc("plot", run_folder / "checkpoint_last.pt", "--site", "cross", "--output", path)[0] == 0 and path.exists()


def test_the_average_word_stands_at_every_position_of_a_run(run_folder):
    """In a plot of a trained model, a head has the same query direction at all positions.

    This direction is the mean of the query vectors of all words in the dictionary.
    """
    from fairseq_posenc.plotting.sources import load, of_model

    model = load(run_folder)
    attention, words = model.encoder.layers[0].self_attn, model.encoder.embed_scale * model.encoder.embed_tokens.weight
    (_, _, _, content), *_ = of_model(model, ["encoder"], 0)
    torch.testing.assert_close(content.direction.flatten(), attention.q_proj(words).mean(0))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nosuch"], "'nosuch': unknown"),
        (["alibii"], "Did you mean 'alibi'?"),
        (["t5:bucket=3"], "Did you mean 'buckets'?"),
        (["alibi", "--site", "encoder"], "alibi: not defined at site encoder"),
        (["rope+xpos"], "both methods rotate queries and keys"),
        (["rope", "--length", "1"], "--length 1: out of range. Expected a number from 2 to 512."),
        (["rope", "--length", "513"], "--length 513: out of range. Expected a number from 2 to 512."),
        (["rope", "--length", "none"], "'none' is not a positive whole number"),
        (["rope", "--head", "8"], "--head 8: rope has no such head. Expected a number from 0 to 7."),
        (["rope", "--output", "{folder}/x.gif"], "Expected a file name that ends with .png, .svg, .pdf"),
        (["rope", "--output", "{folder}/no/x.png"], "Expected an existing folder"),
        (["rope", "--output", "{folder}/file/x.png"], "Expected an existing folder"),
        (["rope", "--output", "{folder}/folder.png"], "folder.png: this is a folder. Expected a file name."),
        (["{folder}/none.pt"], "none.pt: no such file or folder"),
        (
            ["{folder}"],
            "no checkpoint in this folder. Expected a checkpoint, or a folder with checkpoint_best.pt or checkpoint_last.pt",
        ),
        (["{folder}/damaged.pt"], "damaged, truncated or not a checkpoint"),
        ([], "Expected specs, runs, or --atlas"),
        (["rope", "--atlas"], "Expected specs, runs, or --atlas"),
        (["--atlas", "--site", "encoder"], "--site: not allowed with --atlas. Expected --length and --output."),
        (["--atlas", "--layer", "1"], "--layer: not allowed with --atlas"),
        (["--atlas", "--head", "0"], "--head: not allowed with --atlas"),
        (["--atlas", "--heads"], "--heads: not allowed with --atlas"),
        (["--atlas", "--curves"], "--curves: not allowed with --atlas"),
        (["--atlas", "--seed", "0"], "--seed: not allowed with --atlas"),
        (["--atlas", "--data", "x"], "--data: not allowed with --atlas"),
        (["rope", "--data", "x"], "--data: not allowed for specs. Expected a run"),
        (["sinusoidal", "--layer", "1"], "--layer 1: sinusoidal changes only the input of the first layer"),
        (["rope"] * 26 + ["--heads", "--length", "2", "--curves"], "208 panels: too many for one picture"),
    ],
)
def test_wrong_input_is_one_line(posenc, tmp_path, arguments, told):
    (tmp_path / "file").touch()
    (tmp_path / "damaged.pt").write_bytes(b"no")
    (tmp_path / "folder.png").mkdir()
    given = [argument.format(folder=tmp_path) for argument in arguments]
    output = [] if "--output" in given else ["--output", tmp_path / "picture.png"]
    status, printed, error = posenc("plot", *given, *output)
    assert (status, printed) == (2, "") and told in error and not (tmp_path / "picture.png").exists()
    lines = error.splitlines()
    assert sum(line.startswith("posenc") for line in lines) == 1 and lines[-1].startswith("posenc")


def test_wrong_input_about_a_run_is_one_line(posenc, run_folder, tmp_path):
    for options, told in (
        (["--length", 41], "a source sentence has 41 positions. Expected at most 40"),
        (["--layer", 1], "--layer 1: the decoder has no such layer. Expected a number from 0 to 0."),
        (["--seed", 1], "--seed: not allowed for runs. Expected a spec"),
        (["--data", tmp_path / "no"], "the dictionaries of the training run cannot be read"),
    ):
        status, printed, error = posenc("plot", run_folder, *options, "--output", tmp_path / "x.png")
        assert (status, printed) == (2, "") and told in error and len(error.splitlines()) == 1


def test_the_layer_of_some_panels_is_enough(posenc, tmp_path):
    for sources in (["sinusoidal", "rope"], ["sinusoidal+t5"]):
        assert posenc("plot", *sources, "--layer", 1, "--length", 4, "--output", tmp_path / "x.png")[0] == 0


def test_a_file_that_cannot_be_written_is_one_line(posenc, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    status, _, error = posenc("plot", "rope", "--length", 4, "--output", tmp_path / "x.png")
    assert status == 2 and "cannot be written (No space left on device)" in error and len(error.splitlines()) == 1
