# SPDX-License-Identifier: Apache-2.0
"""`/metrics` of cuvmmd and `cuvmm metrics`: their values, formats and access control."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

from cli_support import CUVMM, cuvmm, main, text
from web_support import BUILD, ROOT, WebTest, ask_raw, comes_true, samples_of, value_of

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
    from prometheus_client.parser import text_string_to_metric_families as prometheus
except ImportError:
    prometheus = open_metrics = None

MiB = 1 << 20
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def sockets_of(server):
    folder = f"/proc/{server.process.pid}/fd"
    sockets = 0
    for number in os.listdir(folder):
        try:
            sockets += os.readlink(os.path.join(folder, number)).startswith("socket:")
        except FileNotFoundError:
            pass  # closed meanwhile
    return sockets


def state_of(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(") ")[2].split()[0]


def processor_seconds_of(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as file:
        user, system = file.read().rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class Figures(WebTest):
    def test_figures_match_top(self):
        server = self.serve()
        self.holder([32, 16], "--name", "train", "--guarantee", "64M", "--limit", "128M")
        body = self.metrics(server)
        self.assertEqual(value_of(body, "cuvmm_service_up"), 1)
        self.assertEqual(value_of(body, "cuvmm_memory_live_bytes", client="train"), 48 * MiB)
        self.assertEqual(value_of(body, "cuvmm_memory_guaranteed_bytes", client="train"), 64 * MiB)
        self.assertEqual(value_of(body, "cuvmm_memory_limit_bytes", client="train"), 128 * MiB)
        top = json.loads(self.good("top", "--json", env=self.env))
        lease = next(one for one in top["node"]["clients"][0]["leases"]
                     if one["place"] == "device 0")
        self.assertEqual(value_of(body, "cuvmm_memory_lease_bytes", client="train"),
                         lease["leased_bytes"])
        device = next(one for one in top["node"]["places"] if one["place"] == "device 0")
        uuid = next(dict(labels)["gpu_uuid"] for (name, labels) in samples_of(body)
                    if name == "cuvmm_memory_lease_bytes" and dict(labels)["gpu_uuid"] != "host")
        self.assertEqual(value_of(body, "cuvmm_memory_capacity_bytes", gpu_uuid=uuid),
                         device["capacity_bytes"])
        self.assertEqual(value_of(body, "cuvmm_memory_physical_bytes", client="train"),
                         top["processes"][0]["physical_bytes"])

    def test_counts_a_refused_allocation(self):
        server = self.serve()
        holder = self.holder([16], "--name", "one", "--limit", "32M")
        before = value_of(self.metrics(server), "cuvmm_alloc_failures_total", client="one")
        holder.do("assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), "
                  "ctypes.c_size_t(64 << 20)) == 2")
        self.assertEqual(before, 0)
        self.assertTrue(comes_true(lambda: value_of(
            self.metrics(server), "cuvmm_alloc_failures_total", client="one") == 1))

    def test_counts_requests_that_no_reclaim_could_serve(self):
        server = self.serve()
        holder = self.holder([16], "--name", "one")
        holder.do("import struct; place, huge = ctypes.c_uint64(), ctypes.c_size_t(1 << 40)")
        holder.do("assert cuda.cuMemAlloc_v2(ctypes.byref(place), huge) == 2")
        holder.do("assert cuda.cuMemAllocAsync(ctypes.byref(place), huge, None) == 2")
        # A device's pinned memory that no other process gets.
        holder.do("assert cuda.cuMemCreate(ctypes.byref(place), huge, struct.pack('4i16x', 1, 0, 1, 0), "
                  "ctypes.c_uint64(0)) == 2")
        # During a capture, blocking memory comes from the driver.
        holder.do("stream, relaxed = ctypes.c_void_p(), 2; must(cuda.cuStreamCreate(ctypes.byref(stream), 1)); "
                  "must(cuda.cuStreamBeginCapture_v2(stream, relaxed)); "
                  "assert cuda.cuMemAlloc_v2(ctypes.byref(place), huge) == 2")
        self.assertTrue(comes_true(lambda: value_of(
            self.metrics(server), "cuvmm_alloc_failures_total", client="one") == 4))

    def test_counts_moved_memory_by_cause(self):
        server = self.serve()
        holder = self.holder([96], "--name", "first", "--wait", "20s")
        self.holder([], "--name", "second", "--wait", "20s").do(
            "held.append(allocate(200 << 20))")

        def moved():
            return sum(value for (name, labels), value in samples_of(self.metrics(server)).items()
                       if name == "cuvmm_moved_bytes_total" and ("client", "first") in labels and
                       ("cause", "pause") in labels)
        self.assertTrue(comes_true(lambda: moved() >= 96 * MiB))
        body = self.metrics(server)
        self.assertEqual(value_of(body, "cuvmm_memory_paused_bytes", client="first"), 96 * MiB)
        self.assertEqual(value_of(body, "cuvmm_client_state", client="first", state="paused"), 1)
        asked = sum(value for (name, labels), value in samples_of(body).items()
                    if name == "cuvmm_reclaims_total" and ("step", "pause") in labels)
        self.assertGreaterEqual(asked, 1)  # on a busy machine one may expire first
        self.assertGreaterEqual(value_of(body, "cuvmm_reclaimed_bytes_total", client="first",
                                         step="pause"), 40 * MiB)
        self.assertGreaterEqual(value_of(body, "cuvmm_pause_seconds_count", client="first",
                                         phase="out"), 1)
        self.assertGreaterEqual(value_of(body, "cuvmm_lease_wait_seconds_count", client="second"), 1)
        del holder

    def test_two_clients_with_one_name_stay_separate(self):
        server = self.serve()
        self.holder([8], "--name", "twin")
        self.holder([16], "--name", "twin")
        live = sorted(value for (name, _), value in samples_of(self.metrics(server)).items()
                      if name == "cuvmm_memory_live_bytes")
        self.assertEqual(live, [8 * MiB, 16 * MiB])

    def test_a_killed_client_is_not_shown_once_more(self):
        server = self.serve()
        holder = self.holder([8], "--name", "gone")
        self.assertEqual(value_of(self.metrics(server), "cuvmm_memory_live_bytes", client="gone"), 8 * MiB)
        holder.kill()
        body = self.metrics(server)
        self.assertNotIn('client="gone"', body)
        self.assertEqual(value_of(body, "cuvmm_clients"), 0)

    def test_a_client_killed_just_before_a_request_is_not_shown(self):
        server = self.serve()
        holder = self.holder([8], "--name", "gone")
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            time.sleep(0.3)  # so that it is accepted, and answered without a wait for fresher figures
            server.process.send_signal(signal.SIGSTOP)  # so that it sees both at the same time
            self.assertTrue(comes_true(lambda: state_of(server) == "T"))
            holder.kill()
            connection.sendall(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
            server.process.send_signal(signal.SIGCONT)
            body = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        self.assertIn("cuvmm_service_up 1", body)
        self.assertNotIn('client="gone"', body)

    def test_names_of_any_letters_stay_separate(self):
        server = self.serve()
        self.holder([8], "--name", "é")
        self.holder([8], "--name", "ü")
        for name in ("\udcfe", "\udcff"):  # bytes that are not UTF-8
            self.holder([8], "--name", name)
        body = self.metrics(server)
        series = [line.rpartition(" ")[0] for line in body.splitlines() if not line.startswith("#")]
        self.assertEqual(len(series), len(set(series)), body)
        self.assertEqual({dict(labels)["client"].partition("#")[0] for (name, labels), _ in samples_of(body).items()
                          if name == "cuvmm_client_info"}, {"é", "ü", "?"})

    def test_without_the_service_processes_publish_the_figures(self):
        self.holder([32], "--name", "alone")
        self.assertTrue(comes_true(  # it has answered once
            lambda: "cuvmm_memory_live_bytes{" in self.good("metrics", env=self.env)))
        body = self.good("metrics", env=self.env)
        self.assertEqual(value_of(body, "cuvmm_service_up"), 0)
        self.assertEqual(value_of(body, "cuvmm_memory_live_bytes", client="alone"), 32 * MiB)
        self.assertNotIn("cuvmm_memory_lease_bytes{", body)
        self.assertNotIn("cuvmm_memory_limit_bytes{", body)

    def test_a_limit_set_at_run_time_is_in_the_trace(self):
        server = self.serve()
        trace = self.path("set.trace")
        holder = self.holder([16], "--name", "one", "--limit", "128M", "--trace", trace)
        self.good("set", "one", "--limit", "64M", env=self.env)
        self.assertTrue(comes_true(lambda: value_of(
            self.metrics(server), "cuvmm_memory_limit_bytes", client="one") == 64 * MiB))
        holder.do("assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(96 << 20)) == 2")
        holder.end()
        rows = [line.split(",") for line in self.good("export", "--format", "csv", trace, "-o", "-").splitlines()]
        self.assertEqual([int(row[11]) for row in rows if row[1] == "Limit"], [128 * MiB, 64 * MiB])
        self.assertEqual(self.json_of("advise", "--json", trace)["limit_bytes"], 64 * MiB)

    def test_a_limit_is_shown_without_the_service(self):
        self.holder([32], "--name", "alone", "--limit", "64M")
        self.assertTrue(comes_true(lambda: "cuvmm_memory_limit_bytes{" in self.good("metrics", env=self.env)))
        self.assertEqual(value_of(self.good("metrics", env=self.env), "cuvmm_memory_limit_bytes", client="alone"),
                         64 * MiB)

    def test_the_command_prints_what_the_service_serves(self):
        server = self.serve()
        self.holder([32], "--name", "one")
        served = set(samples_of(self.metrics(server)))
        self.assertEqual(set(samples_of(self.good("metrics", env=self.env))), served)

    def test_the_command_prints_no_half_of_what_the_service_serves(self):
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.service_socket.replace(".sock", ".http"))
            listening.listen()

            def answer():
                for _ in range(2):  # the command first looks whether somebody is there
                    with listening.accept()[0] as asker:
                        if asker.recv(4096):
                            asker.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\ncuvmm_up 1\n")

            thread = threading.Thread(target=answer)
            thread.start()
            finished = cuvmm("metrics", env=self.env)
            thread.join()
        self.assertEqual((finished.returncode, finished.stdout), (1, b""))
        self.assertIn("does not answer", text(finished.stderr))

    def test_counts_device_and_waiting_time_of_two_contending_programs(self):
        server = self.serve("--time", "share")
        programs = [subprocess.Popen(
            [CUVMM, "run", "--quiet", f"--sim=card={self.card},memory=256M", "--name", name, "--",
             os.path.join(BUILD, "bin", "busy"), "--kernel", "1ms", "--seconds", "60"],
            env=dict(os.environ, **self.env), stdout=subprocess.DEVNULL) for name in ("a", "b")]
        for one in programs:
            self.addCleanup(one.wait)
            self.addCleanup(one.terminate)

        def seconds(kind, client):
            return sum(value for (name, labels), value in samples_of(self.metrics(server)).items()
                       if name == f"cuvmm_gpu_{kind}_total" and ("client", client) in labels)
        for client in ("a", "b"):
            self.assertTrue(comes_true(lambda: seconds("seconds", client) > 0.3), client)
            self.assertTrue(comes_true(lambda: seconds("wait_seconds", client) > 0.3), client)

        def held():
            return [seconds("seconds", client) for client in ("a", "b")]
        before = held()  # the first to begin had the device to itself for a while

        def since():
            return [now - then for now, then in zip(held(), before)]
        self.assertTrue(comes_true(lambda: min(since()) > 0.5))
        shares = since()
        self.assertLess(max(shares), 4 * min(shares))

    def test_one_client_is_shown_with_its_arenas_and_windows(self):
        server = self.serve()
        self.holder([32, 16], "--name", "a name")
        status, body = self.get(server, "/client?label=a%20name")
        self.assertEqual(status, 200, body)
        windows = [one for one in json.loads(body)["regions"] if one["what"] == "blocking, windows"]
        self.assertEqual(len(windows), 1, body)
        self.assertEqual(windows[0]["used_bytes"], 48 * MiB)
        self.assertGreaterEqual(windows[0]["held_bytes"], 48 * MiB)
        self.assertEqual(windows[0]["blocks"], 2)
        status, body = self.get(server, "/client?label=nobody")
        self.assertEqual((status, body), (404, "There is no client of that label.\n"))

    def test_shows_arguments_only_on_request(self):
        server = self.serve()
        self.holder([8, 13], "--name", "one")
        for path in ("/metrics", "/state"):
            self.assertNotIn("cuda.cuInit", self.get(server, path)[1])
        server.end()
        shown = self.serve("--http-arguments")
        self.assertTrue(comes_true(lambda: "-c" in self.get(shown, "/state")[1]))


class Formats(WebTest):
    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.holder([32], "--name", 'a "b\\c', "--wait", "20s")
        self.holder([], "--name", "second", "--wait", "20s").do("held.append(allocate(240 << 20))")

    @unittest.skipUnless(prometheus, "no prometheus-client here")
    def test_both_parsers_of_prometheus_client_accept_the_metrics(self):
        body = self.metrics(self.server)
        families = {one.name: one for one in prometheus(body)}
        self.assertEqual(families["cuvmm_moved_bytes"].type, "counter")
        self.assertEqual(families["cuvmm_lease_wait_seconds"].type, "histogram")
        clients = {sample.labels["client"] for sample in families["cuvmm_memory_live_bytes"].samples}
        self.assertIn('a "b\\c', clients)
        body = self.metrics(self.server, Accept=OPEN_METRICS)
        self.assertTrue(body.endswith("# EOF\n"))
        families = {one.name: one for one in open_metrics(body)}
        self.assertEqual(families["cuvmm_client"].type, "info")
        self.assertEqual(families["cuvmm_memory_live_bytes"].unit, "bytes")

    @unittest.skipUnless(shutil.which("promtool"), "no promtool here")
    def test_promtool_accepts_the_metrics(self):
        finished = subprocess.run(["promtool", "check", "metrics"], capture_output=True, timeout=60,
                                  input=self.metrics(self.server).encode(), check=False)
        self.assertEqual(finished.returncode, 0, text(finished.stderr + finished.stdout))
        self.assertEqual(text(finished.stderr + finished.stdout), "")

    def test_the_documentation_lists_exactly_the_metrics(self):
        listed = {}
        for line in self.good("metrics", "--list").splitlines():
            name, kind, unit, labels, _ = line.split("\t")
            listed[name] = [kind, unit or "–", labels or "–"]
        with open(os.path.join(ROOT, "docs", "metrics.md"), encoding="utf-8") as file:
            rows = re.findall(r"(?m)^\| `(cuvmm_\w+)` \| (\w+) \| (\S+) \| ([^|]+) \|", file.read())
        documented = {name: [kind, unit, labels.replace("`", "").strip()]
                      for name, kind, unit, labels in rows}
        self.assertEqual(documented, listed)
        served = set(re.findall(r"(?m)^# TYPE (\w+)", self.metrics(self.server)))
        self.assertEqual(served, set(listed))


class Requests(WebTest):
    BAD = {
        b"GET /metrics HTTP/1.1\r\n\r\n": 400,  # no host
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n": 400,
        b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n": 421,
        b"GET /metrics HTTP/1.1\r\nHost: localhost.evil.example:1\r\n\r\n": 421,
        b"GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n": 421,
        b"GET https://localhost/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n": 400,
        b"GET /metrics HTTP/2.0\r\nHost: localhost\r\n\r\n": 400,
        b"GET /metrics\r\nHost: localhost\r\n\r\n": 400,
        b"GET /met\x01rics HTTP/1.1\r\nHost: localhost\r\n\r\n": 400,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: yes\r\n\r\n": 400,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n": 400,
        b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc": 405,
        b"GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n": 404,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nx: " + b"a" * 9000 + b"\r\n\r\n": 400,
        b"A" * 20000: 400,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": 400,  # TLS
    }

    def test_malformed_requests_are_answered_and_harmless(self):
        server = self.serve()
        for request, status in self.BAD.items():
            answer = ask_raw(server.port, request)
            self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status), (request[:60], answer[:60]))
        self.assertEqual(self.get(server, "/state")[0], 200)

    def test_answers_to_head_have_no_body(self):
        server = self.serve()
        answer = ask_raw(server.port, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        self.assertIn(b"200 OK", head)
        self.assertEqual(body, b"")

    def test_a_client_that_shuts_down_its_side_gets_its_answer(self):
        server = self.serve()
        for path in (b"/", b"/metrics"):
            answer = ask_raw(server.port, b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path, shuts_down=True)
            self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK"), (path, answer[:60]))
        self.assertEqual(ask_raw(server.port, b"GET / HTTP/1.1\r\n", shuts_down=True), b"")

    def test_the_page_may_load_nothing_from_elsewhere(self):
        answer = ask_raw(self.serve().port, b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n")
        self.assertIn(b"default-src 'none'", answer)
        self.assertNotRegex(answer.partition(b"\r\n\r\n")[2], rb"https?://")

    def test_silent_connections_do_not_block_others(self):
        server = self.serve()
        silent = []
        try:
            for _ in range(200):
                silent.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
                silent[-1].sendall(b"GET /")
            self.assertEqual(self.get(server, "/state")[0], 200)
            self.holder([8], "--name", "one")  # handled by the same thread
        finally:
            for one in silent:
                one.close()

    def test_of_a_flood_of_connections_64_stay_open(self):
        server = self.serve()
        before = sockets_of(server)
        silent = []
        try:
            for _ in range(300):
                silent.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            self.assertEqual(self.get(server, "/state")[0], 200)
            self.assertLessEqual(sockets_of(server), before + 64)
        finally:
            for one in silent:
                one.close()

    def test_without_descriptors_viewers_are_turned_away_and_the_service_rests(self):
        # Clients of the service hold all descriptors, so that there is no viewer to close.
        server = self.serve()
        clients = []
        try:
            used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 6, used + 6))
            for _ in range(20):
                clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                clients[-1].connect(self.service_socket)
            viewer = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            clients.append(viewer)
            try:
                self.assertEqual(viewer.recv(1), b"")
            except ConnectionResetError:
                pass
            before = processor_seconds_of(server)
            time.sleep(2)
            self.assertLess(processor_seconds_of(server) - before, 1)
        finally:
            for one in clients:
                one.close()

    def test_slow_readers_do_not_block_others(self):
        server = self.serve()
        slow = []
        try:
            for _ in range(40):
                one = socket.socket()
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                one.connect(("127.0.0.1", server.port))
                one.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                slow.append(one)
            last = slow[-1]
            last.settimeout(20)
            self.assertIn(b"503", last.recv(100))  # all streams are taken
            for _ in range(3):
                self.assertEqual(self.get(server, "/metrics")[0], 200)
                time.sleep(0.5)
        finally:
            for one in slow:
                one.close()
        self.assertTrue(comes_true(lambda: self.stream_begins(server)))

    def stream_begins(self, server):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as stream:
            stream.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            said = b""
            while b"data: {" not in said:
                more = stream.recv(4096)
                if not more:
                    return False
                said += more
            return True


class Access(WebTest):
    TOKEN = "0123456789abcdef-token"

    def token_file(self, mode=0o600):
        path = os.path.join(self.runtime, "token")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.TOKEN + "\n")
        os.chmod(path, mode)
        return path

    def answer_to_somebody_else(self, server, query=""):
        """Returns the status and body that a process of another user gets."""
        self.get(server, "/metrics")  # loads what the child may no longer be able to load
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                os.write(writable, json.dumps(self.get(server, "/metrics" + query)).encode())
            finally:
                os._exit(0)
        os.close(writable)
        with os.fdopen(readable, "rb") as said:
            answer = said.read()
        os.waitpid(child, 0)
        return json.loads(answer)

    def test_a_wrong_token_is_rejected(self):
        server = self.serve("--http-token-file", self.token_file())
        self.assertEqual(self.get(server, "/metrics")[0], 200)  # the same user
        for wrong in ("Bearer wrong", "Bearer " + self.TOKEN + "x", "Basic " + self.TOKEN):
            self.assertEqual(self.get(server, "/metrics", Authorization=wrong)[0], 401)
        self.assertEqual(self.get(server, "/metrics?token=wrong")[0], 401)
        self.assertEqual(self.get(server, "/metrics", Authorization="Bearer " + self.TOKEN)[0], 200)
        self.assertEqual(self.get(server, "/metrics?token=" + self.TOKEN)[0], 200)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
    def test_another_user_needs_the_token(self):
        server = self.serve("--http-token-file", self.token_file())
        self.assertEqual(self.answer_to_somebody_else(server)[0], 401)
        self.assertEqual(self.answer_to_somebody_else(server, "?token=" + self.TOKEN)[0],
                         200)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
    def test_other_users_see_only_their_own_clients(self):
        server = self.serve("--all-users")
        self.holder([8], "--name", "of-root")
        status, seen = self.answer_to_somebody_else(server)
        self.assertEqual(status, 200)
        self.assertEqual(value_of(seen, "cuvmm_clients"), 1)
        self.assertNotIn("of-root", seen)
        self.assertIn("of-root", self.metrics(server))

    def refused(self, *words):
        return subprocess.run([os.path.join(BUILD, "bin", "cuvmmd"), "--socket",
                               self.service_socket, f"--sim=card={self.card},memory=256M", *words],
                              capture_output=True, timeout=60, check=False)

    def test_the_live_view_takes_no_options_that_it_would_ignore(self):
        for one in (["4711", "4712"], ["--gpu", "1"], ["--sort", "live"], ["-r"], ["-1"], ["--json"]):
            refused = cuvmm("top", "--web", *one, env=self.env)
            self.assertNotEqual(refused.returncode, 0, one)
            self.assertIn("excludes --web", text(refused.stderr))
        for one in (["--token-file", "x"], ["--arguments"]):
            self.assertIn("requires --web", text(cuvmm("top", *one, env=self.env).stderr))

    def test_beyond_loopback_a_token_is_needed(self):
        finished = self.refused("--http", "0.0.0.0:0")
        self.assertEqual(finished.returncode, 2)
        self.assertIn("beyond loopback it needs --http-token-file", text(finished.stderr))
        top = cuvmm("top", "--web=0.0.0.0:0", env=self.env)
        self.assertEqual(top.returncode, 1)
        self.assertIn("--token-file", text(top.stderr))
        finished = self.refused("--http", "somewhere")
        self.assertEqual(finished.returncode, 2)

    def test_beyond_loopback_every_user_needs_the_token_and_the_log_warns(self):
        server = self.serve("--http", "0.0.0.0:0", "--http-token-file", self.token_file())
        self.assertIn("unencrypted", server.said())
        server.port = int(re.search(r"http://0\.0\.0\.0:(\d+)", server.said()).group(1))
        self.assertEqual(self.get(server, "/metrics", Host="gpu-node")[0], 401)
        self.assertEqual(self.get(server, "/metrics", Host="gpu-node",
                                  Authorization="Bearer " + self.TOKEN)[0], 200)

    def test_a_missing_token_file_is_named(self):
        finished = self.refused("--http-token-file", "/nofile")
        self.assertEqual(text(finished.stderr),
                         "cuvmmd: /nofile: read the token: No such file or directory\n")
        top = cuvmm("top", "--web", "--token-file", "/nofile", env=self.env)
        self.assertEqual(text(top.stderr), "cuvmm: /nofile: read the token: No such file or directory\n")

    def test_a_token_file_that_others_can_read_is_refused(self):
        finished = self.refused("--http-token-file", self.token_file(0o644))
        self.assertEqual(finished.returncode, 1)
        self.assertIn("others may read", text(finished.stderr))

    def test_an_occupied_port_is_an_error(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            finished = self.refused("--http", f"127.0.0.1:{taken.getsockname()[1]}")
        self.assertEqual(finished.returncode, 1)
        self.assertIn("127.0.0.1:", text(finished.stderr))


if __name__ == "__main__":
    main()
