"""The options of output lengths and documents (fairseq reads the types of the fields when it runs)."""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

#: values of --length-from other than a number or a file
SOURCES = ("reference", "source", "predictor")


@dataclass
class OutputLengthConfig(FairseqDataclass):
    """Options of output lengths. Options of decoding apply to all models of this plugin."""

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


@dataclass
class SegmentConfig(FairseqDataclass):
    """The option of documents in generation. It applies to every model, also to models that do not read separators."""

    segments_forced: str = field(
        default="",
        metadata={
            "help": "separator of sentences: a translation gets as many sentences as its source, each of 1 to 1.2 n + 10 tokens "
            "for n source tokens (default: not forced)",
            "metavar": "TOKEN",
        },
    )
