"""posenc completion"""

from __future__ import annotations

import argparse

from ..core import PositionError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print what lets a shell complete commands, options, methods and specs. For bash, put this line into ~/.bashrc: "
        'eval "$(posenc completion bash)"; for zsh, this one into ~/.zshrc, behind compinit: eval "$(posenc completion zsh)".'
    )
    parser.add_argument("shell", choices=("bash", "zsh"))


def run(args: argparse.Namespace) -> None:
    try:
        from argcomplete import shellcode
    except ImportError:
        raise PositionError("completion needs a library that is not installed; run: pip install argcomplete") from None
    print(shellcode(["posenc"], shell=args.shell))
