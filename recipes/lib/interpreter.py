"""What recipes/setup asks a Python that it may make an environment with. Any Python can run this file.

interpreter.py suitable     exit status 0: its version is supported
interpreter.py complete     exit status 0: it has also venv and the headers that building fairseq needs
interpreter.py name         prints pythonX.Y, the name of its Debian package
interpreter.py home         prints where it is installed, and its version
"""

import sys


def suitable():
    sys.exit(not (3, 9) <= sys.version_info < (3, 13))


def complete():
    import ensurepip  # noqa: F401
    import os
    import sysconfig
    import venv  # noqa: F401

    sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))


def name():
    print("python%d.%d" % sys.version_info[:2])  # noqa: UP031


def home():
    print(sys.base_prefix + " " + sys.version.split()[0])


if __name__ == "__main__":
    {"suitable": suitable, "complete": complete, "name": name, "home": home}[sys.argv[1]]()
