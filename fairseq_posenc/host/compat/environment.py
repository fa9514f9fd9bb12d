"""Check that the installed fairseq and torch can be used. This module must be imported before other modules import fairseq."""

import logging

from .errors import first_line

# when a speech task of fairseq is imported, it warns about a package that translation does not need
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

_root = logging.getLogger()
_logging = _root.level, list(_root.handlers)
try:
    import torch
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
except Exception as error:  # fairseq is missing or incomplete. PyPI's 0.12.2 raises a ValueError on Python 3.11
    raise SystemExit(
        f"fairseq_posenc: fairseq cannot be imported ({first_line(error)}). "
        "Run recipes/setup, or install it with pip install fairseq-fixed."
    ) from None
finally:  # at import, a task of fairseq changes the root logger. The root logger would then print all later log messages
    _root.level, _root.handlers[:] = _logging


def has_fused_encoder(layer: type) -> bool:
    """Return whether this encoder layer may use a fused kernel that never calls `self_attn`, as in fairseq 0.12.2 from PyPI.

    A model with such layers trains with positions but decodes without positions. This function inspects the code of the layer.
    The version number is not sufficient: fairseq's main branch has the same version number, but does not have this kernel.
    """
    return "can_use_fastpath" in layer.__init__.__code__.co_names


def require_usable(layer: type = TransformerEncoderLayerBase) -> None:
    """Raise SystemExit if the installed fairseq or the installed torch cannot be used.

    The fused encoder kernel of fairseq 0.12.2 skips all position methods. Versions of torch before 2.4 cannot load checkpoints
    safely.
    """
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
