"""List the cases on which the checks run: every method, with default options and with changed options, at every site of its card.

A new method is included automatically.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable

from .. import registry
from ..core import Dims, HeadOptions, PositionError, PositionMethod
from ..core.hooks import OUTSIDE_ATTENTION
from ..data.side.examples import RELATIONS
from ..registry import spec as parsing

SMALL = Dims(embed_dim=16, num_heads=4, num_layers=2, max_positions=64, max_key_positions=64, vocab_size=20, relations=RELATIONS)


class NotApplicable(Exception):
    """Raised by a check that does not apply to a case. The message is the reason."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A spec at one site.

    `side` computes the side inputs of one source sentence. Only methods that are defined in tests need `side`. The side
    inputs of these methods have no side file.
    """

    spec: str
    site: str
    side: Callable | None = None

    def __str__(self) -> str:
        return f"{self.spec}@{self.site}"

    def __reduce__(self) -> tuple:  # other processes receive the case without `example`, whose class they may not have imported
        return Case, (self.spec, self.site, self.side)

    @functools.cached_property
    def name(self) -> str:
        return parsing.parse(self.spec).methods[0].name

    @property
    def card(self):
        return registry.card(self.name)

    @functools.cached_property
    def example(self) -> PositionMethod:
        """The method, to read its hooks and other facts. It is built once, so it must not be changed."""
        return self.method()

    def method(self, dims: Dims = SMALL) -> PositionMethod:
        return parsing.build(self.spec, dims.at(self.site), self.site)[0]


@functools.cache
def builds(spec: str, site: str) -> bool:
    try:
        parsing.build(spec, SMALL.at(site), site)
    except PositionError:
        return False
    return True


def only_positions(spec: str, site: str) -> bool:
    return builds(spec, site) and parsing.build(spec, SMALL.at(site), site)[0].hooks == {"positions"}


@functools.cache
def specs(name: str, site: str) -> list[str]:
    """Return the default spec, and one spec for each changed value of an option.

    If a changed value is not allowed alone, return every allowed spec that combines this value with one other changed value.
    The default spec is always included, so that tests fail if it cannot be built. With some
    changed values, `positions` is the only hook of the method. The specs with these values are left out. Such a spec has no
    effect alone, because it only changes the positions that other methods use. tests/contract/test_positions.py tests such
    specs together with other methods.
    """
    flips = [flip for flip in _flips(name) if not only_positions(f"{name}:{flip}", site)]
    alone = {flip: builds(f"{name}:{flip}", site) for flip in flips}
    pairs = [f"{name}:{flip},{other}" for flip in flips if not alone[flip] for other in flips]
    return [name, *(f"{name}:{flip}" for flip in flips if alone[flip]), *(pair for pair in pairs if builds(pair, site))]


def _flips(name: str) -> list[str]:
    """Return texts of the form `option=value`, in which the value is not the default value of the option.

    An option with choices has one text for each other choice. The value of a boolean option is the opposite of its default. The
    value of an integer option is the minimum of the option plus 2, or 2 without a minimum. If this is the default value, 1 is
    added. The value of `heads` is 0-1.
    Floating-point options, text options without choices, and `layers` are not included.
    """
    options = registry.declaration(name).options
    hints = typing.get_type_hints(options)
    found = []
    for field in dataclasses.fields(options):
        if issubclass(options, HeadOptions) and field.name == "heads":
            found.append("heads=0-1")
        elif field.name != "layers":
            found += [f"{field.name}={value}" for value in _others(hints[field.name], field)]
    return found


def _others(hint: typing.Any, field: dataclasses.Field) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return [str(choice) for choice in typing.get_args(hint) if choice != field.default]
    if hint is bool:
        return ["false" if field.default else "true"]
    if hint is int or int in typing.get_args(hint):  # small values, so that short sentences reach the ends of tables
        value = (field.metadata["minimum"] or 0) + 2
        return [str(value if value != field.default else value + 1)]
    return []


@functools.cache
def defaults() -> list[Case]:
    """Return the cases of all methods with default options, at every site of the card."""
    return [Case(name, site) for name in registry.names() for site in registry.card(name).all_sites]


@functools.cache
def all_cases() -> list[Case]:
    """Return the cases of all methods at all sites of their cards.

    For each method and site, the list contains one case per spec that `specs` returns.
    """
    return [Case(spec, case.site) for case in defaults() for spec in specs(case.name, case.site)]


@functools.cache
def hooks(case: Case) -> frozenset[str]:
    """Return the names of all hooks that the methods of the case have."""
    return frozenset().union(*(method.hooks for method in parsing.build(case.spec, SMALL.at(case.site), case.site)))


def standalone(case: Case) -> bool:
    """Return whether an attention module computes the method without the rest of the model.

    This is true if no hook of the method acts on hidden states outside the attention.
    """
    return not hooks(case) & OUTSIDE_ATTENTION
