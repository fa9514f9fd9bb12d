"""Return attention weights from models of `from_pretrained` if alignments are requested."""

import functools

from fairseq.tasks import FairseqTask


def with_alignments(build_generator):
    """Wrap fairseq's build_generator, so that models return attention weights if alignments are requested.

    `from_pretrained` prepares a model for decoding, which switches attention weights off. Alignments are requested later, in
    each call of the model.
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
