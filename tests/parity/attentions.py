"""Our attentions beside those of a peer: how both are built alike, run and compared."""

import torch

import fairseq_posenc as posenc

WIDTH, HEADS, BATCH, LENGTH = 32, 4, 2, 13
HEAD = WIDTH // HEADS


def build(spec: str, site: str = "encoder"):
    """Our attention in evaluation, with biases and tables of visible size."""
    attention = posenc.build_attention(spec, WIDTH, HEADS, site=site).eval()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return attention


def attend(attention, x, padding=None):
    """[B, T, C] -> output [B, T, C] and weights [B, T, T], mean over heads."""
    x = x.transpose(0, 1)
    out, weights = attention(x, x, x, key_padding_mask=padding)
    return out.transpose(0, 1), weights


def future() -> torch.Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


def hidden(site: str, padding: torch.Tensor) -> torch.Tensor:
    """Where nobody may look: [B, 1, T, T]."""
    return padding[:, None, None] | (future() if site == "decoder" else torch.zeros_like(future()))


def copy(theirs: torch.nn.Linear, ours: torch.nn.Linear, factor: float = 1.0) -> None:
    theirs.weight.data = ours.weight.data * factor
    if theirs.bias is not None:
        theirs.bias.data = ours.bias.data * factor
    else:
        ours.bias.data.zero_()


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert theirs.abs().max() > 1e-2  # or the comparison says nothing
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-6)


def matters(ours, x: torch.Tensor, without: str = "none") -> None:
    """Fails where the attention is nearly that of another spec: a wrong position would not show."""
    plain = build(without, ours.positions.site)
    plain.load_state_dict(ours.state_dict(), strict=False)
    assert (attend(ours, x)[1] - attend(plain, x)[1]).abs().max() > 0.05


def directed(ours, x: torch.Tensor) -> None:
    """Fails where distances of the other sign would hardly change how queries see what stands before them."""
    x, back = x.transpose(0, 1), torch.arange(LENGTH).flip(0)
    here, turned = (ours.scores(x, x, *ids).masked_fill(future(), -torch.inf).softmax(-1) for ids in ((), (back, back)))
    assert (here - turned).abs().max() > 0.05
