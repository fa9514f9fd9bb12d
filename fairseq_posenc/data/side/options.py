"""The options of a task that reads side files. fairseq reads their types at run time, so annotations are not postponed."""

from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass


@dataclass
class SideFileConfig(FairseqDataclass):
    """What is done with the side files."""

    random_structure: int | None = field(
        default=None,
        metadata={"help": "seed of a control: trees, graphs and orders keep their shape, and belong to other words"},
    )
