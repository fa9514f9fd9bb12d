"""The commands of the how-to pages run as printed, on a tiny language pair."""

import re
import shutil
from pathlib import Path

import pytest
import sentencepiece

from tests.documents import ROOT, Reader, blocks, documents, read, write_text

pytestmark = pytest.mark.slow

#: length of the one long source sentence of the test set. The task allows at most 1,024 tokens by default
LONG = 1030
#: options of the models that decode the long sentence
SMALL = (
    "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    "--decoder-ffn-embed-dim 16 --encoder-attention-heads 2 --decoder-attention-heads 2"
)
OPTIONS = "--optimizer adam --lr 0.003 --max-tokens 400 --max-update 3 --no-epoch-checkpoints --task translation"


@pytest.fixture
def reader(tmp_path):
    """Return a shell in a folder with data-bin, the prepared data."""
    return prepared(Reader(tmp_path))


def prepared(found):
    write_text(found.folder / "data")
    found.paste(
        "fairseq-preprocess --source-lang en --target-lang de --joined-dictionary --destdir data-bin "
        "--trainpref data/train --validpref data/valid --testpref data/test"
    )
    return found


def train(reader, arch, folder, *options):
    """Train for a few updates. Return the path of the best checkpoint."""
    given = " ".join([OPTIONS, *map(str, options)])
    reader.paste(f"fairseq-train data-bin --user-dir $(posenc path) --arch {arch} --save-dir {folder} {given}")
    return reader.folder / folder / "checkpoint_best.pt"


def commands(page):
    return blocks(read(f"docs/howto/{page}.md"))


def hypotheses(output):
    return dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", output, re.MULTILINE))


def test_longer_sentences(reader):
    """One source sentence and its reference have 1,030 tokens each. The trained model allows at most 20 tokens."""
    train(reader, "posenc_t5_tiny", "short", SMALL, "--max-source-positions", 20, "--max-target-positions", 20)
    words = (reader.folder / "data/train.en").read_text().split()
    for language in ("en", "de"):
        with (reader.folder / f"data/test.{language}").open("a") as file:
            file.write(" ".join((words * LONG)[:LONG]) + "\n")
    shutil.rmtree(reader.folder / "data-bin")
    reader.paste(
        "fairseq-preprocess --source-lang en --target-lang de --joined-dictionary --destdir data-bin "
        "--trainpref data/train --validpref data/valid --testpref data/test"
    )
    found = commands("decode_longer_sentences")
    assert len(found) == 2
    shutil.copy(reader.folder / "short/checkpoint_best.pt", reader.folder / "checkpoint_best.pt")
    assert len(hypotheses(reader.paste(found[0]))) == 9
    train(reader, "posenc_learned_tiny", "table", SMALL, "--max-source-positions", 20, "--max-target-positions", 20)
    shutil.copy(reader.folder / "table/checkpoint_best.pt", reader.folder / "checkpoint_best.pt")
    assert len(hypotheses(reader.paste(found[1], ARCH=f"'posenc_learned_tiny {SMALL}'", UPDATES=2))) == 9
    name = "encoder.position.methods.0.weight"
    rows = [len(reader.state(path)["model"][name]) for path in ("checkpoint_best.pt", "longer/checkpoint_best.pt")]
    assert rows[1] - rows[0] == 2048 - 20


