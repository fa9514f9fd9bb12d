"""The task adds side files to batches for all ways in which fairseq cuts, sorts and pads batches. Wrong files raise errors."""

import argparse
import dataclasses
import functools
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from torch.utils.data import DataLoader

from fairseq_posenc.core import MethodOptions, PositionMethod, Refusal, SideInput, option
from fairseq_posenc.host.side.binarise import binarise
from fairseq_posenc.host.tasks.translation import PositionTranslation, PositionTranslationConfig
from fairseq_posenc.methods.structure import spr
from fairseq_posenc.registry.declarations import declarations
from tests.contract.broken import card
from tests.contract.cases import registered


class Structure(PositionMethod):
    """Compute side inputs from the heads, the relations and the word indices of a sentence. The tests compare their values."""

    @dataclass(frozen=True)
    class Options(MethodOptions):
        times: int = option(1, "factor of the heads")

    card = card(
        "structure", sites=("encoder",), parameters="relations * d", injection="APE", recurring=False,
        side_inputs=(
            SideInput("structure_words", "B", files=("heads",)),
            SideInput("structure_heads", "B S", padding=-7, files=("heads", "relations")),
            SideInput("structure_pairs", "B S S", padding=-9, files=("heads",)),
        ),
    )  # fmt: skip

    def __init__(self, options, dims):
        super().__init__(options, dims)
        self.table = torch.nn.Parameter(torch.zeros(dims.relations, dims.embed_dim))

    @classmethod
    def side_values(cls, sentence, options):
        heads, relations = sentence.heads[sentence.words], sentence.relations[sentence.words]
        made = {"structure_words": np.array(len(sentence.heads)), "structure_heads": options.times * heads + 100 * relations}
        return {**made, "structure_pairs": heads[:, None] * 50 + sentence.words}


@pytest.fixture(autouse=True)
def method():
    with registered(Structure):
        yield


def chain(length, shift=0):
    """Return a sentence of words and subwords, with its heads and relations."""
    words = [f"w{number}" * (1 + (number + shift) % 3) for number in range(length)]
    pieces = " ".join(f"{word[:2]}@@ {word[2:]}" if len(word) > 2 else word for word in words)
    heads = [
        0 if number == shift % length else 1 + number - 1 if number > shift % length else number + 2 for number in range(length)
    ]
    return (" ".join(words), pieces), " ".join(map(str, heads)), " ".join(f"r{number % 4}" for number in range(length))


def write(corpus, name, lengths, shift=0):
    rows = [chain(length, shift + number) for number, length in enumerate(lengths)]
    return corpus.write(name, [row[0] for row in rows], heads=[row[1] for row in rows], relations=[row[2] for row in rows])


@pytest.fixture
def parts(corpus):
    found = [
        write(corpus, name, lengths) for name, lengths in (("train", [5, 2, 9, 1, 7, 3]), ("train1", [4, 6]), ("test", [3, 8]))
    ]
    binarise(found, corpus.data, "subword_nmt")
    return found


def make(corpus, folders=None, **options):
    given = {"train_subset": "train", "dataset_impl": None, "required_seq_len_multiple": 1, **options}
    data = ":".join(map(str, folders or [corpus.data]))
    return PositionTranslation.setup_task(PositionTranslationConfig(data=data, source_lang="fw", target_lang="bw", **given))


def model(task, encoder="structure", **options):
    args = argparse.Namespace(arch="posenc_transformer_tiny", encoder_position=encoder, decoder_position="none", **options)
    args.random_structure = options.get("random_structure", task.cfg.random_structure)  # `args` must contain task options too
    ARCH_CONFIG_REGISTRY[args.arch](args)
    return task.build_model(args), args


def batch_of(task, split, ids):
    dataset = task.dataset(split)
    return dataset.collater([dataset[number] for number in ids])


def check(batch, sentences, pad=1):
    """Check that every row has the values of its own sentence in the columns of its tokens, and padding elsewhere."""
    given, tokens = batch["net_input"]["side_inputs"], batch["net_input"]["src_tokens"]
    for row, number in enumerate(batch["id"].tolist()):
        made = Structure.side_values(sentences[number], Structure.Options())
        real = tokens[row].ne(pad)
        assert given["structure_words"][row] == int(made["structure_words"])
        assert given["structure_heads"][row][real].tolist() == made["structure_heads"].tolist()
        assert given["structure_pairs"][row][real][:, real].tolist() == made["structure_pairs"].tolist()
        assert (given["structure_heads"][row][~real] == -7).all()
        assert (given["structure_pairs"][row][~real] == -9).all() and (given["structure_pairs"][row][:, ~real] == -9).all()


