"""Generate pages of the website (start, chooser, methods, results and API), and docs/methods.md of the checkout."""

from __future__ import annotations

import fnmatch
import itertools
import json
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from pathlib import Path

from fairseq_posenc import registry
from fairseq_posenc.core import SITES, Dims, MethodCard
from fairseq_posenc.core.formula import pretty
from fairseq_posenc.evaluation.scoring import archive
from fairseq_posenc.registry import catalog
from fairseq_posenc.registry.citations import bibtex, entries, fields, web_address
from fairseq_posenc.registry.spec import option_rows

_DIMS = Dims(512, 8, 6, vocab_size=catalog.VOCABULARY)
_ON_CPU = {
    "training 8x128": "training time, 8 sentences of 128 words", "memory 8x128": "training memory, 8 sentences of 128 words",
    "training 2x512": "training time, 2 sentences of 512 words", "memory 2x512": "training memory, 2 sentences of 512 words",
    "decoding": "decoding time per word, beam 4",
}  # fmt: skip
#: benchmark -> measure -> its description on the page of a method. The chooser shows the first benchmark
_COSTS = {
    "amd_epyc_2_cores": _ON_CPU,
    "intel_xeon_2_cores": _ON_CPU,
    "nvidia_h100": {
        "training 64x64": "training time, 64 sentences of 64 words", "memory 64x64": "training memory, 64 sentences of 64 words",
        "training 8x512": "training time, 8 sentences of 512 words", "memory 8x512": "training memory, 8 sentences of 512 words",
        "decoding": "decoding time per word, beam 4",
    },
}  # fmt: skip
_CHOSEN = "training 8x128"
#: filter of the table -> label and values
_FILTERS = {
    "site": ("site", SITES),
    "reference": ("positions", ("absolute", "relative", "both", "none")),
    "injection": ("injection", ("APE", "MAM", "other", "none")),
    "learnable": ("learned", ("yes", "no")),
    "unbound": ("any length", ("yes", "no")),
    "evidence": ("evidence", tuple(catalog.EVIDENCE)),
}
_API = {
    "Building and looking up": ("fairseq_posenc.attention", "fairseq_posenc.registry", "fairseq_posenc.registry.spec"),
    "Writing a method": (
        "fairseq_posenc.core.method", "fairseq_posenc.core.card", "fairseq_posenc.core.context", "fairseq_posenc.core.dims",
        "fairseq_posenc.core.side", "fairseq_posenc.core.state", "fairseq_posenc.core.hooks",
    ),
    "Attention": (
        "fairseq_posenc.attention.multihead", "fairseq_posenc.attention.site_positions", "fairseq_posenc.attention.mask",
    ),
    "Tensor helpers": (
        "fairseq_posenc.ops.distances", "fairseq_posenc.ops.relative", "fairseq_posenc.ops.rotation",
        "fairseq_posenc.ops.sinusoids", "fairseq_posenc.ops.buckets", "fairseq_posenc.ops.running",
    ),
}  # fmt: skip


#: tables of the results with one row per method -> description
_RESULTS = {
    "results/multi30k_en-de/tiny": "English-German captions",
    "results/multi30k_en-de/more_methods": "English-German captions",
    "results/all_methods/float32": "artificial language",
    "results/more_methods/float32": "artificial language, later version",
}
_TRAINING = """\
fairseq-train data-bin --user-dir $(posenc path) --task posenc_translation --arch posenc_{name} --share-all-embeddings \\
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --dropout 0.1 \\
    --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 --max-update 100000 \\
    --criterion posenc_label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 4096 --save-dir checkpoints/{name}"""


