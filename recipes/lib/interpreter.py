"""Report properties of the Python that runs this file, for recipes/setup. Every version of Python can run this file.

interpreter.py suitable     exits with status 0 if this version of Python is supported
interpreter.py complete     exits with status 0 if this Python has venv and the C headers that are needed to build fairseq
interpreter.py version      prints the version, X.Y.Z
interpreter.py name         prints pythonX.Y, the name of the Debian package
interpreter.py home         prints the folder of the installation and the version
"""

import sys

OLDEST, NEWEST = (3, 10), (3, 14)


def suitable():
    sys.exit(not OLDEST <= sys.version_info[:2] <= NEWEST)


def complete():
    import ensurepip  # noqa: F401
    import os
    import sysconfig
    import venv  # noqa: F401

    sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))


def version():
    print(sys.version.split()[0])


def name():
    print("python%d.%d" % sys.version_info[:2])  # noqa: UP031


def home():
    print(sys.base_prefix + " " + sys.version.split()[0])


if __name__ == "__main__":
    {"suitable": suitable, "complete": complete, "version": version, "name": name, "home": home}[sys.argv[1]]()
