#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the live view of a node costs (docs/metrics.md).

    page.py [BUILD] [--clients 100] [--seconds 20] [--json FILE]

The service runs with that many programs on a simulated card and one reader of its stream, which
gets a state per second. For comparison, the same service is measured before the reader connects.
Exits with 1 if a program is missing from a state.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid


def processor_seconds(process):
    """Returns the CPU time of all threads of a process; /proc/PID/stat is too coarse."""
    used = 0
    for task in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{task}/schedstat", encoding="ascii") as file:
            used += int(file.read().split()[0])
    return used / 1e9


def percent_of(processes, seconds):
    began, used = time.monotonic(), [processor_seconds(one) for one in processes]
    time.sleep(seconds)
    took = time.monotonic() - began
    return [100 * (processor_seconds(one) - before) / took
            for one, before in zip(processes, used)]


class Reader(threading.Thread):
    """Reads the stream as the web page does."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.connection.request("GET", "/events")
        self.answer = self.connection.getresponse()
        self.sizes, self.clients = [], 0

    def run(self):
        while True:
            line = self.answer.fp.readline()
            if not line:
                return
            if line.startswith(b"data: "):
                self.sizes.append(len(line))
                self.clients = len(json.loads(line[6:])["clients"])


def start_service(build, card, socket, log):
    service = subprocess.Popen([f"{build}/bin/cuvmmd", "--socket", socket, "--http", "127.0.0.1:0",
                                f"--sim=card={card},memory=8G"], stdout=log, stderr=log)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        log.seek(0)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/(?s:.)*serves", log.read())
        if found:
            return service, int(found.group(1))
        time.sleep(0.02)
    raise RuntimeError("the service does not start")


def measure(build, clients, seconds, folder):
    card = f"bench-{uuid.uuid4().hex[:8]}"
    socket = f"{folder}/cuvmmd.sock"
    environment = dict(os.environ, VMM_NODE_SOCKET=socket, XDG_RUNTIME_DIR=folder)
    programs = []
    with open(f"{folder}/log", "w+", encoding="utf-8") as log:
        service, port = start_service(build, card, socket, log)
        try:
            for number in range(clients):
                # Holds 0.5% of the card, and writes to it occasionally.
                programs.append(subprocess.Popen(
                    [f"{build}/bin/cuvmm", "run", "--quiet", f"--sim=card={card},memory=8G",
                     "--name", f"client-{number}", "--", f"{build}/bin/take_turns", "--memory",
                     "0.5", "--steps", "100000", "--rest", "1000"],
                    env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(10)  # until all programs run
            alone, = percent_of([service.pid], seconds)
            reader = Reader(port)
            reader.start()
            time.sleep(3)
            watched = percent_of([service.pid] + [one.pid for one in programs], seconds)
            return {"clients": clients, "clients_shown": reader.clients, "seconds": seconds,
                    "states": len(reader.sizes), "bytes_a_state": max(reader.sizes),
                    "service_percent_unwatched": alone, "service_percent_watched": watched[0],
                    "each_program_percent": sum(watched[1:]) / clients}
        finally:
            for one in programs:
                one.kill()
                one.wait()
            service.terminate()
            service.wait()
            path = f"/dev/shm/cuvmm-sim-card-{os.geteuid()}-{card}"
            if os.path.exists(path):
                os.unlink(path)


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    words.add_argument("build", nargs="?", default="build")
    words.add_argument("--clients", type=int, default=100)
    words.add_argument("--seconds", type=float, default=20)
    words.add_argument("--json")
    arguments = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(os.path.abspath(arguments.build), arguments.clients, arguments.seconds,
                          folder)
    for name, value in figures.items():
        print(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)
            file.write("\n")
    return 0 if figures["clients_shown"] == figures["clients"] else 1


if __name__ == "__main__":
    sys.exit(main())
