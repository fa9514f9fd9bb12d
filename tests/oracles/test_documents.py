"""Documents of several sentences. The other tests use only single sentences."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from fairseq_posenc.core import AttentionContext, Dims, ForwardStore, PositionError, Positions, State
from fairseq_posenc.ops import segments
from fairseq_posenc.registry import spec as parsing

from . import oracle_documents as documents
from . import oracle_segments
from .cases import HEADS, MAX_POSITIONS, WIDTH, assert_close, cases, place_of, randomise, spec_of
from .test_values import close

LAYERS = 3
SOURCE_WORDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<sep>": 5, "a": 6, "b": 7}
TARGET_WORDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "a": 5, "b": 6, "<sep>": 8}  # the indices differ from SOURCE_WORDS
#: source, and input of the decoder. The second target has more sentences than its source
PAIRS = [
    ("a b <sep> b <sep> a a </s>", "</s> a <sep> b a <sep> b"),
    ("a <sep> b </s>", "</s> <sep> <sep> b <sep> a"),
    ("<sep> <sep> b <sep> a <sep> <sep> <sep> <sep> b <sep> a </s>", "</s> a <sep> <sep> b <sep> <sep> <sep> a <sep> <sep>"),
    ("a b a </s>", "</s> b a"),
]
SOURCES, TARGETS = ([text.split() for text in side] for side in zip(*PAIRS))


def build(name, options, site, words=TARGET_WORDS, source_words=SOURCE_WORDS):
    torch.manual_seed(4)
    own = source_words if site == "encoder" else words
    dims = Dims(WIDTH, HEADS, LAYERS, MAX_POSITIONS, MAX_POSITIONS, SOURCE_WORDS["<pad>"], words=own, source_words=source_words)
    return randomise(parsing.build(spec_of(name, options), dims.at(site), site)[0])


def tokens_of(sentences, words):
    rows = [torch.tensor([words[word] for word in sentence]) for sentence in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=words["<pad>"])


def context(site, sources=SOURCES, targets=TARGETS):
    """Return the AttentionContext for all positions at once, as in teacher forcing."""
    source = tokens_of(sources, SOURCE_WORDS)
    if site == "encoder":
        at = Positions.counted(0, source.size(1))
        return AttentionContext(at, at, key_padding=source.eq(1), tokens=source, source=source)
    target = tokens_of(targets, TARGET_WORDS)
    at = Positions.counted(0, target.size(1))
    if site == "decoder":
        return AttentionContext(at, at, causal=True, tokens=target, source=source)
    keys = Positions.counted(0, source.size(1))
    return AttentionContext(at, keys, cross=True, key_padding=source.eq(1), tokens=source, query_tokens=target, source=source)


def steps(site):
    """Yield (context, target words of each beam, source words of each beam, column of the query) for every decoding step.

    There are two beams for each of two sources.
    """
    beams = [TARGETS[0], [TARGETS[0][0], *reversed(TARGETS[0][1:])], TARGETS[2][:7], TARGETS[2][:1] + TARGETS[2][2:8]]
    sources = [SOURCES[0], SOURCES[0], SOURCES[2], SOURCES[2]]
    for length in range(1, 8):
        whole = context(site, sources, [beam[:length] for beam in beams])
        at, state = Positions.counted(length - 1, 1), State({})
        if site == "cross":  # beams are queries
            at = Positions(at.ids.expand(-1, 2))
            every = {"key_padding": whole.key_padding[::2], "tokens": whole.tokens[::2], "source": whole.source[::2]}
            yield whole.replace(queries=at, state=state, **every), beams, sources, length - 1
        else:
            yield whole.replace(queries=at, state=state), beams, sources, length - 1


def sides(site):
    """Return the words of queries, keys and source for every row of `context`."""
    own = SOURCES if site == "encoder" else TARGETS
    return list(zip(own, SOURCES if site == "cross" else own, SOURCES))


OF_DOCUMENTS = (documents.SHIFT, documents.FUSED, documents.ROTATED, documents.BIASED, documents.GROUP)


# -- the arithmetic ------------------------------------------------------------------------------------------------------


def test_counts_of_the_specification():
    """The source of the example is a b <sep> c d <sep> e </s>. The decoder reads </s> x <sep> y <sep> z."""
    source, target = torch.tensor([[6, 7, 5, 6, 7, 5, 6, 2]]), torch.tensor([[2, 7, 5, 7, 5, 7]])
    assert segments.before(source, 5).tolist() == [[0, 0, 0, 1, 1, 1, 2, 2]]
    assert segments.opened(source, 5).tolist() == [[0, 0, 1, 1, 1, 2, 2, 2]]
    assert segments.inside(source, 5).tolist() == [[0, 1, 2, 0, 1, 2, 0, 1]]
    assert segments.before(target, 5).tolist() == [[0, 0, 0, 1, 1, 2]] and segments.opened(target, 5).tolist() == [
        [0, 0, 1, 1, 2, 2]
    ]
    assert segments.sentences(source, 5).tolist() == [3]


@pytest.mark.parametrize(
    "count, expected",
    [(segments.before, documents.before), (segments.opened, documents.opened), (segments.inside, documents.inside)],
)
def test_counts(count, expected):
    found = count(tokens_of(SOURCES, SOURCE_WORDS), SOURCE_WORDS["<sep>"])
    for row, words in zip(found, SOURCES):
        assert row[: len(words)].tolist() == [expected(words, i, "<sep>") for i in range(len(words))]


# -- hooks, compared with the oracles ------------------------------------------------------------------------------------


def embedded(method, x, ctx):
    ids = method.positions(ctx.keys.ids, ctx)
    at = ctx.queries if ids is ctx.keys.ids else Positions(ids[:, ids.size(1) - ctx.queries.ids.size(1) :])
    tokens = ctx.prefix[:, -at.ids.size(1) :]
    return method.embed(x, tokens, ctx.replace(queries=at)) if "embed" in method.hooks else x


def wanted(oracle, x, i, words, source, at):
    """Return the embedding of one word."""
    if oracle is documents.SHIFT:
        return documents.waves(x[None], [documents.shifted(words, i, source, at)], at)[0]
    if oracle is documents.FUSED:
        return documents.with_sentence(x, i, words, source, at)
    if oracle in (oracle_segments.AT_INPUT, oracle_segments.EVERY_LAYER):
        return oracle_segments.with_vector(x, i, words, source, at)
    return documents.placed(x, i, words, at)


WITH_EMBEDDINGS = (
    documents.SHIFT, documents.FUSED, documents.ROTATED, documents.BIASED, oracle_segments.AT_INPUT, oracle_segments.EVERY_LAYER,
)  # fmt: skip


@pytest.mark.parametrize(
    "oracle, options, site", [case for case in cases(lambda oracle: oracle in WITH_EMBEDDINGS) if case.values[2] != "cross"]
)
def test_embed(oracle, options, site):
    method, ctx = build(oracle.name, options, site), context(site)
    at = place_of(method, oracle, options, site, padding_idx=1)
    x = torch.randn(*ctx.tokens.shape, WIDTH, dtype=torch.double)
    expected = np.full(x.shape, np.nan)
    for row, (words, _, source) in enumerate(sides(site)):
        for i in range(len(words)):
            expected[row, i] = wanted(oracle, x[row, i].numpy(), i, words, source, at)
    assert_close(embedded(method, x, ctx), expected, oracle.atol)
    if site == "decoder":
        for ctx, beams, sources, i in steps(site):
            x = torch.randn(4, 1, WIDTH, dtype=torch.double)
            rows = [wanted(oracle, x[row, 0].numpy(), i, beams[row], sources[row], at) for row in range(4)]
            assert_close(embedded(method, x, ctx)[:, 0], np.array(rows), oracle.atol)


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle is oracle_segments.EVERY_LAYER))
def test_before_layer(oracle, options, site):
    method, ctx = build(oracle.name, options, site), context(site)
    x = torch.randn(*ctx.tokens.shape, WIDTH, dtype=torch.double)
    assert method.before_layer(x, ctx.replace(layer=0)) is x
    assert torch.equal(method.before_layer(x, ctx.replace(layer=2)), method.embed(x, ctx.tokens, ctx))


def matrix(entry, method, oracle, options, site, layer=0):
    """Return the values of `entry` for all heads, queries and keys, [B, H, T, S]. Places without a word are nan."""
    rows = sides(site)
    out = np.full((len(rows), HEADS, max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)), np.nan)
    for b, head in np.ndindex(out.shape[:2]):
        words, keys, source = rows[b]
        at = place_of(method, oracle, options, site, layer=layer, head=head)
        for t, s in itertools.product(range(len(words)), range(len(keys))):
            out[b, head, t, s] = entry(b, head, t, s, words, source, at)
    return out


def stepwise(entry, method, oracle, options, site, ctx, beams, sources, i, layer=0):
    """Return the values of `entry` for one decoding step: [rows, H, 1, S], or [sources, H, beams, S] in cross-attention."""
    found = np.full((len(ctx.tokens), HEADS, ctx.queries.ids.size(1), ctx.tokens.size(1)), np.nan)
    for beam, words in enumerate(beams):
        b, t = divmod(beam, 2) if site == "cross" else (beam, 0)
        for head, s in np.ndindex(HEADS, found.shape[3]):
            keys = sources[beam] if site == "cross" else words[: i + 1]
            if s < len(keys):
                at = place_of(method, oracle, options, site, layer=layer, head=head)
                found[b, head, t, s] = entry(b, head, i, s, words[: i + 1], sources[beam], at)
    return found


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle is oracle_segments.PER_HEAD))
def test_bias_of_segments(oracle, options, site):
    method = build(oracle.name, options, site).train()
    for layer in range(LAYERS):
        entry = lambda b, head, t, s, words, source, at: oracle_segments.bias(words, t, s, at)  # noqa: E731
        expected = matrix(entry, method, oracle, options, site, layer)
        assert_close(method.bias(context(site).replace(layer=layer)), expected, 1e-9)
    for ctx, beams, sources, i in steps(site) if site == "decoder" else ():
        assert_close(method.bias(ctx), stepwise(entry, method, oracle, options, site, ctx, beams, sources, i), 1e-9)


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle is documents.BIASED))
def test_bias_of_bipe(oracle, options, site):
    method = build(oracle.name, options, site)
    entry = lambda b, head, t, s, words, source, at: documents.apart(t, s, words, source, at)  # noqa: E731
    assert_close(method.bias(context(site)), matrix(entry, method, oracle, options, site), 1e-5)
    for ctx, beams, sources, i in steps(site) if site != "encoder" else ():
        assert_close(method.bias(ctx), stepwise(entry, method, oracle, options, site, ctx, beams, sources, i), 1e-5)


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle is documents.GROUP))
def test_mask_of_group(oracle, options, site):
    method = build(oracle.name, options, site)
    entry = lambda b, head, t, s, words, source, at: documents.visible(t, s, words, source, at)  # noqa: E731
    found = method.mask(context(site))
    assert found.dtype == torch.bool and found.size(1) == 1
    expected = matrix(entry, method, oracle, options, site)
    assert_close(found.expand(-1, HEADS, -1, -1), expected, 0)
    assert np.nansum(expected, -1)[~np.isnan(expected).all(-1)].all()  # every query can attend to at least one key
    for ctx, beams, sources, i in steps(site) if site != "encoder" else ():
        found = method.mask(ctx).expand(-1, HEADS, -1, -1)
        assert_close(found, stepwise(entry, method, oracle, options, site, ctx, beams, sources, i), 0)


def entry_of(q, k):
    def entry(b, head, t, s, words, source, at):
        return documents.turned(q[b, head, min(t, q.size(2) - 1)].numpy(), k[b, head, s].numpy(), t, s, words, source, at)

    return entry


@pytest.mark.parametrize("oracle, options, site", cases(lambda oracle: oracle is documents.ROTATED))
def test_rotation_of_bipe(oracle, options, site):
    method, ctx = build(oracle.name, options, site), context(site)
    q, k = (torch.randn(len(PAIRS), HEADS, at.ids.size(1), WIDTH // HEADS, dtype=torch.double) for at in (ctx.queries, ctx.keys))
    entry = entry_of(q, k)
    scores = method.rotate("query", q, ctx.queries, ctx) @ method.rotate("key", k, ctx.keys, ctx).mT / math.sqrt(q.size(-1))
    assert_close(scores, matrix(entry, method, oracle, options, site), 1e-5)
    for ctx, beams, sources, i in steps(site) if site == "cross" else ():  # in the decoder, a step rotates only one key
        rows, columns = len(ctx.tokens), ctx.queries.ids.size(1)
        q, k = (torch.randn(rows, HEADS, n, WIDTH // HEADS, dtype=torch.double) for n in (columns, ctx.tokens.size(1)))
        q, k = q[:, :, :1].expand(-1, -1, columns, -1), k  # all beams of a sentence have the same query vectors
        entry = entry_of(q, k)
        scores = method.rotate("query", q, ctx.queries, ctx) @ method.rotate("key", k, ctx.keys, ctx).mT / math.sqrt(q.size(-1))
        assert_close(scores, stepwise(entry, method, oracle, options, site, ctx, beams, sources, i), 1e-5)


def test_keys_are_rotated_alone_as_in_the_whole_sentence():
    method, ctx = build("bipe_rope", {}, "decoder"), context("decoder")
    k = torch.randn(len(PAIRS), HEADS, ctx.keys.ids.size(1), WIDTH // HEADS, dtype=torch.double)
    whole = method.rotate("key", k, ctx.keys, ctx)
    for column in range(k.size(2)):
        at = Positions.counted(column, 1)
        here = ctx.replace(
            queries=at,
            keys=Positions.counted(0, column + 1),
            tokens=ctx.tokens[:, : column + 1],
            state=State({}),
            store=ForwardStore(),
        )
        close(method.rotate("key", k[:, :, column, None], at, here), whole[:, :, column, None], 1e-12)


# -- exact values --------------------------------------------------------------------------------------------------------

EXAMPLE = ["a b <sep> a b <sep> a </s>".split()], ["</s> a <sep> a <sep> a".split()]


def positions_of(spec, site):
    method, ctx = build(*spec, site), context(site, *EXAMPLE)
    return method.positions(ctx.keys.ids, ctx)[0].tolist()


def test_segment_shift():
    assert positions_of(("segment_shift", {}), "encoder") == [0, 1, 2, 11, 12, 13, 22, 23]
    assert positions_of(("segment_shift", {}), "decoder") == [0, 1, 2, 11, 12, 21]
    assert positions_of(("segment_shift", {"mean": True}), "encoder") == [0, 1, 2, 6, 7, 8, 12, 13]
    assert positions_of(("segment_shift", {"mean": True}), "decoder") == [0, 1, 2, 6, 7, 11]
    method = build("segment_shift", {}, "encoder")
    dims = Dims(4, 1, 1, 12, 12, 1, words=SOURCE_WORDS)
    ctx, short = context("encoder", *EXAMPLE), parsing.build("segment_shift", dims, "encoder")[0].double()
    at = Positions(short.positions(ctx.keys.ids, ctx))
    found = short.embed(torch.zeros(1, 8, 4).double(), ctx.tokens, ctx.replace(queries=at))[0]
    close(found[3], [0.4201670368, 0.0012999996, 0.9074467815, 0.9999991550], 1e-7)
    close([found[1] @ found[2], found[2] @ found[3]], [1.5403023009, 0.0888693331], 1e-6)
    single = context("encoder", [SOURCES[3]])
    assert torch.equal(method.positions(single.keys.ids, single), single.keys.ids)
    assert method.reach(100) == 156 and build("segment_shift", {"mean": True}, "decoder").reach(12) == 32


def test_position_segment():
    """Position 0 uses row 2 of fairseq's sinusoids."""
    torch.manual_seed(1)
    dims = Dims(8, 2, 1, 12, 12, 1, words=SOURCE_WORDS)
    method = parsing.build("position_segment:width=4", dims, "encoder")[0].double()
    ctx = context("encoder", [["a"]])
    found = method.embed(torch.zeros(1, 1, 8).double(), ctx.tokens, ctx)[0, 0]
    one, two = [0.8414709848, 0.0001, 0.5403023059, 0.9999999950], [0.9092974268, 0.0002, -0.4161468365, 0.9999999800]
    close(found, [*two, *one], 1e-7)


