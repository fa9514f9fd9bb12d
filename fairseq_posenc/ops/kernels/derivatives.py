"""Backward passes that have no second derivative."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ...core.errors import PositionError


def first_derivative_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the backward pass of an autograd function that is not differentiable: create_graph=True raises PositionError.

    torch's `once_differentiable` raises nothing where the incoming gradient is constant, and loses the terms of the inputs.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: torch.Tensor) -> Any:
        if torch.is_grad_enabled():
            raise PositionError(
                f"{type(ctx).__name__.removesuffix('Backward')}: second derivatives are not implemented. "
                "Expected a backward pass without create_graph=True. Leave create_graph out, or use another method"
            )
        return backward(ctx, *grads)

    return checked
