"""A sentence that contains only padding does not change other sentences. Distributed training may append such a sentence."""

import pytest
import torch

from fairseq_posenc import registry
from fairseq_posenc.testing.models import PAD, build, close, sentences, side_inputs


@pytest.mark.parametrize("name", registry.names())
def test_a_sentence_of_padding_changes_no_other(name):
    model = build(**registry.card(name).specs)
    source, target = torch.stack(sentences(140, 7, 7)), torch.stack(sentences(141, 6, 6))
    given = side_inputs(model, source)
    source[1] = PAD
    with torch.no_grad():
        both = model(source, None, target, side_inputs=given)[0]
        alone = model(source[:1], None, target[:1], side_inputs={key: value[:1] for key, value in given.items()})[0]
    close(both[:1], alone)
