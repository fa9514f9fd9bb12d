"""The task options for output lengths and documents.

fairseq reads the types of the fields at run time. Therefore, this file does not import `annotations` from `__future__`.
"""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

#: words that --length-from accepts in addition to a number or a file
SOURCES = ("reference", "source", "predictor")


@dataclass
class OutputLengthConfig(FairseqDataclass):
    """Options for output lengths.

    --length-noise is an option of training. The other options of this class are options of decoding, which work with every
    autoregressive model of this plugin.
    """

    length_noise: int = field(
        default=0,
        metadata={
            "help": "noise W of target lengths in training: a random integer from -W to W is added to each length (default: 0)",
            "metavar": "W",
        },
    )
    length_from: str = field(
        default="",
        metadata={
            "help": "requested output lengths: reference (length of the reference), source (length of the source), predictor "
            "(predicted length), a number, or a file with one number per line "
            "(default: reference for models that read lengths, none for other models)"
        },
    )
    length_ratio: float = field(default=1.0, metadata={"help": "factor of the requested lengths (default: 1.0)"})
    length_eos: ChoiceEnum(["free", "min", "exact"]) = field(
        default="free",
        metadata={
            "help": "end of sentences: free (chosen by the model), min (not before the requested length), or exact (at "
            "the requested length) (default: free)"
        },
    )
    seed: int = II("common.seed")


@dataclass
class SegmentConfig(FairseqDataclass):
    """The decoding option for documents.

    This option forces sentence separators. It works with every autoregressive model of this plugin. The position methods of the
    model do not have to read separators.
    """

    segments_forced: str = field(
        default="",
        metadata={
            "help": "separator token. A translation must have as many sentences as its source. A target sentence has at "
            "least one token and at most 1.2 n + 10 tokens, where n is the number of tokens of the source sentence "
            "(default: not forced)",
            "metavar": "TOKEN",
        },
    )


#: options of decoding and their default values. A training run reads them only for --eval-bleu
DECODING = {
    "length_from": OutputLengthConfig.length_from,
    "length_ratio": OutputLengthConfig.length_ratio,
    "length_eos": OutputLengthConfig.length_eos,
    "segments_forced": SegmentConfig.segments_forced,
}
