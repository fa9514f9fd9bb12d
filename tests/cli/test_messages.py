"""tests/messages.txt: the description and the options of every command, and messages about wrong input.

A reviewer reads this file to judge the language of the project. Renew it with: python -m tests.cli.test_messages
"""

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

from fairseq_posenc.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))  # pytest adds this folder, python -m does not
from posenc_docs.commands import all_commands, fairseq_options  # noqa: E402

FILE = ROOT / "tests" / "messages.txt"

#: commands with wrong input. `messages` creates the files that these commands read
WRONG = """
posenc lst
posenc list --site middle
posenc list --heads 7
posenc list --columns methd
posenc show
posenc show rop
posenc show pnat
posenc check t6
posenc check rope:base=0
posenc check rope:bse=3
posenc check rope:base=x
posenc check encoder=rope;encoder=t5
posenc check encoder:rope
posenc check alibi
posenc check t5 t5
posenc check posenc_t5_tiny
posenc check shaw+cape
posenc check rope+xpos
posenc check t5:layers=9
posenc check learned:layers=0
posenc check none.py
posenc new Slope
posenc new t5
posenc new slope --folder nowhere
posenc plot
posenc plot rope --length 1
posenc plot rope --output picture.jpg
posenc plot rope --output nowhere/picture.png
posenc plot rope --query 3
posenc plot huang1 --head 9
posenc plot nowhere/checkpoint.pt
posenc average out.pt missing.pt
posenc average out.pt . --last 2
posenc average out.pt .
posenc checkpoint
posenc checkpoint resize-positions missing.pt out.pt --max-source-positions 9 --max-target-positions 9
posenc checkpoint resize-positions empty.pt out.pt --max-source-positions 9 --max-target-positions 9
posenc checkpoint resize-positions empty.pt out.pt --max-source-positions 0 --max-target-positions 9
posenc checkpoint start-from empty.pt out.pt --method t6
posenc checkpoint start-from empty.pt empty.pt --method t5
posenc score run test
posenc score run test=reference.txt
posenc score run test=a test=b
posenc report nowhere
posenc report .
posenc report . --samples 0
posenc lengths nowhere
posenc archive nowhere --output archive
posenc verify nowhere/t5/seed1 runs
posenc bench t5 --shapes 8
posenc bench t5 --size huge
posenc bench t6
posenc side trees missing.conllu text
posenc side trees empty.pt text
posenc side order text --order order.txt
posenc side order text
posenc side compare missing order.txt
posenc side binarise nowhere -s en -t de --trainpref text
posenc data language text --words 5 2
posenc data multi30k text --source de --target de
posenc data multi30k text --from nowhere
posenc data wmt18 text --czeng nowhere
posenc analyse vectors nowhere
posenc recipes .
posenc site out --root nowhere
posenc docs nowhere
""".strip().splitlines()


def messages(folder: Path) -> list[str]:
    """Run each command in `WRONG`. Return the commands with the messages that they print to standard error."""
    (folder / "empty.pt").touch()
    (folder / "text").write_text("a b\n")
    (folder / "recipes").mkdir()
    found, before = [], Path.cwd()
    os.chdir(folder)
    try:
        for line in WRONG:
            error = io.StringIO()
            with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
                status = main(line.split()[1:])
            assert status == 2, line
            printed = error.getvalue().replace(str(folder), "FOLDER")
            found.append(f"$ {line}\n{printed}")
    finally:
        os.chdir(before)
    return found


def text() -> str:
    """Return the content of messages.txt."""
    parts = ["Descriptions and options\n"]
    for command in all_commands() + fairseq_options():
        options = "".join(f"    {option}: {meaning}\n" for option, meaning in command.options)
        parts.append(f"{command.name} - {command.summary}\n  {command.description}\n{options}")
    with tempfile.TemporaryDirectory() as folder:
        return "\n".join([*parts, "Messages about wrong input\n", *messages(Path(folder).resolve())])


def test_the_file_is_up_to_date():
    assert text() == FILE.read_text(encoding="utf-8")


def test_every_message_is_one_line():
    parts = FILE.read_text(encoding="utf-8").split("Messages about wrong input\n")[1].split("\n$ ")
    assert len(parts) == len(WRONG) + 1 or len(parts) == len(WRONG)
    assert [part for part in parts if part.strip() and len(part.strip().splitlines()) != 2] == []


def test_every_command_and_option_is_described():
    found = all_commands()
    assert {command.name.split()[1] for command in found} == set(COMMANDS)
    for command in found + fairseq_options():
        assert command.options or command in found, f"{command.name} adds no option"
        assert command.summary and command.description.endswith("."), command.name
        assert [option for option, meaning in command.options if not meaning] == [], command.name


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
