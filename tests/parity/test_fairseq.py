"""Compare with stock fairseq: `transformer` with sinusoidal positions, learned positions or no positions.

This project can load checkpoints of stock fairseq. Logits, loss, gradients, alignments and every decoding step are then equal.
The attention module of fairseq's speech models is also compared.
"""

import copy
import functools
from types import SimpleNamespace

import pytest
import torch
from fairseq import options
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules import FairseqDropout
from fairseq.modules.espnet_multihead_attention import RelPositionMultiHeadedAttention
from fairseq.modules.positional_encoding import RelPositionalEncoding
from fairseq.tasks.translation import TranslationTask

import fairseq_posenc.host.plugin  # noqa: F401  registers the architectures
from fairseq_posenc.attention.multihead import Attention

from . import attentions

STOCK = {
    "sinusoidal": [],
    "learned": ["--encoder-learned-pos", "--decoder-learned-pos"],
    "none": ["--no-token-positional-embeddings"],
}
SIZES = (
    "--encoder-layers 2 --decoder-layers 3 --encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 24 "
    "--decoder-ffn-embed-dim 24 --encoder-attention-heads 2 --decoder-attention-heads 4 --dropout 0 "
    "--max-source-positions 30 --max-target-positions 31"
)
SHAPES = {
    "after": "",
    "before": "--encoder-normalize-before --decoder-normalize-before --share-all-embeddings --layernorm-embedding",
    "mixed": "--encoder-normalize-before --no-decoder-final-norm --decoder-normalize-before --no-scale-embedding "
    "--share-decoder-input-output-embed --activation-fn gelu",
    "widths": "--encoder-embed-dim 24 --encoder-attention-heads 3",
}


def dictionary() -> Dictionary:
    words = Dictionary()
    for letter in "abcdefghijk":
        words.add_symbol(letter)
    words.finalize()
    return words


WORDS = dictionary()


@functools.cache
def parse(arch: str, *flags: str):
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, ["nowhere", "--arch", arch, *SIZES.split(), *flags])


@functools.cache
def task_options():
    """Return the default options of the task. The flags of this file are options of the model."""
    return convert_namespace_to_omegaconf(parse("transformer")).task


def build(arch: str, *flags: str):
    """Build a model as fairseq-train does."""
    args, task = copy.deepcopy(parse(arch, *flags)), TranslationTask(task_options(), WORDS, WORDS)
    torch.manual_seed(0)
    return task.build_model(args), task


def enlarge(model) -> None:
    """Add noise to all parameters.

    Biases are initially zero. Without the noise, a wrong use of a bias would have no effect.
    """
    torch.manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)


def batch(seed: int = 0) -> dict:
    """Return a batch of four sentence pairs. Sources are padded on the left, as in fairseq's batches.

    Sources have 3 to 20 tokens, and targets have 1 to 17 tokens.
    """
    random = torch.Generator().manual_seed(seed)

    def sentences(lengths) -> list:
        words = [torch.randint(4, len(WORDS), (n - 1,), generator=random) for n in lengths]
        return [torch.cat([sentence, torch.tensor([WORDS.eos()])]) for sentence in words]

    sources, targets = sentences([20, 3, 11, 12]), sentences([4, 17, 9, 1])

    def collate(values, **how):
        return data_utils.collate_tokens(values, WORDS.pad(), WORDS.eos(), **how)

    return {
        "net_input": {
            "src_tokens": collate(sources, left_pad=True),
            "src_lengths": torch.tensor([len(source) for source in sources]),
            "prev_output_tokens": collate(targets, left_pad=False, move_eos_to_beginning=True),
        },
        "target": collate(targets, left_pad=False),
        "ntokens": sum(map(len, targets)),
    }


def pair(method: str, shape: str = "after"):
    """Return stock fairseq's model, and this project's model with the same weights."""
    stock, task = build("transformer", *STOCK[method], *SHAPES[shape].split())
    specs = [f"--{site}-position={method}" for site in ("encoder", "decoder")]
    ours, _ = build("posenc_transformer", *specs, *SHAPES[shape].split())
    enlarge(stock)
    ours.load_state_dict(stock.state_dict())
    return SimpleNamespace(stock=stock, ours=ours, task=task)


