"""python -m fairseq_posenc.cli"""

import sys

from . import main

sys.exit(main())
