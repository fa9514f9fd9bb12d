"""The task options for side files.

fairseq reads the types of the fields at run time. Therefore, this file does not import `annotations` from `__future__`.
"""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass


@dataclass
class SideFileConfig(FairseqDataclass):
    """The task options for side files."""

    random_structure: Optional[int] = field(  # noqa: UP045 (fairseq recognises only the older form)
        default=None,
        metadata={
            "help": "seed of a control experiment. It assigns the nodes of trees and graphs, and the indices of reorderings, "
            "to random words of the same sentence (default: none)"
        },
    )
