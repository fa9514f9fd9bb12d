"""Build the position methods for a picture from a spec, or load them from a trained model."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import registry
from ..attention.site_positions import SitePositions
from ..common.messages import shorten
from ..core import SITES, Dims, PositionError
from ..data.side.examples import RELATIONS
from ..registry.spec import build, parse
from .matrices import Content

#: width, heads, positions and words of the model that is built for a spec. If the picture has more positions, the model has the
#: same number of positions as the picture
_WIDTH, _HEADS, _POSITIONS, _WORDS = 512, 8, 128, 8
_SEED = 1
_CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt")


def is_run(text: str) -> bool:
    """Return whether the text is the path of a file or a folder, and not a spec."""
    name = re.split("[:+]", text)[0].strip()
    return name not in registry.names() and ("/" in text or text.endswith(".pt") or Path(text).exists())


def first_site(spec: str) -> str:
    """Return the first site at which the authors define all methods of the spec.

    If there is no such site, return the first site at which this project supports all of these methods.
    """
    cards = [registry.card(method.name) for method in parse(spec).methods]
    kinds = [card.sites for card in cards], [card.all_sites for card in cards]
    shared = [site for sites in kinds for site in SITES if all(site in served for served in sites)]
    return shared[0] if shared else "encoder"  # if no site supports all methods, building them raises an error


def fresh(spec: str, site: str, length: int, layer: int = 0, seed: int | None = None) -> SitePositions:
    """Return the position methods of a spec with their initial parameters. These parameters are equal in every call.

    If `seed` is set, normal noise is added to each parameter whose elements are all equal. Without noise, these parameters
    would have no visible effect.
    """
    named = [number for method in parse(spec, site).methods for number in method.options.layers or ()]
    longest = max(length, _POSITIONS)
    sizes = (_WIDTH, _HEADS, max([layer, *named]) + 1, longest, longest)
    dims = Dims(*sizes, vocab_size=_WORDS, words={"</s>": 2, "<sep>": 2}, relations=RELATIONS).at(site)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(_SEED)
        positions = SitePositions(build(spec, dims, site), dims, site)
        if seed is not None:
            torch.manual_seed(seed)
            for parameter in positions.parameters():
                if parameter.min() == parameter.max():
                    parameter += torch.randn_like(parameter)
    return positions


def load(path: Path, data: str | None = None) -> Any:
    """Return the model of a run. `path` is a checkpoint or a folder.

    From a folder, the best checkpoint is loaded. Without a best checkpoint, the last checkpoint is loaded.
    """
    return load_with_task(path, data)[0]


def checkpoint_of(path: Path) -> Path:
    """Return the checkpoint of a run. Raise PositionError if there is no checkpoint."""
    found = next((path / name for name in _CHECKPOINTS if (path / name).is_file()), path) if path.is_dir() else path
    if not found.is_file():
        wrong = "no checkpoint in this folder" if path.is_dir() else "no such file or folder"
        raise PositionError(f"{path}: {wrong}. Expected a checkpoint, or a folder with {' or '.join(_CHECKPOINTS)}.")
    return found


def load_with_task(path: Path, data: str | None = None) -> tuple[Any, Any, Any]:
    """Return the model of a run, the training settings, and the fairseq task with its dictionaries.

    The model is in evaluation mode. The task has not loaded its data sets.
    """
    found = checkpoint_of(path)
    from ..host import plugin  # noqa: F401  (first, because it patches fairseq and its checkpoint loader)

    from fairseq.checkpoint_utils import load_model_ensemble_and_task  # isort: skip

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    try:
        overrides = {} if data is None else {"data": data}
        models, settings, task = load_model_ensemble_and_task([str(found)], arg_overrides=overrides)
    except SystemExit as error:
        raise PositionError(str(error).removeprefix("fairseq_posenc: ")) from None
    except (OSError, AssertionError) as error:  # raised while the task reads its dictionaries
        reason = shorten(str(getattr(error, "filename", None) or error), 200)
        raise PositionError(
            f"{found}: the dictionaries of the training run cannot be read ({reason}). Expected the folder of the prepared data. "
            "Set it with --data FOLDER."
        ) from None
    except Exception as error:  # a changed configuration can fail anywhere in fairseq
        if isinstance(error, PositionError):
            raise
        reason = shorten(f"{type(error).__name__}: {error}", 120)
        raise PositionError(
            f"{found}: its configuration cannot be used ({reason}). Expected a checkpoint of fairseq-train. Use another one."
        ) from None
    model = models[0]
    if not hasattr(model, "specs"):
        raise PositionError(
            f"{found}: this is a model of stock fairseq. Expected a model of this plugin. "
            "For the positions of stock fairseq, run "
            "posenc plot sinusoidal."
        )
    return model.float().eval(), settings, task


def of_model(model: Any, sites: Sequence[str], layer: int) -> Iterator[tuple[str, str, SitePositions, Content]]:
    """Yield (site, spec, positions, content) for these sites of a model.

    `content` is a `Content`. Its hidden states are computed from the mean embedding of all words of the dictionary.
    """
    encoder, decoder = model.encoder, model.decoder
    for site in sites:
        stack = encoder if site == "encoder" else decoder
        positions = stack.cross_position if site == "cross" else stack.position
        if layer >= stack.num_layers:
            raise PositionError(
                f"--layer {layer}: the {site} has no such layer. Expected a number from 0 to {stack.num_layers - 1}."
            )
        block = stack.layers[layer if len(stack.layers) > 1 else 0]
        kind = "encoder_attn" if site == "cross" else "self_attn"
        with torch.no_grad():
            query = block.before(getattr(block, f"{kind}_layer_norm"), _average_word(stack))
            key = _average_word(encoder) if site == "cross" else query
            attention = getattr(block, kind)
            projected = query if attention.q_proj is None else attention.q_proj(query)
            content = Content((query, key), projected.view(attention.num_heads, -1), attention.project_one)
            yield site, str(model.specs[site]), positions, content


def _average_word(stack: Any) -> torch.Tensor:
    """Return the mean of the embeddings of all words.

    Some terms of the scores are linear in the word embedding. With the mean embedding, such a term is equal to its mean over
    all words.
    """
    return stack.embed_scale * stack.embed_tokens.weight.mean(0)
