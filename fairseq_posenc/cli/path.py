"""posenc path: print the folder of the plugin, for --user-dir."""

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print the folder of the plugin, for example for: fairseq-train --user-dir $(posenc path)."


def run(args: argparse.Namespace) -> None:
    print(Path(__file__).parents[1])
