"""Regenerate the generated parts of the documentation that are in the git repository. Run: python docs/renew.py"""

import sys
from pathlib import Path

_DOCS = Path(__file__).parent
sys.path[:0] = [str(_DOCS.parent), str(_DOCS / "_ext")]

from fairseq_posenc.core import PositionError  # noqa: E402
from posenc_docs import committed  # noqa: E402

try:
    committed.renew(_DOCS.parent)
except PositionError as error:
    sys.exit(f"docs/renew.py: {error}")
