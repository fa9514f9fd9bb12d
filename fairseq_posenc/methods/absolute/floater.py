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
from ...ops.precision import at_least_float32
from ...ops.sinusoids import Frequencies, frequencies

#: number of positions in a block. The solver computes one block at a time. Decoding computes only whole blocks
_BLOCK = 32
#: inputs of attention. In every layer, each input has its own path (a solution of the differential equation)
_STREAMS = ("query", "key", "value")
#: solver -> number of calls of the networks per step, and number of ticks per step. A tick is a unit of time: the time of every
#: call is a whole number of ticks
_CALLS = {"euler": (1, 1), "midpoint": (2, 2), "rk4": (4, 3)}


class Floater(PositionMethod):
    r"""Compute the vectors of positions as the solution of a learned differential equation.

    Equation: $p(s) = p(0) + \int_0^s h(x, p(x)) dx$ and $p_t = p(t \Delta)$. Liu et al. (2020). In the authors' code, the network
        is $h(x, p) = W_2 [\operatorname{ReLU}(W_1 [p; x] + c_1); x] + c_2$. In layer $l$, $q_t = W_q (x_t + p_t^{(q,l)})$, $k_s =
        W_k (x_s + p_s^{(k,l)})$ and $v_s = W_v (x_s + p_s^{(v,l)})$. A solution $p$ of the equation is called a path. With
        `at=input`, one path is added to the embeddings instead.
    Shapes: project_input [B, T, C] -> [B, T, C]. embed [B, T, C] -> [B, T, C].
    Source: Liu, Yu, Dhillon and Hsieh (2020), section 3. Code: xuanqing94/FLOATER.
    Deviations:
        * Each layer has three paths, for queries, keys and values, as in the authors' code.
        * Other authors describe the method with one path per layer, added to the input of the layer.
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
        self.first = nn.Parameter(torch.empty(networks, paths // networks, width))  # p(0) of every path
        self.flow_in = nn.Parameter(torch.empty(networks, width + 1, width))  # [p; x] -> hidden
        self.flow_in_bias = nn.Parameter(torch.zeros(networks, 1, width))
        self.flow_out = nn.Parameter(torch.zeros(networks, width + 1, width))  # [hidden; x] -> the velocity
        self.flow_out_bias = nn.Parameter(torch.zeros(networks, 1, width))
        for weight in self.flow_in:
            nn.init.xavier_normal_(weight)
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
        return _CALLS[self.options.solver][1] * self.options.substeps

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
        blocks = [at_least_float32(self.first).unsqueeze(0) if known is None else known]
        reached, wanted = blocks[0].size(0), count if ctx.state is None else -(-count // _BLOCK) * _BLOCK
        while reached < wanted:
            end = min(reached - reached % _BLOCK + _BLOCK, wanted)
            blocks.append(self.continued(blocks[-1][-1], reached - 1, end - 1))
            reached = end
        path = torch.cat(blocks)
        return path if ctx.state is None else ctx.state.store_shared("path", path)

    def continued(self, state: Tensor, here: int, last: int) -> Tensor:
        """Return the states at the positions `here` + 1 to `last`: [networks, paths, C] -> [last - here, networks, paths, C].

        A state contains the vectors of all paths at one position. `state` is the state at the position `here`.
        """
        if not (self.options.adjoint and torch.is_grad_enabled()):
            return _Flow(self, here, last, state).states(state)
        velocity, library = _Velocity(self, state), _torchdiffeq()
        times = torch.arange(here, last + 1, dtype=torch.float64, device=state.device)
        parts = torch.arange(self.options.substeps, dtype=torch.float64, device=state.device) / self.options.substeps
        solve = partial(library.odeint_adjoint, adjoint_params=tuple(velocity.weights))

        def steps(velocity: nn.Module, state: Tensor, times: Tensor) -> Tensor:
            """Return the times at which solver steps begin, and the last time.

            Each interval between two neighbouring `times` is divided into `substeps` steps.
            """
            return torch.cat([(times[:-1, None] + times.diff()[:, None] * parts).flatten(), times[-1:]])

        resting = velocity.turned(state, -times[0])
        solved = solve(velocity, resting, times, method=self.options.solver, options={"grid_constructor": steps})
        return velocity.turned(solved[1:], times[1:, None, None, None])

    def added(self, x: Tensor, path: Tensor, at: Positions) -> Tensor:
        """Add the vectors of the positions to x: [B, T, C] -> [B, T, C]."""
        vectors = path[require_integer(at.ids)] if at.start is None else path[at.start : at.start + at.ids.size(1)]
        return x + vectors.to(x.dtype)

    def embed(self, x: Tensor, tokens: Tensor, ctx: AttentionContext) -> Tensor:
        return self.added(x, ctx.prepared[self][0][0], ctx.queries)

    def project_input(self, which: Projection, x: Tensor, at: Positions, ctx: AttentionContext) -> Tensor:
        return self.added(x, ctx.prepared[self][_STREAMS.index(which)][ctx.layer], at)


class _Flow:
    """Compute the same results as torchdiffeq's fixed-step solvers, without copying values from an accelerator to the CPU.

    Terms that depend only on the time are computed for all steps at once. These terms are the sinusoids, and the products of
    the time and the weights of the networks.

    With start=sinusoidal, the solver computes in a coordinate system that rotates with the sinusoids, as in `_Velocity`. The
    function `states` reads and returns states in the fixed coordinate system.
    """

    def __init__(self, method: Floater, here: int, last: int, state: Tensor):
        self.method, self.substeps, self.size = method, method.options.substeps, 1.0 / method.options.substeps
        self.here, self.last, (calls, ticks) = here, last, _CALLS[method.options.solver]
        steps = torch.arange(here * self.substeps, last * self.substeps, device=state.device)
        times = (steps.unsqueeze(1) * ticks + torch.arange(calls, device=state.device)).flatten()  # times of all calls, in ticks
        w_in, b_in, w_out, b_out = (
            at_least_float32(weight) for weight in (method.flow_in, method.flow_in_bias, method.flow_out, method.flow_out_bias)
        )
        delta = method.options.delta
        now = (times.to(state.dtype) * (delta / method.ticks)).view(-1, 1, 1, 1)
        self.w_in, self.w_out = w_in[:, :-1], w_out[:, :-1] * delta
        self.b_in = (b_in + now * w_in[:, -1:]).unbind(0)
        self.b_out = ((b_out + now * w_out[:, -1:]) * delta).unbind(0)
        self.turns = method.options.start == "sinusoidal"
        waves = self._tables(method.turns_of_ticks(times), state) if self.turns else ()
        self.waves = list(zip(*(table.unbind(0) for table in waves)))  # per call

    def states(self, state: Tensor) -> Tensor:
        """Compute the states at the positions `here` + 1 to `last` from the state at position `here`.

        Shapes: [networks, paths, C] -> [last - here, networks, paths, C].
        """
        tables = None
        if self.turns:
            ends = torch.arange(self.here, self.last + 1, device=state.device)
            tables = self._tables(self.method.turns_of_positions(ends), state)  # cosines, sines, negative sines
        z, found = state if tables is None else _turned(state, tables[0][0], tables[2][0]), []
        step = {"euler": self._euler, "midpoint": self._midpoint, "rk4": self._rk4}[self.method.options.solver]
        for number in range((self.last - self.here) * self.substeps):
            z = z + step(z, number) * self.size
            if (number + 1) % self.substeps == 0:
                found.append(z)
        solved = torch.stack(found)
        return solved if tables is None else _turned(solved, tables[0][1:], tables[1][1:])

    def _euler(self, z: Tensor, number: int) -> Tensor:
        return self._velocity(z, number)

    def _midpoint(self, z: Tensor, number: int) -> Tensor:
        first = self._velocity(z, 2 * number)
        return self._velocity(z.add(first, alpha=self.size / 2), 2 * number + 1)

    def _rk4(self, z: Tensor, number: int) -> Tensor:
        """Return the weighted mean of four derivatives by the 3/8 rule, as in torchdiffeq's rk4."""
        one = self._velocity(z, 4 * number)
        two = self._velocity(z.add(one, alpha=self.size / 3), 4 * number + 1)
        three = self._velocity(z.add(two.sub(one, alpha=1 / 3), alpha=self.size), 4 * number + 2)
        four = self._velocity(z.add(one - two + three, alpha=self.size), 4 * number + 3)
        return (one + four).add(two + three, alpha=3.0) / 8

    def _velocity(self, z: Tensor, call: int) -> Tensor:
        waves = self.waves[call] if self.turns else None  # cosines, sines, negative sines
        p = z if waves is None else _turned(z, waves[0], waves[1])
        hidden = torch.relu(torch.baddbmm(self.b_in[call], p, self.w_in))
        change = torch.baddbmm(self.b_out[call], hidden, self.w_out)
        return change if waves is None else _turned(change, waves[0], waves[2])

    @staticmethod
    def _tables(angle: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the cosines and sines of angles [n, C // 2] in the form that `_turned` requires: three tensors [n, 1, 1, C].

        The first tensor contains cosines. The second tensor contains sines in the first half of the channels, and negative sines
        in the second half. The third tensor is the second tensor times -1.
        """
        angle = angle[:, None, None]
        sin, cos, odd = angle.sin().to(state.dtype), angle.cos().to(state.dtype), state.size(-1) % 2
        cosines, sines = torch.cat([cos, cos], -1), torch.cat([sin, -sin], -1)
        if odd:
            cosines, sines = F.pad(cosines, (0, 1), value=1.0), F.pad(sines, (0, 1))
        return cosines, sines, -sines


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x by the angles of `cos` and `sin`: [..., C] -> [..., C]. Sine channels precede cosine channels.

    `cos` and `sin` are the first two results of `_Flow._tables`. With the third result of `_Flow._tables` as `sin`, the
    rotation has the opposite direction.
    """
    half = x.size(-1) // 2
    other = torch.cat([x[..., half : 2 * half], x[..., :half], x[..., 2 * half :]], -1)
    return torch.addcmul(x * cos, other, sin)


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
