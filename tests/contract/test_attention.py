"""Tests of build_attention for properties that the contract of methods does not contain."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

import fairseq_posenc as posenc
from fairseq_posenc.core import PositionError
from fairseq_posenc.testing.checks_attention import attention, inputs
from fairseq_posenc.testing.models import close
from tests.contract.cases import all_cases


@pytest.mark.parametrize("spec", ["shaw", "rope", "tupe_rel", "spe_sine:attention=linear,exact=false"])
def test_two_attentions_in_one_state(spec):
    """When fairseq's decoder reorders beams, it passes the same incremental state to every module."""
    layers = [posenc.build_attention(spec, 16, 4, site="decoder").double().eval() for _ in range(2)]
    torch.manual_seed(70)
    x = torch.randn(5, 3, 16, dtype=torch.float64)
    state: dict = {}
    for step in range(len(x)):
        for layer in layers:
            new, all_so_far = x[step : step + 1], x[: step + 1]
            close(layer(new, new, new, incremental_state=state)[0][0], layer(all_so_far, all_so_far, all_so_far)[0][-1], 1e-9)
        order = torch.tensor([2, 0, 0] if step % 2 else [1, 2, 0])
        for layer in layers:
            layer.reorder_incremental_state(state, order)
        x = x[:, order]


@pytest.mark.parametrize("spec", ["t5", "tupe_rel", "fire", "cable", "xl", "rope", "spe_sine:attention=linear,exact=false"])
@pytest.mark.parametrize("several", [(1, 3, 1, 1, 5, 1), (2, 1, 1, 4, 1, 1, 1)])
def test_one_word_and_several_at_a_time(spec, several):
    built = posenc.build_attention(spec, 16, 4, site="decoder").double().eval()
    torch.manual_seed(73)
    x = torch.randn(sum(several), 2, 16, dtype=torch.float64)
    expected, state, done = built(x, x, x)[0], {}, 0
    for words in several:
        new = x[done : done + words]
        close(built(new, new, new, incremental_state=state)[0], expected[done : done + words], 1e-9)
        done += words


@pytest.mark.parametrize("case", [case for case in all_cases() if "attend" in case.example.hooks], ids=str)
def test_a_mask_for_a_kernel_of_its_own_is_refused(case):
    built, (x, source) = attention(case), inputs(case)
    with pytest.raises(PositionError, match="attn_mask: not supported"):
        built(x, source, source, attn_mask=torch.zeros(len(x), len(source)))
    with pytest.raises(PositionError, match="there are no scores"):
        built.scores(x, source)
    assert built(x, source, source)[0].isfinite().all()


@pytest.mark.parametrize("case", [case for case in all_cases() if "rescale" in case.example.hooks], ids=str)
def test_the_product_is_computed_only_for_methods_that_read_it(case, monkeypatch):
    received, rescale = [], type(case.method()).rescale
    monkeypatch.setattr(type(case.method()), "rescale", lambda *given: received.append(given[1]) or rescale(*given))
    attention(case)(*[*inputs(case), inputs(case)[1]])
    assert [scores.numel() == 0 for scores in received] == [case.method().rescale_reads == "vectors"]


@pytest.mark.parametrize("spec", ["none", "t5", "disan", "shaw"])
def test_masks_of_both_kinds_agree(spec):
    """A boolean mask and a mask of minus infinities hide the same keys."""
    built = attention_of(spec)
    torch.manual_seed(71)
    x, hidden = torch.randn(6, 2, 16, dtype=torch.float64), torch.rand(6, 6) > 0.6
    numbers = torch.zeros(6, 6, dtype=torch.float64).masked_fill(hidden, float("-inf"))
    for asked in (False, True):
        found = [built(x, x, x, attn_mask=mask, need_weights=asked)[0] for mask in (hidden, numbers)]
        seen = ~hidden.all(-1)
        assert found[0][seen].isfinite().all()
        close(found[0][seen], found[1][seen], 1e-9)


