"""Positions as the solution of a learned differential equation."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import (
    AttentionContext,
    Dims,
    MethodCard,
    MethodOptions,
    PositionError,
    PositionMethod,
    Positions,
    Projection,
    option,
)
from ...ops import devices
from ...ops.distances import require_integer
from ...ops.kernels.runge_kutta import RungeKutta
from ...ops.precision import at_least_float32
from ...ops.sinusoids import Frequencies, frequencies

#: number of positions in a block. Decoding extends the paths by whole blocks
_BLOCK = 32
#: inputs of attention. In every layer, each input has its own path (a solution of the differential equation)
_STREAMS = ("query", "key", "value")
#: solver -> ticks per step, and the Butcher tableau. A tick is a unit of time: the networks are called at the ticks 0, 1, 2 and
#: so on of a step. Each row of the tableau except the last contains the coefficients of one call: the factors of the derivatives
#: of earlier calls. The last row contains the factors of all derivatives in the result of the step. rk4 is the 3/8 rule, as in
#: torchdiffeq
_SOLVERS: dict[str, tuple[int, tuple[tuple[float, ...], ...]]] = {
    "euler": (1, ((), (1,))),
    "midpoint": (2, ((), (1 / 2,), (0, 1))),
    "rk4": (3, ((), (1 / 3,), (-1 / 3, 1), (1, -1, 1), (1 / 8, 3 / 8, 3 / 8, 1 / 8))),
}


class Floater(PositionMethod):
    r"""Compute the vectors of positions as the solution of a learned differential equation.

    Equation: $p(s) = p(0) + \int_0^s h(x, p(x)) dx$ and $p_t = p(t \Delta)$. Liu et al. (2020). In the authors' code, the network
        is $h(x, p) = W_2 [\operatorname{ReLU}(W_1 [p; x] + c_1); x] + c_2$. In layer $l$, $q_t = W_q (x_t + p_t^{(q,l)})$, $k_s =
        W_k (x_s + p_s^{(k,l)})$ and $v_s = W_v (x_s + p_s^{(v,l)})$. A solution $p$ of the equation is called a path. With
        `at=input`, one path is added to the embeddings instead.
    Shapes: project_input [B, T, C] -> [B, T, C]. embed [B, T, C] -> [B, T, C].
    Source: Liu, Yu, Dhillon and Hsieh (2020), section 3. Code: xuanqing94/FLOATER.
    Deviations:
        * Each layer has three paths, for queries, keys and values, as in section 3.3 of the paper and in the authors' code.
          Sections 3.2 and 4.1 have one path per layer, added to the input of the layer.
        * The time between two positions is 0.01, as in the authors' code. The paper has 0.1 (delta=0.1).
        * By default, paths are sinusoids before training. p(0) is 0 in the sine channels, and 1 in the cosine channels.
        * By default, h(x, p) is Omega p plus the output of the authors' network. The weights of the last layer of the network
          are zero before training.
        * Omega is the matrix for which exp(x Omega) p(0) contains the sinusoids of the position x / Delta.
        * The authors' code adds sinusoids to the embeddings. The paths of the authors' code start at random values, and replace
          the biases of the projections.
        * The closest spec to the authors' code is sinusoidal+floater:start=random.
        * Positions are added before the projections, so that the biases of the projections remain.
        * The solver uses a coordinate system that rotates with the sinusoids. Sinusoids are therefore exact for every step size.
        * One solver step per position is therefore sufficient. The authors' code takes five steps.
        * The paths receive a gradient in every update. The authors' code recomputes the paths every 400 forward passes.
        * The paths have any length. The paths of the authors' code end at position 255.
        * Cross-attention also has paths, as in the authors' code. The paper does not describe positions in cross-attention.
    Cost: 2 d^2 + 4 d parameters per network, and d per path, with three paths per layer. The solver takes T * substeps sequential
        steps, for any number of sentences. The time of these steps is a lower limit for the time of the method. With
        solver=rk4, each step calls the networks four times. With adjoint=true, the activations of these calls are not stored.
        The backward pass then integrates a second time, from later positions to earlier positions.
    Raises: PositionError if torchdiffeq is not installed. PositionError for at=input in cross-attention. PositionError for
        at=input with share=layers or share=none. PositionError for keys and queries of different widths. PositionError for
        non-integer positions. On a CPU, PositionError for a path that is not finite.
    """

    @dataclass(frozen=True)
    class Options(MethodOptions):
        at: Literal["layers", "input"] = option(
            "layers", "paths added to the inputs of queries, keys and values in every layer, or one path added to the embeddings"
        )
        share: Literal["all", "layers", "none"] = option(
            "all", "one network for all paths, one each for queries, keys and values across layers, or one per path"
        )
        start: Literal["sinusoidal", "random"] = option("sinusoidal", "initial paths: sinusoids, or random vectors and networks")
        delta: float = option(0.01, "time Delta between two positions", minimum=1e-6, maximum=1e3)
        solver: Literal["rk4", "midpoint", "euler"] = option("rk4", "fixed-step solver of torchdiffeq")
        substeps: int = option(1, "number of solver steps between two positions", minimum=1, maximum=1000)
        adjoint: bool = option(False, "gradients by the adjoint equation (less memory, as exact as the solver)")

    card = MethodCard(
        name="floater",
        title="FLOATER",
        citations=("liu-etal-2020-learning",),
        survey="4.1.1",
        reference="absolute",
        injection="APE",
        learnable=True,
        recurring=True,
        extrapolation="runs",
        evidence="paper",
        sites=("encoder", "decoder", "cross"),
        parameters=(
            "(1 if share == 'all' else 3 if share == 'layers' else 3 * L) * (2 * d**2 + 4 * d)"
            " + (d if at == 'input' else 3 * L * d)"
        ),
        survey_parameters="0 or more",
    )
    position_type = "integer"

    def __init__(self, options: Options, dims: Dims):
        super().__init__(options, dims)
        if options.at == "input" and dims.cross:
            raise PositionError("floater: at=input is not supported at site cross. Remove at=input.")
        if options.at == "input" and options.share != "all":
            raise PositionError(f"floater: share={options.share} has no effect with at=input. Remove share.")
        dims.require_equal_widths("floater")
        _torchdiffeq()
        width, paths = dims.embed_dim, 1 if options.at == "input" else len(_STREAMS) * dims.num_layers
        networks = {"all": 1, "layers": len(_STREAMS), "none": paths}[options.share]
        self.first = nn.Parameter(torch.empty(networks, paths // max(networks, 1), width))  # p(0) of every path
        self.flow_in = nn.Parameter(torch.empty(networks, width + 1, width))  # [p; x] -> hidden
        self.flow_in_bias = nn.Parameter(torch.zeros(networks, 1, width))
        self.flow_out = nn.Parameter(torch.zeros(networks, width + 1, width))  # [hidden; x] -> the velocity
        self.flow_out_bias = nn.Parameter(torch.zeros(networks, 1, width))
        for weight in self.flow_in:
            nn.init.xavier_normal_(weight)
        coefficients, lags = _tables(_SOLVERS[options.solver][1], 1 / options.substeps)
        self.register_buffer("coefficients", coefficients.view(torch.int64), persistent=False)  # so that .half() rounds nothing
        self.register_buffer("lags", lags, persistent=False)
        if options.start == "sinusoidal":
            half = width // 2
            with torch.no_grad():  # sines, cosines, and 0 for the last channel of an odd width
                self.first.zero_()[..., half : 2 * half] = 1.0
            turns = frequencies(half, width, "paper")
            self.turns_of_positions, self.turns_of_ticks = Frequencies(turns), Frequencies(turns / self.ticks)
        else:
            for weight in self.flow_out:
                nn.init.xavier_normal_(weight)
            for paths in self.first:
                nn.init.xavier_uniform_(paths)

    @property
    def ticks(self) -> int:
        """Return the number of ticks from one position to the next."""
        return _SOLVERS[self.options.solver][0] * self.options.substeps

    @property
    def hooks(self) -> frozenset[str]:
        return frozenset({"prepare", "embed" if self.options.at == "input" else "project_input"})

    def prepare(self, ctx: AttentionContext) -> list[list[Tensor]]:
        """Return three lists, for queries, keys and values. Each list contains one path per layer.

        A path [n, C] contains the vectors of the positions 0 to n - 1. n is larger than the last position.

        With at=input, return one list with one path.
        """
        path = self.path(max(ctx.queries.last, ctx.keys.last) + 1, ctx)  # [n, networks, paths of each, C]
        if devices.on_cpu(path) and not bool(path.isfinite().all()):
            raise PositionError(
                "floater: the solution of the differential equation is not finite. "
                "Train with a smaller --lr or --clip-norm, or use more substeps or a smaller delta."
            )
        streams = 1 if self.options.at == "input" else len(_STREAMS)
        return [list(layers.unbind(0)) for layers in path.flatten(1, 2).transpose(0, 1).unflatten(0, (streams, -1)).unbind(0)]

    def path(self, count: int, ctx: AttentionContext) -> Tensor:
        """Return the vectors of at least `count` positions: [n, networks, paths per network, C] for n positions.

        A path contains the vectors of all positions. It is a solution of the differential equation.

        Decoding stores the paths and extends them by whole blocks.
        """
        known = None if ctx.state is None else ctx.state.get("path")
        reached, wanted = 0 if known is None else len(known), count if ctx.state is None else -(-count // _BLOCK) * _BLOCK
        if known is not None and reached >= wanted:
            return known
        found = [at_least_float32(self.first).unsqueeze(0) if known is None else ctx.state.get("last")]
        if wanted > max(reached, 1):
            found.append(self.continued(found[0][0], max(reached, 1) - 1, wanted - 1))
        resting = torch.cat(found[0 if known is None else 1 :])  # [n - reached, networks, paths, C]
        path = self.turned(resting, torch.arange(reached, wanted, device=resting.device))
        path = path if known is None else torch.cat([known, path])
        if ctx.state is not None:
            ctx.state.store_shared("path", path)
            ctx.state.store_shared("last", resting[-1:])
        return path

    def continued(self, state: Tensor, here: int, last: int) -> Tensor:
        """Return the states at the positions `here` + 1 to `last`: [networks, paths, C] -> [last - here, networks, paths, C].

        A state contains all paths at one position. `state` is the state at the position `here`. With start=sinusoidal, states are
        in coordinates that rotate with the sinusoids (see `_Velocity`). `turned` converts them to vectors of positions.
        """
        if not (self.options.adjoint and torch.is_grad_enabled()):
            return self.stepped(state, here, last)
        velocity, library = _Velocity(self, state), _torchdiffeq()
        times = torch.arange(here, last + 1, dtype=torch.float64, device=state.device)
        parts = torch.arange(self.options.substeps, dtype=torch.float64, device=state.device) / self.options.substeps
        solve = partial(library.odeint_adjoint, adjoint_params=tuple(velocity.weights))

        def steps(velocity: nn.Module, state: Tensor, times: Tensor) -> Tensor:
            """Return the times at which solver steps begin, and the last time.

            Each interval between two neighbouring `times` is divided into `substeps` steps.
            """
            return torch.cat([(times[:-1, None] + times.diff()[:, None] * parts).flatten(), times[-1:]])

        return solve(velocity, state, times, method=self.options.solver, options={"grid_constructor": steps})[1:]

    def stepped(self, state: Tensor, here: int, last: int) -> Tensor:
        """Compute the same results as torchdiffeq's fixed-step solvers, without copying values from an accelerator to the CPU.

        `continued` describes the arguments and the result. Terms that depend only on the time are computed for all steps at
        once. These terms are the sinusoids, and the products of the time and the weights of the networks.
        """
        substeps, calls = self.options.substeps, len(self.lags) - 1
        ticks = torch.arange(here * substeps, last * substeps, device=state.device).unsqueeze(1) * (self.ticks // substeps)
        ticks = ticks + torch.arange(calls, device=state.device)  # times of the calls of all steps, [steps, calls]
        w_in, b_in, w_out, b_out = (
            at_least_float32(weight) for weight in (self.flow_in, self.flow_in_bias, self.flow_out, self.flow_out_bias)
        )
        delta = self.options.delta
        now = (ticks.to(state.dtype) * (delta / self.ticks))[..., None, None, None]
        found = RungeKutta.apply(
            torch.view_as_complex(_paired(state).unflatten(-1, (-1, 2))),
            _paired(w_in[:, :-1].mT).mT,
            b_in + now * w_in[:, -1:],
            _paired(w_out[:, :-1] * delta),
            _paired((b_out + now * w_out[:, -1:]) * delta),
            self.waves(ticks, state),
            self.coefficients.view(torch.float64).to(state.dtype).unsqueeze(-1) * self.waves(self.lags, state),
        )
        return _separate(torch.view_as_real(found[substeps - 1 :: substeps]), state.size(-1))

    def waves(self, ticks: Tensor, state: Tensor) -> Tensor:
        """Return e^(i x) for the angles x of the sinusoids at the given times, [...] -> [..., (C + 1) // 2].

        With start=random, the angles are 0. If the width C is odd, the last angle is 0.
        """
        if self.options.start == "random":
            return torch.ones(*ticks.shape, (state.size(-1) + 1) // 2, dtype=state.dtype.to_complex(), device=state.device)
        angles = F.pad(self.turns_of_ticks(ticks), (0, state.size(-1) % 2))
        return torch.complex(angles.cos().to(state.dtype), angles.sin().to(state.dtype))

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate states by the angles of the sinusoids: [n, networks, paths, C] for n positions -> same.

        Sine channels precede cosine channels. With start=random, return x unchanged.
        """
        if self.options.start == "random":
            return x
        angles, half = self.turns_of_positions(positions)[:, None, None], x.size(-1) // 2
        sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
        s, c = x[..., :half], x[..., half : 2 * half]
        return torch.cat([torch.addcmul(s * cos, c, sin), torch.addcmul(c * cos, s, sin, value=-1), x[..., 2 * half :]], -1)

    def added(self, x: Tensor, path: Tensor, at: Positions) -> Tensor:
        """Add the vectors of the positions to x: [B, T, C] -> [B, T, C]."""
        vectors = path[require_integer(at.ids)] if at.start is None else path[at.start : at.start + at.ids.size(1)]
        return x + vectors.to(x.dtype)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return self.added(x, ctx.prepared[self][0][0], ctx.queries)

    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self.added(x, ctx.prepared[self][_STREAMS.index(which)][ctx.layer], at)


def _tables(tableau: tuple[tuple[float, ...], ...], size: float) -> tuple[Tensor, Tensor]:
    """Return the constants of a step of the given size, as `RungeKutta` requires them: two tables [m + 1, m + 1] for m calls.

    The first table contains coefficients (float64). The second table contains differences of time in ticks: the state of a call
    is rotated by this difference after the derivative of an earlier call is added.
    """
    calls = len(tableau) - 1
    coefficients = torch.zeros(calls + 1, calls + 1, dtype=torch.float64)
    coefficients[0, :calls] = 1
    for number, row in enumerate(tableau):
        coefficients[1 : 1 + len(row), number] = torch.tensor(row, dtype=torch.float64) * size
    targets, sources = torch.arange(calls + 1), torch.arange(-1, calls).clamp(min=0)
    targets[calls] = 0  # the sum of a step is in the coordinates of the beginning of the step
    return coefficients, targets - sources.unsqueeze(1)


def _paired(x: Tensor) -> Tensor:
    """Put each sine channel behind its cosine channel: [..., C] -> [..., C], or [..., C + 1] with a zero if C is odd.

    Before, all sine channels precede all cosine channels.
    """
    half = x.size(-1) // 2
    pairs = torch.stack([x[..., half : 2 * half], x[..., :half]], -1).flatten(-2)
    return torch.cat([pairs, F.pad(x[..., -1:], (0, 1))], -1) if x.size(-1) % 2 else pairs


def _separate(pairs: Tensor, width: int) -> Tensor:
    """Undo `_paired`: [..., (C + 1) // 2, 2] -> [..., C]."""
    half = width // 2
    return torch.cat([pairs[..., :half, 1], pairs[..., :half, 0], pairs[..., half:, 0]], -1)


class _Velocity(nn.Module):
    """Compute the derivative of the states with respect to the position, in coordinates that rotate with the sinusoids.

    With start=sinusoidal, the state at position t is z = R(-t) p, where p is the vector of position t. The matrix R(t) rotates
    a vector by the angles of the sinusoids at position t. The state z is constant if the output of the network is zero.
    """

    def __init__(self, method: Floater, state: Tensor):
        super().__init__()
        own = (method.flow_in, method.flow_in_bias, method.flow_out, method.flow_out_bias)
        self.weights = [at_least_float32(weight) for weight in own]
        self.delta = method.options.delta
        width = method.dims.embed_dim
        turning = method.options.start == "sinusoidal"
        self.speeds = frequencies(width // 2, width, "paper", device=state.device) if turning else None

    def forward(self, t: Tensor, state: Tensor) -> Tensor:
        """Return the derivative of the state: [networks, paths, C] -> [networks, paths, C]."""
        w_in, b_in, w_out, b_out = self.weights
        now = t * self.delta
        p = self.turned(state, t)
        hidden = torch.relu(torch.baddbmm(b_in + now * w_in[:, -1:], p, w_in[:, :-1]))
        return self.turned(torch.baddbmm(b_out + now * w_out[:, -1:], hidden, w_out[:, :-1]), -t) * self.delta

    def turned(self, x: Tensor, t: Tensor) -> Tensor:
        """Rotate x by the angles of the sinusoids at position t: [..., C] -> [..., C].

        Sine channels precede cosine channels. With start=random, return x unchanged.
        """
        if self.speeds is None:
            return x
        angle = self.speeds * t
        sin, cos, half = angle.sin().to(x.dtype), angle.cos().to(x.dtype), self.speeds.size(0)
        s, c = x[..., :half], x[..., half : 2 * half]
        return torch.cat([s * cos + c * sin, c * cos - s * sin, x[..., 2 * half :]], -1)


def _torchdiffeq() -> Any:
    """Return the module torchdiffeq. If torchdiffeq is not installed, raise PositionError with the command that installs it."""
    try:
        return importlib.import_module("torchdiffeq")
    except ImportError:
        raise PositionError("floater: torchdiffeq is not installed. Install it with pip install torchdiffeq.") from None
