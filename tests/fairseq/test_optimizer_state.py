"""The state of an optimizer follows the parameters if a checkpoint has the parameters in another order."""

import copy

import pytest
import torch
from fairseq.models import BaseFairseqModel
from torch import nn

from fairseq_posenc.host.compat.loading import reorder, saved_order

OLD = ["embed", "query", "key", "ffn", "cross", "output"]
NEW = ["embed", "key", "query", "cross", "ffn", "output"]


class Model(BaseFairseqModel):
    """A model with parameters of different sizes in a given order. The output projection shares the embedding."""

    def __init__(self, names: list):
        super().__init__()
        for name in names:
            size = len(name)
            self.register_module(name, nn.Linear(size, 2) if name != "output" else nn.Module())
        self.output.weight = self.embed.weight
        self.register_buffer("version", torch.tensor(3))
        self.frozen = nn.Parameter(torch.zeros(7), requires_grad=False)

    def upgrade_state_dict_named(self, state_dict, name):
        for key in [key for key in state_dict if key.startswith("old_")]:
            state_dict[key.removeprefix("old_")] = state_dict.pop(key)


def trainable(model: nn.Module) -> dict:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def stepped(model: nn.Module, parameters: list) -> torch.optim.Adam:
    """Return an optimizer after one step with the gradients of these parameters."""
    optimizer = torch.optim.Adam(parameters, lr=0.1)
    optimizer.step()
    return optimizer


@pytest.fixture
def models():
    return Model(OLD), Model(NEW)


def test_the_names_of_a_checkpoint_tell_its_order(models):
    old, new = models
    names = list(trainable(new))
    assert [names[number] for number in saved_order(old.state_dict(), new)] == list(trainable(old))
    assert saved_order(new.state_dict(), new) == list(range(len(names)))
    renamed = {f"old_{name}": tensor for name, tensor in old.state_dict().items()}
    assert saved_order(renamed, new) == saved_order(old.state_dict(), new)


def test_a_state_by_parameter_follows(models):
    old, new = models
    extra = nn.Parameter(torch.zeros(3))  # a parameter of the criterion
    parameters = [*trainable(old).values(), extra]
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, number + 1)
    state = stepped(old, parameters).state_dict()
    reorder(state, saved_order(old.state_dict(), new), new)
    other = torch.optim.Adam([*trainable(new).values(), nn.Parameter(torch.zeros(3))])
    other.load_state_dict(state)
    expected = {name: parameter.grad for name, parameter in trainable(old).items()}
    for name, parameter in trainable(new).items():
        torch.testing.assert_close(other.state[parameter]["exp_avg"], 0.1 * expected[name], msg=name)
    torch.testing.assert_close(state["state"][len(parameters) - 1]["exp_avg"], torch.full((3,), 0.1 * len(parameters)))


@pytest.mark.parametrize("rest", [0, 3], ids=["", "criterion"])
def test_a_state_of_one_tensor_follows(models, rest):
    """With --fp16, the optimizer has one tensor that contains all parameters."""
    old, new = models
    numbers = {name: number for number, name in enumerate(trainable(old))}

    def flat(model: nn.Module) -> torch.Tensor:
        return torch.cat([torch.full((p.numel(),), numbers[name] + 1.0) for name, p in trainable(model).items()])

    parameter = nn.Parameter(torch.zeros(flat(old).numel() + rest))
    parameter.grad = torch.cat([flat(old), torch.full((rest,), 99.0)])
    state = stepped(old, [parameter]).state_dict()
    reorder(state, saved_order(old.state_dict(), new), new)
    torch.testing.assert_close(state["state"][0]["exp_avg"], 0.1 * torch.cat([flat(new), torch.full((rest,), 99.0)]))
    assert state["state"][0]["step"] == 1


def test_the_present_order_stays(models):
    new = models[1]
    state = {"state": {"any": "state"}, "param_groups": []}
    expected = copy.deepcopy(state)
    reorder(state, saved_order(new.state_dict(), new), new)
    assert state == expected


def test_another_state_is_refused_with_the_option_to_give(models):
    old, new = models
    optimizer = torch.optim.Adam([{"params": [parameter]} for parameter in trainable(old).values()])
    with pytest.raises(SystemExit, match="Add --reset-optimizer") as stop:
        reorder(optimizer.state_dict(), saved_order(old.state_dict(), new), new)
    assert "\n" not in stop.value.code
