"""posenc bench --count: counts on the meta device, and the stored counts of every method."""

import argparse
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import fairseq_posenc.host.plugin  # noqa: F401  registers the models
from fairseq_posenc import cli, registry
from fairseq_posenc.bench import command, counts, launches, meta, models, results, settings, tables
from fairseq_posenc.ops.kernels.blocked_bias import merged

ROOT = Path(__file__).parents[2]
PINNED = ROOT / "results" / "bench" / "counted" / "tiny" / "count.json"
RENEW = (
    f"if this is meant: posenc bench --count --quick --profile --output {PINNED.parent.relative_to(ROOT)}, into a removed folder"
)


#: methods that compute in float64 on an accelerator, and the reasons
IN_FLOAT64 = {"lrpe": "the frequencies depend on the length of each sentence, so that no table has them"}


def given(*shape, dtype=torch.float32, **options):
    return torch.empty(*shape, dtype=dtype, device="meta", **options)


def counted(action, values=None):
    return launches.count(action, meta.Values() if values is None else values)


def test_views_and_allocations_cost_nothing():
    x = given(8, 4)
    found = counted(lambda: (x.view(4, 8).transpose(0, 1)[None].expand(3, 8, 4), torch.empty_like(x)))
    assert (found.launches, found.read, found.written) == (0, 0, 0) and found.peak == 8 * 4 * 4


def test_bytes_of_broadcast_overlapping_and_overwritten_tensors():
    row, x = given(1, 4), given(8, 4)
    assert vars(launches.Cost(1, 0, 16, 128)).items() <= vars(counted(lambda: row.expand(8, 4).clone())).items()
    toeplitz = given(11).unfold(0, 4, 1)  # 8 rows of 4 elements that overlap
    assert counted(lambda: toeplitz.clone()).read == 11 * 4
    assert counted(lambda: x.copy_(row)).read == 16 and counted(lambda: x.add_(row)).read == 128 + 16
    table = given(1000, 4)
    assert counted(lambda: F.embedding(given(5, dtype=torch.long), table)).read == 5 * 8 + 5 * 4 * 4


def test_the_peak_is_that_of_tensors_that_live_together():
    x = given(256)

    def one_after_the_other():
        for _ in range(5):
            x.exp()

    assert counted(one_after_the_other).peak == 1024 * 1
    assert counted(lambda: [x.exp() for _ in range(5)]).peak == 5 * 1024


@pytest.mark.parametrize("layout", ["rows", "columns", "every other"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.long])
@pytest.mark.parametrize("factor", [2, 2.0, True])
def test_a_stored_result_has_the_type_and_the_strides_of_the_operator(layout, dtype, factor):
    """The operator runs only once. Numbers that are equal, such as 2 and 2.0, can lead to different types."""
    x = {
        "rows": given(4, 3, dtype=dtype),
        "columns": given(3, 4, dtype=dtype).t(),
        "every other": given(4, 6, dtype=dtype)[:, ::2],
    }
    operator, one = torch.ops.aten.mul.Scalar, x[layout]
    found = [operator(one, factor), *(results.of(operator, (one, factor), {}) for _ in range(2))]
    assert len({(y.dtype, y.shape, y.stride()) for y in found}) == 1 and found[1] is not found[2]


WAITS = {
    "item": lambda x, values: x.sum().item(),
    "bool": lambda x, values: bool((x > 0).any()),
    "tolist": lambda x, values: values.tolist(),
    "to the host": lambda x, values: x.cpu(),
    "from the host": lambda x, values: torch.tensor([1.0], device=x.device),
    "from the host, as another": lambda x, values: x.new_tensor([1.0]),
    "nonzero": lambda x, values: values.nonzero(),
    "unique": lambda x, values: values.unique(return_inverse=True),
    "masked_select": lambda x, values: values.masked_select(values > 2),
    "index by a mask": lambda x, values: values[values > 2],
    "written by a mask": lambda x, values: x.index_put_((values > 2,), x[0]),
    "equal": lambda x, values: torch.equal(x, x),
    "repeated": lambda x, values: values.repeat_interleave(values),
    "index of the host": lambda x, values: x[torch.tensor([0, 1])],
}


@pytest.mark.parametrize("name", WAITS)
def test_what_the_host_waits_for(name):
    values = meta.Values()
    x, known = given(4), values.moved(torch.tensor([1, 2, 3, 4]))
    assert counted(lambda: WAITS[name](x, known), values).waits == 1


