"""Run the checks for a GPU without a GPU, and test that they detect a broken method."""

import json
import warnings
from time import sleep
from unittest.mock import patch

import pytest
import torch

from fairseq_posenc import registry
from fairseq_posenc.bench.models import Variant
from fairseq_posenc.ops import devices
from tests.device import __main__ as device
from tests.device import checks, magnitudes, method

CPU = torch.device("cpu")
T5 = Variant.of("t5", "model")


@pytest.mark.parametrize("spec", ["none", "t5", "shaw", "spr_rel", "segments"])
def test_nothing_is_found_without_a_gpu(spec, tmp_path, capsys):
    path = tmp_path / "new" / "device.json"
    assert device.main([str(path), spec]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("No GPU was found.") and printed[-1] == f"1 methods, 0 findings: {path}"
    (found,) = json.loads(path.read_text())["methods"].values()
    assert list(found) == list(checks.WITHOUT_GPU)
    assert 0 < found["fp16"]["largest_logit"] < 1000 and found["branches"]["training"]["waits"] <= 1
    with patch.object(checks, "given", side_effect=AssertionError):  # not checked again
        assert device.main([str(path), spec]) == 0


@pytest.mark.parametrize("name", ["numbers", "compile"])
def test_the_checks_that_need_a_gpu_pass_on_the_cpu(name):
    with patch.object(torch, "compile", lambda model: model):  # test_compile.py compiles every method
        found = checks.ON_DEVICE[name](T5, CPU)
    assert found["largest_difference"] < 1e-4


def test_other_logits_of_a_compiled_model_are_a_finding():
    def miscompiled(model):
        with torch.no_grad():
            model.decoder.output_projection.weight[7].mul_(2)
        return model

    with patch.object(torch, "compile", miscompiled), pytest.raises(checks.Finding, match="compiled logits differ by"):
        checks.compiled(T5, CPU)


@pytest.mark.parametrize("name", [*checks.ON_DEVICE, "branches"])
def test_an_exception_is_a_finding(name):
    with patch.object(checks.models, "build", side_effect=RuntimeError("no kernel\nfor this")):
        found = method.check(T5, {name: {**checks.ON_DEVICE, **checks.WITHOUT_GPU}[name]}, CPU)
    (line,) = device.findings({"t5": found})
    assert line.startswith(f"t5, {name}: RuntimeError: no kernel (")


def broken(change):
    """Return a patch that changes a parameter of the second model that a check builds.

    The results of the second model then differ, as if the device computed other numbers than the CPU.
    """
    build, number = checks.models.build, iter(range(9))

    def built(*arguments):
        model = build(*arguments)
        if next(number) == 1:
            with torch.no_grad():
                change(model.decoder.layers[0].self_attn.out_proj.weight)
        return model

    return patch.object(checks.models, "build", built)


@pytest.mark.parametrize("name, change, wanted", [
    ("numbers", lambda weight: weight.mul_(1.1), "differs from the CPU by"),
    ("search", lambda weight: weight.mul_(-9), "differ from the CPU by"),
])  # fmt: skip
def test_other_numbers_are_a_finding(name, change, wanted):
    meta_free = torch.device("cpu", 0)  # another name of the CPU, so that both models are built
    with broken(change), pytest.raises(checks.Finding, match=wanted):
        checks.ON_DEVICE[name](T5, meta_free)


@pytest.mark.parametrize("share, is_found", [(1e-7, False), (1e-4, True)])
def test_gradients_are_compared_although_exact_gradients_of_0_differ(share, is_found):
    """The exact gradient of k_proj.bias is 0. On the device, `share` times the largest gradient is added to it."""
    build, number = checks.models.build, iter(range(9))

    def built(*arguments):
        model = build(*arguments)
        if next(number) == 1:
            bias = model.decoder.layers[0].self_attn.k_proj.bias
            largest = 0.04  # of all gradients of this model
            bias.register_hook(lambda gradient: gradient + share * largest)
        return model

    with patch.object(checks.models, "build", built):
        if is_found:
            with pytest.raises(checks.Finding, match=r"self_attn\.k_proj\.bias differs from the CPU by"):
                checks.numbers(T5, CPU)
        else:
            assert checks.numbers(T5, CPU)["largest_difference"] <= checks.TOLERANCE


def test_noise_with_a_seed_is_drawn_on_the_cpu():
    generator, expected = torch.Generator().manual_seed(7), torch.randn(3, 2, generator=torch.Generator().manual_seed(7))
    with checks.noise_of_the_cpu():
        drawn = [torch.randn(3, 2, generator=generator, device="meta"), torch.randn((3, 2), generator=generator, device=CPU)]
    assert drawn[0].is_meta and drawn[1].equal(expected)


def test_activation_functions_are_smooth_and_recurrent_networks_have_gradients():
    model = checks.given(Variant.of("rnn", "model"), CPU).model
    layers = [module for module in model.modules() if hasattr(module, "activation_fn")]
    assert {layer.activation_fn for layer in layers} == {torch.nn.functional.gelu} and not any(layer.training for layer in layers)
    recurrent = [module for module in model.modules() if isinstance(module, torch.nn.RNNBase)]
    assert recurrent and all(module.training and module.dropout == 0 for module in recurrent)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_a_number_that_is_not_finite_is_a_finding(name):
    build = checks.models.build

    def infinite(*arguments):
        model = build(*arguments)
        with torch.no_grad():
            model.decoder.output_projection.weight.mul_(1e38)
        return model

    with patch.object(checks.models, "build", infinite), pytest.raises(checks.Finding, match="not finite"):
        checks.ON_DEVICE[name](T5, CPU)


def test_a_wait_is_a_finding():
    build = checks.models.build

    def waiting(*arguments):
        model = build(*arguments)
        model.register_forward_hook(lambda module, given, out: [bool(out[0].sum() > 0) for _ in range(3)] and None)
        return model

    with patch.object(checks.models, "build", waiting), pytest.raises(checks.Finding, match="waits 4 times"):
        checks.branches(T5, torch.device("meta"))


@pytest.mark.parametrize("number", [1, 2])
def test_waits_on_a_gpu_are_counted(number):
    build, modes = checks.models.build, []

    def waiting(*arguments):
        model = build(*arguments)
        wait = "called a synchronizing CUDA operation"
        model.register_forward_hook(lambda *_: [warnings.warn(wait, stacklevel=1) for _ in range(number)] and None)
        return model

    with patch.object(checks.models, "build", waiting), patch.object(torch.cuda, "set_sync_debug_mode", modes.append):
        if number > checks.WAITS:
            with pytest.raises(checks.Finding, match=f"waits {number} times for the GPU .*: test_device.py:"):
                checks.waits(T5, CPU)
        else:
            assert checks.waits(T5, CPU) == {"waits": number}
    assert modes == ["warn", "default"]


def test_methods_are_checked_in_processes_of_their_own_on_a_gpu():
    found = dict(device.checked(["t5", "no_such_method"], torch.device("cuda")))
    assert set(found["t5"]) == set(checks.WITHOUT_GPU) and not device.findings({"t5": found["t5"]})
    (line,) = device.findings({"no_such_method": found["no_such_method"]})
    assert line.startswith("no_such_method, process: the process of the checks ended with status 1: ")


def test_an_interruption_leaves_out_the_remaining_methods():
    begun = []
    with patch.object(device, "AT_A_TIME", 1), patch.object(method, "check_apart", lambda spec: begun.append(spec) or sleep(0.1)):
        running = device.checked(list("abcdefgh"), torch.device("cuda"))
        next(running)
        running.close()
    assert 0 < len(begun) < 4


def test_a_process_that_does_not_end_is_a_finding():
    assert method.check_apart("t5", 0.1) == {"process": {"finding": "the checks did not end within 0.1 seconds"}}


def test_the_benchmark_is_part_of_the_file(tmp_path):
    options = ["--quick", "--rounds", "1", "--steps", "3", "--shapes", "2x8", "--lengths", "8"]
    found = device.benchmark(["t5"], CPU, tmp_path / "bench", *options)
    assert {row["method"] for row in found["rows"]} >= {"t5"}


@pytest.mark.parametrize("spec", ["none", "alibi", "shaw", "stickbreaking", "gaussian"])
def test_magnitudes_in_float16(spec):
    score, logit = magnitudes.magnitudes(spec, "_tiny", 64)
    assert 0 < logit < 1000 and 0 < score < 1000
    if spec == "alibi":
        # the second of four heads has this penalty at a distance of 60 tokens. The first head has a larger penalty
        assert score > 60 * 2**-4


def test_the_table_of_magnitudes_has_every_method():
    lines = magnitudes.FILE.read_text(encoding="utf-8").splitlines()
    table = [line.split("|")[1].strip() for line in lines if line.startswith("|")]
    assert table[2:] == registry.names() and lines[0] == magnitudes.HEAD.splitlines()[0]


def test_the_branch_of_huang3_for_a_gpu_compiles():
    """Found on an H100. In a model, keys have another memory layout than in one attention module."""
    compile_model = torch.compile
    backend = "aot_eager_decomp_partition"  # compiles in seconds, with the decompositions of the default backend
    compiling = patch.object(torch, "compile", lambda model: compile_model(model, backend=backend))
    with compiling, patch.object(devices, "on_cpu", lambda _: False):
        checks.compiled(Variant.of("huang3", "model"), CPU)
