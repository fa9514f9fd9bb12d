"""Which specs the contract is tested on: every method at every site of its card, and with every option flipped.

A new file in fairseq_posenc/methods is tested by this enumeration alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing
from collections.abc import Iterator
from typing import Callable, Optional

from fairseq_posenc import registry
from fairseq_posenc.contract import Dims, PositionError, PositionMethod

SMALL = Dims(embed_dim=16, num_heads=4, num_layers=2, max_positions=64, max_key_positions=64, vocab_size=20)


@dataclasses.dataclass(frozen=True)
class Case:
    """A spec at one site; `side` makes the side information of a batch of source tokens, where a method reads any."""

    spec: str
    site: str
    side: Optional[Callable] = None

    def __str__(self) -> str:
        return f"{self.spec}@{self.site}"

    @property
    def name(self) -> str:
        return registry.parse(self.spec).parts[0].name

    @property
    def card(self):
        return registry.card(self.name)

    def method(self, dims: Dims = SMALL) -> PositionMethod:
        return registry.build(self.spec, dims, self.site)[0]


def builds(spec: str, site: str) -> bool:
    try:
        registry.build(spec, SMALL, site)
    except PositionError:
        return False
    return True


@functools.cache
def specs(name: str, site: str) -> list[str]:
    """The default, every option flipped alone, and in pairs where a flip is refused alone.

    The default is never left out: if it cannot be built, its tests fail.
    """
    flips = _flips(name)
    alone = {flip: builds(f"{name}:{flip}", site) for flip in flips}
    pairs = [f"{name}:{flip},{other}" for flip in flips if not alone[flip] for other in flips]
    return [name, *(f"{name}:{flip}" for flip in flips if alone[flip]), *(pair for pair in pairs if builds(pair, site))]


def _flips(name: str) -> list[str]:
    """option=value for every other choice, every other truth value, and every integer near its minimum."""
    cls = registry.method_class(name)
    hints = typing.get_type_hints(cls.Options)
    found = []
    for field in dataclasses.fields(cls.Options):
        if field.name != "layers":
            found += [f"{field.name}={value}" for value in _others(hints[field.name], field)]
    return found


def _others(hint: typing.Any, field: dataclasses.Field) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return [str(choice) for choice in typing.get_args(hint) if choice != field.default]
    if hint is bool:
        return ["false" if field.default else "true"]
    if hint is int or int in typing.get_args(hint):  # small tables: even a short sentence reaches their ends
        return [str((field.metadata["minimum"] or 0) + 2)]
    return []


def defaults() -> list[Case]:
    """Every method as it is, at every site of its card."""
    return [Case(name, site) for name in registry.names() for site in registry.card(name).all_sites]


def all_cases() -> list[Case]:
    """Every method with every option flipped, at every site of its card."""
    return [Case(spec, case.site) for case in defaults() for spec in specs(case.name, case.site)]


@contextlib.contextmanager
def registered(*classes: type) -> Iterator[None]:
    """Puts classes of these tests into the registry for a while, as if they stood in methods/."""
    table = registry._classes()
    names = [cls.card.name for cls in classes]
    assert not set(names) & set(table), names
    table.update(zip(names, classes))
    try:
        yield
    finally:
        for name in names:
            del table[name]
