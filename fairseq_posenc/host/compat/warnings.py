"""Hide warnings about fairseq's own code, because users cannot act on them."""

import warnings

#: category, regular expression for the start of the message, and module, for warnings about fairseq's calls of hydra and torch
_WARNINGS = (
    (UserWarning, r"hydra\.experimental\.\w+\(\) is no longer experimental", r"hydra\."),
    (UserWarning, r"\sThe version_base parameter is not specified", r"hydra\."),
    (UserWarning, r"\sThe strict flag in the compose API is deprecated", r"hydra\."),
    (UserWarning, r"In 'config': Usage of deprecated keyword in package header", r"hydra\."),
    (UserWarning, r"\s'config' is validated against ConfigStore schema", r""),
    (FutureWarning, r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", r"fairseq\."),
    (UserWarning, r"'pin_memory' argument is set as true but no accelerator", r"torch\.utils\.data\.dataloader$"),
    (UserWarning, r"Support for mismatched key_padding_mask and attn_mask is deprecated", r"torch\.nn\.functional$"),
)


def apply() -> None:
    for category, message, module in _WARNINGS:
        warnings.filterwarnings("ignore", message, category, module)