def test_numbers_cannot_be_added_to_attention_weights():
    built, x = attention_of("stickbreaking"), torch.randn(6, 2, 16, dtype=torch.float64)
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(3)
    with pytest.raises(PositionError, match="attn_mask: contains finite numbers"):
        built(x, x, x, attn_mask=torch.zeros(6, 6).masked_fill(hidden, -1e4))
    numbers = torch.zeros(6, 6).masked_fill(hidden, float("-inf"))
    close(built(x, x, x, attn_mask=numbers)[0], built(x, x, x, attn_mask=hidden)[0], 1e-9)


#: methods whose convolution reads neighbours of a key
NEIGHBOURS = ["dape:kernel=3", "dape:base=none,kernel=5", "chang:depthwise=true", "chang:max_distance=2,depthwise=true"]


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "left padding"])
@pytest.mark.parametrize("spec", ["dape", "chang", *NEIGHBOURS])
def test_keys_that_a_given_mask_hides_have_no_effect(spec, padded):
    """With padding on the left, position ids differ between sentences (`Positions.start` is None).

    Methods then run other code.
    """
    built, hidden = attention_of(spec), torch.ones(8, 8, dtype=torch.bool).triu(1)
    torch.manual_seed(74)
    x, other = torch.randn(2, 8, 2, 16, dtype=torch.float64)
    other[:6] = x[:6]
    padding = torch.tensor([[True] * 2 + [False] * 6, [False] * 8]) if padded else None
    for asked in (False, True):
        given = {"attn_mask": hidden, "key_padding_mask": padding, "need_weights": asked}
        found = [built(x, keys, keys, **given)[0] for keys in (x, other)]
        close(found[1][:6], found[0][:6], 1e-12)
        assert (found[1][6:] - found[0][6:]).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize(
    "mask, changed, queries",
    [
        ("window:width=2", 0, slice(2, None)),
        ("window:width=2", 8, slice(7)),
        ("window:width=2,heads=0-3", 0, slice(2, None)),
        ("disan:directions=forward", 8, slice(None)),
    ],
)
@pytest.mark.parametrize("spec", NEIGHBOURS)
def test_keys_that_another_method_hides_have_no_effect(spec, mask, changed, queries, site):
    """A mask has one matrix for all heads, or one matrix per head.

    The test changes the key at index `changed`. The queries `queries` do not attend to this key.
    """
    torch.manual_seed(75)
    built = posenc.build_attention(f"{mask}+{spec}", 16, 4, site=site).double().eval()
    x = torch.randn(9, 2, 16, dtype=torch.float64)
    other = x.index_fill(0, torch.tensor([changed]), 1.0)
    found = [built(x, keys, keys, need_weights=False)[0] for keys in (x, other)]
    close(found[1][queries], found[0][queries], 1e-12)


def attention_of(spec: str):
    torch.manual_seed(72)
    return posenc.build_attention(spec, 16, 4).double().eval()


@pytest.mark.parametrize("name", posenc.names())
def test_given_sizes_survive_the_architecture(name):
    """A size on the command line is kept, also if it is zero."""
    given = {"dropout": 0.0, "encoder_layers": 5, "decoder_ffn_embed_dim": 7, "decoder_position": "none"}
    args = Namespace(**given)
    ARCH_CONFIG_REGISTRY[f"posenc_{name}_small"](args)
    assert {key: getattr(args, key) for key in given} == given
    assert args.encoder_embed_dim == 256 and args.encoder_position


@pytest.mark.parametrize("need_weights", [True, False])
def test_retained_dropout_acts_in_evaluation(need_weights):
    """fairseq applies --retain-dropout to every module."""
    attention = posenc.build_attention("t5", 16, 4, dropout=0.5).eval()
    x = torch.randn(5, 2, 16)
    out = [attention(x, x, x, need_weights=need_weights)[0] for _ in range(2)]
    assert out[0].equal(out[1])
    attention.make_generation_fast_(name="any", retain_dropout=True, retain_dropout_modules=["Encoder"])
    assert attention(x, x, x, need_weights=need_weights)[0].equal(out[0])
    attention.make_generation_fast_(name="any", retain_dropout=True)
    assert not attention(x, x, x, need_weights=need_weights)[0].equal(out[0])