def test_learned_vectors_of_zeros_change_nothing():
    for site in ("encoder", "decoder"):
        method, ctx = build("segments", {"place": "input"}, site), context(site)
        method.table.data.zero_()
        x = torch.randn(*ctx.tokens.shape, WIDTH, dtype=torch.double)
        assert torch.equal(method.embed(x, ctx.tokens, ctx), x)


def test_bipe_alibi():
    dims = Dims(16, 8, 1, 12, 12, 1, words=SOURCE_WORDS)
    method = parsing.build("bipe_alibi", dims, "encoder")[0]
    close(method.slopes.values, [48, 24, 12, 6, 3, 1.5, 0.75, 0.375])
    bias = method.bias(context("encoder", ["a a <sep> a <sep> a".split()])).double()
    weights = bias[0, :, -1].softmax(-1)
    close(weights[-1], [0.1245798103] * 3 + [0.1812625544] * 2 + [0.2637354604], 1e-7)
    close(weights[0], [0, 0, 0, 0, 0, 1], 1e-20)


def test_bipe_rope():
    dims = Dims(4, 1, 1, 12, 12, 1, words=SOURCE_WORDS)
    method, ctx = parsing.build("bipe_rope", dims, "encoder")[0].double(), context("encoder", ["<sep> <sep> a".split()])
    x = torch.tensor([1.0, 1, 0, 0]).double().expand(1, 1, 3, 4)
    rotated = method.rotate("query", x, ctx.queries, ctx)
    close((rotated @ rotated.mT)[0, 0, 0], [math.cos(n) + math.cos(n / 100) for n in range(3)], 1e-7)