def test_integers_have_their_values():
    values, found = meta.Values(), {}
    tokens = values.moved(torch.tensor([[5, 6, 1], [7, 1, 1]]))

    def read():
        lengths = torch.zeros(2, 1, dtype=torch.long, device="meta")
        lengths[:, 0] = tokens.ne(1).sum(1)  # a write through a view
        found["lengths"] = lengths.squeeze(1).tolist()
        found["words"] = tokens[tokens.ne(1)].tolist()
        found["any"] = bool(tokens.transpose(0, 1).eq(1).any()), bool(tokens.eq(9).any())

    assert counted(read, values).waits == 5
    assert found == {"lengths": [2, 1], "words": [5, 6, 7], "any": (True, False)}


def test_what_an_answer_needs_is_an_error_where_it_is_not_known():
    with pytest.raises(NotImplementedError, match="depends on values"):
        counted(lambda: given(4).nonzero())


@pytest.mark.parametrize("kind", ["none", "bool", "numbers", "unaligned"])
def test_attention_is_one_operator_that_reads_an_aligned_mask(kind):
    """On CUDA, PyTorch selects the flash kernel without a mask, and the efficient kernel with a mask.

    For the efficient kernel, PyTorch converts a boolean mask to numbers, and pads a mask with rows of 20 columns.
    """
    keys = 20 if kind == "unaligned" else 16
    q, k = given(2, 4, 16, 8, dtype=torch.bfloat16), given(2, 4, keys, 8, dtype=torch.bfloat16)
    dtype = torch.bool if kind == "bool" else torch.bfloat16
    mask = None if kind == "none" else given(2, 1, 16, keys, dtype=dtype)
    found = counted(lambda: F.scaled_dot_product_attention(q, k, k, mask))
    wanted = {"none": 1, "bool": 5, "numbers": 1, "unaligned": 2}
    assert found.launches == wanted[kind], found.places
    one = "flash" if kind == "none" else "efficient"
    assert sum(f"{one}_attention" in place for place in found.places) == 1


@pytest.mark.parametrize("backward, operators", [(False, 2), (True, 5)])
def test_a_gru_has_the_kernels_of_cudnn(backward, operators):
    """A step is a product and a cell. The backward pass of a step is a cell, a product, and a sum of two gradients."""

    def launched(words):
        network = torch.nn.GRU(4, 6, batch_first=True).to("meta")
        x = given(2, words, 4, requires_grad=True)
        return counted(lambda: network(x)[0].sum().backward() if backward else network(x)).launches

    assert launched(9) - launched(8) == operators


@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"num_layers": 2, "bidirectional": True}])
@pytest.mark.parametrize("packed", [False, True])
def test_a_gru_on_the_meta_device_has_the_shapes_and_gradients_of_pytorch(options, packed):
    found = []
    for device in ("cpu", "meta"):
        network, x = torch.nn.GRU(4, 6, **options).to(device), torch.zeros(5, 5, 4, device=device, requires_grad=True)
        sizes = [5, 4, 4, 1, 1]
        words = torch.nn.utils.rnn.pack_padded_sequence(x, sizes, options.get("batch_first", False)) if packed else x

        def action(network=network, words=words):
            out, last = network(words)
            out = out.data if packed else out
            (out.sum() + last.sum()).backward()
            return out, last

        with meta.accelerator_branches():
            out, last = action()
        gradients = [x.grad, *(parameter.grad for parameter in network.parameters())]
        found.append([(tensor.shape, tensor.dtype) for tensor in (out, last, *gradients)])
    assert found[0] == found[1]


def test_float64_and_tensors_on_the_host_are_counted():
    found = counted(lambda: (given(4).double().exp(), torch.zeros(2)))
    assert (found.float64, found.host) == (2, 1)


def test_a_backward_pass_belongs_to_the_line_of_its_forward_pass():
    x = given(2, 1, 4, 8, requires_grad=True)
    mask = given(2, 1, 1, 8, dtype=torch.bool)
    found = counted(lambda: merged(x, mask).sum().backward())
    own = [place for place in found.places if "ops/kernels/blocked_bias.py merged" in place]
    assert any("backwards" in place for place in own) and any("backwards" not in place for place in own)
    assert all(line.startswith("ops/kernels/blocked_bias.py:") for place in own for line in found.lines[place])


def small(*specs):
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return settings.Settings.of(command.with_defaults(parser.parse_args(["--count", "--quick", "--profile", *specs])))


def test_stock_has_no_place_in_this_package():
    """The cost of stock fairseq does not depend on this package."""
    for _, found in counts.measured(models.Variant(models.STOCK, None), small()):
        places = [
            place for place in found.places if "fairseq/" not in place and "bench/" not in place and "gradients" not in place
        ]
        assert places == []


