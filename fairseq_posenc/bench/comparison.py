"""Measure one attention module and its peer in turns, with the same sentences, in forward and backward pass."""

from __future__ import annotations

import shutil
import sys

import torch
from torch import Tensor

from ..attention.positional import build_attention
from ..common.files import make_folder
from ..common.progress import Progress
from ..core import PositionError
from . import files, tables
from .actions import Action, both_passes
from .peers import PAIRS, Pair, Sizes
from .settings import Settings
from .timing import interleaved, ratios

_OURS, _PEER = "ours", "peer"
_INSTALL = "Install it with pip install 'fairseq_posenc[test]'"


def run(settings: Settings) -> int:
    """Measure the pairs whose peers are installed, and print their ratios."""
    pairs, progress, rows = installed(settings.specs), Progress(), []
    for pair in pairs:
        row = {"method": pair.method, "site": pair.site, "peer": pair.peer, "library": pair.library}
        for batch, length in settings.shapes:
            made = actions(pair, batch, Sizes(settings.width, settings.heads, length), settings)
            progress.show(f"{pair.method} {batch}x{length}")
            seconds = interleaved(made, settings.rounds, settings.device, lambda turn: None)
            row[f"{batch}x{length}"] = vars(ratios(seconds, _PEER)[_OURS])
        rows.append(row)
    progress.end()
    results = {"settings": settings.record(), "rows": rows}
    print(tables.peers(results, shutil.get_terminal_size().columns), end="")
    if settings.output:
        make_folder(settings.output)
        files.write_peers(results, settings.output)
    return 0


def installed(methods: list[str]) -> list[Pair]:
    """Return the pairs of a spec and a peer for these methods, if the peer is installed.

    If no method is given, return all pairs with installed peers.

    Print the libraries that are not installed. Also print the peers that the installed version of a library does not contain.
    Raise PositionError if no pair is left.
    """
    known = dict.fromkeys(pair.method for pair in PAIRS)
    unknown = [method for method in methods if method not in known]
    if unknown:
        raise PositionError(f"--peers: no other library has {', '.join(unknown)}. Expected one or more of {', '.join(known)}.")
    chosen = [pair for method in methods or known for pair in PAIRS if pair.method == method]
    found = [pair for pair in chosen if pair.available]
    if not found:
        names = ", ".join(dict.fromkeys(pair.method for pair in chosen))
        raise PositionError(f"--peers: no library with {names} is installed. {_INSTALL}.")
    missing = [pair for pair in chosen if not pair.installed]
    for package in dict.fromkeys(pair.package for pair in missing):
        without = ", ".join(pair.method for pair in missing if pair.package == package)
        print(f"{package} is not installed. Not measured: {without}. {_INSTALL}.", file=sys.stderr)
    for pair in chosen:
        if pair.installed and pair not in found:
            print(f"{pair.library} does not contain {pair.peer}. Not measured: this peer of {pair.method}.", file=sys.stderr)
    return found


def actions(pair: Pair, batch: int, sizes: Sizes, settings: Settings) -> dict[str, Action]:
    """Return one forward and backward pass of each of the two attention modules, over the same sentences."""
    torch.manual_seed(1)
    spec = pair.spec_for(sizes)
    ours = build_attention(spec, sizes.width, sizes.heads, site=pair.site, max_positions=sizes.positions)
    if not pair.biases:
        for projection in (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj):
            projection.bias = None
    x = torch.randn(batch, sizes.length, sizes.width, device=settings.device, dtype=settings.dtype, requires_grad=True)

    def attend(x: Tensor) -> Tensor:
        x = x.transpose(0, 1)  # the input of this project's attention is [T, B, C]
        return ours(x, x, x, need_weights=False)[0].transpose(0, 1)

    peer = pair.build(sizes).to(settings.device, settings.dtype)
    ours.to(settings.device, settings.dtype)
    return {_OURS: both_passes(ours, attend, x), _PEER: both_passes(peer, peer, x)}
