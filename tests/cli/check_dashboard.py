# SPDX-License-Identifier: Apache-2.0
"""Checks the dashboard, the alerts and the scrape configuration against the existing metrics.

Checks their text, and runs them in Debian's Prometheus, which scrapes a running service.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

from cli_support import main, text
from web_support import ROOT, WebTest, comes_true

MONITORING = os.path.join(ROOT, "examples", "monitoring")
# Words of PromQL in the dashboard's queries.
WORDS = {"sum", "by", "max", "rate", "increase", "count", "or", "vector", "histogram_quantile"}


def dashboard():
    with open(os.path.join(MONITORING, "grafana-dashboard.json"), encoding="utf-8") as file:
        return json.load(file)


def queries():
    """Yields the title and query of each panel, as Grafana would send them."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], (target["expr"].replace("$gpu", ".*").replace("$client", ".*")
                                   .replace("$__rate_interval", "10s"))


class Queries(WebTest):
    def setUp(self):
        super().setUp()
        self.labels = {}
        for line in self.good("metrics", "--list").splitlines():
            name, kind, _, labels, _ = line.split("\t")
            endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            for ending in endings:
                self.labels[name + ending] = set(re.findall(r"\w+", labels)) | (
                    {"le"} if ending == "_bucket" else set())

    def test_queries_name_only_existing_metrics_and_labels(self):
        found = set()
        for title, query in queries():
            for name, selector in re.findall(r"(cuvmm_\w+)(\{[^}]*\})?", query):
                self.assertIn(name, self.labels, title)
                used = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selector))
                self.assertLessEqual(used, self.labels[name], title)
                found.add(name)
            grouped = set(re.findall(r"\w+", ",".join(re.findall(r"by \(([^)]*)\)", query))))
            all_labels = set().union(*(self.labels[name] for name in
                                       re.findall(r"cuvmm_\w+", query)))
            self.assertLessEqual(grouped, all_labels, title)
        self.assertGreater(len(found), 20)

    def test_alerts_name_only_existing_metrics(self):
        with open(os.path.join(MONITORING, "cuvmm-alerts.yml"), encoding="utf-8") as file:
            for name in re.findall(r"cuvmm_\w+_(?:bytes|seconds)", file.read()):
                self.assertIn(name, self.labels)

    @unittest.skipUnless(shutil.which("promtool"), "no promtool here")
    def test_promtool_accepts_the_alerts(self):
        for words in (["test", "rules", "cuvmm-alerts-test.yml"],
                      ["check", "config", "prometheus.yml"]):
            finished = subprocess.run(["promtool", *words], capture_output=True, timeout=60,
                                      cwd=MONITORING, check=False)
            self.assertEqual(finished.returncode, 0, text(finished.stdout + finished.stderr))


@unittest.skipUnless(shutil.which("prometheus"), "no prometheus here")
class InPrometheus(WebTest):
    def setUp(self):
        super().setUp()
        self.server = self.serve()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = os.path.join(self.runtime, "prometheus.yml")
        with open(os.path.join(MONITORING, "prometheus.yml"), encoding="utf-8") as file:
            own = file.read()
        own = own.replace("127.0.0.1:9435", f"127.0.0.1:{self.server.port}").replace("5s", "1s")
        with open(config, "w", encoding="utf-8") as file:
            file.write(own)
        shutil.copy(os.path.join(MONITORING, "cuvmm-alerts.yml"), self.runtime)
        process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--web.listen-address=127.0.0.1:{self.port}",
             f"--storage.tsdb.path={self.runtime}/data"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def ask(self, query):
        """Returns the samples; none while Prometheus does not answer yet."""
        url = (f"http://127.0.0.1:{self.port}/api/v1/query?" +
               urllib.parse.urlencode({"query": query}))
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it listens before its storage is open
                return []
            self.fail(f"{query}: {error.read().decode()}")
        except OSError:
            return []
        self.assertEqual(said["status"], "success", query)
        return said["data"]["result"]

    def test_every_panel_shows_the_figures_of_top(self):
        self.holder([96], "--name", "first", "--guarantee", "32M", "--wait", "20s")
        second = self.holder([], "--name", "second", "--limit", "240M", "--wait", "20s")
        self.assertTrue(comes_true(lambda: self.ask("cuvmm_moved_bytes_total")))
        second.do("held.append(allocate(200 << 20))")  # the first is paused to make room
        second.do("assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), "
                  "ctypes.c_size_t(100 << 20)) == 2")  # beyond its limit
        lease = 'cuvmm_memory_lease_bytes{client="second"}'
        self.assertTrue(comes_true(lambda: [one for one in self.ask(lease)
                                            if float(one["value"][1]) >= 200 << 20]))
        empty = []
        for title, query in queries():
            if not comes_true(lambda query=query: self.ask(query)):
                empty.append((title, query))
        self.assertEqual(empty, [])
        top = json.loads(self.good("top", "--json", env=self.env))
        for client in top["node"]["clients"]:
            for held in client["leases"]:
                where = '=' if held["place"] == "host" else '!='
                lease = (f'cuvmm_memory_lease_bytes{{client="{client["name"]}",'
                         f'gpu_uuid{where}"host"}}')
                self.assertTrue(comes_true(lambda lease=lease, held=held: {
                    float(one["value"][1]) for one in self.ask(lease)} == {held["leased_bytes"]}),
                    (lease, held))


if __name__ == "__main__":
    main()
