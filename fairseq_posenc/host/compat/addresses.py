"""Print this machine's address on the network of MACHINE: `python fairseq_posenc/host/compat/addresses.py MACHINE`.

Recipes run this file by its path and do not import the package. Therefore, the file imports only the standard library.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

_READ_ADDRESS = 0x8915  # SIOCGIFADDR of Linux


def address_to(machine: str) -> str:
    """Return the source address of packets that this machine would send to `machine` (a name or an address).

    This function sends no packets. Raise OSError if the name is unknown, or if no interface has a route to the machine.
    """
    family, kind, protocol, _, place = socket.getaddrinfo(machine.strip("[]"), 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)
        return probe.getsockname()[0]


def interface_of(address: str) -> str | None:
    """Return the network interface with this IPv4 address. Return None if no such interface is found."""
    with contextlib.suppress(ImportError, OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        import fcntl  # does not exist on Windows

        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # the interface has no IPv4 address
                found = fcntl.ioctl(probe.fileno(), _READ_ADDRESS, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return None


if __name__ == "__main__":
    try:
        print(address_to(sys.argv[1]))
    except OSError as error:
        sys.exit(str(error))
