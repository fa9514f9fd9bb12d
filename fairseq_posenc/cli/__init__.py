"""The `posenc` command. The module of a subcommand is imported only when this subcommand is called."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import NoReturn

from ..core import PositionError
from ..version import __version__

#: command -> (module, help). The module has configure(parser) and run(args)
COMMANDS = {
    "list": ("cli.list", "table of all methods, with filters"),
    "show": ("cli.show", "equation, options and citation of a method"),
    "path": ("cli.path", "value for fairseq's --user-dir"),
    "data": ("cli.data", "text files of a corpus: the artificial language, Multi30K, WMT18 or your own text"),
    "concat": ("data.corpora.concat", "consecutive sentences of parallel text in one line"),
    "side": ("host.side.command", "trees, graphs and reorderings of the source, for methods that read them"),
    "score": ("evaluation.scoring.score", "BLEU and chrF of the output of fairseq-generate"),
    "archive": ("evaluation.scoring.archive", "scores of many runs in one small file"),
    "report": ("evaluation.report.command", "tables and plots of scored runs"),
    "lengths": ("evaluation.report.lengths", "requested and produced output lengths"),
    "verify": ("evaluation.report.reproduction", "comparison of a run with the committed run that it repeats"),
    "plot": ("cli.plot", "plot of the attention scores of methods"),
    "analyse": ("evaluation.analysis.command", "analyses of trained models"),
    "bench": ("bench.command", "time and memory of methods compared with stock fairseq"),
    "average": ("host.checkpoints.average", "average of the parameters of checkpoints"),
    "checkpoint": ("cli.checkpoint", "checkpoint for longer sentences or for another method"),
    "check": ("cli.check", "check of specs before training, or of your own method"),
    "new": ("cli.new", "files of a new method, with an example equation"),
    "recipes": ("cli.recipes", "copy the recipes of this version into a folder"),
    "completion": ("cli.completion", "shell completion for bash or zsh"),
    "site": ("cli.site", "documentation as a web site"),
    "docs": ("cli.docs", "regenerate the committed pages of the documentation"),
}

#: name in an earlier version -> current name
RENAMED = {name: f"data {name}" for name in ("language", "multi30k", "wmt18")}


class _Parser(argparse.ArgumentParser):
    """A parser that raises PositionError, so that its error messages have one line like all other error messages."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("posenc").strip()
        sentence = message if message.endswith(("?", ".")) else f"{message}."
        raise PositionError(f"{command}{': ' if command else ''}{sentence} For all options, run {self.prog} --help.")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Check a value as argparse does. The message is equal in all versions of Python. It contains the nearest choice."""
        if action.choices is not None and value not in action.choices:
            from ..registry.lookup import nearest

            # do not call `list` here, because the module cli.list replaces the name `list`
            choices = [str(choice) for choice in action.choices]
            hint = nearest(str(value), choices)
            raise argparse.ArgumentError(action, f"{value!r} is unknown. Expected {', '.join(choices)}.{hint}")


def make_parser(*configured: str | None) -> argparse.ArgumentParser:
    """Return the parser of all commands. Only the modules of the `configured` commands are imported."""
    parser = _Parser(prog="posenc", description="Train, compare and inspect position encodings of fairseq's Transformer.")
    parser.add_argument("--version", action="version", version=f"posenc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, help) in COMMANDS.items():
        command = commands.add_parser(name, help=help)
        if name in configured:
            found = importlib.import_module(f"fairseq_posenc.{module}")
            found.configure(command)
            command.set_defaults(run=found.run)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status. For wrong input, print one line on standard error and return 2."""
    completing = "_ARGCOMPLETE" in os.environ  # set by a shell with completion
    if completing:
        arguments = os.environ["COMP_LINE"].split()[1:]
    elif arguments is None:
        arguments = sys.argv[1:]
    if arguments and arguments[0] in RENAMED:
        print(
            f"posenc {arguments[0]}: renamed to posenc {RENAMED[arguments[0]]}. The old name works in this version.",
            file=sys.stderr,
        )
        arguments = [*RENAMED[arguments[0]].split(), *arguments[1:]]
    parser = make_parser(next((argument for argument in arguments if not argument.startswith("-")), None))
    if completing:
        import argcomplete

        argcomplete.autocomplete(parser)  # prints the completions and exits
    try:
        args = parser.parse_args(arguments)
        return args.run(args) or 0
    except PositionError as error:
        from ..common.messages import shorten_words

        print(f"posenc: {shorten_words(str(error))}", file=sys.stderr)
        return 2
    except SystemExit as error:  # an error of the plugin, printed on one line
        if not isinstance(error.code, str):
            raise
        print(f"posenc: {error.code.removeprefix('fairseq_posenc: ')}", file=sys.stderr)
        return 2
    except UnicodeEncodeError as error:
        print(
            f"posenc: the output has characters that the encoding {error.encoding} lacks. Expected UTF-8. "
            "Set PYTHONIOENCODING=utf-8.",
            file=sys.stderr,
        )
        return 2
    except BrokenPipeError:  # for example `posenc list | head`
        sys.stderr.close()
        return 0
    except OSError as error:  # for example a file name of more than 255 bytes
        from ..common.messages import shorten

        name = f"{shorten(str(error.filename), 200)}: " if error.filename is not None else ""
        print(f"posenc: {name}{error.strerror or error}. Expected a path that can be used. Check the path.", file=sys.stderr)
        return 2