def close(ours: torch.Tensor, stock: torch.Tensor) -> None:
    torch.testing.assert_close(ours, stock, rtol=1e-4, atol=1e-5)


def stock_name(name: str) -> str:
    return name.replace("position.methods.0.weight", "embed_positions.weight")


def logits_agree(models) -> None:
    sample = batch()
    real = sample["target"].ne(WORDS.pad())
    for training in (False, True):
        (found, extra), (expected, stock_extra) = (
            model.train(training)(**sample["net_input"]) for model in (models.ours, models.stock)
        )
        assert expected.std() > 0.1
        close(found[real], expected[real])
        if not training:
            close(extra["attn"][0][real], stock_extra["attn"][0][real])


def gradients_agree(models) -> None:
    sample = batch()
    losses, gradients = [], []
    for model in (models.ours, models.stock):
        loss, _, _ = LabelSmoothedCrossEntropyCriterion(models.task, False, 0.1)(model.train(), sample)
        loss.backward()
        losses.append(loss.detach())
        gradients.append({stock_name(name): p.grad for name, p in model.named_parameters()})
    close(losses[0], losses[1])
    assert gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], expected, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def decoding_agrees(models) -> None:
    """Compare every decoding step of both models, for two sources with two beams each.

    The beams are reordered after steps 3 and 8. The later steps of each model must also equal a forward pass with teacher
    forcing.
    """
    net_input, found = batch()["net_input"], []
    beams = torch.tensor([0, 0, 2, 2])
    swaps = {3: torch.tensor([1, 0, 2, 2]), 8: torch.tensor([0, 0, 3, 2])}
    for model in (models.ours.eval(), models.stock.eval()):
        source = model.encoder(net_input["src_tokens"][beams], net_input["src_lengths"][beams])
        tokens, state, steps, real = net_input["prev_output_tokens"], {}, [], []
        for step in range(1, tokens.size(1) + 1):
            steps.append(model.decoder(tokens[:, :step], source, incremental_state=state)[0][:, -1])
            real.append(tokens[:, step - 1].ne(WORDS.pad()))
            if step in swaps:
                tokens = tokens.index_select(0, swaps[step])
                source = model.encoder.reorder_encoder_out(source, swaps[step])
                model.decoder.reorder_incremental_state_scripting(state, swaps[step])
        steps, real = torch.stack(steps, 1), torch.stack(real, 1)
        forced = model.decoder(tokens, source)[0]
        after = real & (torch.arange(tokens.size(1)) >= max(swaps))
        assert after.sum() > 15
        close(steps[after], forced[after])
        found.append(steps[real])
    close(*found)


def agree(models) -> None:
    logits_agree(models)
    decoding_agrees(models)
    gradients_agree(models)


SHAPED = pytest.mark.parametrize("shape", SHAPES)


@SHAPED
def test_sinusoidal_equals_stock(shape):
    agree(pair("sinusoidal", shape))


@SHAPED
def test_learned_equals_stock(shape):
    agree(pair("learned", shape))


@SHAPED
def test_none_equals_stock(shape):
    agree(pair("none", shape))


def test_sinusoidal_beyond_the_table():
    """The sentences are longer than the table of sinusoids. Both models compute the sinusoids of the other positions."""
    models = pair("sinusoidal")
    source = torch.full((1, 60), 5)
    for model in (models.ours, models.stock):
        model.eval()
    tokens = torch.full((1, 50), 6)
    close(*(model(source, torch.tensor([60]), tokens)[0] for model in (models.ours, models.stock)))


def test_learned_and_sinusoidal_stacks_mix():
    stock, _ = build("transformer", "--encoder-learned-pos")
    ours, _ = build("posenc_transformer", "--encoder-position=learned")
    enlarge(stock)
    ours.load_state_dict(stock.state_dict())
    logits_agree(SimpleNamespace(stock=stock, ours=ours))


def test_sinusoidal_gradients_with_shared_memory():
    """--checkpoint-activations computes layers again in the backward pass. The gradients do not change."""
    stock, task = build("transformer")
    ours, _ = build("posenc_sinusoidal", "--checkpoint-activations")
    enlarge(stock)
    ours.load_state_dict(stock.state_dict())
    gradients_agree(SimpleNamespace(stock=stock, ours=ours, task=task))


