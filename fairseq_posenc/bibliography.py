"""The BibTeX entries of all methods, in references.bib (no torch)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path


@functools.cache
def entries() -> dict[str, str]:
    """Every entry by its key."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    found = re.split(r"\n\n(?=@)", text.strip())
    return {re.match(r"@\w+\{([^,]+),", entry)[1]: entry for entry in found}


def bibtex(keys: Iterable[str]) -> str:
    """The entries of these keys, each once."""
    return "\n\n".join(entries()[key] for key in dict.fromkeys(keys))
