"""The checksum of a checkpoint depends on its content only, and fairseq-generate prints it."""

import logging
import os
import shutil

import pytest
import torch

from fairseq_posenc.host import plugin  # noqa: F401  (plugin patches fairseq)
from fairseq_posenc.host.checkpoints.checksum import checksum
from tests.checkpoints.files import write_checkpoint


def test_the_checksum_depends_on_the_content_only(tmp_path):
    first, second, copy, other = (tmp_path / f"{name}.pt" for name in ("first", "second", "copy", "other"))
    write_checkpoint(first, tmp_path)
    write_checkpoint(second, tmp_path)
    write_checkpoint(other, tmp_path, weight=torch.ones(1))
    shutil.copyfile(first, copy)
    os.utime(copy, (0, 0))
    assert checksum(first) == checksum(second) == checksum(copy) != checksum(other)
    assert len(checksum(first)) == 16


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive"])
def test_a_file_that_is_not_an_archive_has_no_checksum(tmp_path, content):
    (tmp_path / "a.pt").write_bytes(content)
    assert checksum(tmp_path / "a.pt") is None and checksum(tmp_path / "missing.pt") is None


def test_loading_a_model_for_decoding_logs_the_checksum(tmp_path, caplog):
    from fairseq_posenc.host.compat.generation import with_checksums

    path = tmp_path / "a.pt"
    write_checkpoint(path, tmp_path)
    with caplog.at_level(logging.INFO):
        assert with_checksums(lambda filenames, task: (filenames, task))([str(path), "missing.pt"], task=1)[1] == 1
    assert caplog.messages == [f"checksum {checksum(path)} of the checkpoint {path}"]
