"""The recipe multi30k_uk on a small corpus, with its data prepared once."""

import pytest

from tests.recipes.captions import Recipe, write_corpus


@pytest.fixture(scope="session")
def captions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions") / "corpus"
    write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def prepared(captions, tmp_path_factory):
    recipe = Recipe(captions, tmp_path_factory.mktemp("prepared") / "out", METHODS="none")
    recipe.run("fetch", "prepare")
    return recipe
