"""Measure methods and stock fairseq in turns. Write the results after every group of methods."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

from .. import registry
from ..common.files import make_folder
from ..common.progress import Progress
from . import actions, counting, files, models, tables
from .models import STOCK, Variant, variants
from .settings import Settings
from .timing import interleaved, ratios

#: number of models in memory at a time, in addition to the model of stock fairseq
_GROUP = 6


def run(settings: Settings, specs: list[str]) -> int:
    """Measure these specs, or all methods if no spec is given, and print the table."""
    listed = {site: variants(specs or registry.names(), site) for site in settings.sites}
    results: dict[str, Any] = {"settings": settings.record(), "rows": []}
    if settings.output:
        make_folder(settings.output)
        results["rows"] = files.finished(settings.output, results["settings"])
    done = {(row["method"], row["site"]) for row in results["rows"]}
    progress = Progress()
    for site, those in listed.items():
        remaining = [v for v in those if (v.name, site) not in done]
        for group in (remaining[i : i + _GROUP] for i in range(0, len(remaining), _GROUP)):
            rows: dict[str, dict[str, Any]] = {v.name: {"site": site} for v in group}
            for measure, found in _measure(group, settings, site, progress):
                for name in rows:
                    rows[name][measure] = found[name]
            results["rows"] += [{"method": name, **row} for name, row in rows.items()]
            if settings.output:  # an interrupted benchmark keeps all finished groups
                files.write(results, settings.output)
    progress.end()
    print(tables.terminal(results, shutil.get_terminal_size().columns), end="")
    return 0


def _measure(group: list[Variant], settings: Settings, site: str, progress: Progress) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each measure, and the values of stock fairseq and of all variants for this measure."""
    together = [Variant(STOCK, None), *group]
    device, dtype = settings.device, settings.dtype
    positions = max([*(length for _, length in settings.shapes), settings.steps + 2, actions.DECODED[1]])
    built = {v.name: models.build(v, settings.size, positions, device, dtype) for v in together}

    def measured(title: str, made: dict[str, actions.Action]) -> dict[str, dict[str, Any]]:
        seconds = interleaved(made, settings.rounds, device, lambda turn: progress.show(f"{site}, {title}: {turn}"))
        progress.show(f"{site}, {title}: operations and bytes")
        counts = {name: counting.counted(action, device) for name, action in made.items()}
        stock = counts[STOCK]
        found = {
            name: {
                **vars(ratio),
                "seconds": sorted(seconds[name])[len(seconds[name]) // 2],
                **vars(counts[name]),
                "memory": counts[name].mib / stock.mib,
                "operations": counts[name].gflop / stock.gflop,
                "bytes": counts[name].gib / stock.gib,
            }
            for name, ratio in ratios(seconds, STOCK).items()
        }
        if settings.profile:
            progress.show(f"{site}, {title}: operators")
            taken = {name: counting.operators(action, device) for name, action in made.items()}
            for name in made:
                found[name]["operators"] = counting.differences(taken[name], taken[STOCK])
        return found

    for batch, length in settings.shapes:
        source, target = actions.sentences(batch, length, device)
        steps = {name: actions.training(model, source, target) for name, model in built.items()}
        found = measured(f"training {batch}x{length}", steps)
        yield f"training {batch}x{length}", found
        yield f"memory {batch}x{length}", {name: {"ratio": x["memory"]} for name, x in found.items()}
        forwards = {name: actions.inference(model, source, target) for name, model in built.items()}
        yield f"inference {batch}x{length}", measured(f"inference {batch}x{length}", forwards)
    source, _ = actions.sentences(*actions.DECODED, device)
    searches = {name: actions.decoding(model, source, settings.steps) for name, model in built.items()}
    yield "decoding", measured("decoding", searches)
    if site in ("model", "encoder"):
        serving = [v for v in together if v.stands_alone(settings.width, settings.heads)]
        for length in settings.lengths:
            made = {v.name: actions.attention(v, settings.width, settings.heads, length, device, dtype) for v in serving}
            found = measured(f"one attention over {length}", made)
            yield f"attention {length}", {v.name: found.get(v.name) for v in together}