@pytest.mark.parametrize("sizes", [(16, 0), (16, -2), (0, 4)], ids=str)
def test_sizes_that_no_attention_has(sizes):
    with pytest.raises(PositionError, match="Expected both to be at least 1"):
        posenc.build_attention("t5", *sizes)


@pytest.mark.parametrize("spec", ["sinusoidal", "learned", "universal", "rnn", "rr", "sinusoidal+shaw", "segments:place=input"])
def test_what_acts_outside_of_attention_is_refused(spec):
    """An attention module cannot change the embeddings or the input of a layer.

    If the module ignored this part of a method, it would compute another model without a message.
    """
    with pytest.raises(PositionError, match=r"acts (on the embeddings|before every layer)") as error:
        posenc.build_attention(spec, 16, 4)
    assert spec.split("+")[0].split(":")[0] in str(error.value) and "\n" not in str(error.value)


def test_modules_saved_by_earlier_versions_load():
    """In earlier versions, a module named its positions `placement` and its methods `parts`."""
    built = posenc.build_attention("shaw+alibi_learned", 16, 4)
    saved = {
        name.replace("positions.methods.", "placement.parts."): torch.randn_like(x) for name, x in built.state_dict().items()
    }
    assert any("placement.parts.1." in name for name in saved)
    built.load_state_dict(saved)
    for name, value in built.state_dict().items():
        assert torch.equal(value, saved[name.replace("positions.methods.", "placement.parts.")])


@pytest.mark.parametrize("case", [case for case in all_cases() if "attend" in case.example.hooks], ids=str)
def test_dropout_of_attention_reaches_a_kernel_of_its_own(case):
    """In training, a method's own kernel applies attention dropout. If the kernel computes no attention weights, it raises an
    error.

    In evaluation, dropout has no effect.
    """
    built = posenc.build_attention(case.spec, 16, 4, site=case.site, max_positions=32, dropout=0.5).double()
    (x, source), asked = inputs(case), {"need_weights": False}
    torch.manual_seed(81)
    try:
        found = [built.train()(x, source, source, **asked)[0] for _ in range(2)]
    except PositionError as error:
        assert "--attention-dropout 0" in str(error)
        return
    assert not torch.equal(*found), "two steps of training drop the same weights"
    torch.manual_seed(82)
    first = built.eval()(x, source, source, **asked)[0]
    close(built(x, source, source, **asked)[0], first, 0)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-9), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("site, shorter", [("encoder", 0), ("encoder", 100), ("decoder", 0)])
@pytest.mark.parametrize("spec", ["pope:start=uniform", "pope:fraction=0.5"])
def test_wide_queries_of_long_sentences_need_no_tensor_of_scores(spec, site, shorter, dtype, tolerance):
    """The queries of pope are wider than the values. Outputs and gradients are equal with and without need_weights."""
    torch.manual_seed(86)
    built, found = posenc.build_attention(spec, 16, 2, site=site, max_positions=520).to(dtype), []
    x = torch.randn(520, 2, 16, dtype=dtype)
    padding = torch.arange(520) < torch.tensor([[shorter], [0]])
    stored: dict[bool, list[int]] = {False: [], True: []}  # need_weights -> sizes of the tensors that the backward pass reads
    for need_weights, sizes in stored.items():
        built.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            out, _ = built(x, x, x, key_padding_mask=padding if shorter else None, need_weights=need_weights)
        out.square().sum().backward()
        real = out[~padding.T]  # outputs at padding are undefined
        found.append([real.detach(), *(p.grad / p.grad.abs().max() for p in built.parameters())])
    for one, other in zip(*found):
        close(one.double(), other.double(), tolerance)
    assert max(stored[False]) < 2 * 2 * 520 * 520 <= max(stored[True])
