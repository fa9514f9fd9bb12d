"""Which fairseq and which torch there are. Imported before everything else that imports fairseq."""

import logging

from .errors import first_line

# At import, a speech task of fairseq warns about a package that translation does not need.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

_root = logging.getLogger()
_logging = _root.level, list(_root.handlers)
try:
    import torch
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
except Exception as error:  # missing, half installed, or PyPI's 0.12.2, which dies of a ValueError on Python 3.11
    raise SystemExit(
        f"fairseq_posenc: fairseq cannot be imported ({first_line(error)}). "
        "Run recipes/setup, or install it with pip install fairseq-fixed."
    ) from None
finally:  # another task prints everything that is logged from then on
    _root.level, _root.handlers[:] = _logging


def has_fused_encoder(layer: type) -> bool:
    """Return whether this encoder layer may hand itself to a fused kernel that never calls `self_attn`, as in PyPI's 0.12.2.

    Such a model trains with positions and decodes without them. Read off the code, because fairseq's main branch calls
    itself 0.12.2 as well and has no such path.
    """
    return "can_use_fastpath" in layer.__init__.__code__.co_names


def require_usable(layer: type = TransformerEncoderLayerBase) -> None:
    """Raises SystemExit for a fairseq that skips positions and for a torch that cannot load checkpoints safely."""
    if has_fused_encoder(layer):
        raise SystemExit(
            "fairseq_posenc: this fairseq uses a fused encoder kernel in evaluation, which skips all position methods. "
            "Expected fairseq-fixed, not fairseq 0.12.2 of PyPI. Run pip uninstall fairseq, then pip install fairseq-fixed."
        )
    if not hasattr(torch.serialization, "add_safe_globals"):
        raise SystemExit(
            f"fairseq_posenc: torch {torch.__version__} cannot load fairseq's checkpoints safely. Expected torch 2.4 or newer. "
            "Install it with pip install 'torch>=2.4'."
        )


def apply() -> None:
    require_usable()
