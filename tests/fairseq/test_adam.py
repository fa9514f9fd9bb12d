"""--optimizer posenc_adam: the updates of fairseq's Adam."""

import copy
from types import SimpleNamespace

import pytest
import torch

import fairseq_posenc.host.plugin  # noqa: F401  (imported before fairseq, because it patches fairseq)

# isort: split
from fairseq.optim.adam import FairseqAdam
from fairseq.optim.amp_optimizer import AMPOptimizer

from fairseq_posenc.core import Refusal
from fairseq_posenc.host.optimizers.adam import FairseqFusedAdam


def options(**changes):
    plain = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-3, "weight_decay": 0.0}
    return SimpleNamespace(**{**plain, "use_old_adam": False, "fp16_adam_stats": False, "tpu": False, **changes})


def trained(optimizer_class, updates, max_norm=0.5, stop=None, aggregated=None, **changes):
    """Return the parameters and the norms of the gradients. With `stop`, load the state of the optimizer after this update.

    `aggregated` is the function that adds the norms of several processes, or None.
    """
    torch.manual_seed(1)
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in ((3, 4), (5,), ())]
    optimizer, norms = optimizer_class(options(**changes), parameters), []
    for update in range(updates):
        if update == stop:
            state = optimizer.state_dict()
            optimizer = optimizer_class(options(**changes), parameters)
            optimizer.load_state_dict(state, {"lr": 0.01})
        optimizer.zero_grad()
        for number, parameter in enumerate(parameters):
            torch.manual_seed(100 * update + number)
            parameter.grad = torch.randn_like(parameter) * 10.0 ** (number - 2)
        optimizer.multiply_grads(0.5)
        norms.append(optimizer.clip_grad_norm(max_norm, aggregated))
        optimizer.set_lr(0.01 / (1 + update))
        optimizer.step()
    return [parameter.detach() for parameter in parameters], torch.stack(norms)


@pytest.mark.parametrize("changes", [{}, {"weight_decay": 0.1}, {"adam_eps": 1.0}, {"max_norm": 0.0}, {"aggregated": torch.sqrt}])
@pytest.mark.parametrize("stop", [None, 3])
def test_the_updates_are_those_of_fairseq(changes, stop):
    """A large epsilon shows where it is added."""
    (ours, norms), (theirs, known) = (trained(cls, 7, stop=stop, **changes) for cls in (FairseqFusedAdam, FairseqAdam))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(norms, known, rtol=1e-6, atol=0)


class Plain(FairseqFusedAdam):
    """Adam of PyTorch, without the correction of epsilon."""

    def __init__(self, cfg, params):
        super().__init__(cfg, params)
        self._optimizer = torch.optim.AdamW(params, fused=True, **self.optimizer_config)


def test_it_continues_from_the_state_of_adam():
    """In half precision, fairseq does not compare the optimizers of checkpoint and command."""
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    own, adam = FairseqFusedAdam(options(), weights[:1]), FairseqAdam(options(), weights[1:])

    def update(optimizer, weight, gradient):
        weight.grad = torch.full_like(weight, gradient)
        optimizer.multiply_grads(0.5)
        optimizer.step()

    update(adam, weights[1], 1.0)
    weights[0].data.copy_(weights[1].data)
    own.optimizer.load_state_dict(copy.deepcopy(adam.optimizer.state_dict()))
    update(adam, weights[1], -3.0)
    update(own, weights[0], -3.0)
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-6, atol=1e-7)


def test_without_the_correction_of_epsilon_the_updates_differ():
    (plain, _), (theirs, _) = (trained(cls, 2) for cls in (Plain, FairseqAdam))
    assert not all(torch.allclose(one, other, rtol=1e-4) for one, other in zip(plain, theirs))


def test_a_factor_of_gradients_ends_with_their_update():
    """fairseq skips an update whose gradients overflow. The next gradients are not multiplied by the factor of this update."""
    found = []
    for skipped in (False, True):
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = FairseqFusedAdam(options(), [parameter])
        if skipped:
            parameter.grad = torch.ones(2)
            optimizer.multiply_grads(1e-3)
            optimizer.zero_grad()
        for _ in range(2):
            parameter.grad = torch.full((2,), 1e-3)
            optimizer.step(scale=2.0)
        found.append(parameter.detach())
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_an_update_does_not_change_the_option():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = FairseqFusedAdam(options(), [parameter])
    parameter.grad = torch.ones(2)
    optimizer.step()
    assert optimizer.param_groups[0]["eps"] == 1e-3


def options_of_amp():
    return SimpleNamespace(optimizer=None, common=SimpleNamespace(fp16_init_scale=8, amp_scale_window=None, min_loss_scale=1e-4))


