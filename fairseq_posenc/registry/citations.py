"""Read the BibTeX entries of all methods from references.bib. This module does not import torch."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from ..common.files import read_text
from ..core import PositionError
from . import external

_LARGEST = 2**24  # maximum number of bytes of a file


@functools.cache
def entries() -> dict[str, str]:
    """Return a mapping from key to BibTeX entry.

    The entries are from this package, and from files with the name references.bib in the folders of methods outside this package.
    """
    found = _read(Path(__file__).with_name("references.bib"))
    for folder in {source.path.parent: None for source in external.sources()}:
        file = folder / "references.bib"
        found = {**_read(file), **found} if file.is_file() else found
    return found


def _read(file: Path) -> dict[str, str]:
    found = [entry.strip() for entry in re.split(r"^(?=@)", read_text(file, largest=_LARGEST), flags=re.MULTILINE)]
    keys = [re.match(r"@\w+\{([^,]+),", entry) for entry in found]
    return {key[1]: entry for key, entry in zip(keys, found) if key}


def fields(entry: str) -> dict[str, str]:
    """Return the fields of an entry, such as `title` and `year`, as a mapping from name to BibTeX text."""
    return dict(re.findall(r"(\w+) = \{(.*?)\}(?=,\s+\w+ = |,?\s*\}$)", entry, re.DOTALL))


def web_address(entry: str) -> str:
    """Return the web address of an entry: the address of its DOI, otherwise its URL, otherwise an empty string."""
    found = fields(entry)
    return f"https://doi.org/{found['doi']}" if "doi" in found else found.get("url", "")


def bibtex(keys: Iterable[str]) -> str:
    """Return the entries with these keys without duplicates. Raise PositionError for a key without an entry."""
    found, keys = entries(), list(dict.fromkeys(keys))
    for key in keys:
        if key not in found:
            raise PositionError(
                f"citation {key}: no entry in references.bib. Expected an entry for every key of citations= on a card. Add the "
                "entry to references.bib in the folder of the method."
            )
    return "\n\n".join(found[key] for key in keys)
