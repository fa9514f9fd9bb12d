"""Options of the recipes: every value is checked before bash evaluates it, and misspelt names raise errors."""

import re
import subprocess

import pytest

from tests.recipes.declared import NEEDED, RECIPES, VARIANTS, few_rows, kind_of, options_of, outcomes, refused_names, run
from tests.recipes.process import ROOT, programs

NUMERIC = {"whole", "wholes", "decimal", "decimals", "fraction", "fractions"}
CASES = [
    pytest.param(recipe, variant, marks=[pytest.mark.slow] * bool(variant), id=" ".join([recipe, *variant.values()]))
    for recipe in RECIPES
    for variant in VARIANTS[recipe]
]


def refused(done):
    """Check that the recipe failed and printed only one line of error. Return this line."""
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_option_has_a_kind_and_a_help(recipe):
    known = {"whole", "wholes", "decimal", "decimals", "fraction", "fractions", "flag", "choice", "choices", "language", "text"}
    assert {kind_of(kind) for kind, _ in options_of(recipe).values()} <= known
    shown = run(recipe, "--help")
    assert shown.returncode == 0 and shown.stderr == ""
    for name, (_, default) in options_of(recipe, **NEEDED.get(recipe, {})).items():
        assert re.search(rf'^  {name}=("{re.escape(default)}"|{re.escape(default)})\n {{6}}\w', shown.stdout, re.MULTILINE), name


#: texts that are not numbers. Bash reads several of them as numbers in arithmetic
NO_NUMBERS = ["1e99", "08", "-1", "0x10", "1 +1", "  ", "٣"]


@pytest.mark.parametrize("recipe, variant", CASES)
def test_no_value_of_an_option_is_run(recipe, variant, tmp_path):
    """Set every option to values that contain commands, as an argument and in the environment. No command may run.

    One value runs a command if Bash evaluates the value as arithmetic. The other value also contains command substitutions.
    Every option has one value as an argument and the other in the environment. For every second option, the values are
    exchanged. If an option requires a number, the error is one line that names the option. If `variant` contains settings such
    as DATA=multi30k, the test uses only options that are new or have another kind with these settings.

    One process tries all values. One value of every kind is also tried with the recipe itself.
    """
    trap = tmp_path / "trap"
    arithmetic = f"PATH[$(touch {trap})0]"
    given = {**variant, **few_rows(recipe, **variant), "POSENC_BIN": "/opt/bin"}
    known = {name: kind for name, (kind, _) in options_of(recipe).items()} if variant else {}
    kinds = {name: kind for name, (kind, _) in options_of(recipe, **variant).items() if kind != known.get(name)}
    assert len(kinds) > 10
    tries, names, firsts = [], [], {}
    for number, (name, kind) in enumerate(kinds.items()):
        numeric = kind_of(kind) in NUMERIC
        values = [arithmetic, f"{arithmetic}$(touch {trap})`touch {trap}`"]
        argument, variable = values[:: 1 if number % 2 else -1]
        begin = len(tries)
        tries += [([f"{name}={value}"], given) for value in [argument, NO_NUMBERS[number % len(NO_NUMBERS)]][: 1 + numeric]]
        tries.append(([], {**given, name: variable}))
        names += [name] * (len(tries) - begin)
        firsts.setdefault(kind_of(kind), begin if number % 3 else len(tries) - 1)
    found = [(*pair, *outcome) for *pair, outcome in zip(names, tries, outcomes(recipe, tries, tmp_path))]
    for at in firsts.values():
        arguments, options = tries[at]
        found.append((names[at], tries[at], run(recipe, *arguments, env=options), trap.exists()))
    for name, (arguments, options), done, evaluated in found:
        value = arguments[0].partition("=")[2] if arguments else options[name]
        assert not evaluated, f"{name}={value}"
        if kind_of(kinds[name]) in NUMERIC:
            assert f"{name}={value}: not allowed" in refused(done)
        else:  # the option may be any text, so the recipe may succeed
            assert done.returncode == 0 or name in refused(done), done.stderr
    tried = {(name, bool(arguments)) for name, (arguments, _), *_ in found}
    assert tried == {(name, way) for name in kinds for way in (True, False)}


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_text_that_is_not_a_number_is_refused_by_every_kind(value):
    places = {}
    for recipe in RECIPES:
        for name, (kind, _) in options_of(recipe, **NEEDED.get(recipe, {})).items():
            places.setdefault(kind_of(kind), (recipe, name))
    assert places.keys() >= NUMERIC
    for recipe, name in map(places.get, sorted(NUMERIC)):
        done = run(recipe, f"{name}={value}", env={**NEEDED.get(recipe, {}), "POSENC_BIN": "/opt/bin"})
        assert f"{name}={value}: not allowed" in refused(done)