@pytest.mark.parametrize("overflow", [float("inf"), float("nan")])
def test_after_an_overflow_with_amp_the_updates_are_those_of_fairseq(overflow):
    """fairseq clips the gradients of the update with the overflow, and does not apply them."""
    found = []
    for cls in (FairseqFusedAdam, FairseqAdam):
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = AMPOptimizer(options_of_amp(), [parameter], cls(options(), [parameter]))
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for update in range(4):
            optimizer.zero_grad()
            optimizer.backward(parameter.sum() * (overflow if update == 1 else 1.0))
            optimizer.multiply_grads(0.25)
            optimizer.clip_grad_norm(0.5)
            optimizer.step()
        found.append(parameter.detach())
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("cls", [FairseqFusedAdam, FairseqAdam])
def test_updates_with_amp_do_not_depend_on_the_loss_scale(cls):
    """With fairseq's clip_grad_norm, the gradients are divided by the loss scale twice."""
    found = []
    for scale in (1.0, 65536.0):
        parameter = torch.nn.Parameter(torch.zeros(3))
        optimizer = AMPOptimizer(options_of_amp(), [parameter], cls(options(adam_eps=1e-8), [parameter]))
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        optimizer.backward((parameter * torch.tensor([1e-2, 1e-4, 1e-5])).sum())
        optimizer.clip_grad_norm(0.5)
        optimizer.step()
        found.append(parameter.detach())
    torch.testing.assert_close(*found)
    torch.testing.assert_close(found[0], torch.full((3,), -0.01), rtol=1e-2, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parameters_in_half_precision_are_refused(dtype):
    with pytest.raises(SystemExit, match="--memory-efficient-fp16 and --memory-efficient-bf16 are not supported"):
        FairseqFusedAdam(options(), [torch.nn.Parameter(torch.ones(3, dtype=dtype))])


@pytest.mark.parametrize("resumed", [False, True])
def test_a_parameter_without_a_gradient_in_some_updates(resumed):
    found = []
    for cls in (FairseqFusedAdam, FairseqAdam):
        parameters = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
        optimizer = cls(options(), parameters)
        for update in range(30):
            if resumed and update == 25:
                state, optimizer = optimizer.state_dict(), cls(options(), parameters)
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            for parameter in parameters[: 1 + (update > 20)]:
                parameter.grad = torch.full((4,), 1e-3)
            optimizer.step()
        found.append([parameter.detach() for parameter in parameters])
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-7)


class Wrapper(torch.optim.Optimizer):
    """Like the optimizer of --zero-sharding, which calls the optimizer that it contains."""

    def __init__(self, contained):
        super().__init__(contained.param_groups, {})
        self.contained = contained

    def step(self, closure=None):
        return self.contained.step(closure)


def test_an_optimizer_that_fairseq_has_replaced_is_multiplied_and_clipped():
    found = []
    for cls in (FairseqFusedAdam, FairseqAdam):
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = cls(options(), [parameter])
        optimizer.optimizer = Wrapper(optimizer.optimizer)
        for clip in (0.0, 1e-3):
            optimizer.zero_grad()
            parameter.grad = torch.full((3,), 10.0)
            optimizer.multiply_grads(1e-4)
            optimizer.clip_grad_norm(clip)
            optimizer.step()
        found.append(parameter.detach())
    torch.testing.assert_close(*found)


def test_fairseq_may_join_all_parameters():
    assert FairseqFusedAdam(options(), [torch.nn.Parameter(torch.ones(2))]).supports_flat_params


def test_moments_are_averaged_over_processes(monkeypatch):
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda x, op: None)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = FairseqFusedAdam(options(), [parameter])
    parameter.grad = torch.ones(1)
    optimizer.step()
    optimizer.average_params()
    torch.testing.assert_close(optimizer.optimizer.state[parameter]["exp_avg"], torch.tensor([0.05]))


@pytest.mark.parametrize("betas", ["0.9", "(0.9, 1.0)", "(0.9, 'x')", "(0.9,", "(0.9, 0.98, 0.99)", "__import__('os')"])
def test_betas_that_are_not_two_numbers(betas):
    with pytest.raises(Refusal, match=r"--adam-betas .*: expected two numbers"):
        FairseqFusedAdam(options(adam_betas=betas), [torch.nn.Parameter(torch.ones(2))])


def test_training_resumes_to_the_last_bit_and_equals_that_of_adam(fairseq, tmp_path):
    def parameters(name, *added):
        result = fairseq.train("posenc_t5_tiny", tmp_path / name, "--dropout", 0, "--adam-eps", 1e-2, *added)
        assert result.status == 0, result.output
        return fairseq.state(tmp_path / name / "checkpoint_last.pt")["model"]

    plain = parameters("adam", "--max-update", 4)
    whole = parameters("fused", "--max-update", 4, "--optimizer", "posenc_adam")
    parameters("resumed", "--max-update", 2, "--optimizer", "posenc_adam")
    resumed = parameters("resumed", "--max-update", 4, "--optimizer", "posenc_adam")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    for name in whole:
        torch.testing.assert_close(whole[name], plain[name], rtol=1e-4, atol=1e-5)
