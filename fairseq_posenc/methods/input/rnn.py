"""A recurrent network in place of a position encoding."""

from dataclasses import dataclass

from torch import Tensor, nn

from ...contract import AttentionContext, MethodCard, Options, PositionError, PositionMethod, option


class RecurrentFrontEnd(PositionMethod):
    """One GRU layer over the embeddings, whose states replace them.

    Equation: x_t = GRU(sqrt(d) E[u_t], x_(t-1)); Neishi and Yoshinaga (2019), section 3.
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Neishi and Yoshinaga (2019); nem6ishi/conll19_relative_transformer; torch's GRU cell.
    Deviations: dropout follows the GRU instead of preceding it, as all embeddings in fairseq; embeddings keep sqrt(d), for
        fairseq draws them with variance 1/d. RR-Transformer is the composition rnn+shaw.
    Cost: 6 d^2 + 6 d parameters a stack; sequential in T.
    """

    @dataclass(frozen=True)
    class Options(Options):
        bidirectional: bool = option(False, "encoder only: a second GRU from the right, and a linear layer from 2d to d")

    card = MethodCard(
        name="rnn",
        title="RNN-Transformer",
        citation="""@inproceedings{neishi-yoshinaga-2019-relation,
  title = {On the Relation between Position Information and Sentence Length in Neural Machine Translation},
  author = {Neishi, Masato and Yoshinaga, Naoki},
  booktitle = {CoNLL}, year = {2019}}""",
        equation="x_t = GRU(sqrt(d) E[u_t], x_(t-1))",
        survey="4.1.2",
        reference="relative",
        injection="other",
        learnable=True,
        recurring=False,
        beyond="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="6 d^2 + 6 d (bidirectional: 14 d^2 + 13 d)",
        count=lambda options, dims, site: (
            14 * dims.embed_dim**2 + 13 * dims.embed_dim if options.bidirectional else 6 * dims.embed_dim**2 + 6 * dims.embed_dim
        ),
        survey_parameters="6 d^2 + 3 d",
        deviations=(
            "dropout follows the GRU; embeddings keep their factor sqrt(d)",
            "torch's GRU has two bias vectors where the survey counts one",
        ),
    )

    def __init__(self, options, dims, site):
        super().__init__(options, dims, site)
        if options.bidirectional and site != "encoder":
            raise PositionError("rnn: bidirectional=true reads words that the decoder does not know yet; use it in the encoder")
        width = dims.embed_dim
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=options.bidirectional)
        self.merge = nn.Linear(2 * width, width) if options.bidirectional else None

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        if self.merge is not None:
            return self.merge(self._both_ways(x, ctx))
        hidden = None if ctx.state is None else ctx.state.get("rnn")
        out, last = self.gru(x, None if hidden is None else hidden.transpose(0, 1).contiguous())
        if ctx.state is not None:
            ctx.state.keep("rnn", last.transpose(0, 1))  # [1, B, C] -> [B, 1, C]
        return out

    def _both_ways(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        """The backward GRU must start at each sentence's own end, not in its padding."""
        if ctx.key_padding is None:
            return self.gru(x)[0]
        lengths = (~ctx.key_padding).sum(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=x.size(1))[0]
