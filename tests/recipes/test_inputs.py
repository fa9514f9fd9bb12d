"""Input files that change between two calls of a recipe with the same output folder."""

import gzip
import json
import os
import re
import shutil

import pytest

from tests.recipes.process import BIN
from tests.recipes.test_compare import compare, write
from tests.recipes.test_engine import bash

#: one stage that reads the file TEXT. TEXT.1 is a second input file, which may be missing
STAGES = """
one() { echo "one $COLOUR" >>"$OUT/log"; }
stages() { stage one "$OUT/a" one "COLOUR INPUTS SHAPE" one; }
read_arguments "$@"
option OUT text "" "output folder"
one_worker
choose_stages "one"
bin=$BIN input_files=(train.en "$TEXT")
[[ ! -e $TEXT.1 ]] || input_files+=(train.en.1 "$TEXT.1")
check_output
open_output
find_inputs
run_stages stages
"""


class Folder:
    """A text, and the output folder of a recipe that reads the text."""

    def __init__(self, place):
        self.text, self.out = place / "my texts" / "train.en", place / "out"
        self.stamp, self.cache = self.out / "a" / ".one.done", self.out / ".inputs"
        self.text.parent.mkdir()
        self.text.write_text("one\ntwo\n")
        self.run()

    def call(self, **options):
        return bash(
            STAGES, **{"OUT": str(self.out), "TEXT": str(self.text), "BIN": str(BIN), "COLOUR": "red", "SHAPE": "flat", **options}
        )

    def run(self):
        done = self.call()
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return done.stdout

    def refused(self, **options):
        done = self.call(**options)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done.stdout + done.stderr
        return done.stderr

    def error(self, path, what="changed"):
        return (
            f"recipes/recipe: {path}: {what} after an earlier call with OUT={self.out}. Expected the same input in all calls. "
            f"Use another folder (OUT), or remove {self.out}.\n"
        )


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.mark.parametrize("content", ["one\nTWO\n", "one\ntwo\nthree\n", ""])
def test_a_changed_file_is_named_until_it_is_restored(folder, content):
    folder.text.write_text(content)
    for _ in range(2):
        assert folder.refused() == folder.error(folder.text)
    folder.text.write_text("one\ntwo\n")
    assert "done before" in folder.run()
    folder.text.write_text(content)
    shutil.rmtree(folder.out)
    assert "done before" not in folder.run() and "done before" in folder.run()


def test_an_older_file_of_the_same_size_is_another_file(folder):
    folder.text.write_text("two\none\n")
    os.utime(folder.text, (1, 1))
    assert folder.refused() == folder.error(folder.text)


def test_a_copy_and_a_compressed_copy_are_the_same_file(folder):
    os.utime(folder.text, (1, 1))
    folder.run()
    zipped = folder.text.with_name("train.en.gz")
    zipped.write_bytes(gzip.compress(folder.text.read_bytes()))
    folder.text.unlink()
    assert "done before" in folder.run()
    zipped.write_bytes(gzip.compress(b"one\nthree\n"))
    assert folder.refused() == folder.error(zipped)
    zipped.write_bytes(zipped.read_bytes()[:-9])
    assert folder.refused() == folder.error(zipped)


def test_a_moved_output_folder_keeps_its_checksums(folder):
    folder.out = folder.out.rename(folder.out.with_name("moved"))
    folder.run()
    folder.text.write_text("other\n")
    assert folder.refused() == folder.error(folder.text)


def test_a_file_that_is_not_needed_any_more_may_be_missing(folder):
    """The next stages have the checksum of the missing file, on every machine that has the output folder."""
    folder.text.unlink()
    before = folder.stamp.read_text()
    assert "done before" in folder.run()
    folder.stamp.unlink()
    folder.run()
    assert folder.stamp.read_text() == before
    folder.cache.unlink()
    assert "done before" in folder.run()