def test_initial_weights_come_from_the_same_distributions():
    """Compare the standard deviation of every parameter. Parameters with constant values must be equal.

    A wrong initialisation would otherwise be visible only in long training runs.
    """
    wide = "--encoder-embed-dim 128 --decoder-embed-dim 128 --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256".split()
    stock, ours = (dict(build(arch, *wide)[0].named_parameters()) for arch in ("transformer", "posenc_sinusoidal"))
    assert ours.keys() == stock.keys()
    for name, expected in stock.items():
        if name.endswith("bias") and expected.std() > 0:  # a bias has few numbers, so its standard deviation varies more
            assert 0.7 < ours[name].std() / expected.std() < 1.4, name
        elif expected.std() > 0:
            assert 0.93 < ours[name].std() / expected.std() < 1.07, name
        else:
            assert torch.equal(ours[name], expected), name


@pytest.mark.parametrize(
    "method, stock_flags, ours",
    [
        ("sinusoidal", [], ["--encoder-position=learned", "--decoder-position=learned"]),
        ("learned", STOCK["learned"], ["--encoder-position=sinusoidal", "--decoder-position=sinusoidal"]),
        ("learned", STOCK["learned"], ["--encoder-position=none", "--decoder-position=none"]),
        ("sinusoidal", [], ["--cross-position=t5"]),
        ("sinusoidal", [], ["--encoder-position=sinusoidal+shaw"]),
    ],
)
def test_stock_checkpoints_of_other_positions_are_refused(method, stock_flags, ours):
    stock, _ = build("transformer", *stock_flags)
    model, _ = build("posenc_transformer", *ours)
    with pytest.raises(SystemExit) as stop:
        model.load_state_dict(stock.state_dict())
    message = str(stop.value)
    assert method in message and "\n" not in message


@pytest.mark.parametrize("key, value", [("_float_tensor", torch.ones(1)), ("weights", torch.ones(32, 16))])
def test_older_checkpoints_bring_a_trace_of_the_sinusoidal_table(key, value):
    """Checkpoints of early fairseq releases contain the table. Checkpoints of later releases contain `_float_tensor`, a buffer.

    Both kinds of checkpoints can be loaded.
    """
    stock, _ = build("transformer")
    ours, _ = build("posenc_transformer")
    given = {**stock.state_dict(), **{f"{side}.embed_positions.{key}": value for side in ("encoder", "decoder")}}
    ours.load_state_dict(given)
    assert torch.equal(ours.encoder.embed_tokens.weight, stock.encoder.embed_tokens.weight)


def test_xl_attention_of_conformers(x, padding):
    """The sinusoids of ESPnet's Conformer alternate sines and cosines."""
    ours = attentions.build("xl:share=none")
    theirs = RelPositionMultiHeadedAttention(attentions.WIDTH, attentions.HEADS, dropout=0.0).eval()
    for name, projection in zip(("q", "k", "v", "out"), (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj)):
        attentions.copy(getattr(theirs, f"linear_{name}"), projection)
    method = ours.position
    theirs.linear_pos.weight.data = torch.stack(method.projection[0].data.chunk(2, 1), -1).flatten(1)
    theirs.pos_bias_u.data, theirs.pos_bias_v.data = method.content_bias[0].data, method.position_bias[0].data
    attentions.directed(ours, x)

    tokens = x.transpose(0, 1)
    waves = RelPositionalEncoding(attentions.LENGTH + 5, attentions.WIDTH)(tokens)
    out, _ = theirs(tokens, tokens, tokens, waves, key_padding_mask=padding)
    found, mean = attentions.attend(ours, x, padding)
    attentions.same(found, out.transpose(0, 1))
    attentions.same(mean, theirs.attn.mean(1))


def test_dropout_has_the_names_of_fairseq():
    """With --retain-dropout-modules, fairseq selects modules by these names."""
    models = pair("sinusoidal")
    found, expected = (
        {module.module_name for module in model.modules() if isinstance(module, FairseqDropout)}
        for model in (models.ours, models.stock)
    )
    attention = next(module for module in models.ours.modules() if isinstance(module, Attention))
    assert found | {attention.fairseq_name} == expected
