# SPDX-License-Identifier: Apache-2.0
"""A service on a simulated card of its own, programs on that card, and plain HTTP."""

import glob
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from cli_support import BUILD, CUVMM, CliTest, cuvmm
from top_support import Holder

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The packages that ./dev test installed into .venv.
sys.path += glob.glob(os.path.join(ROOT, ".venv", "lib", "python3*", "site-packages"))


def comes_true(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


class Server:
    """A program that serves the live view, and its port."""

    def __init__(self, words, env, pattern):
        self.log = tempfile.TemporaryFile(prefix="cuvmm-web-")
        self.process = subprocess.Popen([str(word) for word in words], env=dict(os.environ, **env),
                                        stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT)
        if not comes_true(lambda: re.search(pattern, self.said()) or
                          self.process.poll() is not None):
            raise RuntimeError(self.said())
        found = re.search(pattern, self.said())
        if not found:
            raise RuntimeError(self.said())
        self.port = int(found.group(1)) if found.groups() else None

    def said(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        finally:
            self.process.kill()
            self.log.close()
        return self.process.returncode


class WebTest(CliTest):
    """Gives each test its own runtime folder and card, and a service if it starts one."""

    def setUp(self):
        super().setUp()
        self.runtime = tempfile.mkdtemp(prefix="cuvmm-web-")
        self.addCleanup(shutil.rmtree, self.runtime)
        self.card = os.path.basename(self.runtime)
        self.service = None
        self.addCleanup(self.remove_card)
        self.service_socket = os.path.join(self.runtime, "d.sock")
        self.env = {"XDG_RUNTIME_DIR": self.runtime, "VMM_PUBLISH": "on",
                    "VMM_NODE_SOCKET": self.service_socket, "VMM_SIM_CARD": self.card}
        seen = cuvmm("top", "--json", env=self.env)
        if seen.returncode != 0 or json.loads(seen.stdout)["processes"]:  # it also looks in /tmp
            self.skipTest("programs of others run under cuvmm")

    def remove_card(self):
        path = f"/dev/shm/cuvmm-sim-card-{os.geteuid()}-{self.card}"
        if os.path.exists(path):
            os.unlink(path)

    def serve(self, *words):
        """Starts cuvmmd with HTTP on an unused port."""
        server = Server([os.path.join(BUILD, "bin", "cuvmmd"), "--socket", self.service_socket,
                         f"--sim=card={self.card},memory=256M", "--http", "127.0.0.1:0", *words],
                        self.env, r"live view is at http://127\.0\.0\.1:(\d+)/(?s:.)*serves")
        self.addCleanup(server.end)
        self.service = server
        return server

    def serve_top(self, *words):
        server = Server([CUVMM, "top", "--web", *words], self.env, r"http://127\.0\.0\.1:(\d+)/")
        self.addCleanup(server.end)
        return server

    def holder(self, sizes, *run_words, **more):
        holder = Holder(sizes, *run_words, env=dict(self.env, **more))
        self.addCleanup(holder.end)
        if sizes and self.service:  # on a busy machine the lease may take a while
            self.assertTrue(comes_true(lambda: self.has_lease(holder)))
        return holder

    def has_lease(self, holder):
        """Whether the service has granted it memory, and has seen its figures."""
        clients = json.loads(self.get(self.service, "/state")[1])["clients"]
        return any(client["process"] == holder.number and client["answers"] and
                   any(held.get("leased_bytes") for held in client["holdings"])
                   for client in clients)

    def get(self, server, path, **headers):
        """Returns status and body. In names of headers, _ stands for -."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            connection.request("GET", path, headers={name.replace("_", "-"): value
                                                     for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8")
        finally:
            connection.close()

    def metrics(self, server, **headers):
        status, body = self.get(server, "/metrics", **headers)
        self.assertEqual(status, 200, body)
        return body


def ask_raw(port, request, shuts_down=False):
    """Returns the answer to these bytes, read until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        if shuts_down:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while True:
            try:
                more = connection.recv(65536)
            except ConnectionResetError:
                return answer
            if not more:
                return answer
            answer += more


def samples_of(body):
    """Returns the values by name and labels."""
    samples = {}
    for line in body.splitlines():
        found = re.fullmatch(r'(\w+)(?:\{(.*)\})? (\S+)', line)
        if found and not line.startswith("#"):
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found.group(2) or ""))
            samples[found.group(1), tuple(sorted(labels.items()))] = float(found.group(3))
    return samples


def value_matches(labels, name, wanted):
    if name == "gpu_uuid" and wanted is None:
        return labels.get(name) != "host"
    return labels.get(name) == wanted


def value_of(body, name, **labels):
    """Returns the value of the only sample with this name and these labels.

    Samples of the host match only if the labels ask for it.
    """
    labels = {"gpu_uuid": None, **labels}
    found = [value for (sample, its), value in samples_of(body).items()
             if sample == name and all(value_matches(dict(its), *label)
                                       for label in labels.items())]
    if len(found) != 1:
        raise AssertionError(f"{name}{labels}: {found}\n{body}")
    return found[0]
