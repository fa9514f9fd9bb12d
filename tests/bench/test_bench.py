"""posenc bench: the order of measurements, the counts, the files, and the errors.

No test compares a measured time with a limit.
"""

import argparse
import csv
import json
import subprocess
import sys
import weakref
from importlib.metadata import version

import pytest
import torch

import fairseq_posenc.host.plugin  # noqa: F401  registers the models
from fairseq_posenc import cli
from fairseq_posenc.bench import actions, benchmark, command, comparison, counting, models, peers, settings, tables, timing

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_action_takes_every_place():
    order = []
    measured = {name: (lambda name=name: order.append(name)) for name in "abc"}
    seconds = timing.interleaved(measured, 3, CPU, lambda text: None)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert {name: len(found) for name, found in seconds.items()} == {"a": 3, "b": 3, "c": 3}


def test_ratios_are_those_of_the_same_round():
    """If the whole machine is slow during one round, the ratios of this round do not change."""
    found = timing.ratios({"stock": [1.0, 10.0, 1.0, 1.0], "ours": [1.5, 15.0, 1.5, 3.0]}, "stock")
    assert found["ours"].median == 1.5 and found["ours"].low == 1.5 and found["ours"].high > 1.5
    assert vars(found["stock"]) == {"median": 1.0, "low": 1.0, "high": 1.0}


def test_memory_of_what_is_there_at_the_same_time():
    def one_after_the_other():
        for _ in range(5):
            torch.ones(2**18)  # 1 MiB

    def together():
        kept = [torch.ones(2**18) for _ in range(5)]
        views = [x.view(2, -1)[0] for x in kept]  # a view uses the memory of its tensor
        return len(views)

    assert 1 <= counting.counted(one_after_the_other, CPU).mib < 2.1
    assert counting.counted(together, CPU).mib == pytest.approx(5, abs=0.1)


def test_operations_and_bytes():
    a, b = torch.ones(2, 8, 16), torch.ones(2, 16, 4)
    found = counting.counted(lambda: (a @ b).view(-1).mul_(2), CPU)
    assert found.gflop == 2 * 2 * 8 * 16 * 4 / 1e9
    product, factors = 2 * 8 * 4, a.numel() + b.numel()
    # the view moves no data. The operator mul_ reads and writes the result of the matrix product
    assert found.gib * 2**30 == 4 * (factors + product + 2 * product)


@pytest.mark.parametrize(
    "product",
    [
        lambda out, a, b: torch.bmm(a, b, out=out),
        lambda out, a, b: out.baddbmm_(a, b),
        lambda out, a, b: torch.baddbmm(out, a, b),
        lambda out, a, b: out[0].addmm_(a[0], b[0]) + out[1].addmm_(a[1], b[1]),
    ],
    ids=["out", "in place", "added", "one by one"],
)
def test_operations_into_what_is_there(product):
    out, a, b = torch.zeros(2, 8, 4), torch.ones(2, 8, 16), torch.ones(2, 16, 4)
    assert counting.counted(lambda: product(out, a, b), CPU).gflop == 2 * 2 * 8 * 16 * 4 / 1e9


def test_operations_of_fused_attention():
    q, k = torch.randn(2, 3, 8, 4, requires_grad=True), torch.randn(2, 3, 6, 4)
    attend = torch.nn.functional.scaled_dot_product_attention
    one = 2 * 2 * 3 * 8 * 6 * 4 / 1e9
    assert counting.counted(lambda: attend(q, k, k), CPU).gflop == 2 * one
    assert counting.counted(lambda: attend(q, k, k).sum().backward(), CPU).gflop == 7 * one  # scores are computed again


def test_a_profile_shows_what_differs():
    x = torch.randn(64, 64)
    own, stock = (counting.operators(action, CPU) for action in (lambda: (x @ x).exp(), lambda: x @ x))
    assert own["aten::exp"] > 0 and "aten::exp" not in stock
    assert counting.differences({"a": 1.0, "b": 5.0, "c": 2.0}, {"a": 1.5, "c": 9.0, "d": 6.0}) == {
        "c": [2.0, 9.0], "d": [0.0, 6.0], "b": [5.0, 0.0], "a": [1.0, 1.5]
    }  # fmt: skip


