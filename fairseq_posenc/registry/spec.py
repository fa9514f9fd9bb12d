"""Grammar of specs: name:option=value,option=value+name. This module does not import torch."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from typing import Any

from ..common.messages import shorten
from ..common.option_types import read_number
from ..core import SITES, Dims, PositionError
from ..core.hooks import BEFORE_LAYERS
from .lookup import declaration, names, nearest

if typing.TYPE_CHECKING:
    from ..core import PositionMethod

#: maximum numbers: methods per spec, layers or heads, and parameters per method. Larger numbers are probably mistakes, and
#: raise an error
_MOST_METHODS, _MOST_LAYERS, _MOST_PARAMETERS = 16, 1000, 2**34
#: maximum number of problems that an error message lists
_MOST_PROBLEMS = 6


@dataclasses.dataclass(frozen=True)
class MethodSpec:
    """One method of a spec, and the values of all its options."""

    name: str
    options: Any

    def __str__(self) -> str:
        """Return the text of the method with the options that differ from their defaults."""
        changed = [field.name for field in dataclasses.fields(self.options) if getattr(self.options, field.name) != field.default]
        return self.name + (":" + self._texts(changed) if changed else "")

    @property
    def signature(self) -> str:
        """Return the text of the method with all options."""
        return self.name + ":" + self._texts([field.name for field in dataclasses.fields(self.options)])

    def _texts(self, names: list[str]) -> str:
        hints = _types(self.options.__class__)
        return ",".join(f"{name}={_text(getattr(self.options, name), hints[name])}" for name in names)


@dataclasses.dataclass(frozen=True)
class Spec:
    """The methods at one site, in the order of the spec."""

    methods: tuple[MethodSpec, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.methods))

    @property
    def signature(self) -> str:
        """Return the text of the spec with all options of all methods."""
        return "+".join(method.signature for method in self.methods)


def parse(text: str, site: str | None = None) -> Spec:
    """Parse `name:option=value,option=value+name`.

    If the text has problems, raise one PositionError. Its message lists at most `_MOST_PROBLEMS` problems.
    """
    problems: list[str] = []
    if site not in (None, *SITES):
        problems.append(f"site {site!r} is unknown. Expected one of {', '.join(SITES)}.")
    pieces, methods = text.split("+"), []
    if len(pieces) > _MOST_METHODS:
        raise PositionError(f"spec {shorten(text)!r}: {len(pieces)} methods. Expected at most {_MOST_METHODS} per site.")
    for piece in pieces:
        method_spec, wrong = _parse_method(piece, site if site in SITES else None)
        if method_spec is not None:
            methods.append(method_spec)
        problems += wrong
    if problems:
        more = f" {len(problems) - _MOST_PROBLEMS} more problems." if len(problems) > _MOST_PROBLEMS else ""
        raise PositionError(f"spec {shorten(text, 120)!r}: " + " ".join(problems[:_MOST_PROBLEMS]) + more)
    return Spec(tuple(methods))


def sites_of(row: str) -> dict[str, str]:
    """Return the spec of every site from a text.

    If the text is one spec, encoder and decoder have this spec. Otherwise, the text names the sites, for example
    `encoder=SPEC;cross=SPEC`. Other sites have the spec `none`. The specs are not parsed.

    Raise PositionError for a site that is unknown or given twice.
    """
    if not row.startswith(tuple(f"{site}=" for site in SITES)):
        return {"encoder": row, "decoder": row, "cross": "none"}
    found: dict[str, str] = {}
    for piece in row.split(";"):
        site, equals, spec = piece.partition("=")
        if site not in SITES or not (equals and spec) or site in found:
            form = f"encoder=SPEC;cross=SPEC, with each of the sites {', '.join(SITES)} at most once"
            raise PositionError(f"spec {shorten(row)!r}: cannot use {shorten(piece)!r}. Expected {form}.")
        found[site] = spec
    return {site: found.get(site, "none") for site in SITES}


def build(spec: str, dims: Dims, site: str) -> list[PositionMethod]:
    """Build the methods of a spec for a site. Raise PositionError if a method does not support the site or the sizes."""
    built = []
    for method_spec in parse(spec, site).methods:
        layers = method_spec.options.layers
        if layers is not None:
            missing = [layer for layer in layers if layer >= dims.num_layers]
            if missing:
                raise PositionError(f"{method_spec}: there is no layer {missing[0]}. Expected layers 0 to {dims.num_layers - 1}.")
        own = dims if layers is None else dataclasses.replace(dims, num_layers=len(layers))
        _require_memory(method_spec, own)
        cls = declaration(method_spec.name).load()
        method = cls(cls.Options(**vars(method_spec.options)), own)
        if layers is not None and method.hooks <= BEFORE_LAYERS:
            raise PositionError(
                f"{method_spec}: {method_spec.name} acts on the embeddings, so layers= has no effect. Remove layers=."
            )
        built.append(method)
    return built


def option_rows(name: str) -> list[tuple[str, str, str, str]]:
    """Return (option, allowed values, default, help text) for every option of a method."""
    options = declaration(name).options
    hints = _types(options)
    return [
        (field.name, _allowed(hints[field.name], field.metadata), _text(field.default, hints[field.name]), field.metadata["help"])
        for field in dataclasses.fields(options)
    ]


def complete(begun: str) -> list[str]:
    """Return the completions of an incomplete spec: names of methods, names of options, or values of an option."""
    before, plus, piece = begun.rpartition("+")
    name, colon, rest = piece.partition(":")
    if not colon:
        found = names()
    elif name in names():
        given, comma, item = rest.rpartition(",")
        option, equals, _ = item.partition("=")
        hints, known = _types(declaration(name).options), {other.partition("=")[0] for other in given.split(",")}
        items = [f"{option}={value}" for value in _choices(hints.get(option))] if equals else [f"{name}=" for name in hints]
        found = [f"{name}:{given}{comma}{item}" for item in items if item.partition("=")[0] not in known]
    else:
        found = []
    return [text for text in (f"{before}{plus}{text}" for text in found) if text.startswith(begun)]


def _choices(hint: Any) -> list[str]:
    """Return the values of a type as texts if the type has few values, such as bool or Literal. Otherwise return []."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return list(map(str, arguments))
    if hint is bool:
        return ["true", "false"]
    inner = [value for argument in arguments for value in _choices(argument)]
    return [_nothing(hint), *inner] if inner and type(None) in arguments else []