def test_bipe_without_separators_is_learned():
    method, learned = (
        build("bipe_rope", {"longest": MAX_POSITIONS}, "encoder"),
        parsing.build("learned", Dims(WIDTH, HEADS, 1, MAX_POSITIONS), "encoder")[0],
    )
    learned.double().weight.data[learned.origin :] = method.weight.data
    ctx, x = context("encoder", [SOURCES[3]]), torch.randn(1, 4, WIDTH, dtype=torch.double)
    assert torch.equal(method.embed(x, ctx.tokens, ctx), learned.embed(x, ctx.tokens, ctx))
    q = torch.randn(1, HEADS, 4, WIDTH // HEADS, dtype=torch.double)
    close(method.rotate("query", q, ctx.queries, ctx), q, 1e-12)


def test_group():
    found = build("group", {}, "cross").mask(context("cross", *EXAMPLE))[0, 0]
    keys = [row.nonzero().flatten().tolist() for row in found]
    assert keys == [[0, 1, 2]] * 2 + [[3, 4, 5]] * 2 + [[6, 7]] * 2


# -- UnifPE --------------------------------------------------------------------------------------------------------------


def offsets(monkeypatch, positions, length, **options):
    """Return the positions of a sentence, with one row for every pair (block of the sentence, block after the gap).

    torch.rand is replaced, so that every pair is drawn once.
    """
    blocks = max(positions // length, 1)
    method = build("unifpe", {"range": positions, "plain": 0.0, **options}, "encoder").train()
    pairs = torch.tensor(list(itertools.product(range(blocks), repeat=2)))
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.ones(()) if shape == ((),) else (pairs + 0.5) / blocks)
    at = Positions.counted(0, length)
    tokens = torch.full((len(pairs), length), 6)
    found = method.positions(at.ids.expand(len(pairs), -1), AttentionContext(at, at, tokens=tokens))
    assert (found.diff() == 1).all()
    for row, (block, gap) in zip(found, pairs.tolist()):
        assert row[0] == documents.offset(length, positions, block, gap)
    return found


@pytest.mark.parametrize(
    "positions, length, expected",
    [
        (10, 3, {0: 2, 1: 1, 3: 1, 4: 2, 7: 3}),
        (16, 5, {0: 2, 1: 1, 5: 1, 6: 2, 11: 3}),
        (12, 3, {0: 4, 3: 4, 6: 4, 9: 4}),
        (10, 5, {0: 4}),
        (4, 5, {0: 1}),  # a sentence that is too long for the range
    ],
)
def test_unifpe_draws(monkeypatch, positions, length, expected):
    found = offsets(monkeypatch, positions, length)
    first, count = found[:, 0].unique(return_counts=True)
    assert dict(zip(first.tolist(), count.tolist())) == expected


def test_unifpe_uses_positions(monkeypatch):
    used = torch.bincount(offsets(monkeypatch, 10, 3).flatten(), minlength=10)
    assert used.tolist() == [2, 3, 3, 2, 3, 3, 2, 3, 3, 3]


def test_unifpe_in_training():
    method = build("unifpe", {"range": 100, "plain": 0.5}, "decoder").train()
    tokens, at = torch.full((4, 7), 5), Positions.counted(0, 7)
    torch.manual_seed(2)
    plain = [
        method.positions(at.ids.expand(4, -1), AttentionContext(at, at, tokens=tokens)).eq(at.ids).all().item()
        for _ in range(400)
    ]
    assert 150 < sum(plain) < 250
    assert method.eval().positions(at.ids, AttentionContext(at, at, tokens=tokens)) is at.ids


def test_unifpe_of_a_pair():
    """The decoder uses the offset of the encoder.

    If the target sentence does not fit at this offset, the decoder uses the last offset at which the sentence fits.
    """
    at, store = Positions.counted(0, 60), ForwardStore()
    tokens = torch.full((50, 60), 5)
    tokens[:, 6:] = 1
    ctx = AttentionContext(at, at, tokens=tokens, store=store)
    source, target = (build("unifpe", {"range": n, "plain": 0.0, "tie": True}, "decoder").train() for n in (100, 90))
    first = source.positions(at.ids.expand(50, -1), ctx)[:, 0]
    second = target.positions(at.ids.expand(50, -1), ctx)[:, 0]
    assert torch.equal(second, first.clamp(max=84)) and len(first.unique()) > 10 and first.max() > 84


# -- wrong input ---------------------------------------------------------------------------------------------------------

NAMES = ["segment_shift", "segments", "position_segment", "bipe_rope", "bipe_alibi", "group"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("site, side", [("encoder", "source"), ("decoder", "target")])
def test_a_separator_that_the_dictionary_lacks(name, site, side):
    with pytest.raises(PositionError) as error:
        build(name, {"separator": "<end>"}, site)
    assert (
        str(error.value) == f"{name}: the {side} dictionary has no token '<end>'. Expected a token of it. Give separator=TOKEN."
    )


@pytest.mark.parametrize("name", ["bipe_rope", "bipe_alibi", "group"])
def test_a_separator_that_one_dictionary_lacks(name):
    with pytest.raises(PositionError, match="the source dictionary has no token 'x'"):
        build(name, {"separator": "x"}, "cross", words={**TARGET_WORDS, "x": 9})
    with pytest.raises(PositionError, match="the target dictionary has no token 'x'"):
        build(name, {"separator": "x"}, "cross", source_words={**SOURCE_WORDS, "x": 9})


@pytest.mark.parametrize("name", NAMES)
def test_a_decoder_writes_no_end_inside_a_sentence(name):
    with pytest.raises(PositionError) as error:
        build(name, {"separator": "</s>"}, "decoder")
    assert str(error.value) == (
        f"{name}: separator '</s>' and the end of sentence are one token. The decoder never writes one inside a sentence. "
        "Give separator=TOKEN."
    )
    assert build(name, {"separator": "</s>"}, "encoder")


def test_the_end_of_a_source_begins_no_sentence():
    """With separator=</s>, the last token of a source is a separator."""
    tokens = torch.tensor([[5, 5, 2, 6, 6, 2], [5, 2, 6, 2, 7, 2]])
    at = Positions.counted(0, 6)
    ctx = AttentionContext(at, at, tokens=tokens, source=tokens)
    dims = Dims(4, 1, 1, words={"</s>": 2}).at("encoder")
    found = segments.labels(segments.Separator("segments", "</s>", dims), ctx, "end")
    assert found.tolist() == [[2, 2, 2, 1, 1, 1], [3, 3, 2, 2, 1, 1]]


@pytest.mark.parametrize(
    "name, options, says",
    [
        ("segment_shift", {"shift": 3, "mean": True}, "shift has no effect with mean=true"),
        ("segments", {"vectors": "onehot"}, "vectors has no effect with place=heads"),
        ("segments", {"count": "end"}, "count has no effect with place=heads"),
        ("segments", {"place": "input", "every_layer": True, "layers": "0"}, "every_layer means all layers"),
        ("segments", {"place": "input", "vectors": "onehot", "segments": 2}, "segments has no effect without vectors=learned"),
        ("segments", {"place": "input", "vectors": "sinusoidal", "segments": 3}, "segments has no effect without vectors=learn"),
        ("position_segment", {"width": 2}, "sinusoids of sentences have 2 channels"),
        ("position_segment", {"width": 7}, "sinusoids of sentences have 7 channels"),
        ("position_segment", {"width": WIDTH}, "leaves none of 16 channels for positions"),
        ("position_segment", {"segments": 3}, "segments has no effect without vectors=learned"),
        ("localness", {"width": 3}, "width has no effect on a predicted window"),
        ("localness", {"centre": "query", "window": "fixed", "share": "none"}, "share has no effect without parameters"),
        ("disan", {"temperature": 2.0}, "temperature has no effect without multi_dimensional=true"),
        ("log_length", {"form": "ssmax", "start": 0.4, "length": 100.0}, "length has no effect with start"),
        ("deberta", {"index": "paper", "terms": "c2p"}, "index has no effect with terms=c2p"),
        ("deberta_emd", {"index": "paper", "terms": "c2p"}, "index has no effect with terms=c2p"),
        ("at5", {"interpolate": False, "borders": "heads"}, "borders has no effect with interpolate=false"),
        ("rope_scaled", {"scaling": "yarn", "base": 1.0}, "base=1.0 cannot be combined with scaling=yarn"),
    ],
)
def test_options_that_contradict_each_other(name, options, says):
    with pytest.raises(PositionError, match=says) as error:
        build(name, options, "encoder")
    assert "\n" not in str(error.value) and "Expected" in str(error.value)


@pytest.mark.parametrize("name", ["segment_shift:vectors=none", "shape:vectors=none"])
@pytest.mark.parametrize("bilevel", ["bipe_rope", "bipe_alibi"])
def test_bilevel_positions_are_not_moved(name, bilevel):
    from fairseq_posenc.attention.site_positions import SitePositions

    dims = Dims(WIDTH, HEADS, 1, 12, 12)
    with pytest.raises(PositionError, match=f"{bilevel} counts positions from the tokens") as error:
        SitePositions(parsing.build(f"{name}+{bilevel}", dims, "encoder"), dims, "encoder")
    assert name.split(":")[0] in str(error.value)


def test_no_tokens_are_one_sentence():
    """An attention module outside a model receives no tokens. The methods then assume one sentence."""
    at = Positions.counted(0, 5)
    for name in NAMES:
        method, ctx = build(name, {}, "encoder"), AttentionContext(at, at)
        assert method.positions(at.ids, ctx) is at.ids
        if "bias" in method.hooks:
            assert method.bias(ctx) is None
        if "mask" in method.hooks:
            assert method.mask(ctx).all()
