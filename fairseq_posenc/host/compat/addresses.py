"""Print the address of this machine on its way to another: `python fairseq_posenc/host/compat/addresses.py MACHINE`.

The file imports only the standard library, so that recipes can run it by its path, without importing the package.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

_READ_ADDRESS = 0x8915  # SIOCGIFADDR of Linux


def address_to(machine: str) -> str:
    """Return the address from which packets to `machine` (a name or an address) leave. Nothing is sent.

    Raises OSError if the name is unknown or no interface leads there.
    """
    family, kind, protocol, _, place = socket.getaddrinfo(machine.strip("[]"), 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)
        return probe.getsockname()[0]


def interface_of(address: str) -> str | None:
    """Return the network interface that has this IPv4 address, None if none has it or the system cannot tell."""
    with contextlib.suppress(ImportError, OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        import fcntl  # not on Windows

        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                found = fcntl.ioctl(probe.fileno(), _READ_ADDRESS, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return None


if __name__ == "__main__":
    try:
        print(address_to(sys.argv[1]))
    except OSError as error:
        sys.exit(str(error))