@pytest.mark.parametrize(
    "options",
    [{}, {"left_pad_source": False}, {"required_seq_len_multiple": 8}],
    ids=lambda options: " ".join(options) or "default",
)
def test_side_inputs_follow_their_sentences(corpus, parts, options):
    task = make(corpus, **options)
    model(task)
    task.load_dataset("train")
    batch = batch_of(task, "train", [3, 0, 5, 2])
    assert len(set(batch["net_input"]["src_lengths"].tolist())) > 2
    check(batch, task.dataset("train").maker.sentences)


def test_the_model_takes_them(corpus, parts):
    task = make(corpus)
    built, args = model(task)
    assert args.relations == 8 and built.encoder.position.methods[0].table.size(0) == 8  # r0 to r3, after fairseq's 4 symbols
    task.load_dataset("test")
    batch = batch_of(task, "test", [0, 1])
    assert built(**batch["net_input"])[0].shape[:2] == batch["target"].shape


def test_parts_of_the_training_data_are_combined(corpus, parts):
    task = make(corpus, upsample_primary=2)
    model(task)
    task.load_dataset("train", combine=True)
    assert len(task.dataset("train")) == 2 * 6 + 2
    sentences = task.dataset("train").maker.sentences
    check(batch_of(task, "train", range(14)), sentences)
    assert [len(sentences[number].heads) for number in (0, 6, 12, 13)] == [6, 6, 5, 7]


def test_several_parts_need_a_number_of_copies(corpus, parts):
    """With fairseq's default value -1, stock fairseq ends with a traceback of NumPy."""
    task = make(corpus, upsample_primary=-1)
    model(task)
    task.load_dataset("train")
    task.load_dataset("test", combine=True)  # one part
    with pytest.raises(Refusal, match=r"--upsample-primary -1: not supported for train and train1\..* --upsample-primary 1\."):
        task.load_dataset("train", combine=True)


def test_random_structure_needs_side_files_and_a_seed(corpus, parts):
    task = make(corpus, random_structure=3)
    model(task, "sinusoidal")
    with pytest.raises(Refusal, match=r"--random-structure 3: no effect, because the model reads no side files"):
        task.load_dataset("train")
    model(task)
    task.load_dataset("train")
    with pytest.raises(Refusal, match=r"--random-structure -1: not allowed\. Expected a seed of at least 0\."):
        make(corpus, random_structure=-1)


def second(corpus):
    """Return a corpus with another data folder."""
    other = dataclasses.replace(corpus, data=corpus.data.with_name("second"), folder=corpus.folder / "more")
    other.folder.mkdir()
    return other


def test_shards_have_their_own_files(corpus, parts):
    other = second(corpus)
    binarise([write(other, "train", [2, 3], shift=1)], other.data, "subword_nmt", relations=corpus.data / "dict.relations.txt")
    task = make(corpus, [corpus.data, other.data])
    model(task)
    for epoch, words in ((1, [6, 3]), (2, [3, 4]), (3, [6, 3])):
        task.load_dataset("train", epoch=epoch)
        check(batch_of(task, "train", [0, 1]), task.dataset("train").maker.sentences)
        assert batch_of(task, "train", [0, 1])["net_input"]["side_inputs"]["structure_words"].sort().values.tolist() == sorted(
            words
        )
        task.load_dataset("test", epoch=epoch)  # fairseq always reads the test set from the first data folder


def test_random_structure_is_another_and_always_the_same(corpus, parts):
    rows = {}
    for seed in (None, 1, 1, 2):
        task = make(corpus, random_structure=seed)
        model(task)
        task.load_dataset("train")
        made = batch_of(task, "train", [2])["net_input"]["side_inputs"]["structure_pairs"]
        assert torch.equal(rows.setdefault(seed, made), made)
    assert not torch.equal(rows[None], rows[1]) and not torch.equal(rows[1], rows[2])


def test_a_model_without_them_needs_no_files(corpus):
    corpus.write("train", [("a b", "a b")])
    task = make(corpus, truncate_source=True)
    model(task, "sinusoidal")
    task.load_dataset("train")
    assert "side_inputs" not in batch_of(task, "train", [0])["net_input"]


# --- refusals ---


def refused(call, *words):
    with pytest.raises(Refusal) as refusal:
        call()
    line = str(refusal.value)
    assert line.startswith("fairseq_posenc: ") and "\n" not in line and all(word in line for word in words), line


def test_missing_files_are_named(corpus, parts):
    corpus.write("valid", [("a b", "a b")])
    task = make(corpus)
    model(task)
    refused(lambda: task.load_dataset("valid"), "SIDE-MISSING: ", "valid.fw-bw.fw.heads.idx", "posenc side binarise")


