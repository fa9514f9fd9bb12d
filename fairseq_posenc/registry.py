"""Finds the methods by scanning methods/, reads specs and builds what they describe (torch only)."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import math
import pkgutil
import typing
from typing import Any

from . import methods
from .contract import SITES, Dims, MethodCard, Options, PositionError, PositionMethod


@functools.cache
def _classes() -> dict[str, type]:
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(methods.__path__, methods.__name__ + "."):
        members = vars(importlib.import_module(module.name)).values()
        here = (item for item in members if isinstance(item, type) and item.__module__ == module.name)
        for cls in here:
            if issubclass(cls, PositionMethod) and "card" in vars(cls):
                if cls.card.name in found:
                    raise RuntimeError(f"two methods are named {cls.card.name}")
                found[cls.card.name] = cls
    return dict(sorted(found.items()))


def names() -> list[str]:
    """The names of all methods."""
    return list(_classes())


def nearest(given: str, allowed: list[str]) -> str:
    """'; did you mean X?' for the nearest name, or nothing where none is near."""
    match = difflib.get_close_matches(given, allowed, 1, 0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def method_class(name: str) -> type:
    """The class of a method; raises PositionError with the nearest name."""
    if name not in _classes():
        raise PositionError(f"position method {name!r} is unknown{nearest(name, names())} ({len(names())} methods: posenc list)")
    return _classes()[name]


def card(name: str) -> MethodCard:
    """The card of a method."""
    return method_class(name).card


@dataclasses.dataclass(frozen=True)
class Part:
    """One method of a spec with all its options."""

    name: str
    options: Any

    def __str__(self) -> str:
        """The method and every option that differs from its default."""
        changed = [field.name for field in dataclasses.fields(self.options) if getattr(self.options, field.name) != field.default]
        return self.name + (":" + self._texts(changed) if changed else "")

    @property
    def signature(self) -> str:
        """The method and all its options."""
        return self.name + ":" + self._texts([field.name for field in dataclasses.fields(self.options)])

    def _texts(self, names: list[str]) -> str:
        hints = typing.get_type_hints(type(self.options))
        return ",".join(f"{name}={_text(getattr(self.options, name), hints[name])}" for name in names)


@dataclasses.dataclass(frozen=True)
class Spec:
    """What stands at one site: methods applied in this order."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.parts))

    @property
    def signature(self) -> str:
        return "+".join(part.signature for part in self.parts)


def parse(text: str, site: str | None = None) -> Spec:
    """Reads `name:option=value,option=value+name`; raises one PositionError that lists all problems."""
    problems: list[str] = []
    if site not in (None, *SITES):
        problems.append(f"site {site!r} is unknown; sites are {', '.join(SITES)}")
    parts = []
    for piece in text.split("+"):
        part, wrong = _parse_part(piece, site if site in SITES else None)
        parts.append(part)
        problems += wrong
    if problems:
        raise PositionError(f"spec {text!r}: " + "; ".join(problems))
    return Spec(tuple(parts))


def build(spec: str, dims: Dims, site: str) -> list[PositionMethod]:
    """The methods of a spec, built for a stack; raises PositionError where one cannot serve it."""
    parts = []
    for part in parse(spec, site).parts:
        layers = part.options.layers
        if layers is not None:
            missing = [layer for layer in layers if layer >= dims.num_layers]
            if missing:
                raise PositionError(f"{part}: layer {missing[0]} does not exist; layers are 0 to {dims.num_layers - 1}")
        own = dims if layers is None else dataclasses.replace(dims, num_layers=len(layers))
        method = method_class(part.name)(part.options, own, site)
        if layers is not None and not method.hooks - {"positions", "embed"}:
            raise PositionError(f"{part}: {part.name} enters with the embeddings, so layers= means nothing; leave it out")
        parts.append(method)
    return parts


def option_rows(name: str) -> list[tuple[str, str, str, str]]:
    """(option, allowed values, default, help) of every option of a method."""
    cls = method_class(name)
    hints = typing.get_type_hints(cls.Options)
    return [
        (field.name, _allowed(hints[field.name], field.metadata), _text(field.default, hints[field.name]), field.metadata["help"])
        for field in dataclasses.fields(cls.Options)
    ]