class Scores:
    """BLEU of the committed training runs, by the specs of their sites."""

    def __init__(self, root: Path):
        self.rows: dict[tuple, list[str]] = {}
        for folder, data in _RESULTS.items():
            found: dict[tuple, dict[str, dict[int, float]]] = {}  # specs -> test set -> seed -> BLEU
            words = shlex.split((root / folder / "command").read_text(encoding="utf-8"))  # posenc report FOLDERS --OPTIONS
            folders = itertools.takewhile(lambda word: not word.startswith("--"), words[2:])
            for run in (run for path in folders for run in archive.find(root / path).values()):
                if not run.row and not run.settings.get("random_structure"):
                    for part, scores in run.parts.items():
                        found.setdefault(_sites(run.method), {}).setdefault(part, {})[run.seed] = scores.bleu
            for specs, parts in found.items():
                for part, by_seed in parts.items():
                    mean, seeds = sum(by_seed.values()) / len(by_seed), ", ".join(map(str, sorted(by_seed)))
                    cells = f"[{data}](../../{folder}/report.md) | `{part}` | {seeds} | {mean:.1f}"
                    self.rows.setdefault(specs, []).append(f"| {cells} |")

    def of(self, card: MethodCard) -> str:
        """Return a table, or a sentence for a method without results."""
        rows = self.rows.get(_sites(card.specs))
        if rows is None:
            return "The committed results do not contain this method.\n"
        return "| data | test set | seeds | mean BLEU |\n|---|---|---|---:|\n" + "\n".join(rows) + "\n"


def _sites(specs: Mapping[str, str]) -> tuple:
    return tuple(sorted((site, spec) for site, spec in specs.items() if spec != "none"))


class Costs:
    """Costs of methods in the committed benchmarks, as ratios to stock fairseq's Transformer."""

    def __init__(self, root: Path):
        self.devices: dict[str, str] = {}  # benchmark -> device, type and size of the models
        # benchmark -> method -> measure -> median, or ratio of memory, then both quartiles if there are any
        self.rows: dict[str, dict[str, dict[str, list[float]]]] = {}
        for folder, measures in _COSTS.items():
            found = json.loads((root / "results/bench" / folder / "bench.json").read_text(encoding="utf-8"))
            settings = found["settings"]
            self.devices[folder] = f"{settings['device']}, {settings['dtype']}, models of size {settings['size']}"
            self.rows[folder] = {
                row["method"]: {key: _ratios(row[key]) for key in measures if row.get(key)}
                for row in found["rows"]
                if row["site"] == "model"
            }
        self.device = next(iter(self.devices.values()))

    def of(self, name: str) -> dict[str, float]:
        """Return the costs of a method in the first benchmark: measure -> median, or ratio of memory."""
        return {key: ratios[0] for key, ratios in next(iter(self.rows.values())).get(name, {}).items()}

    def tables(self, name: str) -> str:
        """Return one table per benchmark that contains the method, or a sentence if there is none."""
        texts = []
        for folder, device in self.devices.items():
            if found := self.rows[folder].get(name):
                rows = "\n".join(f"| {_COSTS[folder][key]} | {_shown(*ratios)} |" for key, ratios in found.items())
                head = "| | median (quartiles) |\n|---|---:|"
                texts.append(f"Ratios to stock fairseq's Transformer, {device}:\n\n{head}\n{rows}\n")
        missing = f"The committed benchmarks do not contain this method. Measure it with `posenc bench {name}`.\n"
        return "\n".join(texts) or missing


def _ratios(value: Mapping[str, float]) -> list[float]:
    return [value["median"], value["low"], value["high"]] if "median" in value else [value["ratio"]]


def _shown(median: float, *quartiles: float) -> str:
    return f"{median:.2f}" + (" ({:.2f} to {:.2f})".format(*quartiles) if quartiles else "")


def start(readme: str, pages: Collection[str]) -> str:
    """Return the README with the navigation. The navigation contains only entries that match one of the `pages`."""
    entries = {
        "Tutorials": ["docs/tutorials/*"],
        "How-to": ["docs/howto/*"],
        "Methods": ["choose", "docs/methods", "docs/claims", "docs/coverage"],
        "Results": ["recipes/README", "results/README"],
        "Reference": ["docs/reference/*", "docs/api", "docs/glossary", "CHANGELOG"],
        "Background": ["docs/background/*", "docs/architecture", "CONTRIBUTING"],
    }
    parts = [readme]
    for caption, listed in entries.items():
        found = [entry for entry in listed if fnmatch.filter(pages, entry)]
        parts.append(f"```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n" + "\n".join(found) + "\n```")
    return "\n".join(parts) + "\n"


