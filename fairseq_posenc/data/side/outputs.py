"""Process sentences in several processes, and write all output files only if all sentences have been processed."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ...common.files import unwritable
from ...core import PositionError

S = TypeVar("S")
T = TypeVar("T")

#: number of sentences per task of a worker process
CHUNK = 2000


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield lists of at most CHUNK items."""
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def in_order(work: Callable[[S], T], items: Iterable[S], workers: int) -> Iterator[T]:
    """Yield work(item) for every item, in the order of the items, from several processes. Few items are read in advance."""
    if workers == 1:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(workers) as pool:
        waiting: collections.deque = collections.deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Outputs:
    """A context in which files are written to temporary paths.

    At the end of the context, all files are renamed to their final paths. After an error, all files are removed instead.
    """

    def __init__(self) -> None:
        self._partial: dict[Path, Path] = {}

    def partial(self, path: Path) -> Path:
        """Return the temporary path for this path."""
        return self._partial.setdefault(path, path.with_name(path.name + ".tmp"))

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                for path, partial in self._partial.items():
                    partial.replace(path)
        except OSError as failed:
            raise PositionError(unwritable(failed.filename, failed)) from None
        finally:
            for partial in self._partial.values():
                with contextlib.suppress(OSError):
                    partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise PositionError(unwritable(error.filename or "output", error)) from None