def test_memory_knows_when_a_storage_ends():
    """Check an assumption of the measurement: the Python object of a storage lives as long as the storage."""
    x = torch.ones(8)
    ended = []
    weakref.finalize(x.untyped_storage(), ended.append, 1)
    view = x[2:]
    del x
    assert not ended
    del view
    assert ended


def test_counts_of_a_training_step_are_the_same_in_every_run():
    source, target = actions.sentences(2, 16, CPU)
    found = []
    for _ in range(2):
        model = models.build(models.Variant.of("t5", "model"), "_tiny", 32, CPU, torch.float32)
        step = actions.training(model, source, target)
        step()  # creates the state of the optimizer
        found.append(counting.counted(step, CPU))
    assert found[0] == found[1] and found[0].mib > 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_is_trained_can_decode_in_half_precision(dtype):
    source, target = actions.sentences(2, 16, CPU)
    model = models.build(models.Variant.of("t5", "model"), "_tiny", 32, CPU, dtype)
    step = actions.training(model, source, target)
    step(), step()
    assert all(p.isfinite().all() for p in model.parameters())
    actions.decoding(model, source, 4)()


@pytest.mark.parametrize("site", ["model", "encoder", "decoder", "cross"])
def test_the_method_stands_where_it_is_measured(site):
    variant = models.Variant.of("shaw:max_distance=3", site)
    model = models.build(variant, "_tiny", 32, CPU, torch.float32)
    placed = {
        "encoder": model.encoder.position, "decoder": model.decoder.position, "cross": model.decoder.cross_position
    }  # fmt: skip
    have = {name for name, placement in placed.items() if any(part.card.name == "shaw" for part in placement.methods)}
    assert have == ({"encoder", "decoder"} if site == "model" else {site})


@pytest.mark.parametrize("name", ["posenc_complex_transformer", "posenc_universal_halting"])
def test_an_architecture_is_measured_as_it_is(name):
    model = models.build(models.Variant.of(name, "model"), "_tiny", 32, CPU, torch.float32)
    assert type(model).__name__ == ("ComplexTransformer" if "complex" in name else "PositionTransformer")
    assert (model.encoder.halting is not None) == ("halting" in name) and model.encoder.num_layers == (
        4 if "halting" in name else 2
    )
    source, target = actions.sentences(2, 16, CPU)
    actions.training(model, source, target)()


@pytest.mark.slow
def test_a_small_benchmark_and_its_files(tmp_path, capsys):
    folder = tmp_path / "out"
    options = "--size tiny --rounds 2 --shapes 2x8 --lengths 8 16 24 --steps 4 --sites model cross".split()
    assert cli.main(["bench", "t5", "xpos", "learned", *options, "--output", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines()[:-2])) <= 80 and "training" in shown and "attention" in shown
    results = json.loads((folder / "bench.json").read_text())
    assert tables.markdown(results) in (folder / "bench.md").read_text()
    rows = [(row["method"], row["site"]) for row in results["rows"]]
    assert rows == [("t5", "model"), ("xpos", "model"), ("learned", "model"), ("t5", "cross")]
    row = results["rows"][0]
    assert {"training 2x8", "memory 2x8", "inference 2x8", "decoding", "attention 8", "attention 16"} < set(row)
    assert row["training 2x8"]["operations"] == pytest.approx(1, abs=0.01) and "operators" not in row["decoding"]
    assert row["training 2x8"]["low"] <= row["training 2x8"]["median"] <= row["training 2x8"]["high"]
    with open(folder / "bench.csv", encoding="utf-8") as file:
        listed = list(csv.DictReader(file))
    (one,) = [x for x in listed if (x["method"], x["site"], x["measure"], x["quantity"]) == ("t5", "model", "decoding", "median")]
    assert float(one["value"]) == row["decoding"]["median"]
    assert (folder / "growth.svg").read_text().startswith("<?xml")


