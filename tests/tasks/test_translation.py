"""The translation task adds side inputs to every batch. The methods of the model read these side inputs."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset

import fairseq_posenc.host.plugin  # noqa: F401  (first, because it patches fairseq)
from fairseq_posenc.core import SideInput
from fairseq_posenc.host.side.dataset import SideInputDataset

DECLARED = {
    "total": SideInput("total", "B", "target"),
    "doubled": SideInput("doubled", "B S", padding=-1),
    "sums": SideInput("sums", "B S S"),
    "reversed": SideInput("reversed", "B S", "target"),
}


def made(number, pair):
    """Return side inputs that are functions of source and target, so that tests can compute them from a batch."""
    source, target = pair["source"], pair["target"]
    return {
        "total": target.sum(),
        "doubled": 2 * source,
        "sums": source.unsqueeze(1) + source,
        "reversed": -target,
    }


@pytest.fixture(params=[True, False], ids=["left", "right"])
def dataset(request):
    dictionary = Dictionary()
    for word in range(20):
        dictionary.add_symbol(f"w{word}")
    draw = np.random.default_rng(1)
    source, target = ([torch.tensor([*draw.integers(4, 24, n), 2]) for n in draw.integers(1, 9, 12)] for _ in range(2))
    sizes = ([len(row) for row in rows] for rows in (source, target))
    s, t = sizes
    pairs = LanguagePairDataset(source, s, dictionary, target, t, dictionary, left_pad_source=request.param)
    return SideInputDataset(pairs, made, DECLARED)


def test_side_inputs_follow_their_sentences_and_their_padding(dataset):
    batch = dataset.collater([dataset[i] for i in (3, 0, 7, 11, 5)])
    side, tokens = batch["net_input"]["side_inputs"], batch["net_input"]["src_tokens"]
    words = tokens.ne(dataset.dataset.src_dict.pad())
    assert side["total"].tolist() == (batch["target"] * batch["target"].ne(1)).sum(1).tolist()
    assert torch.equal(side["doubled"], torch.where(words, 2 * tokens, -1))
    both = words.unsqueeze(1) & words.unsqueeze(2)
    assert torch.equal(side["sums"], (tokens.unsqueeze(2) + tokens.unsqueeze(1)) * both)
    assert torch.equal(side["reversed"], torch.where(batch["target"].ne(1), -batch["target"], 0))


def test_an_empty_batch_stays_empty(dataset):
    assert not dataset.collater([])