def choose(costs: Costs) -> str:
    """Return the chooser, a table with filters."""
    lists = []
    for name, (label, values) in _FILTERS.items():
        options = "".join(f'<option value="{value}">{value}</option>' for value in ("", *values))
        lists.append(f'<label>{label} <select name="{name}">{options}</select></label>')
    lists.append(
        '<label>maximum training time, relative to stock fairseq <input name="cost" type="number" step="0.05" min="0"></label>'
    )
    lists.append('<label>contains <input name="text" type="search" placeholder="name, title or family"></label>')
    head = ("method", "positions", "injection", "learned", "any length", "sites", "parameters", "cost", "evidence")
    rows = "\n".join(_choice(name, costs) for name in registry.names())
    return (
        "# Choose a method\n\n"
        "This page filters the position encodings by their properties. The address contains the filters, so you can share it.\n\n"
        f'<form id="filters" class="filters">{"".join(lists)}<output name="count"></output></form>\n\n'
        f'<div class="table-wrapper"><table id="choose" class="sortable"><thead><tr>'
        f"{''.join(f'<th>{cell}</th>' for cell in head)}</tr></thead><tbody>\n{rows}\n</tbody></table></div>\n\n"
        "*Injection*: APE adds positions to the embeddings, MAM uses positions in the attention matrix. *Any length*: the "
        "method is defined for sentences of any length, and does not clip distances. *Sites*: parts of the model for "
        "which the method is defined. *Parameters*: "
        "number at the first site, with width 512, 8 heads, 6 layers and 1,024 positions. *Cost*: training time, divided by the "
        f"training time of stock fairseq's Transformer ({escape(costs.device)}, [measurement](results/README.md)). *Evidence*: "
        + " ".join(f"`{name}`: {meaning}." for name, meaning in catalog.EVIDENCE.items())
        + "\n"
    )


def _choice(name: str, costs: Costs) -> str:
    card = registry.card(name)
    family, cost = registry.declaration(name).family, costs.of(name).get(_CHOSEN)
    yes = {True: "yes", False: "no"}
    breakable = name.replace("_", "_<wbr>")  # for narrow screens
    data = {
        "site": " ".join(card.all_sites), "reference": card.reference, "injection": card.injection,
        "learnable": yes[card.learnable], "unbound": yes[card.unbound], "evidence": card.evidence,
        "cost": "" if cost is None else f"{cost:.4f}", "text": f"{name} {card.title} {family}".lower(),
    }  # fmt: skip
    cells = [
        f'<a href="docs/methods/{name}.html">{breakable}</a><br><small>{escape(card.title)}</small>', card.reference,
        card.injection,
        data["learnable"], data["unbound"], ", ".join(card.all_sites), f"{catalog.number(card, _DIMS):,}",
        "not measured" if cost is None else f"{cost:.2f}", card.evidence,
    ]  # fmt: skip
    attributes = " ".join(f'data-{key}="{escape(value)}"' for key, value in data.items())
    return f"<tr {attributes}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def index(address: Callable[[str], str]) -> str:
    """Return the table of all methods. `address` returns the address of a method's link."""
    rows = catalog.rows(_DIMS)
    for row in rows:
        row["method"] = f"[{row['method']}]({address(row['method'])})"
    return f"{_INDEX.format(number=len(rows))}\n{catalog.table(rows, 'github')}\n"