@pytest.mark.parametrize("name", [models.STOCK, *registry.names()])
def test_pinned(name):
    """The counts of every method equal its stored counts. Counts do not depend on the machine."""
    pinned = counts.read(PINNED)
    chosen = small(*([] if name == models.STOCK else [name]))
    assert pinned["settings"] == counts.record(chosen), RENEW
    row = next((row for row in pinned["rows"] if row["method"] == name), None)
    assert row is not None, f"{name} is new; {RENEW}"
    variant = models.Variant(models.STOCK, None) if name == models.STOCK else models.Variant.of(name, "model")
    changed = [line for measure, found in counts.measured(variant, chosen) for line in counts.differences(row, measure, found)]
    assert not changed, "\n".join([*changed, RENEW])


def test_large_tables_need_no_memory_and_have_the_same_counts(monkeypatch):
    """The tables of this test are small. The test lowers the limit from which tables count as large."""
    monkeypatch.setattr(meta, "LARGEST_TABLE", 100)
    variant, chosen = models.Variant.of("shaw_abs", "model"), small("shaw_abs")
    with meta.large_tables_without_memory():
        model = models.build(variant, chosen.size, 10, None, chosen.dtype)
    large = [name for name, x in model.named_parameters() if x.is_meta]
    assert large and all("key_table" in name or "value_table" in name for name in large)
    test_pinned("shaw_abs")


@pytest.mark.parametrize("name", registry.names())
def test_no_float64_and_no_tensor_of_the_cpu(name):
    """Check that the stored counts contain no operators in float64, and none that create tensors on the CPU.

    The counts are from a training step, a forward pass and a step of beam search. For a method in IN_FLOAT64, the counts must
    contain operators in float64.
    """
    row = next(row for row in counts.read(PINNED)["rows"] if row["method"] == name)
    found = {(measure, what): row[measure][what] for measure in tables.measures([row]) for what in ("float64", "host")}
    if name in IN_FLOAT64:
        assert any(number for (_, what), number in found.items() if what == "float64"), IN_FLOAT64[name]
        found = {key: number for key, number in found.items() if key[1] != "float64"}
    assert not any(found.values()), found


def test_a_launch_more_is_named_with_its_line(monkeypatch):
    from fairseq_posenc.methods.bias.t5 import T5

    plain = T5.bias
    monkeypatch.setattr(T5, "bias", lambda self, ctx: plain(self, ctx) + 0)
    row = next(row for row in counts.read(PINNED)["rows"] if row["method"] == "t5")
    measure, found = next(counts.measured(models.Variant.of("t5", "model"), small("t5")))
    lines = counts.differences(row, measure, found)
    assert any(line.startswith(f"t5, {measure}: launches ") for line in lines)


def test_the_command_and_its_files(tmp_path, capsys):
    options = ["--count", "--size", "tiny", "--shapes", "2x8,1x16", "--profile", "--output", str(tmp_path)]
    assert cli.main(["bench", "none", "t5", *options]) == 0
    shown = capsys.readouterr().out
    assert "Training" in shown and "Decoding" in shown and max(map(len, shown.partition("* ")[0].splitlines())) <= 80
    results = counts.read(tmp_path / "count.json")
    assert [row["method"] for row in results["rows"]] == ["stock", "none", "t5"]
    assert "places" not in (tmp_path / "count.json").read_text()
    assert "growth of bytes" in (tmp_path / "count.md").read_text()
    places = results["rows"][2]["training 2x8"]["places"]
    assert sum(cost[0] for cost in places.values()) == results["rows"][2]["training 2x8"]["launches"]
    assert cli.main(["bench", "rope", *options]) == 0  # decoding continues
    continued = counts.read(tmp_path / "count.json")["rows"]
    assert [row["method"] for row in continued] == ["stock", "none", "rope", "t5"] and continued[3] == results["rows"][2]
    (tmp_path / "places.xz").write_bytes(b"no archive")
    assert cli.main(["bench", "rope", *options]) == 2
    assert f"posenc: {tmp_path / 'places.xz'}: cannot be read" in capsys.readouterr().err


def test_counting_and_peers_exclude_each_other(capsys):
    assert cli.main(["bench", "--count", "--peers"]) == 2
    error = capsys.readouterr().err
    assert "--count --peers: cannot be combined" in error and error.count("\n") == 1


def test_places_can_be_added_to_an_earlier_count(tmp_path):
    shared = ["--count", "--size", "tiny", "--shapes", "2x8", "--output", str(tmp_path)]
    assert cli.main(["bench", "none", *shared]) == 0
    assert cli.main(["bench", "none", "sinusoidal", "--profile", *shared]) == 0
    rows = counts.read(tmp_path / "count.json")["rows"]
    assert {row["method"] for row in rows} >= {"none", "sinusoidal"}
    assert all("places" in found for row in rows for found in row.values() if isinstance(found, dict))