def test_a_machine_without_the_files_does_not_refuse_them_later(folder):
    content = folder.text.read_text()
    for path in (folder.text, folder.cache, folder.stamp):
        path.unlink()
    folder.run()
    assert "INPUTS=\n" in folder.stamp.read_text()
    folder.text.write_text(content)
    assert "done before" in folder.run()


def test_a_new_reference_is_refused(folder):
    path = folder.text.with_name("train.en.1")
    path.write_text("reference\n")
    assert folder.refused() == folder.error(path, "added")
    path.unlink()
    folder.run()


def test_a_folder_of_an_earlier_version_is_continued(folder):
    folder.stamp.write_text("COLOUR=red\nSHAPE=flat\n")
    folder.cache.unlink()
    folder.text.write_text("other\n")
    assert "done before" in folder.run()


def test_other_settings_are_named(folder):
    folder.text.write_text("other\n")
    assert "created with other settings (COLOUR=red, now blue)" in folder.refused(COLOUR="blue")


def test_only_a_file_of_another_size_or_time_is_read_again(folder):
    """The checksum of the cache is used for the unchanged file, although this test has replaced it."""
    content = json.loads(folder.cache.read_text())
    assert [entry[:2] for entry in content.values()] == [[8, folder.text.stat().st_mtime_ns]]
    (checksum,) = (entry[2] for entry in content.values())
    for path in (folder.cache, folder.stamp):
        path.write_text(path.read_text().replace(checksum, "0" * 16))
    assert "done before" in folder.run()
    os.utime(folder.text, (1, 1))
    assert folder.refused() == folder.error(folder.text)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"x": 1}', '{"x": [1, "a", 2]}', "\0"])
def test_a_damaged_cache_is_computed_again(folder, content):
    before = folder.cache.read_text()
    folder.cache.write_text(content)
    folder.run()
    assert folder.cache.read_text() == before


# --- the recipe compare ---


def test_compare_compares_every_file_of_the_user(tmp_path):
    write(tmp_path / "corpus")
    recipe = compare(tmp_path / "corpus", tmp_path / "out")
    stamp = recipe.out / "text" / ".corpus.done"
    stamp.parent.mkdir(parents=True)
    stamp.write_text("INPUTS=none:0000000000000000\n")
    assert f"recipes/compare: {tmp_path}/corpus/train.pt-BR: added after" in recipe.fails("prepare")
    known = {os.path.basename(path): entry[2] for path, entry in json.loads((recipe.out / ".inputs").read_text()).items()}
    assert known.keys() == {path.name.removesuffix(".gz") for path in (tmp_path / "corpus").iterdir()} and len(known) == 9
    known["test2024.en"] = "0000000000000000"
    stamp.write_text(f"INPUTS={' '.join(f'{name}:{found}' for name, found in known.items())}\n".replace("test2024", "news"))
    assert f"recipes/compare: {tmp_path}/corpus/test2024.en: changed after" in recipe.fails("prepare")


@pytest.mark.slow
def test_compare_refuses_changed_text(tmp_path):
    write(tmp_path / "corpus")
    recipe = compare(tmp_path / "corpus", tmp_path / "out")
    recipe.run("prepare")
    changed = tmp_path / "corpus" / "web.en.gz"
    before, files = changed.read_bytes(), recipe.files().keys()
    changed.write_bytes(gzip.compress(gzip.decompress(before).upper()))
    for stage in ("prepare", "table"):
        assert recipe.fails(stage).startswith(f"recipes/compare: {changed}: changed after an earlier call with OUT={recipe.out}.")
    assert recipe.files().keys() == files
    changed.write_bytes(before)
    assert recipe.run("prepare").count("done before") == 3
    for stamp in ("text/.corpus.done", "text/.subwords.done", "data/.preprocess.done"):
        (names,) = re.findall("^INPUTS=(.*)$", (recipe.out / stamp).read_text(), re.MULTILINE)
        assert len(re.findall(r"(?:train|valid|news|web)\.(?:pt-BR|en|en\.1):[0-9a-f]{16}\b", names)) == 9
