"""posenc path"""

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> None:
    print(Path(__file__).parents[1])
