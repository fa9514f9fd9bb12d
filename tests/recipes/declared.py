"""The options that every recipe declares, as the recipe itself lists them."""

import functools
import re
import subprocess

from tests.recipes.process import BIN, ROOT, environment

#: every recipe of the engine, as a path below recipes/
RECIPES = sorted(
    str(path.relative_to(ROOT / "recipes"))
    for path in (ROOT / "recipes").rglob("*")
    if path.is_file() and path.stat().st_mode & 0o100 and b"\nsource recipes/lib/engine.sh" in path.read_bytes()
)

#: what a recipe cannot do without, in a dry run
NEEDED = {
    "studies/trees": {"DATA_FROM": "data", "METHODS": "posenc_tpe"},
    "compare": {"TRAIN": "x/train", "VALID": "x/valid", "TESTS": "news=x/news", "SOURCE": "pt-BR", "TARGET": "en"},
}

#: recipe -> the defaults of options with which it declares others
VARIANTS = {**{recipe: [{}] for recipe in RECIPES}}
for study in ("studies/blocks", "studies/chance", "studies/clipping", "studies/diet"):
    VARIANTS[study] = [{}, {"DATA": "multi30k"}]

#: in place of the help of a recipe: NAME, KIND and default of every option
LIST = r"""
print_help() {
  local name
  for name in "${option_names[@]}"; do printf '%s\t%s\t%s\0' "$name" "${kind_of[$name]}" "${default_of[$name]}"; done
}
"""


@functools.cache
def options_of(recipe, **given):
    """name -> (kind, default) of every option. The recipe runs with a `print_help` that prints what it has declared."""
    path = ROOT / "recipes" / recipe
    text = path.read_text().replace("source recipes/lib/engine.sh\n", f"source recipes/lib/engine.sh\n{LIST}")
    text = text.replace('"${BASH_SOURCE[0]}"', f"'{path}'").replace("${0##*/}", path.name)
    arguments = [f"{name}={value}" for name, value in given.items()]
    command = ["bash", "-c", text, str(path), *arguments, "--help"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [row.split("\t") for row in done.stdout.split("\0")[:-1]]
    return {name: (kind, default) for name, kind, default in rows}


def run(recipe, *arguments, env=None, cwd=ROOT, **options):
    """A dry run with these options in the environment."""
    given = {"POSENC_BIN": str(BIN), "DRY_RUN": "1", **NEEDED.get(recipe, {}), **(env or {}), **options}
    command = [ROOT / "recipes" / recipe, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment(**given), capture_output=True, text=True)


def kind_of(kind):
    return re.match("[a-z]+", kind)[0]
