"""Rules of imports: no import from a higher level, no fairseq in the core, and no torch in modules that only read cards."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "fairseq_posenc"

#: levels of the package from the lowest to the highest. A file imports only its own level and lower levels
FLOORS = [
    {"version"},
    {"core"},
    {"common", "ops"},
    {"methods"},
    {"registry"},
    {"attention"},
    {"data"},
    {"host"},
    {"plotting", "testing"},
    {"evaluation", "bench"},
    {"cli"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
#: folders that never import fairseq, not even inside a function
FREE_OF_FAIRSEQ = {"core", "ops", "methods", "registry", "attention", "data"}
#: folders that can be imported without importing torch
FREE_OF_TORCH = ["core", "common", "registry", "cli"]


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE)


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[tuple[str, str]]:
    """Return the first two parts of every imported name, such as ("fairseq_posenc", "core").

    If the name has only one part, the second part is "". Imports inside functions are included.
    """
    package = ("fairseq_posenc", *path.relative_to(PACKAGE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {(alias.name.split(".")[0], ".".join(alias.name.split(".")[1:2])) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            full = [*base, *(node.module or "").split(".")] if node.module else base
            names = [[*full, alias.name] for alias in node.names] if len(full) == 1 else [full]
            found |= {(name[0], name[1] if len(name) > 1 else "") for name in names}
    return found


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_import_points_upwards(path):
    own = FLOOR[room(path)]
    for package, other in imports(path):
        if package == "fairseq_posenc" and other in FLOOR:
            assert FLOOR[other] <= own, f"{path.relative_to(PACKAGE)} imports {other}, which stands above it"


def test_every_room_has_a_floor():
    assert {room(path) for path in files()} == set(FLOOR)


@pytest.mark.parametrize("path", [path for path in files() if room(path) in FREE_OF_FAIRSEQ], ids=lambda path: path.stem)
def test_the_core_never_names_fairseq(path):
    assert "fairseq" not in {package for package, _ in imports(path)}


def loaded(code: str) -> set[str]:
    """Run this code in a new process. Return the names of the modules that this process has imported."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"],
        cwd=PACKAGE.parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.parametrize("name", ["", *FREE_OF_TORCH])
def test_import_brings_no_torch(name):
    found = loaded(f"import fairseq_posenc{'.' * bool(name)}{name}")
    assert not found & {"torch", "fairseq", "matplotlib", "numpy"}


def test_import_brings_no_fairseq():
    names = ("attention", "core.method", "ops.kernels.blocked_bias", "methods.bias.t5")
    found = loaded("import " + ", ".join(f"fairseq_posenc.{name}" for name in names))
    assert "torch" in found and "fairseq" not in found


@pytest.mark.parametrize("command", [["path"], ["list"], ["show", "t5", "rr"], ["--version"]], ids=lambda command: command[0])
def test_light_commands_bring_no_torch(command):
    """`posenc path`, `list` and `show` must take less than a second of CPU time. Importing torch takes longer."""
    code = [
        "from fairseq_posenc.cli import main",
        "try:",
        f" main({command})",
        "except SystemExit as end:",
        " assert not end.code",
    ]
    assert not loaded("\n".join(code)) & {"torch", "fairseq", "matplotlib", "numpy"}


@pytest.mark.slow
def test_fairseq_loads_the_plugin_with_user_dir():
    """If fairseq is already imported, as with --user-dir, the import of the package registers its model."""
    assert "fairseq_posenc.host.models.transformer.model" in loaded("import fairseq\nimport fairseq_posenc")