def _require_memory(method_spec: MethodSpec, dims: Dims) -> None:
    """Raise PositionError if a method would have too many parameters, before torch allocates them."""
    count = declaration(method_spec.name).card.count(method_spec.options, dims)
    if count > _MOST_PARAMETERS:
        raise PositionError(
            f"{method_spec}: {count:,} parameters need {4 * count / 2**30:,.0f} GiB in float32. "
            f"Expected at most {_MOST_PARAMETERS:,} parameters. Use smaller options, or shorter sentences with "
            "--max-source-positions and --max-target-positions."
        )


@functools.cache
def _types(options: type) -> dict[str, Any]:
    """Return the type of every option."""
    return typing.get_type_hints(options)


def _misplaced(name: str, site: str) -> str:
    alike = [other for other in names() if other.split("_")[0] == name.split("_")[0]]
    serving = [other for other in alike if site in declaration(other).card.all_sites]
    allowed = " or ".join(declaration(name).card.all_sites)
    hint = f"use {', '.join(serving)}" if serving else "choose another method. posenc list prints all methods"
    return f"{name}: not defined at site {site}. Expected site {allowed}. For site {site}, {hint}."


def _parse_method(text: str, site: str | None) -> tuple[MethodSpec | None, list[str]]:
    """Parse one method of a spec. Return (method, problems).

    `problems` is a list of all problems. `method` is None if the method cannot be built.
    """
    name, _, rest = text.strip().partition(":")
    try:
        found = declaration(name)
    except PositionError as error:
        return None, [str(error)]
    problems = [_misplaced(name, site)] if site is not None and site not in found.card.all_sites else []
    hints, fields = _types(found.options), {f.name: f for f in dataclasses.fields(found.options)}
    values: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = (piece.strip() for piece in item.partition("="))
        if key not in fields:
            listed = nearest(key, list(fields)) or f" Expected one of {', '.join(fields)}."
            problems.append(f"{name}: unknown option {key!r}.{listed} For all options, run posenc show {name}.")
        elif key in values:
            problems.append(f"{name}: option {key} is given twice. Expected it once. Remove one of the two.")
        else:
            try:
                values[key] = _value(value if equals else "", hints[key], fields[key].metadata)
            except (ValueError, KeyError):
                expected = _allowed(hints[key], fields[key].metadata)
                problems.append(f"{name}: {key}={value!r} is not allowed. Expected {expected}.")
    try:
        return MethodSpec(name, found.options(**values)), problems
    except PositionError as error:
        return None, [*problems, f"{name}: {error}"]


def _value(text: str, hint: Any, metadata: typing.Mapping[str, Any]) -> Any:
    """Parse the value of one option. Raise ValueError or KeyError for a value of a wrong type, or out of the option's range."""
    arguments = typing.get_args(hint)
    if type(None) in arguments:
        return None if text == _nothing(hint) else _value(text, next(a for a in arguments if a is not type(None)), metadata)
    if typing.get_origin(hint) is typing.Literal:
        return {str(choice): choice for choice in arguments}[text]
    if typing.get_origin(hint) is tuple:
        return _layers(text)
    if hint is bool:
        return {"true": True, "false": False}[text]
    if text == "":
        raise ValueError(text)
    value = read_number(text, hint) if hint in (int, float) else hint(text)
    if hint is float and not math.isfinite(value):
        raise ValueError(text)
    low, high = metadata.get("minimum"), metadata.get("maximum")
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise ValueError(text)
    return value


def _nothing(hint: Any) -> str:
    """Return the text for None in a spec: "all" for the options layers and heads, otherwise "none"."""
    return "all" if any(typing.get_origin(a) is tuple for a in typing.get_args(hint)) else "none"


def _layers(text: str) -> tuple[int, ...]:
    """Parse a list of layers or heads, such as 0, 0/2 or 0-3."""
    found: list[int] = []
    for piece in text.split("/"):
        first, dash, last = piece.partition("-")
        ends = [_value(end, int, {"minimum": 0, "maximum": _MOST_LAYERS - 1}) for end in ((first, last) if dash else (first,))]
        if ends[-1] < ends[0]:
            raise ValueError(text)
        found += range(ends[0], ends[-1] + 1)
    if len(set(found)) < len(found):
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
    return _nothing(hint) if value is None else str(value).replace("e+", "e")  # a plus sign would begin the next method
