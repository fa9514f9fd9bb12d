"""Position-infused attention (Press et al. 2021): sinusoids in the inputs of queries and keys, none in values."""

from fairseq_posenc.testing.reference import Oracle

from .oracle_sinusoidal import sinusoid


def infused(x, t, at):
    return x + sinusoid(t + at.padding_idx + 1, len(x), "halves", "fairseq")


ORACLES = [
    Oracle(
        "shortformer",
        query_input=infused,
        key_input=infused,
        cases=[({}, "encoder decoder cross")],
        real=True,
        atol=1e-6,
    )
]
