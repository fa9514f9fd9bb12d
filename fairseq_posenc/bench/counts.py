"""posenc bench --count: count the kernel launches, waits, bytes and memory that methods would need on an accelerator.

A wait is a synchronisation: the host waits for a value of the device. The methods run on the meta device of PyTorch. An
accelerator is not required.
"""

from __future__ import annotations

import json
import lzma
import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .. import registry
from ..common.cells import aligned_table
from ..common.files import make_folder, write_files
from ..common.progress import Progress
from ..core import PositionError
from ..core.errors import Refusal
from . import actions, files, models, tables
from .launches import Cost, Count, count
from .meta import CPU, Values, large_tables_without_memory
from .models import STOCK, Variant, variants
from .settings import Settings

#: number of beams, and number of target words before the counted decoding step
BEAM, PREFIX = 4, 2
#: names of files: all numbers of every method, and the cost of every place in the code (see `Count`)
_FILE, _PLACES = "count.json", "places.xz"
#: maximum size of the places in memory, in bytes
_LARGEST_FILE = 2**28


def run(settings: Settings) -> int:
    """Count the kernel launches, waits, bytes and memory of the given specs, and print the table.

    If no spec is given, count these quantities for all methods.
    """
    chosen = variants(settings.specs or ["none", *registry.names()], "model")
    listed = {variant.name: variant for variant in (Variant(STOCK, None), *chosen)}
    results: dict[str, Any] = {"settings": record(settings), "rows": []}
    if settings.output:
        make_folder(settings.output)
        results["rows"] = files.finished(settings.output, results["settings"], _FILE)
        _add_places(results["rows"], settings.output)
        if settings.profile:  # rows without places are counted again
            results["rows"] = [row for row in results["rows"] if "places" in row[tables.measures([row])[0]]]
    done, progress = {row["method"] for row in results["rows"]}, Progress()
    for name, variant in listed.items():
        if name not in done:
            row: dict[str, Any] = {"method": name, "site": "model"}
            for measure, found in measured(variant, settings):
                progress.show(f"{name}, {measure}")
                places = {place: list(astuple(cost)) for place, cost in sorted(found.places.items())}
                row[measure] = found.totals() | ({"places": places} if settings.profile else {})
            results["rows"].append(row)
            results["rows"].sort(key=lambda row: (row["method"] != STOCK, row["method"] != "none", row["method"]))
            if settings.output:
                _write(results, settings.output)
    progress.end()
    print(terminal(results, shutil.get_terminal_size().columns), end="")
    return 0


def record(settings: Settings) -> dict[str, Any]:
    """Return the settings that must be equal before two counts can be compared."""
    return {
        "device": "meta",
        "size": settings.size.lstrip("_") or "base",
        "dtype": str(settings.dtype).removeprefix("torch."),
        "shapes": [f"{batch}x{length}" for batch, length in settings.shapes],
        "torch": torch.__version__.partition("+")[0],
    }


def measured(variant: Variant, settings: Settings) -> Iterator[tuple[str, Count]]:
    """Count the kernel launches, waits, bytes and memory of three actions, for each shape.

    The actions are a training step, a forward pass in evaluation, and a step of beam search.
    Yield (measure, count) for each action. Leave out the shapes that the options of the method do not allow.
    """
    _load_kernels()
    for batch, length in settings.shapes:
        try:
            with large_tables_without_memory():
                values, model = Values(), models.build(variant, settings.size, length + 2, None, settings.dtype)
        except (PositionError, Refusal):  # the options allow fewer positions
            continue
        source, target = actions.sentences(batch, length, CPU)
        given = actions.extras(actions.methods(model), source)
        values.move(model)
        source, target = values.moved(source), values.moved(target)
        given = {key: {name: values.moved(x) for name, x in sides.items()} for key, sides in given.items()}
        yield f"training {batch}x{length}", count(_training(model, source, target, given), values)
        yield f"inference {batch}x{length}", count(actions.inference(model, source, target, given), values)
        yield f"decoding {batch}x{length}", _decoding(model, source, given, values)


@cache
def _load_kernels() -> None:
    """Run one training step before the counted steps.

    The first step of a process imports modules, and frees some tensors later than the other steps.
    """
    values, model = Values(), models.build(Variant(STOCK, None), "_tiny", 8, CPU, torch.bfloat16)
    source, target = (values.moved(x) for x in actions.sentences(2, 6, CPU))
    count(_training(values.move(model), source, target, {}), values)


def _training(model: nn.Module, source: torch.Tensor, target: torch.Tensor, given: dict[str, Any]) -> actions.Action:
    """Return a forward and backward pass.

    The optimizer step is not counted, because its cost depends only on the number of parameters.
    """

    def step() -> None:
        model.train()
        logits, _ = model(source, None, target, **given)
        F.cross_entropy(logits.flatten(0, 1).float(), target.flatten()).backward()
        for parameter in model.parameters():
            parameter.grad = None

    return step


