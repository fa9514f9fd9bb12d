"""Read the options of every command from its parser, for docs/reference/commands.md and for tests."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairseq_posenc.cli import COMMANDS, make_parser


@dataclass(frozen=True)
class Command:
    """One command with its description and its options."""

    name: str  # such as "posenc data wmt18"
    summary: str
    description: str
    options: tuple[tuple[str, str], ...]  # (option with its values, meaning)


def all_commands() -> list[Command]:
    """Return every `posenc` command, except commands that only group other commands."""
    return list(_commands(make_parser(*COMMANDS), ""))


def _commands(parser: argparse.ArgumentParser, summary: str) -> Iterator[Command]:
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        options = tuple((_form(action), _meaning(parser, action)) for action in parser._actions if action.dest != "help")
        yield Command(parser.prog, summary, " ".join((parser.description or "").split()), options)
    for action in nested:
        for choice in action._choices_actions:
            yield from _commands(action.choices[choice.dest], choice.help or "")


def fairseq_options() -> list[Command]:
    """Return the options that this plugin adds to fairseq-train and fairseq-generate. This function imports fairseq.

    `fairseq-train --help` does not print them, because fairseq prints the help before it reads the options of a model or a task.
    """
    from fairseq_posenc.host import plugin  # noqa: F401  (imported first, because it patches fairseq)

    # isort: split
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
    from fairseq.models.nat import NATransformerModel
    from fairseq.models.transformer import TransformerModel
    from fairseq.tasks.translation import TranslationTask
    from fairseq.tasks.translation_lev import TranslationLevenshteinTask

    from fairseq_posenc.host.criterions.cross_entropy import CrossEntropyWithLosses
    from fairseq_posenc.host.models.pnat.model import PNATModel
    from fairseq_posenc.host.models.transformer.model import PositionTransformer
    from fairseq_posenc.host.optimizers.adam import FairseqFusedAdam
    from fairseq_posenc.host.tasks.nat import ParallelTranslation
    from fairseq_posenc.host.tasks.translation import PositionTranslation

    return [
        _added(
            "fairseq-train --arch posenc_NAME", "options of the models",
            "Options of all models of this plugin, in addition to the options of fairseq's transformer.",
            PositionTransformer, TransformerModel,
        ),
        _added(
            "fairseq-train --arch posenc_pnat", "options of PNAT",
            "Options of the non-autoregressive model, in addition to the options of all models of this plugin.",
            PNATModel, PositionTransformer, NATransformerModel,
        ),
        _added(
            "fairseq-train --criterion posenc_label_smoothed_cross_entropy", "options of the criterion",
            "Options of the criterion, in addition to the options of fairseq's label_smoothed_cross_entropy.",
            CrossEntropyWithLosses, LabelSmoothedCrossEntropyCriterion,
        ),
        _added(
            "fairseq-train --optimizer posenc_adam", "options of the optimizer",
            "The updates of --optimizer adam, up to rounding, with one kernel of PyTorch for all parameters or for each "
            "parameter. The options are also options of adam. --memory-efficient-fp16 and --memory-efficient-bf16 require adam.",
            FairseqFusedAdam,
        ),
        _added(
            "fairseq-train and fairseq-generate --task posenc_translation", "options of the translation task",
            "Options of target lengths, documents and side files, in addition to the options of fairseq's translation task.",
            PositionTranslation, TranslationTask,
        ),
        _added(
            "fairseq-generate --task posenc_nat_translation", "options of non-autoregressive decoding",
            "Options of the task of PNAT, in addition to the options of fairseq's task translation_lev.",
            ParallelTranslation, TranslationLevenshteinTask,
        ),
    ]  # fmt: skip


def _added(name: str, summary: str, description: str, own: Any, *known: Any) -> Command:
    """Return the options of the plugin's class `own` that the classes `known` do not have."""
    old = {action.dest for owner in known for action in _parser(owner)._actions}
    parser = _parser(own)
    options = tuple((_form(action), _meaning(parser, action)) for action in parser._actions if action.dest not in old)
    return Command(name, summary, description, options)


def _parser(owner: Any) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    owner.add_args(parser)
    return parser


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


def page() -> str:
    """Return all commands and the options added to fairseq as Markdown."""
    parts = [
        "# Commands\n\nThis page lists the options of every `posenc` command, and the options that this plugin adds to "
        "fairseq-train and fairseq-generate. The page is generated from the code.\n\n"
        "A `posenc` command that fails prints one line on standard error and exits with status 2. If a method fails a check of "
        "`posenc check FILE.py`, or if `posenc verify` finds a larger difference than expected, the status is 1.\n"
    ]
    for command in all_commands() + fairseq_options():
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