def _misplaced(name: str, site: str) -> str:
    serving = [other for other in names() if site in card(other).all_sites and other.split("_")[0] == name.split("_")[0]]
    hint = f"; at {site} there is {', '.join(serving)}" if serving else ""
    return f"{name} is not defined at {site}, only at {', '.join(card(name).all_sites)}{hint}"


def _parse_part(text: str, site: str | None) -> tuple[Part | None, list[str]]:
    """One method of a spec, or all that is wrong with it."""
    name, _, rest = text.strip().partition(":")
    try:
        cls = method_class(name)
    except PositionError as error:
        return None, [str(error)]
    problems = [_misplaced(name, site)] if site is not None and site not in cls.card.all_sites else []
    hints, fields = typing.get_type_hints(cls.Options), {f.name: f for f in dataclasses.fields(cls.Options)}
    values: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = (piece.strip() for piece in item.partition("="))
        if key not in fields:
            listed = nearest(key, list(fields)) or f"; options are {', '.join(fields)}"
            problems.append(f"{name} has no option {key!r}{listed} (posenc show {name})")
        elif key in values:
            problems.append(f"{name}: {key} is given twice")
        else:
            try:
                values[key] = _value(value if equals else "", hints[key], fields[key].metadata)
            except ValueError:
                problems.append(f"{name}: {key}={value!r} is not allowed; {key} is {_allowed(hints[key], fields[key].metadata)}")
    try:
        return Part(name, cls.Options(**values)), problems
    except PositionError as error:
        return None, [*problems, f"{name}: {error}"]


def _value(text: str, hint: Any, metadata: typing.Mapping[str, Any]) -> Any:
    """Reads one value; raises ValueError where the type or the range does not allow it."""
    arguments = typing.get_args(hint)
    if type(None) in arguments:
        return None if text == _nothing(hint) else _value(text, next(a for a in arguments if a is not type(None)), metadata)
    if typing.get_origin(hint) is typing.Literal:
        matches = [choice for choice in arguments if str(choice) == text]
        if not matches:
            raise ValueError(text)
        return matches[0]
    if typing.get_origin(hint) is tuple:
        return _layers(text)
    if hint is bool:
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    value = hint(text)
    if value == "":
        raise ValueError(text)
    if hint is float and not math.isfinite(value):
        raise ValueError(text)
    low, high = metadata.get("minimum"), metadata.get("maximum")
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise ValueError(text)
    return value


def _nothing(hint: Any) -> str:
    """What stands for None: no limit, or all layers."""
    return "all" if any(typing.get_origin(a) is tuple for a in typing.get_args(hint)) else "none"


def _layers(text: str) -> tuple[int, ...]:
    """Reads 0, 0/2 or 0-3."""
    found: list[int] = []
    for piece in text.split("/"):
        first, dash, last = piece.partition("-")
        found += range(int(first), int(last) + 1) if dash else [int(first)]
    if not found or len(set(found)) < len(found):
        raise ValueError(text)
    return tuple(sorted(found))


def _allowed(hint: Any, metadata: typing.Mapping[str, Any]) -> str:
    arguments = typing.get_args(hint)
    if type(None) in arguments:
        return f"{_nothing(hint)} or " + _allowed(next(a for a in arguments if a is not type(None)), metadata)
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if typing.get_origin(hint) is tuple:
        return "numbers such as 0, 0/2 or 0-3"
    if hint is bool:
        return "true or false"
    low, high = metadata.get("minimum"), metadata.get("maximum")
    bounds = {(True, True): f" from {low} to {high}", (True, False): f" of at least {low}", (False, True): f" of at most {high}"}
    kind = {int: "an integer", float: "a number"}.get(hint, "text")
    return kind + bounds.get((low is not None, high is not None), "")


def _text(value: Any, hint: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return _nothing(hint) if value is None else str(value).replace("e+", "e")  # a plus would part methods


__all__ = ["Options", "Part", "Spec", "build", "card", "method_class", "names", "nearest", "option_rows", "parse"]