@torch.no_grad()
def _decoding(model: nn.Module, source: torch.Tensor, given: dict[str, Any], values: Values) -> Count:
    """Return the cost of one step of beam search after `PREFIX` words.

    The step consists of the reordering of the incremental state and the forward pass of the decoder.
    """
    model.make_generation_fast_(need_attn=False)
    model.eval()
    if hasattr(model.decoder, "set_beam_size"):
        model.decoder.set_beam_size(BEAM)
    rows = BEAM * len(source)
    words = values.moved(torch.full((rows, PREFIX + 1), 5))
    lengths = values.moved(torch.full((len(source),), source.size(1)))
    beams = values.moved(torch.arange(len(source)).repeat_interleave(BEAM))
    order = values.moved(torch.arange(rows).view(-1, BEAM).flip(1).flatten())
    found: dict[str, Any] = {"state": {}}

    def begin() -> None:
        encoded = model.encoder.forward_torchscript({"src_tokens": source, "src_lengths": lengths, **given})
        found["encoded"] = model.encoder.reorder_encoder_out(encoded, beams)

    def step(length: int) -> None:
        if length > 1:
            model.decoder.reorder_incremental_state_scripting(found["state"], order)
        model.decoder(words[:, :length], found["encoded"], incremental_state=found["state"])

    count(begin, values)
    for length in range(1, PREFIX + 1):
        count(lambda length=length: step(length), values)
    return count(lambda: step(PREFIX + 1), values)


# --- comparison with earlier counts -----------------------------------------------------------------------------------


def differences(row: dict[str, Any], measure: str, found: Count) -> list[str]:
    """Compare a new count with a row of earlier counts. Return one line for each number that has changed.

    Further lines name the operators and the source lines that cause the changes.
    """
    known, totals = row[measure], found.totals()
    changed = [name for name in totals if totals[name] != known[name]]
    lines = [f"{row['method']}, {measure}: {name} {known[name]:,} -> {totals[name]:,}" for name in changed]
    if not lines:
        return []
    places = known.get("places", {})
    for place in sorted(places.keys() | found.places.keys()):
        before, now = Cost(*places.get(place, ())), found.places.get(place, Cost())
        changes = [
            f"{getattr(now, name) - getattr(before, name):+,} {name}"
            for name in ("launches", "waits", "read", "written")
            if getattr(now, name) != getattr(before, name)
        ]
        if changes:
            at = ", ".join(line for line in found.lines.get(place, ()) if line)
            lines.append(f"    {place} ({at or 'gone'}): {', '.join(changes)}")
    return lines


def read(path: Path) -> dict[str, Any]:
    """Return the counts of a file count.json, with the places if its folder contains them."""
    results = json.loads(path.read_text(encoding="utf-8"))
    _add_places(results["rows"], path.parent)
    return results


def _add_places(rows: list[dict[str, Any]], folder: Path) -> None:
    """Add the cost of every place in the code to the rows, if the folder contains these costs.

    Raise PositionError for a damaged file.
    """
    path = folder / _PLACES
    if not path.exists():
        return
    try:
        places = json.loads(lzma.LZMADecompressor().decompress(path.read_bytes(), _LARGEST_FILE))
        for row in rows:
            for measure, costs in places.get(row["method"], {}).items():
                row[measure]["places"] = costs
    except (OSError, ValueError, LookupError, TypeError, AttributeError, lzma.LZMAError) as error:
        raise PositionError(f"{path}: cannot be read ({error!r}). Remove it, so that the methods are counted again.") from None


def _write(results: dict[str, Any], folder: Path) -> None:
    """Write the numbers, the table and the places. The places are most of the data, and are compressed."""
    rows, places = [], {}
    for row in results["rows"]:
        found = tables.measures([row])
        without = {measure: {name: value for name, value in row[measure].items() if name != "places"} for measure in found}
        rows.append({**row, **without})
        if all("places" in row[measure] for measure in found):
            places[row["method"]] = {measure: row[measure]["places"] for measure in found}
    contents: dict[str, str | bytes] = {
        _FILE: files.json_text({**results, "rows": rows}),
        "count.md": document(results),
    }
    if places:
        contents[_PLACES] = lzma.compress(json.dumps(places).encode(), preset=1)
    else:
        (folder / _PLACES).unlink(missing_ok=True)  # of an earlier count
    write_files(folder, contents)


def document(results: dict[str, Any]) -> str:
    """Return the page of the counts."""
    return "# What positions cost on an accelerator\n\n" + markdown(results)


