"""fairseq's multilingual translation: one model for both directions, with separate positions for each language."""

import pytest

from fairseq_posenc.cli import main

TASK = ["--task", "translation_multi_simple_epoch", "--langs", "fw,bw", "--encoder-langtok", "src", "--decoder-langtok"]
BOTH = ["--lang-pairs", "fw-bw,bw-fw", "--sampling-method", "uniform"]
SPEC = "language:tokens=__fw__/__bw__"
POSITIONS = ["--encoder-position", SPEC, "--decoder-position", SPEC, "--share-all-embeddings"]


@pytest.mark.parametrize("where", [[], ["--lang-tok-replacing-bos-eos"]], ids=["first", "replacing"])
def test_it_trains_and_decodes_both_directions(fairseq, tmp_path, where):
    fairseq.train("posenc_transformer_tiny", tmp_path, *TASK, *where, *BOTH, *POSITIONS).succeeded()
    state = fairseq.state(tmp_path / "checkpoint_last.pt")["model"]
    assert state["encoder.position.methods.0.weight"].size(0) == 2
    for source, target in (("fw", "bw"), ("bw", "fw")):
        languages = ["--source-lang", source, "--target-lang", target, "--lang-pairs", f"{source}-{target}"]
        output = fairseq.generate(tmp_path / "checkpoint_last.pt", *TASK, *where, *languages, "--beam", 3).succeeded()
        assert len(fairseq.rows(output, "H")) == 6


def test_other_positions_start_from_a_multilingual_checkpoint(fairseq, tmp_path):
    sinusoids = ["--encoder-position", "sinusoidal", "--decoder-position", "sinusoidal", "--share-all-embeddings"]
    fairseq.train("posenc_transformer_tiny", tmp_path, *TASK, *BOTH, *sinusoids).succeeded()
    paths = [str(tmp_path / name) for name in ("checkpoint_last.pt", "start.pt")]
    assert main(["checkpoint", "start-from", *paths, "--method", "t5"]) == 0
    before, after = (fairseq.state(path)["model"] for path in paths)
    assert all((after[name] == value).all() for name, value in before.items() if "position" not in name)
    assert [name for name in after if "position.methods" in name]


def test_a_task_without_language_tokens_is_refused(fairseq, tmp_path):
    line = fairseq.train("posenc_transformer_tiny", tmp_path, *POSITIONS).refusal()
    assert "language: the dictionary has no token '__fw__'" in line


def test_a_source_without_its_token_is_refused(fairseq, tmp_path):
    task = [option for option in TASK if option not in ("--encoder-langtok", "src")]
    result = fairseq.train("posenc_transformer_tiny", tmp_path, *task, *BOTH, *POSITIONS)
    assert (
        result.status != 0
        and "language: a source sentence has no language token. Expected one of __fw__, __bw__" in result.output
    )