def test_truncated_sentences_are_refused(corpus, parts):
    task = make(corpus, truncate_source=True)
    model(task)
    refused(lambda: task.load_dataset("train"), "SIDE-TRUNC: --truncate-source", "Remove --truncate-source")


def test_sentences_without_files_are_refused(corpus, parts):
    task = make(corpus)
    model(task)
    refused(
        lambda: task.build_dataset_for_inference([], []),
        "SIDE-INTERACTIVE: ",
        "heads, relations",
        "posenc side binarise and fairseq-generate",
    )


def test_a_checkpoint_must_fit_the_relations(corpus, parts):
    refused(lambda: model(make(corpus), relations=9), "8 relations. Expected 9", "--relations")
    model(make(corpus), relations=8)


def test_a_checkpoint_must_have_the_numbers_of_the_relations(corpus, parts):
    """A dictionary of the same size in another order would assign each label the vector of another label."""
    path = corpus.data / "dict.relations.txt"
    _, trained = model(make(corpus))
    model(make(corpus), relations=8, relations_digest=trained.relations_digest)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    line = f"{path}: the numbers of the labels differ from the training of the model"
    refused(lambda: model(make(corpus), relations=8, relations_digest=trained.relations_digest), line)
    model(make(corpus), relations=8)  # a checkpoint of an earlier version
    model(make(corpus), "spr_rel", relations=8, relations_digest=trained.relations_digest)  # spr_rel does not read labels


@pytest.mark.parametrize("trained", [False, True])
def test_all_shards_must_have_the_numbers_of_the_relations(corpus, parts, trained):
    other = second(corpus)
    binarise([write(other, "train", [2, 3])], other.data, "subword_nmt", relations=corpus.data / "dict.relations.txt")
    folders, path = [corpus.data, other.data], other.data / "dict.relations.txt"
    _, args = model(make(corpus, folders))
    facts = {"relations": 8, "relations_digest": args.relations_digest} if trained else {}
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    line = f"{path}: the numbers of the labels differ from the training of the model"
    refused(lambda: model(make(corpus, folders), **facts), line)
    model(make(corpus, folders), "spr_rel", **facts)  # it does not read labels


def test_a_checkpoint_must_fit_the_control(corpus, parts):
    line = ("this command uses the real structure, but the model was trained with --random-structure 3",)
    refused(lambda: model(make(corpus), random_structure=3), *line)
    refused(lambda: model(make(corpus, random_structure=4), random_structure=3), "this command uses --random-structure 4")


def test_a_checkpoint_must_have_the_source_of_the_orders(corpus):
    """Otherwise, a model that was trained with a preorderer could be tested with orders that were computed from the target."""
    rows = {"order": ["1 0"], "order_source": ["a preorderer"]}
    binarise([corpus.write("train", [("a b", "a b")], **rows)], corpus.data)
    _, trained = model(make(corpus), "xl_pe")
    assert trained.order_source == "a preorderer"
    model(make(corpus), "xl_pe", order_source="a preorderer")
    line = "reorderings from 'a preorderer'. Expected 'an oracle'", "posenc side order with the same source"
    refused(lambda: model(make(corpus), "xl_pe", order_source="an oracle"), *line)
    model(make(corpus), "sinusoidal", order_source="an oracle")  # sinusoidal does not read orders


def test_a_resumed_training_must_have_the_same_side_files(corpus):
    """fairseq-train builds a new model before it reads the checkpoint, whose options `same` and `change` are."""
    rows = {"heads": ["2 0"], "relations": ["det root"], "order": ["1 0"], "order_source": ["a preorderer"]}
    binarise([corpus.write("train", [("a b", "a b")], **rows)], corpus.data)

    def training(encoder, **options):
        task = make(corpus, **options)
        args = model(task, encoder)[1]
        return args, lambda **facts: task.require_same_structure("last.pt", argparse.Namespace(**facts), args)

    args, resumed = training("structure+xl_pe")
    plain, heads = training("sinusoidal")[1], training("spr_rel")[1]
    same = {
        "relations": 6, "relations_digest": args.relations_digest, "order_source": "a preorderer", "random_structure": None,
        "side_files": args.side_files,
    }  # fmt: skip
    assert sorted(args.side_files) == ["heads", "order", "relations", "text"]
    assert {name: getattr(args, name) for name in same} == same
    resumed(**same)
    resumed()  # a checkpoint of start-from, which removes these facts
    anew = "To start anew from the other parameters, use posenc checkpoint start-from and another --save-dir."
    for change, line in (
        ({"relations": 7}, f"last.pt: trained with other relation labels than the labels of {corpus.data}/dict.relations.txt."),
        ({"relations_digest": "0"}, "last.pt: trained with other relation labels"),
        ({"order_source": "oracle"}, "last.pt: trained with reorderings from 'oracle', but the data has reorderings from 'a "),
        ({"random_structure": 3}, "last.pt: trained with --random-structure 3, but this command uses the real structure."),
        ({"side_files": {**args.side_files, "heads": "0"}}, "last.pt: trained with other side files of the same text (heads). "),
    ):
        refused(lambda change=change: resumed(**{**same, **change}), line, anew)
        plain(**{**same, **change})  # sinusoidal reads no side files
    heads(**{**same, "relations_digest": "0", "order_source": "oracle"})  # spr_rel reads only heads
    heads(**{**same, "side_files": {**args.side_files, "order": "0"}})
    resumed(**{**same, "side_files": {"text": "0", "heads": "0", "order": "0", "relations": "0"}})  # fine-tuning on another text
    resumed(**{**same, "side_files": None})  # the training run had no training text
    line = "last.pt: trained with the real structure, but this command uses --random-structure 3."
    refused(lambda: training("spr_rel", random_structure=3)[1](**same), line)