@pytest.mark.slow
def test_a_profile_has_the_slowest_operators_of_every_measure(tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "_PROFILED", 1)
    options = f"--size tiny --rounds 1 --shapes 2x8 --steps 3 --sites cross --profile --output {tmp_path}".split()
    assert cli.main(["bench", "t5", *options]) == 0
    results = json.loads((tmp_path / "bench.json").read_text())
    measured = [results["rows"][0][name] for name in ("training 2x8", "inference 2x8", "decoding")]
    assert [len(found["operators"]) for found in measured] == [8, 8, 8]
    assert tables.markdown(results) in (tmp_path / "bench.md").read_text()


def test_a_benchmark_goes_on_where_it_was_interrupted(tmp_path, monkeypatch, capsys):
    measured = []

    def measure(group, *_):
        measured.extend(v.name for v in group)
        found = {"median": 1.0, "low": 1.0, "high": 1.0, "seconds": 0.5, "operations": 1.0, "bytes": 1.0}
        yield "training 2x8", {v.name: found for v in group}
        if "rope" in measured:
            raise KeyboardInterrupt

    monkeypatch.setattr(benchmark, "_measure", measure)
    options = ["--shapes", "2x8", "--output", str(tmp_path)]
    assert cli.main(["bench", "t5", *options]) == 0
    with pytest.raises(KeyboardInterrupt):
        command.run(command_line(["t5", "rope", *options]))
    assert measured == ["t5", "rope"]
    measured.clear()
    assert cli.main(["bench", "t5", "shaw", *options]) == 0
    assert measured == ["shaw"]
    assert [row["method"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"]] == ["t5", "shaw"]
    capsys.readouterr()
    for change, wanted in (
        (["--rounds", "2"], "rounds 7 instead of 2"),
        (["--dtype", "bfloat16"], "dtype float32 instead of bfloat16"),
    ):
        assert cli.main(["bench", "t5", *options, *change]) == 2
        error = capsys.readouterr().err
        assert wanted in error and "choose another folder" in error.lower() and error.count("\n") == 1
    (tmp_path / "bench.json").write_text('{"rows": [')
    assert cli.main(["bench", "t5", *options]) == 2
    assert "not the result of a benchmark" in capsys.readouterr().err


def command_line(arguments):
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return parser.parse_args(arguments)


def test_decoding_is_shown_as_speed_and_one_attention_with_its_memory():
    assert tables._cell("decoding", {"median": 2.0, "low": 1.0, "high": 4.0}) == "0.50 (0.25-1.00)"
    assert tables._cell("training 2x8", {"median": 2.0, "low": 1.0, "high": 4.0}) == "2.00 (1.00-4.00)"
    assert tables._cell("attention 8", {"median": 2.0, "low": 1.0, "high": 4.0, "memory": 3.0}) == "2.00 (1.00-4.00) / 3.00"


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        (["shw"], "Did you mean 'shaw'"),
        (["shaw:max_distnce=3", "t6"], "Did you mean 't5'"),
        (["t5", "--shapes", "32"], "such as 32x32"),
        (["t5", "--lengths", "32,x"], "--lengths 'x': not a length"),
        (["t5", "--lengths", "t5", "32"], "--lengths 't5': not a length"),
        (["t5", "--sites", "encode"], "--sites 'encode': not a site"),
        (["t5", "--size", "huge"], "--size huge: unknown. Expected one of base, tiny, small, big"),
        (["--peers", "alibi"], "--peers: no other library has alibi. Expected one or more of shaw"),
        (["xpos", "--sites", "encoder"], "--sites encoder: none of xpos is defined at this site"),
        (["t5", "--rounds", "0"], "--rounds: '0' is not a positive whole number"),
        (["t5", "--steps", "2"], "--steps 2: too few"),
        (["t5", "--shapes", "1_6x32"], "'1_6x32': not a shape"),
        (["t5", "--lengths", "\uff11\uff16"], "not a length"),
        (["t5", "--device", "cuda"], "To measure on the CPU, remove --device"),
        (["t5", "--output", "/proc/none/x"], "cannot be written"),
        *(
            (["--count", *given.split()], f"{given.split()[0]}: no effect with --count. Expected options of --count. Remove --")
            for given in ("--sites cross", "--lengths 8", "--steps 9", "--rounds 2", "--device cpu", "--threads 2")
        ),
        *(
            (["--peers", *given.split()], f"{given.split()[0]}: no effect with --peers. Expected options of --peers. Remove --")
            for given in ("--sites model", "--lengths 8", "--steps 9", "--profile")
        ),
        (["--count", "--steps", "9", "--sites", "cross"], "--sites --steps: no effect with --count."),
        (["--peers", "--dtype", "bfloat16"], "--peers --dtype bfloat16: not available"),
    ],
)
def test_mistakes_are_one_line(arguments, wanted, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert wanted in error and error.count("\n") == 1


@pytest.mark.parametrize("given", [["--lengths", "512", "64", "t5"], ["--lengths", "512,64", "t5"], ["t5", "--lengths=512,64"]])
def test_values_of_an_option_end_where_methods_begin(given):
    parsed = command_line([*given, "--sites", "encoder", "cross", "shaw:max_distance=3"])
    found = settings.Settings.of(command.with_defaults(parsed))
    assert found.lengths == [512, 64] and found.sites == ["encoder", "cross"]
    assert sorted(found.specs) == ["shaw:max_distance=3", "t5"]


def test_tables_are_no_wider_than_the_terminal():
    head, body = ["method", "site", *(f"measure {n}" for n in range(9))], [["t5", "model", *(f"{n}.00" for n in range(9))]]
    for width in (30, 60, 200):
        shown = tables.fitted(head, body, width, 2)
        assert max(map(len, shown.splitlines())) <= width
        assert all(shown.count(f"measure {n}") == 1 for n in range(9))
    assert shown.count("method") == 1


def test_the_parser_imports_neither_torch_nor_fairseq():
    code = "import argparse, sys; from fairseq_posenc.bench import command; command.configure(argparse.ArgumentParser()); "
    code += "print(*{'torch', 'fairseq', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


# --- compared with peers ---


def test_a_comparison_with_peers(tmp_path, capsys):
    options = f"--peers --size tiny --rounds 1 --shapes 2x8,1x16 --output {tmp_path}".split()
    assert cli.main(["bench", *options]) == 0
    shown = capsys.readouterr().out
    rows = json.loads((tmp_path / "peers.json").read_text())["rows"]
    assert [(row["method"], row["peer"]) for row in rows] == [(pair.method, pair.peer) for pair in peers.PAIRS if pair.available]
    assert all(set(row["2x8"]) == set(row["1x16"]) == {"median", "low", "high"} and row["peer"] in shown for row in rows)
    assert all(row["library"] in shown for row in rows)
    assert f"transformers {version('transformers')}" in {row["library"] for row in rows}
    with open(tmp_path / "peers.csv", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 2 * 3 * len(rows) and {row["library"] for row in found} == {row["library"] for row in rows}


@pytest.mark.parametrize("pair", [pair for pair in peers.PAIRS if pair.available], ids=lambda pair: pair.peer)
def test_peers_have_no_dropout(pair):
    """The attention of this project has no dropout in a comparison."""
    modules = pair.build(peers.Sizes(width=32, heads=4, length=8)).modules()
    assert [module for module in modules if "Dropout" in type(module).__name__ and getattr(module, "p", 0) > 0] == []


def test_python310_does_not_list_all_packages(monkeypatch):
    monkeypatch.setattr(peers, "_distributions", dict)
    (cope,) = (pair for pair in peers.PAIRS if pair.method == "cope")
    assert cope.library == f"x-transformers {version('x-transformers')}"


def test_versions_of_transformers_contain_these_peers():
    """The tests below skip a peer that the installed version does not contain."""
    missing = {pair.peer for pair in peers.PAIRS if not pair.available}
    old = int(version("transformers").partition(".")[0]) < 5
    assert missing == (set() if old else {"Hugging Face BERT, relative_key", "Hugging Face BERT, relative_key_query"})


def test_a_version_without_the_peer_is_one_line(monkeypatch, capsys):
    """BERT of transformers 5 ignores the option for relative positions.

    If this peer were measured, its attention would have no positions.
    """
    from transformers.models.bert import modeling_bert

    class Plain(torch.nn.Module):
        def __init__(self, config):
            super().__init__()

    monkeypatch.setattr(modeling_bert, "BertSelfAttention", Plain)
    assert [pair.peer for pair in comparison.installed(["shaw", "huang4"])] == ["Hugging Face Wav2Vec2-BERT"]
    library, error = f"transformers {version('transformers')}", capsys.readouterr().err
    assert error == (
        f"{library} does not contain Hugging Face BERT, relative_key. Not measured: this peer of shaw.\n"
        f"{library} does not contain Hugging Face BERT, relative_key_query. Not measured: this peer of huang4.\n"
    )
    assert cli.main(["bench", "--peers", "huang4"]) == 2
    assert "no library with huang4 is installed" in capsys.readouterr().err


@pytest.fixture(params=peers.PAIRS, ids=lambda pair: f"{pair.method}-{pair.build.__name__.strip('_')}")
def pair(request):
    if not request.param.available:
        pytest.skip(f"{request.param.library} does not contain {request.param.peer}")
    return request.param


def test_a_peer_reaches_all_its_parameters(pair):
    """The benchmark times the whole attention layer of a peer.

    Every parameter of the layer receives a gradient, and the output has the shape of the input.
    """
    sizes = peers.Sizes(32, 4, 9)
    peer, x = pair.build(sizes), torch.randn(2, 9, 32)
    out = peer(x)
    assert out.shape == x.shape
    out.square().sum().backward()
    assert [name for name, p in peer.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("method, fused", [("t5", 5), ("rope", 4)])
def test_a_peer_uses_the_fused_kernel_if_its_version_has_it(method, fused, monkeypatch):
    """`fused` is the first major version of transformers whose attention uses the fused kernel."""
    used, kernel = [], torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda *a, **k: used.append(1) or kernel(*a, **k))
    (pair,) = (pair for pair in peers.PAIRS if pair.method == method)
    pair.build(peers.Sizes(32, 4, 9))(torch.randn(2, 9, 32))
    assert bool(used) == (int(version("transformers").partition(".")[0]) >= fused)


def test_ours_has_biases_where_the_peer_has(pair):
    peer = pair.build(peers.Sizes(32, 4, 9))
    linear = [module for module in peer.modules() if isinstance(module, torch.nn.Linear)]
    assert pair.biases == any(m.bias is not None for m in linear if m.in_features == 32 and m.out_features % 32 == 0)


def test_a_missing_peer_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None if name == "x_transformers" else True)
    assert [pair.method for pair in comparison.installed(["rope", "cope", "forgetting"])] == ["rope"]
    error = capsys.readouterr().err
    assert error == (
        "x_transformers is not installed. Not measured: cope, forgetting. Install it with pip install 'fairseq_posenc[test]'.\n"
    )
    assert cli.main(["bench", "--peers", "cope"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no library with cope is installed. Install it with pip install" in error


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["cope", "fire", "shaw", "huang2"])
def test_memory_of_a_long_sentence_stays_near_that_of_stock(spec):
    """In an earlier version of this project, attention over 2,048 tokens stored a hundred numbers per pair of tokens.

    The fused attention of stock fairseq stores no numbers per pair.
    """
    variants = (models.Variant("stock", None), models.Variant(spec, {"encoder": spec}))
    stock, own = (counting.counted(actions.attention(it, 256, 4, 2048, CPU, torch.float32), CPU).mib for it in variants)
    assert own < 9 * stock, (own, stock)
