"""The options that every recipe declares, as listed by the recipe itself."""

import functools
import re
import shlex
import subprocess

from tests.recipes.process import ROOT, environment, programs

#: all recipes that use recipes/lib, as paths below recipes/
RECIPES = sorted(
    str(path.relative_to(ROOT / "recipes"))
    for path in (ROOT / "recipes").rglob("*")
    if path.is_file() and path.stat().st_mode & 0o100 and b"\nsource recipes/lib/engine.sh" in path.read_bytes()
)

#: options that a recipe requires in a dry run
NEEDED = {
    "studies/trees": {"DATA_FROM": "data", "METHODS": "posenc_tpe"},
    "compare": {"TRAIN": "x/train", "VALID": "x/valid", "TESTS": "news=x/news", "SOURCE": "pt-BR", "TARGET": "en"},
}

#: recipe -> settings to test. With DATA=multi30k, some studies declare other options
VARIANTS = {**{recipe: [{}] for recipe in RECIPES}}
for study in ("studies/blocks", "studies/chance", "studies/clipping", "studies/diet"):
    VARIANTS[study] = [{}, {"DATA": "multi30k"}]

#: replaces the help of a recipe, and prints NAME, KIND and default of every option
LIST = r"""
print_help() {
  local name
  for name in "${option_names[@]}"; do printf '%s\t%s\t%s\0' "$name" "${kind_of[$name]}" "${default_of[$name]}"; done
}
"""

#: replaces the recipe's check of option names. The new check prints the messages of all wrong names, and the recipe ends
ALL_NAMES = r"""
eval "first_$(declare -f require_known_names)"
require_known_names() {
  local declared
  declared=$(options_of_all) # looked for once, and not for every name
  options_of_all() { echo "$declared"; }
  fail() { printf '%s\0' "$*"; }
  first_require_known_names
  exit
}
"""


#: reads recipes/lib once, and then the file `tries` of the folder $2. For each try, this file runs the recipe in a subshell. $1
#: contains the text of the recipe. The check of option names is replaced, because it does not read values
TRIES = r"""
text=$1
source recipes/lib/engine.sh
set +e
require_known_names() { :; }
folder=$2
outcome() { # STATUS: print the status, the output and the errors of a try, and whether the file `trap` exists
  local output errors trap=''
  IFS= read -rd '' output <"$folder/out"
  IFS= read -rd '' errors <"$folder/err"
  [[ ! -e $folder/trap ]] || trap=1
  printf '%s\0' "$1" "$output" "$errors" "$trap"
}
source "$folder/tries"
"""


def _text_of(recipe):
    """Return the path and the text of a recipe. The text does not depend on the file that contains it."""
    path = ROOT / "recipes" / recipe
    return path, path.read_text().replace('"${BASH_SOURCE[0]}"', f"'{path}'").replace("${0##*/}", path.name)


def _changed(recipe, functions, *arguments, **options):
    """Run a recipe in which the shell code `functions` replaces functions of recipes/lib. Return the list of printed texts.

    The recipe prints a NUL character after each text.
    """
    path, text = _text_of(recipe)
    text = text.replace("source recipes/lib/engine.sh\n", f"source recipes/lib/engine.sh\n{functions}")
    command = ["bash", "-c", text, str(path), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(**options), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\0")[:-1]


def outcomes(recipe, tries, folder):
    """Run a recipe as a dry run once for every try. A try is a pair of arguments and options in the environment.

    Return the completed process of every try, and whether the file `trap` in the folder exists after the try.
    """
    path, text = _text_of(recipe)
    lines = []
    for arguments, options in tries:
        given = shlex.join(["export", *(f"{name}={value}" for name, value in options.items())])
        words = shlex.join(["set", "--", *arguments])
        lines.append(f'({given}; {words}; eval "$text") >"$folder/out" 2>"$folder/err"; outcome $?\n')
    (folder / "tries").write_text("".join(lines))
    environ = environment(DRY_RUN="1", **NEEDED.get(recipe, {}))
    command = ["bash", "-c", TRIES, str(path), text, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    fields = done.stdout.split("\0")[:-1]
    assert done.returncode == 0 and done.stderr == "" and len(fields) == 4 * len(tries), done.stderr
    return [
        (subprocess.CompletedProcess(tries[at // 4], int(fields[at]), *fields[at + 1 : at + 3]), bool(fields[at + 3]))
        for at in range(0, len(fields), 4)
    ]


@functools.cache
def options_of(recipe, **given):
    """Return name -> (kind, default) of every option. The test replaces the function
    `print_help` of the recipe, so that it prints the declarations of the options.
    """
    rows = _changed(recipe, LIST, *(f"{name}={value}" for name, value in given.items()), "--help")
    return {name: (kind, default) for name, kind, default in (row.split("\t") for row in rows)}


def few_rows(recipe, **given):
    """Return settings with fewer rows and seeds than the defaults of a recipe. A dry run then prints fewer commands."""
    few = {"METHODS": "none", "SEEDS": "1", "SINGLE": "none", "DOCUMENTS": "none", "ROWS": "pnat", "REPEATS": "1", "NOISES": "2"}
    if recipe == "studies/lengths":
        few |= {"METHODS": "ldpe", "NOISY": "ldpe", "RATIOS": "1"}  # NOISY must be in METHODS
    return {name: value for name, value in few.items() if name in options_of(recipe, **given)}


def refused_names(recipe, *arguments, **options):
    """Return name -> message, for every wrong name in the arguments and in the environment."""
    given = {"DRY_RUN": "1", **NEEDED.get(recipe, {}), **options}
    return dict(line.split(": ", 1) for line in _changed(recipe, ALL_NAMES, *arguments, **given))


def run(recipe, *arguments, env=None, cwd=ROOT, **options):
    """Run a recipe as a dry run with these options in the environment."""
    given = {"POSENC_BIN": programs(), "DRY_RUN": "1", **NEEDED.get(recipe, {}), **(env or {}), **options}
    command = [ROOT / "recipes" / recipe, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment(**given), capture_output=True, text=True)


def kind_of(kind):
    return re.match("[a-z]+", kind)[0]