def test_the_hashes_of_side_files_follow_their_content(corpus):
    """Other trees of the same text change only the hash of the trees. Another text changes the hash of the text."""

    def hashes(heads, words="a b"):
        rows = {"heads": [heads], "relations": ["det root"]}
        binarise([corpus.write("train", [(words, words)], **rows)], corpus.data)
        return model(make(corpus), "structure")[1].side_files

    first = hashes("2 0")
    assert hashes("2 0") == first
    other = hashes("0 1")
    assert {name for name in first if other[name] != first[name]} == {"heads"}
    assert hashes("2 0", "aa b")["text"] != first["text"]


def test_a_model_without_the_training_text_has_no_hashes(corpus):
    """For example, posenc checkpoint start-from builds a model before the side files are made."""
    binarise([corpus.write("test", [("a b", "a b")], heads=["2 0"])], corpus.data)
    assert model(make(corpus), "spr_rel")[1].side_files is None
    corpus.write("train", [("a b", "a b")])
    assert model(make(corpus), "spr_rel")[1].side_files is None


@pytest.mark.parametrize("facts", [{}, {"order_source": "a preorderer"}], ids=["new", "trained"])
def test_all_shards_must_have_the_source_of_the_orders(corpus, facts):
    other = second(corpus)
    for at, source in ((corpus, "a preorderer"), (other, "an oracle")):
        binarise([at.write("train", [("a b", "a b")], order=["1 0"], order_source=[source])], at.data)
    folders = [corpus.data, other.data]
    line = f"{other.data}: reorderings from 'an oracle'. Expected 'a preorderer'"
    refused(lambda: model(make(corpus, folders), "xl_pe", **facts), line)
    model(make(corpus, folders), "sinusoidal", **facts)  # sinusoidal does not read orders


def test_one_side_input_has_one_maker(corpus, parts):
    model(make(corpus), "structure+structure")  # the same source twice is allowed
    refused(
        lambda: model(make(corpus), "structure+structure:times=2"),
        "both methods create the side input 'structure_words'",
        "Use the same options",
    )


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A method that reads trees, in a separate file that POSENC_METHODS names."""
    text = (Path(spr.__file__)).read_text(encoding="utf-8")
    file = tmp_path / "outside.py"
    file.write_text(text.replace("from ...", "from fairseq_posenc.").replace("spr_", "outside_"), encoding="utf-8")
    monkeypatch.setenv("POSENC_METHODS", str(file))
    declarations.cache_clear()
    yield "outside_abs"
    monkeypatch.undo()
    declarations.cache_clear()


@pytest.fixture
def fork_server():
    """Start Python's fork server (multiprocessing.forkserver). The server keeps the environment variables of its start."""
    forkserver.ensure_running()


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_workers_make_the_same_batches_however_they_are_started(corpus, parts, fork_server, outside, start):
    """Python 3.14 starts workers with forkserver, which pickles the dataset."""
    task = make(corpus)
    model(task, f"spr_abs+{outside}")
    task.load_dataset("train")
    dataset, batches = task.dataset("train"), [[0, 1, 2], [3, 4, 5]]
    load = functools.partial(DataLoader, dataset, collate_fn=dataset.collater, batch_sampler=batches)
    here = [batch["net_input"]["side_inputs"] for batch in load()]
    assert set(here[0]) == {"spr_depth", "outside_depth"} and here[0]["spr_depth"].any()
    there = [batch["net_input"]["side_inputs"] for batch in load(num_workers=1, multiprocessing_context=start)]
    for expected, found in zip(here, there, strict=True):
        torch.testing.assert_close(found, expected)
