"""Raise an error for second derivatives of autograd functions that have only a first derivative."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ...core.errors import PositionError


def first_derivative_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark the backward pass of an autograd function. The backward pass then raises PositionError with create_graph=True.

    The decorator `once_differentiable` of PyTorch is not used, because it raises no error if the incoming gradient does not
    require a gradient. The second derivative would then lack terms.
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
