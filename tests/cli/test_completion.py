"""Completion of the posenc command. bash runs in a terminal. For zsh, the tests read the candidates that posenc returns."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_posenc import registry
from fairseq_posenc.cli import COMMANDS, main
from fairseq_posenc.registry import spec
from fairseq_posenc.registry.declarations import declarations

ROOT = Path(__file__).parents[2]
#: the posenc script, as installed by pip
PROGRAM = f"#!{sys.executable}\nimport sys\nfrom fairseq_posenc.cli import main\nsys.exit(main())\n"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Write a folder with the posenc script, and with the completion scripts for bash and zsh. Return the folder."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "posenc").write_text(PROGRAM)
    (folder / "posenc").chmod(0o755)
    for shell in ("bash", "zsh"):
        done = subprocess.run([folder / "posenc", "completion", shell], env=environment(folder), capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        (folder / shell).write_text(done.stdout)
    return folder


def environment(folder, **more):
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PATH": path, "TERM": "dumb", **more}


@pytest.fixture(scope="module")
def bash(programs):
    """Start bash in a terminal. Return a function that types a line and Tab, and returns the words of the completed line."""
    (programs / "rc").write_text((programs / "bash").read_text() + "PS1='ready '\n")
    worker, terminal = pty.fork()
    if not worker:
        os.chdir(programs)
        os.execvpe("bash", ["bash", "--noprofile", "--rcfile", "rc", "-i"], environment(programs, INPUTRC=os.devnull))

    def read(until):
        text = ""
        while until not in text:
            assert select.select([terminal], [], [], 60)[0], text
            text += os.read(terminal, 4096).decode()
        return text.replace("\r", "")

    def complete(line):
        """Type the line and press Tab. Return the words of the completed line.

        printf is inserted before the completed line. It prints each word."""
        os.write(terminal, f"{line}\t\x01printf '<%s>' \x05 end\n".encode())
        return re.findall("<(.*?)>", read("<end>").rpartition("printf '<%s>'")[2].partition("\n")[2])[:-1]

    read("ready ")
    yield complete
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    os.close(terminal)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("posenc sho", "posenc show"),
        ("posenc list --evid", "posenc list --evidence"),
        ("posenc list --evidence pee", "posenc list --evidence peer"),
        ("posenc show tupe_a", "posenc show tupe_abs"),
        ("posenc plot shaw:max_d", "posenc plot shaw:max_distance="),
        ("posenc plot rope shaw:max_distance=8,key", "posenc plot rope shaw:max_distance=8,keys="),
        ("posenc check sinusoidal+shaw:keys=f", "posenc check sinusoidal+shaw:keys=false"),
        ("posenc check posenc_tupe_a", "posenc check posenc_tupe_abs"),
        ("posenc report runs --baseline laplac", "posenc report runs --baseline laplacian"),
        ("posenc completion z", "posenc completion zsh"),
    ],
)
def test_bash_completes(bash, line, words):
    assert bash(line) == words.split()


def answers(programs, line, **more):
    """Return the candidates that posenc returns to zsh, without their help texts."""
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "zsh",
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    told = programs / "told"
    done = subprocess.run(
        [programs / "posenc"],
        env=environment(programs, _ARGCOMPLETE_STDOUT_FILENAME=str(told), **asked, **more),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    return [re.split(r"(?<!\\):", row)[0].replace("\\", "").strip() for row in told.read_text().splitlines()]


def test_zsh_is_told_the_same(programs):
    assert set(COMMANDS) <= set(answers(programs, "posenc "))
    assert answers(programs, "posenc show tupe_") == [name for name in registry.names() if name.startswith("tupe_")]
    assert answers(programs, "posenc plot none+shaw:keys=") == ["none+shaw:keys=true", "none+shaw:keys=false"]
    assert "compdef _python_argcomplete posenc" in (programs / "zsh").read_text()


def test_methods_outside_this_package_are_completed(programs, tmp_path):
    assert main(["new", "slope", "--folder", str(tmp_path)]) == 0
    assert answers(programs, "posenc show slo", POSENC_METHODS=str(tmp_path / "slope.py")) == ["slope"]


@pytest.mark.parametrize(
    "line", ["posenc bench t5+ro", "posenc report runs --methods t", "posenc average --", "posenc analyse vec"]
)
def test_completing_brings_no_torch(programs, line):
    """Completion does not import torch. Without this import, completion takes less than a second of CPU time."""
    told = programs / "told"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(told)}
    command = [sys.executable, "-X", "importtime", programs / "posenc"]
    done = subprocess.run(command, env=environment(programs, **asked), capture_output=True, text=True, check=True)
    loaded = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "fairseq_posenc.cli" in loaded and not {"torch", "fairseq", "matplotlib", "numpy"} & loaded
    assert told.read_text()


@pytest.mark.parametrize(
    ("begun", "continued"),
    [
        ("sinusoidal+sha", ["sinusoidal+shaw", "sinusoidal+shaw_abs", "sinusoidal+shape"]),
        ("shaw:keys=false,values=", ["shaw:keys=false,values=true", "shaw:keys=false,values=false"]),
        ("shaw:max_distance=", []),  # any number
        ("rope_scaled:scaling=li", ["rope_scaled:scaling=linear"]),
        ("t5:share=heads,sha", []),  # an option that was already given
        ("shw:", []),
        ("shaw:kes=", []),
    ],
)
def test_specs_are_completed_by_their_grammar(begun, continued):
    assert sorted(spec.complete(begun)) == sorted(continued)


@pytest.mark.parametrize("name", declarations())
def test_every_option_of_every_method_is_completed(name):
    assert spec.complete(f"{name}:") == [f"{name}:{option}=" for option, *_ in spec.option_rows(name)]


def test_without_the_library_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert main(["completion", "bash"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "pip install argcomplete" in error
