"""Two machines on this computer: network namespaces with separate addresses, and a recipe that runs in one of them."""

import contextlib
import fcntl
import heapq
import itertools
import os
import select
import signal
import struct
import subprocess
import threading
import time

from tests.recipes.process import Process

_networks = itertools.count()


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip() or f"ip {' '.join(words)} failed")
    return done.stdout


class Network:
    """Namespaces and addresses of machine 0 and machine 1, connected by a pair of virtual interfaces."""

    def __init__(self):
        self.number = f"{os.getpid()}-{next(_networks)}"
        self.names = [f"posenc{self.number}{side}" for side in "ab"]
        self.addresses = ["10.77.0.1", "10.77.0.2"]
        self.interfaces = ["veth0", "veth1"]

    def open(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            self.connect()
            for name, interface, address in zip(self.names, self.interfaces, self.addresses):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
                ip("-n", name, "link", "set", "lo", "up")
            self.link("up")
        except BaseException:
            self.close()
            raise
        return self

    def connect(self):
        one, other = self.interfaces
        ip("-n", self.names[0], "link", "add", one, "type", "veth", "peer", "name", other, "netns", self.names[1])

    def close(self):
        for name in self.names:
            with contextlib.suppress(OSError):
                end_processes(name)
                ip("netns", "del", name)

    def link(self, state):
        """Connect the two machines (up), or interrupt the connection (down)."""
        for name, interface in zip(self.names, self.interfaces):
            ip("-n", name, "link", "set", interface, state)

    def sent(self, side):
        """Return the number of bytes that a machine has sent, including packet headers."""
        read = ["cat", f"/sys/class/net/{self.interfaces[side]}/statistics/tx_bytes"]
        return int(ip("netns", "exec", self.names[side], *read))


class SlowNetwork(Network):
    """A network in which packets from machine 0 to machine 1 take `delay` seconds. While `cut` is set, packets are lost."""

    _CREATE, _PLAIN = 0x400454CA, 0x1001  # constants of Linux: TUNSETIFF, and IFF_TUN | IFF_NO_PI

    def __init__(self, delay):
        super().__init__()
        self.delay, self.cut, self.ended, self.ends = delay, False, False, []

    def connect(self):
        self.interfaces = [f"{self.number}{side}"[-15:] for side in "ab"]
        for name, interface in zip(self.names, self.interfaces):
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            self.ends.append(end)
            fcntl.ioctl(end, self._CREATE, struct.pack("16sH", interface.encode(), self._PLAIN))
            ip("link", "set", interface, "mtu", "60000", "netns", name)
        self.relay = threading.Thread(target=self.carry)
        self.relay.start()

    def carry(self):
        waiting, order = [], itertools.count()
        while not self.ended:
            left = max(0, waiting[0][0] - time.monotonic()) if waiting else 0.1
            for end in select.select(self.ends, [], [], min(left, 0.1))[0]:
                packet = os.read(end, 1 << 16)
                side = self.ends.index(end)
                if not self.cut:
                    heapq.heappush(waiting, (time.monotonic() + (0 if side else self.delay), next(order), 1 - side, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, side, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # the buffer is full, or the interface goes down. TCP sends the packet again
                    os.write(self.ends[side], packet)

    def close(self):
        self.ended = True
        if self.ends:
            self.relay.join()
        for end in self.ends:
            os.close(end)
        super().close()


def end_processes(name):
    """Kill all processes of a namespace with SIGKILL."""
    for process in ip("netns", "pids", name).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)


class Machine(Process):
    """A recipe that runs on one of the two machines."""

    def __init__(self, network, side, recipe, out, **options):
        meeting = {"NNODES": "2", "NODE_RANK": str(side), "WORKER_TIMEOUT": "60", "MASTER_ADDR": network.addresses[0]}
        if "RDZV" in options:
            del meeting["MASTER_ADDR"]
        super().__init__(recipe, out, **{**meeting, **options})
        self.options["PYTHON_EXEC"] = f"{self.options['POSENC_BIN']}/python"
        self.name = network.names[side]

    def words(self, *stages):
        return ["ip", "netns", "exec", self.name, *super().words(*stages)]

    def kill(self):
        """Kill all processes, as in a power failure. The network stays available."""
        end_processes(self.name)
        self.process.communicate(timeout=60)
