"""Build generators for models that are already prepared for decoding."""

import functools

from fairseq.tasks import FairseqTask


def with_alignments(build_generator):
    """Wrap fairseq's build_generator, so that models return attention weights if alignments are requested.

    Decoding does not compute attention weights that are not needed. A model from the hub is prepared for decoding when it is
    loaded. Each later call decides whether alignments are computed.
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