_INDEX = """\
# Methods

This page is a table of the {number} methods of this project. It is for users who look for a method. `posenc show METHOD` prints
the equation, the options, the deviations from the paper and the citation of a method. The [glossary](glossary.md) defines the
columns `reference`, `injection`, `recurring`, `unbound` and `evidence`. The other columns are:

* `method`: name of the method, with a link.
* `number`: number of parameters of `posenc_<method>` at the first site in the column `sites`, for d=512, h=8, L=6, n=1024 and
  V=32,000.
* `parameters`: formula for the parameters of the method alone. `number` also counts other methods of `posenc_<method>`, such as
  `learned` in `posenc_window`. d is the model width, h the number of heads, d_h the head width, L the number of layers, n
  the number of query positions, m the number of key positions, and V the size of the dictionary. `tables` is the number of
  tables. It is h L if the option `share` is none. `relations` is the number of relation labels of trees. The numbers of `cai_lam`
  and `zhu` contain no vectors of relation labels. `used_heads` is the number of heads that use the method. `causal` and `cross`
  are 1 in a causal decoder and in cross-attention, else 0. `padding_idx` is the index of padding (1). `shared_by_layers` is 1 if
  all layers share one table, else 0. Other names are options of the method.
* `survey`: formula in Table 1 of Dufter, Schmitt and Schütze (2022), *Position Information in Transformers: An Overview*,
  with d, h, L, n and V as in the column `parameters`.
* `sites`: places where the method can be used. Sites in brackets are extensions of this project.

This page is generated from the cards. Do not edit it.
"""


def index_of_sources() -> str:
    """Return docs/methods.md as it is committed. Methods are links to their source files."""
    return index(lambda name: f"../{registry.declaration(name).module.replace('.', '/')}.py")


def methods() -> str:
    """Return docs/methods.md of the website. Methods are links to their pages. The navigation lists these pages by family."""
    families: dict[str, list[str]] = {}
    for name in registry.names():
        families.setdefault(registry.declaration(name).family, []).append(name)
    listed = "".join(
        "\n```{toctree}\n:hidden:\n\n" + "\n".join(f"{name} <methods/{name}>" for name in members) + "\n```\n"
        for _, members in sorted(families.items())
    )
    text = index(lambda name: f"methods/{name}.md")
    return text + "\n[Choose a method](../choose.md) by its properties, or compare all:\n\n![All methods](atlas.png)\n" + listed


def method(name: str, costs: Costs, scores: Scores, oracle: str) -> str:
    """Return the page of one method: equation, picture, command, card, options, results, cost, citation.

    `oracle`: file name of the independent implementation in tests/oracles.
    """
    card, description = registry.card(name), catalog.describe(name)
    source = Path(registry.declaration(name).module.replace(".", "/")).with_suffix(".py")
    sections = dict(description.sections)
    equation = sections.pop("Equation")
    facts = {
        "Architecture": f"`posenc_{name}`, with " + ", ".join(f"{site} `{spec}`" for site, spec in card.specs.items()),
        "Positions": f"{card.reference}; {'learned' if card.learnable else 'not learned'}",
        "Sites": catalog.sites(card),
        "Beyond the trained length": catalog.EXTRAPOLATION[card.extrapolation],
        "Parameters per stack": f"`{pretty(card.parameters)}`: {catalog.number(card, _DIMS):,} for width 512, 8 heads, 6 layers",
        "Evidence": catalog.EVIDENCE[card.evidence],
        **_side_inputs(card),
        **{label: "<br>".join(map(_text, text.splitlines())) for label, text in sections.items()},
    }
    rows = "\n".join(f"| {label} | {text.replace('|', '&#124;')} |" for label, text in facts.items())
    options = "\n".join(
        f"| `{option}` | {_text(allowed)} | `{default}` | {_text(help)} |" for option, allowed, default, help in option_rows(name)
    )
    return (
        f"# {name}: {card.title}\n\n{_text(description.summary)}\n\n"
        f'<div class="equation">\n\n{_text(equation)}\n\n</div>\n\n'
        f"![Effect of {name} on attention]({name}.png)\n\n"
        "All tokens have the same content, so the picture shows only the effect of positions. Parameters have their initial "
        f"values, or random values where the initial values have no effect. `posenc plot {name}` draws the picture.\n\n"
        f"## Use\n\n{_needs(card)}```sh\n{training_command(name)}\n```\n\n"
        f"## Card\n\n| | |\n|---|---|\n{rows}\n\n"
        f"## Options\n\n| option | allowed | default | meaning |\n|---|---|---|---|\n{options}\n\n"
        f"## Results\n\nBLEU of the committed training runs. Scores with different seeds differ"
        " ([seed variance](../background/seed_variance.md)), and the reports contain the intervals.\n\n"
        f"{scores.of(card)}\n## Cost\n\n{costs.tables(name)}\n## Source\n\n"
        f"* Papers: {', '.join(_paper(key) for key in card.citations)}\n"
        f"* Code: [{source.name}](../../{source.as_posix()})\n"
        f"* Oracle, an independent implementation that tests compare with the code: [{oracle}](../../tests/oracles/{oracle})\n\n"
        f"```bibtex\n{bibtex(card.citations)}\n```\n"
    )