# --- tables ----------------------------------------------------------------------------------------------------------


def terminal(results: dict[str, Any], width: int) -> str:
    blocks = [
        f"{kind.capitalize()}, divided by the values of stock fairseq (waits: numbers):\n\n"
        + tables.fitted(*_body(results, kind), width, 1)
        for kind in _kinds(results)
    ]
    return "\n".join(blocks) + "\n" + _notes(results)


def markdown(results: dict[str, Any]) -> str:
    """Return a table for each action, with ratios to stock fairseq and numbers of waits.

    Kernel launches, bytes and peak memory are divided by the values of stock fairseq. If an action has several sentence lengths
    with the same number of tokens, the table also contains the growth of kernel launches and bytes. The growth is the value
    for the last sentence length, divided by the value for the first sentence length.
    """
    blocks = []
    for kind in _kinds(results):
        # without the spaces, which do not make wide tables readable as text, the table is less than half as large
        table = re.sub(r"-{4,}", "---", re.sub(r" +", " ", aligned_table(*_body(results, kind))))
        blocks.append(f"## {kind.capitalize()}\n\n{table}\n")
    return "\n".join(blocks) + "\n" + _notes(results)


def _kinds(results: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(measure.split()[0] for measure in tables.measures(results["rows"])))


def _body(results: dict[str, Any], kind: str) -> tuple[list[str], list[list[str]]]:
    rows = results["rows"]
    stock = next(row for row in rows if row["method"] == STOCK)
    keys = [measure for measure in tables.measures(rows) if measure.startswith(f"{kind} ")]
    shapes = [key.split()[1] for key in keys]
    head = ["method", *(f"{shape} {name}" for shape in shapes for name in ("launches", "waits", "bytes", "memory"))]
    grows = _grow(keys)
    head += ["growth of launches", "growth of bytes"] * grows
    body = []
    for row in rows:
        cells = [row["method"]]
        for key in keys:
            own, base = row.get(key), stock[key]
            launches, moved, peak = _ratios(own, base, "launches", "moved", "peak")
            cells += [launches, "" if own is None else str(own["waits"]), moved, peak]
        if grows:
            cells += _ratios(row.get(keys[-1]), row.get(keys[0]), "launches", "moved")
        body.append(cells)
    return head, body


def _grow(keys: list[str]) -> bool:
    """Return whether these measures have several shapes with the same number of tokens."""
    return len(keys) > 1 and len({math.prod(map(int, key.split()[1].split("x"))) for key in keys}) == 1


def _moved(found: dict[str, int]) -> int:
    return found["read"] + found["written"]


def _ratios(own: dict[str, int] | None, base: dict[str, int] | None, *names: str) -> list[str]:
    """Return the ratios of these numbers as text, or "" without the numbers. `moved` is the number of bytes."""
    if own is None or base is None:
        return [""] * len(names)
    own, base = ({**found, "moved": _moved(found)} for found in (own, base))
    return [f"{own[name] / base[name]:.2f}" for name in names]


def _notes(results: dict[str, Any]) -> str:
    settings, stock = results["settings"], next(row for row in results["rows"] if row["method"] == STOCK)
    first, *_ = tables.measures([stock])
    keys = [key for key in tables.measures([stock]) if key.startswith("training ")]
    notes = [
        "The numbers are counted on PyTorch's meta device: "
        f"size {settings['size']}, {settings['dtype']}, torch {settings['torch']}.",
        "Launches, bytes and memory are divided by the values of stock fairseq's transformer. Waits are numbers.",
        f"stock fairseq's transformer, {first}: {stock[first]['launches']} launches, {stock[first]['waits']} waits, "
        f"{_moved(stock[first]) / 2**30:.2f} GiB, {stock[first]['peak'] / 2**20:.0f} MiB.",
        "launches: number of operators, without views and allocations. Attention, dropout and layer norm count as one launch "
        "each, as on CUDA.",
        "waits: number of times that the host waits for the device. The host waits when it reads a value, when a shape depends "
        "on values, and for copies between host and device.",
        "bytes: bytes that all operators read and write. Broadcast and overlapping elements count once.",
        "memory: peak memory of all tensors of the action, without parameters.",
        "training: forward and backward pass, without the optimiser.",
        f"decoding: one step of beam search with {BEAM} beams after {PREFIX} words.",
        "A GRU (`rnn`, `rr`, `cai_lam`) counts as on cuDNN: one product and one cell per word, layer and direction.",
    ]
    if _grow(keys):
        last, first = keys[-1].split()[1], keys[0].split()[1]
        notes.append(f"growth: value at {last} divided by the value at {first}, which has the same number of tokens.")
    return "".join(f"* {note}\n" for note in notes)
