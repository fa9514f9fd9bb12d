"""Select the models that are measured for the specs of a command line."""

from __future__ import annotations

from .. import registry
from ..core import PositionError
from ..registry.architectures import PREFIX
from ..registry.spec import parse
from .models import Variant


def variants(specs: list[str], site: str) -> list[Variant]:
    """Return the variants that are defined at the site. Raise PositionError for wrong specs before the measurement."""
    found, problems = [], []
    for spec in specs:
        try:
            if spec.startswith(PREFIX):
                found += [Variant.of(spec, site)] * (site == "model")
                continue
            name = parse(spec).methods[0].name
            if site != "model" and site not in registry.card(name).all_sites:
                continue
            if site != "model":
                parse(spec, site)
            found.append(Variant.of(spec, site))
        except PositionError as error:
            problems.append(str(error))
    if problems:
        raise PositionError(" ".join(problems))
    if not found:
        raise PositionError(f"--sites {site}: none of {', '.join(specs)} is defined at this site. Use other methods or sites.")
    return found
