"""Read the options of every command from its parser, for docs/reference/commands.md and for tests."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """One command with its description and its options."""

    name: str  # such as "posenc data wmt18"
    summary: str
    description: str
    options: tuple[tuple[str, str], ...]  # (option with its values, meaning)


def commands(parser: argparse.ArgumentParser) -> list[Command]:
    """Return every command of a parser and of its subparsers, except commands that only group other commands."""
    return list(_commands(parser, ""))


def _commands(parser: argparse.ArgumentParser, summary: str) -> Iterator[Command]:
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        options = tuple((_form(action), _meaning(parser, action)) for action in parser._actions if action.dest != "help")
        yield Command(parser.prog, summary, " ".join((parser.description or "").split()), options)
    for action in nested:
        for choice in action._choices_actions:
            yield from _commands(action.choices[choice.dest], choice.help or "")


def _form(action: argparse.Action) -> str:
    """Return an option as users type it, with the name or the choices of its values."""
    value = "" if action.nargs == 0 else _value(action)
    names = [f"{name} {value}".strip() for name in action.option_strings] or [value]
    return ", ".join(names)


def _value(action: argparse.Action) -> str:
    if action.metavar is not None:
        return " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def page(found: list[Command]) -> str:
    """Return the commands as Markdown."""
    parts = [
        "# Commands\n\nThis page lists the options of every `posenc` command. `posenc docs` generates it from the code. To "
        "print the options that this plugin adds to fairseq-train, run `fairseq-train --user-dir $(posenc path) "
        "--arch posenc_transformer --task posenc_translation --help`.\n\n"
        "A command that fails prints one line on standard error and exits with status 2.\n"
    ]
    for command in found:
        rows = "".join(f"| `{_escape(option)}` | {_cell(meaning)} |\n" for option, meaning in command.options)
        table = f"\n| option | meaning |\n|---|---|\n{rows}" if rows else ""
        parts.append(f"## {command.name}\n\n{_cell(command.description, in_table=False)}\n{table}")
    return "\n".join(parts)


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _cell(text: str, in_table: bool = True) -> str:
    """Escape all Markdown."""
    for character in "*_<[$":
        text = text.replace(character, f"\\{character}")
    return _escape(text) if in_table else text


def write(path: Path, found: list[Command]) -> None:
    """Write docs/reference/commands.md."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(page(found), encoding="utf-8")