@pytest.mark.parametrize(
    "recipe, name, values, equal",
    [
        ("compare", "LR", "1e-3 5e-4 0.001", "1e-3 and 0.001"),
        ("compare", "LR", "1e-3\n1e-3", "1e-3 and 1e-3"),
        ("compare", "LR", "10e-4 1E-3", "10e-4 and 1E-3"),
        ("compare", "DROPOUT", "0.1 .1", "0.1 and .1"),
        ("compare", "SMOOTHING", "0 0.1 0.", "0 and 0."),
        ("compare", "LAYERS", "3 6 3", "3 and 3"),
        ("compare", "WARMUP", "0 0", "0 and 0"),
        ("quickstart", "SEEDS", "1 2 1", "1 and 1"),
        ("studies/lengths", "RATIOS", "1 1.0", "1 and 1.0"),
        ("studies/concatenation", "CONDITIONS", "L1 L1", "L1 and L1"),
    ],
)
def test_equal_values_of_a_list_are_refused(recipe, name, values, equal):
    line = refused(run(recipe, f"{name}={values}"))
    assert line.endswith(
        f"{name}={values.replace(chr(10), ' ')}: {equal} are equal. Expected different values. Remove one of the two.\n"
    )


@pytest.mark.parametrize("values", ["1e-3 1e-4", "0.1 0.10000000001", "1e-99 1e-98", "1 10 100 0"])
def test_different_values_of_a_list_are_allowed(values):
    assert run("compare", f"LR={values}", "train").stdout.count("fairseq-train") == 5 * len(values.split())


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_name_that_is_not_an_option_is_refused_with_the_nearest(recipe):
    own = options_of(recipe, **NEEDED.get(recipe, {}))
    exchanged = {name[:-2] + name[:-3:-1] for name in own if len(name) > 3} - own.keys()  # the last two characters
    found = refused_names(recipe, *(f"{name}=1" for name in exchanged))
    assert found.keys() == exchanged and all(said.startswith("unknown option. Did you mean ") for said in found.values()), found
    name = min(exchanged)
    assert f"recipes/{recipe}: {name}: {found[name]}\n" == refused(run(recipe, f"{name}=1"))
    assert "nonsense: unknown option. For all options, run with --help." in refused(run(recipe, "nonsense=1"))
    first = next(name for name in own if name not in ("DRY_RUN", "POSENC_BIN"))
    assert f"{first.lower()}: unknown option. Did you mean {first}?" in refused(run(recipe, f"{first.lower()}=1"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_options_of_other_recipes_in_the_environment_are_refused(recipe):
    own, all_names = options_of(recipe, **NEEDED.get(recipe, {})), {name for other in RECIPES for name in options_of(other)}
    foreign = sorted(all_names - set(own) - {"MASTER_ADDR", "MASTER_PORT", "NAME"})
    assert foreign
    in_environment = "this environment variable is not an option of this recipe. It is an option of"
    as_argument = "unknown option. It is an option of"
    assert f"{foreign[0]}: {in_environment}" in refused(run(recipe, **{foreign[0]: "1"}))
    assert f"{foreign[0]}: {as_argument}" in refused(run(recipe, f"{foreign[0]}=1"))
    found = refused_names(recipe, **dict.fromkeys(foreign, "1"))
    assert sorted(found) == foreign and all(said.startswith(in_environment) for said in found.values()), found
    found = refused_names(recipe, *(f"{name}=1" for name in foreign))
    assert sorted(found) == foreign and all(said.startswith(as_argument) for said in found.values()), found


@pytest.mark.parametrize(
    "name, nearest",
    [
        ("METHOD", "METHODS"),
        ("UPDATE", "UPDATES"),
        ("SEDE", "SEED"),
        ("SENTENCE", "SENTENCES"),
        ("TRIAN_OPTION", "TRAIN_OPTIONS"),
    ],
)
def test_a_misspelt_option_in_the_environment_is_refused(name, nearest):
    line = refused(run("quickstart", **{name: "1"}))
    assert f"{name}: this environment variable is similar to an option. Did you mean {nearest}?" in line


def test_ordinary_variables_are_left_alone():
    names = """
        HOME LANG LANGUAGE LC_ALL SOURCE_DATE_EPOCH USER LOGNAME SHELL TERM PWD TZ PORT HOST NAME MASTER_ADDR MASTER_PORT
        SLURM_JOB_ID SLURM_NTASKS CUDA_VISIBLE_DEVICES DISPLAY EDITOR PAGER LESS MAIL TMPDIR TEMP PS1 SHLVL RANK WORLD_SIZE
        LOCAL_RANK HOSTNAME COLUMNS LINES CI DEBUG CC CXX MAKEFLAGS http_proxy size out data methods VIRTUAL_ENV CONDA_PREFIX
        DATA_ROOT NODE_NAME OMP_WAIT_POLICY KMP_AFFINITY MKL_NUM_THREADS DATA_DIR LS_COLORS OLDPWD NO_COLOR XDG_DATA_HOME
    """.split()
    for recipe in ("quickstart", "wmt18/run"):
        done = run(recipe, env={name: "1" if name == "MASTER_PORT" else "C" for name in names})
        assert done.returncode == 0, done.stderr


def test_an_argument_goes_before_the_environment():
    shown = run("quickstart", "UPDATES=7", "train", UPDATES="5", METHODS="none")
    assert "--max-update 7" in shown.stdout and "fairseq-generate" not in shown.stdout
    assert run("quickstart", "UPDATES=", "METHODS=none", UPDATES="5").stdout.count("--max-update 1000") == 1  # empty: the default


def test_the_last_of_two_arguments_counts():
    assert "--max-update 9 " in run("quickstart", "METHODS=none", "UPDATES=7", "UPDATES=9").stdout


def test_a_list_that_may_be_empty():
    shown = {noises: run("studies/lengths", f"NOISES={noises}").stdout.count("fairseq-train") for noises in ("", "2 4")}
    assert shown == {"": 6, "2 4": 10}
    assert run("studies/lengths", NOISES="").stdout.count("fairseq-train") == 6


def test_numbers_in_the_form_of_python(tmp_path):
    right = [f"LR={value}" for value in ("3e-4", "0.001", ".5", "1E-3", "2", "1e+2")]
    right += [f"DROPOUT={value}" for value in ("1", "0", "0.25", ".5", "1.0")]
    wrong = [f"DROPOUT={value}" for value in ("1.1", "2", "nan", "inf", "1e-1")]
    tries = [([number, "METHODS=none", "train"], {"POSENC_BIN": programs()}) for number in right + wrong]
    for number, (done, _) in zip(right + wrong, outcomes("multi30k_uk/run", tries, tmp_path)):
        if number in right:
            assert done.returncode == 0 and f"{number.partition('=')[2]} " in done.stdout, done.stderr
        else:
            assert f"{number}: not allowed. Expected a decimal number from 0 to 1" in refused(done)


def test_help_comes_before_everything_else(tmp_path):
    done = subprocess.run([ROOT / "recipes" / "quickstart", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("Train position encodings on")
    assert "Stages, all by default: prepare train decode score table" in done.stdout


@pytest.mark.parametrize(
    "readme, recipe",
    [("multi30k_uk", "multi30k_uk/run"), ("wmt18", "wmt18/run"), ("studies/transformer_tiny", "studies/transformer_tiny/run")],
)
def test_tables_of_options_name_what_the_recipe_declares(readme, recipe):
    """The defaults in the tables are also compared."""
    own = options_of(recipe)
    text = (ROOT / "recipes" / readme / "README.md").read_text()
    rows = [line.split("|")[1:3] for line in text.splitlines() if re.match(r"\| `[A-Z_]+`[ ,]", line)]
    named = [(re.findall(r"`([A-Z_]+)`", names), defaults) for names, defaults in rows]
    assert len(named) > 4 and {name for names, _ in named for name in names} <= set(own)
    for names, defaults in named:
        given = [default.strip().strip("`").replace(",", "") for default in re.split(r", ", defaults)]
        if len(given) == len(names) and "by size" not in defaults:
            for name, default in zip(names, given):
                assert own[name][1].endswith(default) or "SOURCE" in default or not default[:1].isdigit(), name


def test_the_readme_names_every_recipe():
    text = (ROOT / "recipes" / "README.md").read_text()
    assert all(re.search(rf"\b{recipe.removeprefix('studies/')}\b", text) for recipe in RECIPES)
