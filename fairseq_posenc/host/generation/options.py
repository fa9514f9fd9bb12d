"""The options of output lengths (fairseq reads the types of the fields when it runs)."""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

#: what --length-from may name beside a number and a file
SOURCES = ("reference", "source", "predictor")


@dataclass
class OutputLengthConfig(FairseqDataclass):
    """The options of output lengths; those of generation hold for every model, whether it reads lengths or not."""

    length_noise: int = field(
        default=0, metadata={"help": "training adds a random whole number from -W to W to every length", "metavar": "W"}
    )
    length_from: str = field(
        default="",
        metadata={
            "help": "lengths that generation asks for: reference, source, predictor, a number, or a file with a number a line "
            "(default: reference, of models that read lengths)"
        },
    )
    length_ratio: float = field(default=1.0, metadata={"help": "factor of these lengths"})
    length_eos: ChoiceEnum(["free", "min", "exact"]) = field(
        default="free",
        metadata={"help": "sentences end where the model ends them, not before the asked length, or exactly there"},
    )
    seed: int = II("common.seed")
