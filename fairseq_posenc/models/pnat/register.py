"""Registers PNAT and its architectures with fairseq, once, when it is imported."""

from ...architectures import PNAT, pnat_architectures
from ..transformer.register import register
from . import model  # noqa: F401  (registers the model)

register(PNAT, pnat_architectures())
