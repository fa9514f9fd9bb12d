"""A recurrent network instead of a position encoding."""

from dataclasses import dataclass

from torch import Tensor, nn

from ...core import AttentionContext, Dims, MethodCard, MethodOptions, PositionError, PositionMethod, option


class RecurrentFrontEnd(PositionMethod):
    r"""Replace the embeddings by the hidden states of one GRU layer.

    Equation: $x_t = \operatorname{GRU}(\sqrt{d} E[u_t], x_{t-1})$ with $E$ the token embeddings. With `bidirectional=true`,
        two GRUs read the sentence, one per direction. A linear layer from $2d$ to $d$ computes $x_t$ from the states of both
        GRUs. Neishi and Yoshinaga (2019), section 3.
    Shapes: embed [B, T, C] -> [B, T, C].
    Source: Neishi and Yoshinaga (2019). Code: nem6ishi/conll19_relative_transformer, and torch's GRU cell.
    Deviations:
        * Dropout is applied after the GRU, as fairseq applies it after embeddings. The authors apply it before the GRU.
        * Embeddings are multiplied by $\sqrt{d}$. Their initial variance is 1/d in fairseq, and 1 in the authors' code.
        * torch's GRU and the authors' GRU have two bias vectors. The survey counts one bias vector.
        * The authors' model has 6 encoder layers and 5 decoder layers. In this project, the user sets both numbers.
    Cost: 6 d^2 + 6 d parameters per stack, or 14 d^2 + 13 d with bidirectional=true. T sequential steps.
    Raises: PositionError for bidirectional=true in a causal decoder.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        bidirectional: bool = option(False, "second GRU from right to left (encoder only)")

    card = MethodCard(
        name="rnn",
        title="RNN-Transformer",
        citations=("neishi-yoshinaga-2019-relation",),
        survey="4.1.2",
        reference="relative",
        injection="other",
        learnable=True,
        recurring=False,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder"),
        parameters="14 * d**2 + 13 * d if bidirectional else 6 * d**2 + 6 * d",
        survey_parameters="6 d^2 + 3 d",
    )

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if options.bidirectional and dims.causal:
            raise PositionError("rnn: bidirectional=true is supported only at site encoder. Remove bidirectional.")
        width = dims.embed_dim
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=options.bidirectional)
        self.merge = nn.Linear(2 * width, width) if options.bidirectional else None

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        if self.merge is not None:
            return self.merge(self._both_ways(x, ctx))
        hidden = None if ctx.state is None else ctx.state.get("rnn")
        out, last = self.gru(x, None if hidden is None else hidden.transpose(0, 1).contiguous())  # [B, 1, C] -> [1, B, C]
        if ctx.state is not None:
            ctx.state.store_per_row("rnn", last.transpose(0, 1))  # [1, B, C] -> [B, 1, C]
        return out

    def _both_ways(self, x: Tensor, ctx: AttentionContext) -> Tensor:
        """Apply GRUs in both directions. The backward GRU starts at the end of each sentence, not in its padding."""
        if ctx.key_padding is None:
            return self.gru(x)[0]
        lengths = (~ctx.key_padding).sum(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=x.size(1))[0]