def training_command(name: str) -> str:
    """Return the training command on the page of a method. The command reads binary text in the folder data-bin."""
    return _TRAINING.format(name=name)


def _needs(card: MethodCard) -> str:
    """Return the requirements of a method on the training data or on decoding, as one sentence or an empty string."""
    if card.side_files(registry.declaration(card.name).options()):
        return "The data needs [side files](../howto/use_trees.md).\n\n"
    if any(side.name == "target_length" for side in card.side_inputs):
        return "Decoding takes the length of the translation from an option ([length](../howto/control_output_length.md)).\n\n"
    if card.documents:
        return "Sentences of a document are separated by `<sep>` ([documents](../howto/translate_documents.md)).\n\n"
    return ""


def _paper(key: str) -> str:
    """Return a link to a publication, or its title if the entry has no address."""
    entry = entries()[key]
    title = _text(re.sub(r"[{}]", "", " ".join(fields(entry)["title"].split())))
    link = web_address(entry)
    return f"[{title}]({link})" if link else title


def _side_inputs(card: MethodCard) -> dict[str, str]:
    """Return a description of the inputs that the method reads in addition to tokens."""
    inputs = [f"`{side.name}` [{side.axes}] of the {side.of}" for side in card.side_inputs]
    return {"Side inputs": ", ".join(inputs).replace("[", "\\[").replace("]", "\\]")} if inputs else {}


def _text(text: str) -> str:
    """Escape Markdown. Only code in backquotes and formulas between dollar signs stay markup."""
    pieces = re.split(r"(`[^`]*`|\$[^$]+\$)", text)
    for number in range(0, len(pieces), 2):
        pieces[number] = "".join(f"\\{c}" if c in "*_[]<>$\\" else "&#124;" if c == "|" else c for c in pieces[number])
    return "".join(pieces)


def api() -> str:
    """Return the page of the public modules, with their docstrings."""
    parts = ["# API\n\nThis page lists the public modules. Other modules may change without notice.\n"]
    for title, modules in _API.items():
        parts.append(f"## {title}\n")
        for module in modules:
            parts.append(
                f"### {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n   :member-order: bysource\n```\n"
            )
    return "\n".join(parts)


def results(files: Sequence[str]) -> str:
    """Return links to all reports, for the end of the page of results."""
    titles = {path: path.removesuffix(".md").removesuffix("/report").removesuffix("/bench") for path in files}
    listed = "\n".join(f"* [{title}]({path})" for path, title in titles.items())
    entries = "\n".join(f"{title} <{path.removesuffix('.md')}>" for path, title in titles.items())
    tree = "```{toctree}\n:hidden:\n\n" + entries + "\n```\n"
    return f"\n## All tables\n\nClick the head of a column to sort a table, or press Enter there.\n\n{listed}\n\n{tree}"
