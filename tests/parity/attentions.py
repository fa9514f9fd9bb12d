"""Build, run and compare attention modules of this project and of another library."""

import torch

import fairseq_posenc as posenc

WIDTH, HEADS, BATCH, LENGTH = 32, 4, 2, 13
HEAD = WIDTH // HEADS


def build(spec: str, site: str = "encoder"):
    """Return an attention module of this project in evaluation mode, with random parameters.

    The parameters are so large that biases and tables have a visible effect.
    """
    attention = posenc.build_attention(spec, WIDTH, HEADS, site=site).eval()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return attention


def attend(attention, x, padding=None):
    """Return the output [B, T, C] and the mean weights over heads [B, T, T] for the input [B, T, C]."""
    x = x.transpose(0, 1)
    out, weights = attention(x, x, x, key_padding_mask=padding)
    return out.transpose(0, 1), weights


def future() -> torch.Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


def hidden(site: str, padding: torch.Tensor) -> torch.Tensor:
    """Return a mask [B, 1, T, T] that is True where a query may not attend to a key: padding and, in a decoder, later keys."""
    return padding[:, None, None] | (future() if site == "decoder" else torch.zeros_like(future()))


def copy(theirs: torch.nn.Linear, ours: torch.nn.Linear, factor: float = 1.0) -> None:
    theirs.weight.data = ours.weight.data * factor
    if theirs.bias is not None:
        theirs.bias.data = ours.bias.data * factor
    else:
        ours.bias.data.zero_()


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert theirs.abs().max() > 1e-2  # a comparison of numbers near 0 would prove nothing
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-6)


def matters(ours, x: torch.Tensor, without: str = "none") -> None:
    """Fail if the attention weights nearly equal the weights that the spec `without` gives.

    With nearly equal weights, a comparison with the other library would not detect errors in the positions.
    """
    plain = build(without, ours.positions.site)
    plain.load_state_dict(ours.state_dict(), strict=False)
    assert (attend(ours, x)[1] - attend(plain, x)[1]).abs().max() > 0.05


def directed(ours, x: torch.Tensor) -> None:
    """Fail if the attention weights stay nearly equal when the sign of every distance changes.

    Each query attends to itself and to earlier keys.
    """
    x, back = x.transpose(0, 1), torch.arange(LENGTH).flip(0)
    here, turned = (ours.scores(x, x, *ids).masked_fill(future(), -torch.inf).softmax(-1) for ids in ((), (back, back)))
    assert (here - turned).abs().max() > 0.05
