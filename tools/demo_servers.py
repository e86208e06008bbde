#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Model switching: servers whose weights together exceed the card's memory, requested round robin.

    demo_servers.py [BUILD] [--servers 4] [--mib 288] [--memory 512M] [--rounds 3] [--card]

Under cuvmmd, the weights of idle servers are on the host. Reports how long a request takes if the
server's weights are on the host, and if they are on the card. The servers share a simulated card;
--card uses the real one, of which they get --memory. Exits with 1 if an answer is wrong or missing.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

from card_bench import visible_card


class Server:
    def __init__(self, arguments, environment, number, sim):
        command = [f"{arguments.build}/bin/cuvmm", "run", "--quiet", *sim, "--node", "require",
                   "--name", f"model-{number}", "--", f"{arguments.build}/bin/model_server",
                   "--mib", str(arguments.mib), "--seed", str(number + 1)]
        self.process = subprocess.Popen(command, env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.is_ready = self.process.stdout.readline() == "ready\n"

    def ask(self):
        """Returns how long the answer took in milliseconds; None if it is wrong or missing."""
        began = time.monotonic()
        try:
            self.process.stdin.write("request\n")
            self.process.stdin.flush()
        except OSError:
            return None
        answer = self.process.stdout.readline()
        return (time.monotonic() - began) * 1000 if answer.startswith("right ") else None

    def end(self):
        self.process.stdin.close()
        return self.process.wait(timeout=120) == 0


def serve(arguments, environment, sim):
    servers = [Server(arguments, environment, number, sim) for number in range(arguments.servers)]
    away, resident, is_right = [], [], all(server.is_ready for server in servers)
    for _ in range(arguments.rounds if is_right else 0):
        for server in servers:
            time.sleep(arguments.rest)
            answers = [server.ask(), server.ask()]
            is_right &= None not in answers
            away.append(answers[0] or 0)
            resident.append(answers[1] or 0)
    is_right &= all([server.end() for server in servers])
    return is_right, away, resident


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    words.add_argument("build", nargs="?", default="build")
    words.add_argument("--servers", type=int, default=4)
    words.add_argument("--mib", type=int, default=288)
    words.add_argument("--memory", default="512M", help="of the card, for all of them")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--rest", type=float, default=0.4, help="seconds between requests")
    words.add_argument("--card", action="store_true", help="the real one")
    words.add_argument("--json", help="a file for the figures")
    arguments = words.parse_args()
    name = f"servers-{uuid.uuid4().hex[:8]}"
    sim = [] if arguments.card else [f"--sim=card={name},memory={arguments.memory}"]
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/cuvmmd.sock"
        capacity = ["--capacity", f"{visible_card()}={arguments.memory}"] if arguments.card else []
        service = subprocess.Popen([f"{arguments.build}/bin/cuvmmd", "--socket", socket, *sim,
                                    *capacity, "--log-level", "warning"])
        try:
            until = time.monotonic() + 30
            while not os.path.exists(socket) and time.monotonic() < until:
                time.sleep(0.02)
            environment = dict(os.environ, VMM_NODE_SOCKET=socket)
            is_right, away, resident = serve(arguments, environment, sim)
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait()
            if not arguments.card:
                card = f"/dev/shm/cuvmm-sim-card-{os.geteuid()}-{name}"
                if os.path.exists(card):
                    os.unlink(card)
    if not is_right or not away:
        print("    a server did not answer, or not right")
        return 1
    figures = {"servers": arguments.servers, "weights_mib": arguments.mib,
               "memory": arguments.memory, "requests": 2 * len(away),
               "away_ms": {"median": statistics.median(away), "worst": max(away)},
               "resident_ms": {"median": statistics.median(resident), "worst": max(resident)}}
    print(f"    {arguments.servers} servers of {arguments.mib} MiB on a card of "
          f"{arguments.memory}: {2 * len(away)} requests, every answer right")
    print(f"    first answer {figures['away_ms']['median']:.1f} ms with the weights on the host, "
          f"{figures['resident_ms']['median']:.1f} ms with them on the card (medians)")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
