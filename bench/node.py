#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the node service on a simulated card, with clients that only exchange its messages.

    node.py [BUILD] [--rounds 5000] [--clients 100] [--seconds 10] [--kills 1000] [--json FILE]

docs/node.md describes the messages. Measures

- how long a lease takes to grow, from the request to the answer,
- the service's cost while that many clients are connected and idle,
- whether its accounting is exact after that many clients were killed at random. Exits with 1 if it
  is not.
"""

import argparse
import json
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid

GREETING, HELD, ASK, RETURN, REPORT = 1, 2, 3, 4, 5
GRANT, REFUSAL = 11, 12
STATE_ASK, PLACE, CLIENT, END = 64, 66, 67, 70
MIB = 1 << 20


def packet(kind, body):
    return b"CVND" + struct.pack("<HH", kind, 0) + body


def text(words):
    return struct.pack("<B", len(words)) + words.encode()


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.socket.settimeout(30)
        self.requests = 0

    def say(self, kind, body):
        self.socket.send(packet(kind, body))

    def hear(self):
        got = self.socket.recv(8192)
        if not got:
            raise EOFError("the service has ended the connection")
        return struct.unpack_from("<H", got, 4)[0], got[8:]

    def greet(self, name, device):
        self.device = device
        self.say(GREETING, struct.pack("<HH", 1, 1) + text(name) + text("") +
                 struct.pack("<IiB", 1, 0, 1))
        self.say(HELD, device + struct.pack("<QQQ", 0, 0, 2**64 - 1))

    def lease(self, size):
        self.requests += 1
        self.say(ASK, struct.pack("<Q", self.requests) + self.device + struct.pack("<Q?", size, True))
        while True:
            kind, body = self.hear()
            if kind in (GRANT, REFUSAL) and struct.unpack_from("<Q", body)[0] == self.requests:
                return kind == GRANT

    def give_back(self, size):
        self.say(RETURN, self.device + struct.pack("<Q", size))


def look(path):
    """Returns the first device's UUID, capacity and leased bytes, and the number of clients."""
    observer = Connection(path)
    observer.say(STATE_ASK, struct.pack("<H", 1))
    found, clients = None, 0
    while True:
        kind, body = observer.hear()
        if kind == PLACE and body[16] == 0 and found is None:
            found = (body[:16], *struct.unpack_from("<QQ", body, 21))
        clients += kind == CLIENT
        if kind == END:
            observer.socket.close()
            return (*found, clients)


def grow(path, device, rounds):
    client = Connection(path)
    client.greet("grows", device)
    times = []
    for i in range(rounds):
        if i % 20 == 0:
            time.sleep(0.002)  # below the service's rate limit
        began = time.perf_counter_ns()
        granted = client.lease(2 * MIB)
        times.append((time.perf_counter_ns() - began) / 1000)
        assert granted
        client.give_back(2 * MIB)
    client.socket.close()
    times.sort()
    return {"rounds": rounds, "median_us": statistics.median(times),
            "p99_us": times[len(times) * 99 // 100]}


def cpu_seconds(process):
    """Returns the CPU time of the process's only thread; /proc/PID/stat is too coarse."""
    with open(f"/proc/{process}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


def resident_mib(process):
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def stay_idle(path, device, process, count, seconds):
    clients = [Connection(path) for _ in range(count)]
    for number, client in enumerate(clients):
        client.greet(f"idle-{number}", device)
        assert client.lease(2 * MIB)
        client.say(REPORT, device + struct.pack("<QQ?", 0, 0, True))
    began, used = time.monotonic(), cpu_seconds(process)
    time.sleep(seconds)
    percent = 100 * (cpu_seconds(process) - used) / (time.monotonic() - began)
    memory = resident_mib(process)
    for client in clients:
        client.socket.close()
    return {"clients": count, "seconds": seconds, "processor_percent": percent,
            "resident_mib": memory}


def live(path, device, seed):
    """Requests and returns memory at random until the process is killed."""
    chance = random.Random(seed)
    client = Connection(path)
    client.greet(f"dies-{seed}", device)
    held = 0
    while True:
        if chance.random() < 0.6:
            size = chance.randrange(1, 16) * 2 * MIB
            held += size if client.lease(size) else 0
        elif held:
            size = chance.randrange(1, held + 1)
            client.give_back(size)
            held -= size
        time.sleep(chance.random() * 0.01)


def begin(path, device, seed):
    child = os.fork()
    if child == 0:
        try:
            live(path, device, seed)
        finally:
            os._exit(1)  # only a signal may end the process
    return child


def kill_at_random(path, device, count, at_once=16):
    chance = random.Random(1)
    children, killed, unexpected = [], 0, 0
    for seed in range(count):
        children.append(begin(path, device, seed))
        if len(children) < at_once and seed + 1 < count:
            continue
        time.sleep(chance.random() * 0.02)
        while children and (len(children) >= at_once or seed + 1 == count):
            child = children.pop(chance.randrange(len(children)))
            os.kill(child, signal.SIGKILL)
            unexpected += os.waitpid(child, 0)[1] != signal.SIGKILL
            killed += 1
    until = time.monotonic() + 20
    while time.monotonic() < until:
        _, _, leased, clients = look(path)
        if leased == 0 and clients == 0:
            break
        time.sleep(0.05)
    return {"killed": killed, "ended_otherwise": unexpected, "leased_at_the_end": leased,
            "clients_at_the_end": clients}


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    words.add_argument("build", nargs="?", default="build")
    words.add_argument("--rounds", type=int, default=5000)
    words.add_argument("--clients", type=int, default=100)
    words.add_argument("--seconds", type=float, default=10)
    words.add_argument("--kills", type=int, default=1000)
    words.add_argument("--json")
    arguments = words.parse_args()
    name = f"bench-{uuid.uuid4().hex[:8]}"
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/cuvmmd.sock"
        service = subprocess.Popen([f"{arguments.build}/bin/cuvmmd", "--socket", path,
                                    f"--sim=card={name},memory=1G", "--log-level", "error"])
        try:
            until = time.monotonic() + 30
            while not os.path.exists(path) and time.monotonic() < until:
                time.sleep(0.02)
            device = look(path)[0]
            if arguments.rounds:
                figures["lease_grows"] = grow(path, device, arguments.rounds)
            if arguments.clients:
                figures["idle"] = stay_idle(path, device, service.pid, arguments.clients,
                                            arguments.seconds)
            if arguments.kills:
                figures["kills"] = kill_at_random(path, device, arguments.kills)
        finally:
            service.terminate()
            service.wait()
            card = f"/dev/shm/cuvmm-sim-card-{os.geteuid()}-{name}"
            if os.path.exists(card):
                os.unlink(card)
    for subject, numbers in figures.items():
        shown = (f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
                 for key, value in numbers.items())
        print(f"{subject}: {', '.join(shown)}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)
            file.write("\n")
    kills = figures.get("kills", {})
    exact = not kills.get("leased_at_the_end") and not kills.get("clients_at_the_end") and \
        not kills.get("ended_otherwise")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