def test_start_from_a_checkpoint_of_fairseq(reader):
    """A model of stock fairseq has the same translations before and after its conversion to the plugin's architecture.

    The page decodes this model. The other commands of the page start from this model.
    """
    sizes = "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --decoder-embed-dim 128 "
    sizes += "--encoder-ffn-embed-dim 512 --decoder-ffn-embed-dim 512 --encoder-attention-heads 4 --decoder-attention-heads 4"
    learning = "--lr-scheduler inverse_sqrt --warmup-updates 4000 --lr 0.0005 --criterion label_smoothed_cross_entropy"
    stock = train(reader, "transformer", "stock", sizes, learning)
    shutil.copy(stock, reader.folder / "stock.pt")
    decode, *train_on = commands("finetune_from_fairseq")
    plain = hypotheses(reader.paste(decode))
    reader.paste(*train_on, SIZE="_tiny", UPDATES=4)
    assert reader.state("resumed/checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 4
    assert "encoder.position.methods.0.weight" in reader.state("t5/checkpoint_last.pt")["model"]
    reader.paste("posenc checkpoint start-from stock.pt own.pt --method sinusoidal")
    assert hypotheses(reader.paste(decode.replace("stock.pt", "own.pt"))) == plain and len(plain) == 8


def test_output_length(reader):
    found = commands("control_output_length")
    assert len(found) == 4
    printed = reader.paste(*found, ARCH="posenc_ldpe_tiny", UPDATES=3)
    output = (reader.folder / "ldpe/exact.out").read_text()
    sources = dict(re.findall(r"^S-(\d+)\t(.*)$", output, re.MULTILINE))
    for number, hypothesis in hypotheses(output).items():
        assert len(hypothesis.split()) == max(1, int(0.9 * len(sources[number].split()) + 0.5))
    assert len(sources) == 8 and len(hypotheses((reader.folder / "ldpe/shorter.out").read_text())) == 8
    assert re.search(r"\| decoder +\| +0\.9 source +\| +0\.9 source, end exact +\|\n.*\n\| ldpe\S*, noise 2 ", printed)


def test_non_autoregressive_models(reader):
    found = commands("non_autoregressive_models")
    assert len(found) == 6
    train(reader, "posenc_t5_tiny", "teacher", "--share-all-embeddings")
    printed = reader.paste(*found, ARCH="posenc_pnat_tiny", UPDATES=3)
    for name in ("one", "nine", "reranked", "bound"):
        assert len(hypotheses((reader.folder / f"pnat/{name}.out").read_text())) == 8, name
        assert f"pnat: {name} BLEU" in printed
    assert "position_accuracy" in printed


def test_trees(tmp_path):
    (found,) = commands("use_trees")
    printed = Reader(tmp_path).paste(found, SENTENCES=60, ARCH="posenc_spr_rel_tiny", UPDATES=3)
    assert len(hypotheses(printed)) == 300


def test_documents(tmp_path):
    """The test set has 60 sentences.

    `--sentences 1-6` requires a number of sentences that is divisible by each number from 1 to 6.
    """
    reader = Reader(tmp_path)
    write_text(tmp_path / "data")
    for language in ("en", "de"):
        shutil.copy(tmp_path / f"data/train.{language}", tmp_path / f"data/test.{language}")
    prepare, train, decode, study, captions = commands("translate_documents")
    reader.paste(prepare, MERGES=10)
    reader.paste(train, ARCH="posenc_segment_shift_tiny", UPDATES=3)
    reader.paste(decode)
    outputs = hypotheses((tmp_path / "documents/test.out").read_text())
    assert len(outputs) == 30 and all(output.count("<sep>") == 1 for output in outputs.values())
    reader.link_recipes()
    reader.environment["DRY_RUN"] = "1"
    assert "posenc_group" in reader.paste(study)
    shown = reader.paste(captions)
    assert "runs/multi30k_en-de/tiny/shaw/seed1/checkpoint_last.pt" in shown and "fairseq-train" not in shown


def test_raw_text(reader):
    shutil.copy(reader.folder / "data/test.en", reader.folder / "input.en")
    sentencepiece.SentencePieceTrainer.train(
        input=str(reader.folder / "data/train.en"), model_prefix=str(reader.folder / "spm"), vocab_size=24, model_type="bpe",
        minloglevel=2,
    )  # fmt: skip
    train(reader, "posenc_t5_tiny", "checkpoints")
    (found,) = commands("translate_raw_text")
    reader.paste(found)
    assert len((reader.folder / "output.de").read_text().splitlines()) == 8


def test_every_command_of_the_howto_pages_has_a_test():
    """Python blocks of pages are tested in test_hub.py and tests/cli/test_documents.py."""
    here = set(re.findall(r'commands\("(\w+)"\)', Path(__file__).read_text()))
    pages = {page.split("/")[-1].removesuffix(".md") for page in documents() if page.startswith("docs/howto/")}
    assert here <= pages and all(page in here or not commands(page) for page in pages)


def test_the_tutorial_on_clusters(tmp_path):
    """In a dry run, the recipe of the tutorial prints the commands of three methods.

    tests/recipes/test_machines.py runs such commands.
    """
    reader = Reader(tmp_path)
    reader.link_recipes()
    reader.environment |= {"DRY_RUN": "1"}
    one, several, machines, restarts, slurm, shares = blocks(read("docs/tutorials/from_one_gpu_to_a_cluster.md"))
    printed = reader.paste(one)
    assert printed.count("--distributed-world-size 8 ") == 3 and "--distributed-world-size 2 " in printed
    printed = reader.paste(several, machines)
    for machine in (0, 1):
        assert printed.count(f"torchrun --nnodes 2 --node-rank {machine} --nproc-per-node 8 --master-addr m0") == 3
    assert reader.paste(restarts, machines).count("--rdzv-endpoint m0:29500") == 2 * 3
    assert reader.paste(slurm).count("srun --nodes 2 --ntasks-per-node 8") == 3
    assert reader.paste(slurm).count("fairseq-generate") == 3
    assert reader.paste(shares).count("fairseq-train") == 3


def test_the_tutorial_on_a_method_of_ones_own(tmp_path):
    reader = prepared(Reader(tmp_path, imports=True))
    first, second = blocks(read("docs/tutorials/your_own_method.md"))
    reader.paste(first, second, UPDATES=2)
    assert "encoder.position.methods.0.factor" in reader.state("slope/checkpoint_last.pt")["model"]
    assert "encoder.position.methods.0.factor" in reader.state("combined/checkpoint_last.pt")["model"]


def test_the_tutorial_on_reports(tmp_path):
    """The report contains few runs. tests/report/test_results.py writes the reports of all committed runs."""
    shutil.copytree(ROOT / "results/multi30k_en-uk/tiny", tmp_path / "runs/quickstart")
    (found,) = blocks(read("docs/tutorials/reading_a_report.md"))
    (tmp_path / "results").symlink_to(ROOT / "results")
    printed = Reader(tmp_path).paste(found)
    assert "sinusoidal" in printed and (tmp_path / "report/report.md").is_file()


def test_the_tutorial_on_a_first_table(tmp_path):
    """Environment variables set the number of updates and the size of the vocabulary.

    The second command adds a seed to the results of the first command. In this test, both commands have only two methods, and the
    second command has only two seeds. Dry runs of the commands as printed contain all training runs.
    """
    reader = Reader(tmp_path, imports=True)
    reader.link_recipes()
    write_text(tmp_path / "data")
    reader.environment |= {"UPDATES": "2", "VOCABULARY": "30"}
    first, second, report = blocks(read("docs/tutorials/first_table.md"))
    reader.environment["DRY_RUN"] = "1"
    assert [reader.paste(text).count("fairseq-train") for text in (first, second)] == [4, 12]
    del reader.environment["DRY_RUN"]
    first, second = (text.replace("none sinusoidal t5 rope", "sinusoidal t5") for text in (first, second))
    assert "my corpus" in reader.paste(first)
    assert "sinusoidal" in reader.paste(second.replace('"1 2 3"', '"1 2"'))
    trained = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("checkpoint_last.pt")}
    assert len(trained) == 4, trained
    reader.paste(report)
    assert (tmp_path / "report" / "report.md").is_file()
