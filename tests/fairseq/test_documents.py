"""Methods for documents are trained, resumed and decoded with fairseq's commands, on documents of one to three sentences."""

import random
import shutil

import pytest
import torch

import fairseq_posenc as posenc
import fairseq_posenc.host.plugin  # registers the architectures

from .conftest import LETTERS, Fairseq

SHORT = ["--max-update", 4, "--max-source-positions", 64, "--max-target-positions", 64]
#: name of a test case -> options that select methods for documents at two or three sites
ROWS = {
    "shift_of_relative": [
        "--encoder-position", "segment_shift:vectors=none+shaw", "--decoder-position", "segment_shift:mean=true",
    ],
    "vectors": [
        "--encoder-position", "sinusoidal+segments:place=input,count=end,every_layer=true",
        "--decoder-position", "sinusoidal+segments:place=input,count=end,vectors=sinusoidal",
    ],
    "bilevel": [
        "--encoder-position", "bipe_rope", "--decoder-position", "bipe_alibi", "--cross-position", "bipe_rope",
    ],
    "biased": ["--encoder-position", "bipe_alibi", "--decoder-position", "sinusoidal+segments", "--cross-position", "bipe_alibi"],
}  # fmt: skip
#: models that are resumed and decoded with fairseq's commands. The other models are resumed and decoded without Hydra
WITH_COMMANDS = {"g_transformer", "bilevel"}
NAMES = [*(name for name in posenc.names() if posenc.card(name).documents), "g_transformer"]


@pytest.fixture(scope="module")
def fairseq(fairseq, tmp_path_factory):
    """Write documents. In the target, each sentence is the source sentence backwards."""
    text, draw = tmp_path_factory.mktemp("documents"), random.Random(1)
    for part, count in (("train", 48), ("valid", 8), ("test", 6)):
        documents = [[[draw.choice(LETTERS) for _ in range(draw.randint(1, 5))] for _ in range(1 + n % 3)] for n in range(count)]
        if part == "train":
            documents[0] = [list(LETTERS)]
        for language, step in (("fw", 1), ("bw", -1)):
            lines = [" <sep> ".join(" ".join(sentence[::step]) for sentence in document) for document in documents]
            (text / f"{part}.{language}").write_text("".join(line + "\n" for line in lines))
    languages = ["--source-lang", "fw", "--target-lang", "bw", "--joined-dictionary", "--destdir", text / "binary"]
    parts = [f"--{part}pref" if word else text / part for part in ("train", "valid", "test") for word in (1, 0)]
    fairseq.run("fairseq-preprocess", *languages, *parts).succeeded()
    return Fairseq(tmp_path_factory.mktemp("commands"), text / "binary")


@pytest.fixture(scope="module", params=[*NAMES, *ROWS])
def trained(request, fairseq, tmp_path_factory):
    """Train a model. Return two functions and the folder with the checkpoints after two and four updates.

    The first function resumes the training run in another folder. The second function decodes.
    """
    name, folder = request.param, tmp_path_factory.mktemp(request.param)

    def train(save_dir, *options):
        if name in posenc.names():
            return fairseq.train_as_on_its_page(name, save_dir, *SHORT, *options).succeeded()
        arch = ["posenc_transformer_tiny", *ROWS[name]] if name in ROWS else [f"posenc_{name}_tiny"]
        return fairseq.train(arch[0], save_dir, *arch[1:], *SHORT, *options).succeeded()

    train(folder, "--save-interval-updates", 2)
    if name in WITH_COMMANDS:
        return train, folder, fairseq.generate
    return lambda save_dir: fairseq.resume(folder / "checkpoint_1_2.pt", save_dir).succeeded(), folder, fairseq.decode


def test_it_resumes_to_the_last_bit(trained, tmp_path):
    resume, folder, _ = trained
    shutil.copy(folder / "checkpoint_1_2.pt", tmp_path / "checkpoint_last.pt")
    assert "(epoch 1 @ 2 updates)" in resume(tmp_path)
    through, resumed = (Fairseq.state(path / "checkpoint_last.pt")["model"] for path in (folder, tmp_path))
    for name, value in through.items():
        assert torch.equal(value, resumed[name]), name
        assert not value.is_floating_point() or name.endswith("version") or value.isfinite().all(), name


def test_it_decodes_with_beam_search(fairseq, trained):
    output = trained[2](trained[1] / "checkpoint_last.pt", "--beam", 3).succeeded()
    hypotheses = fairseq.rows(output, "H")
    assert sorted(hypotheses) == list(range(6)) and "nan" not in output


@pytest.mark.parametrize("beam", [1, 3])
def test_forced_sentences(fairseq, trained, beam):
    """Each hypothesis has as many sentences as its source. No sentence is empty.

    For a source sentence of n tokens, the target sentence has at most 1.2 n + 10 tokens.
    """
    options = ["--task", "posenc_translation", "--beam", beam, "--max-len-a", 2, "--max-len-b", 30]
    output = trained[2](trained[1] / "checkpoint_last.pt", *options, "--segments-forced", "<sep>").succeeded()
    sources, hypotheses = fairseq.rows(output, "S"), fairseq.rows(output, "H")
    assert sorted(hypotheses) == list(range(6)) and "forced sentences: separator <sep>" in output
    for number, (row,) in hypotheses.items():
        written, given = (text.split("<sep>") for text in (row.split("\t")[1], sources[number][0]))
        assert len(written) == len(given), row
        for sentence, source in zip(written, given):
            assert 1 <= len(sentence.split()) <= int(1.2 * len(source.split()) + 10)


@pytest.mark.parametrize("trained", ["g_transformer"], indirect=True)  # the refusals do not depend on the method
def test_forced_sentences_that_are_refused(fairseq, trained):
    options = [trained[1] / "checkpoint_last.pt", "--task", "posenc_translation", "--segments-forced"]
    assert "the source dictionary has no such separator" in fairseq.generate(*options, "<doc>").refusal()
    line = fairseq.generate(*options, "<sep>", "--length-from", "source").refusal()
    assert "--segments-forced <sep> and output lengths both decide where a translation ends" in line
    line = fairseq.generate(*options, "<sep>", "--min-len", 9).refusal()
    assert "--segments-forced <sep> and --min-len 9 can contradict each other" in line
    line = fairseq.generate(*options, "<sep>", "--prefix-size", 2).refusal()
    assert "--segments-forced <sep> and prefixes of the output can contradict each other" in line


def test_interactive_translation_reads_separators(fairseq, trained):
    options = ["--path", trained[1] / "checkpoint_last.pt", "--cpu", "--beam", 2]
    output = fairseq.run("fairseq-interactive", fairseq.data, *options, input="a b <sep> c\na\n").succeeded()
    assert sorted(fairseq.rows(output, "H")) == [0, 1]


def test_a_dictionary_without_the_separator_is_refused(fairseq, tmp_path):
    line = fairseq.train("posenc_group_tiny", tmp_path, "--encoder-position", "group:separator=<doc>").refusal()
    assert line.endswith("group: the source dictionary has no token '<doc>'. Expected a token of it. Give separator=TOKEN."), line
