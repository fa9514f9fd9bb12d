"""The `posenc` command. A subcommand's module is imported when it is called."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import NoReturn

from ..core import PositionError
from ..version import __version__

#: command -> its module, which has configure(parser) and run(args), and its help
COMMANDS = {
    "list": ("cli.list", "all methods, or those that agree with the filters"),
    "show": ("cli.show", "one method: equation, options, citation"),
    "path": ("cli.path", "the folder to give to fairseq's --user-dir"),
    "data": ("cli.data", "write the text files of a corpus: the artificial language, Multi30K, WMT18"),
    "side": ("data.side.command", "trees, graphs and orders of source sentences, for methods that read them"),
    "score": ("evaluation.scoring.score", "score what fairseq-generate printed, into score.json"),
    "archive": ("evaluation.scoring.archive", "collect the score.json files of many runs in two small files"),
    "report": ("evaluation.report.command", "show all runs side by side, from their score.json"),
    "lengths": ("evaluation.report.lengths", "output lengths that runs were asked for and gave"),
    "plot": ("cli.plot", "draw what methods do to attention"),
    "analyse": ("evaluation.analysis.command", "what the positions of trained models have learned"),
    "bench": ("bench.command", "what methods cost beside stock fairseq"),
    "average": ("host.checkpoints.average", "average the parameters of checkpoints"),
    "checkpoint": ("cli.checkpoint", "convert a checkpoint to longer sentences or to another method"),
    "check": ("cli.check", "whether methods can be built, or whether a method of your own keeps the contract"),
    "new": ("cli.new", "write a method of your own and its oracle, to fill in"),
    "recipes": ("cli.recipes", "copy the recipes of this version into a folder"),
    "completion": ("cli.completion", "let bash or zsh complete commands, options and specs"),
    "site": ("site.command", "build the documentation as a site"),
    "docs": ("cli.docs", "renew what is generated of the documentation"),
}

#: name of an earlier version -> what it is called now
RENAMED = {name: f"data {name}" for name in ("language", "multi30k", "wmt18")}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with arguments in one line, as for all other input."""

    def error(self, message: str) -> NoReturn:
        raise PositionError(f"{message}; see {self.prog} --help")


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; wrong input is one line on standard error and exit code 2."""
    completing = "_ARGCOMPLETE" in os.environ  # a shell asks, by what posenc completion has told it
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
    parser = _Parser(prog="posenc", description="Position methods for fairseq's Transformer.")
    parser.add_argument("--version", action="version", version=f"posenc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (module, help) in COMMANDS.items():
        command = commands.add_parser(name, help=help)
        if name == called:
            found = importlib.import_module(f"fairseq_posenc.{module}")
            found.configure(command)
            command.set_defaults(run=found.run)
    if completing:
        import argcomplete

        argcomplete.autocomplete(parser)  # answers and ends the process
    try:
        args = parser.parse_args(arguments)
        return args.run(args) or 0
    except PositionError as error:
        print(f"posenc: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # posenc list | head
        sys.stderr.close()
        return 0
