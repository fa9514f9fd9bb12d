"""Generators that are built after the model was readied for decoding."""

import functools

from fairseq.tasks import FairseqTask


def with_alignments(build_generator):
    """fairseq's build_generator, whose models return attention weights if alignments are requested.

    Decoding leaves out weights that nobody needs. A model of the hub is readied for decoding when it is loaded, and whether its
    alignments are wanted is known with each call only.
    """

    @functools.wraps(build_generator)
    def build(self, models, args, *rest, **kwargs):
        if getattr(args, "print_alignment", None):
            for model in models:
                model.decoder.need_attn = True
        return build_generator(self, models, args, *rest, **kwargs)

    return build


def apply() -> None:
    FairseqTask.build_generator = with_alignments(FairseqTask.build_generator)
