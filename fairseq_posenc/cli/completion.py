"""posenc completion: print a script for the completion of commands in a shell."""

from __future__ import annotations

import argparse

from ..core import PositionError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print a script for completion of commands, options, methods and specs. "
        'For bash, add this line to ~/.bashrc: eval "$(posenc completion bash)". '
        'For zsh, add this line to ~/.zshrc, after compinit: eval "$(posenc completion zsh)".'
    )
    parser.add_argument("shell", choices=("bash", "zsh"), help="shell")


def run(args: argparse.Namespace) -> None:
    try:
        from argcomplete import shellcode
    except ImportError:
        raise PositionError("posenc completion: argcomplete is not installed. Install it with pip install argcomplete.") from None
    print(shellcode(["posenc"], shell=args.shell))
