#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The device plugin with a kubelet of the test's own, on a simulated card that processes share.

    check_kubelet.py BUILD ROOT

The plugin's answers are really applied: a process starts with its environment and mounts, and gets
its share of the card and no more.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import grpc
from fake_kubelet import FakeKubelet, PluginClient

BUILD, ROOT = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
RESOURCE = "cuvmm.dev/memory-gib"
WAIT = 60
# The system's Python if there is one, since a container would not see any other.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
# Runs a command in its own mount namespace; each mount is INSIDE=HOST=ro|rw.
IN_CONTAINER = """set -e
for mount in $MOUNTS; do
  inside=${mount%%=*}; rest=${mount#*=}; host=${rest%=*}
  mkdir -p "$inside"; mount --bind "$host" "$inside"
  [ "${rest##*=}" = rw ] || mount -o remount,bind,ro "$inside"
done
unset MOUNTS
exec "$@"
"""
ALLOCATE = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    answer = getattr(cuda, name)(*arguments)
    assert answer in (0, 2), (name, answer)
    return answer == 0
device, context = ctypes.c_int(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
free, total = ctypes.c_size_t(), ctypes.c_size_t()
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
taken, address = 0, ctypes.c_uint64()
while taken < 64 and call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(256 << 20)):
    taken += 1
print(total.value >> 20, taken * 256, flush=True)
sys.stdin.read()
"""


def make_library_of_a_future_libc(path, folder):
    """Makes a library that needs a symbol version that no libc has yet."""
    (folder / "versions").write_text("GLIBC_9.9 { future; };\n")
    (folder / "future.c").write_text("int future(void) { return 0; }\n")
    (folder / "needs.c").write_text("int future(void); int needs(void) { return future(); }\n")
    libc = folder / "libc.so"
    compile_ = ["cc", "-shared", "-fPIC", "-nostdlib"]
    subprocess.run([*compile_, "-Wl,-soname,libc.so.6", f"-Wl,--version-script={folder / 'versions'}",
                    folder / "future.c", "-o", libc], check=True)
    subprocess.run([*compile_, folder / "needs.c", libc, "-o", path], check=True)


class Kubelet(unittest.TestCase):
    def setUp(self):
        self.place = Path(tempfile.mkdtemp(prefix="cuvmm-kubelet-"))
        self.addCleanup(shutil.rmtree, self.place, True)
        self.plugins = self.place / "device-plugins"
        self.plugins.mkdir()
        self.card = f"kubelet-{os.getpid()}-{self.id().rsplit('_', 1)[-1]}"
        self.books = Path(f"/dev/shm/cuvmm-sim-card-{os.getuid()}-{self.card}")
        self.addCleanup(self.books.unlink, True)
        self.log = self.place / "plugin.log"
        self.plugin = None

    def start_plugin(self, *options, sim="memory=8G,devices=2", libraries=BUILD / "lib"):
        with open(self.log, "ab") as log:
            self.plugin = subprocess.Popen(
                [BUILD / "bin/cuvmm-device-plugin", "--plugins-folder", self.plugins, "--libraries",
                 libraries, "--reserve", "0", f"--sim=card={self.card},{sim}", *options],
                stdout=log, stderr=log)
        self.addCleanup(self.plugin.wait)
        self.addCleanup(self.plugin.kill)

    def start_kubelet(self, **how):
        kubelet = FakeKubelet(str(self.plugins), **how).start()
        self.addCleanup(kubelet.stop)
        return kubelet

    def client_of(self, kubelet):
        request = kubelet.registered.get(timeout=WAIT)
        client = PluginClient(str(self.plugins), request.endpoint)
        self.addCleanup(client.close)
        return request, client

    def started(self, *options, **how):
        """Returns a registered plugin, and its units by card."""
        kubelet = self.start_kubelet()
        self.start_plugin("--node", "off", *options, **how)
        _, client = self.client_of(kubelet)
        cards = {}
        for unit in client.watch().get(timeout=WAIT):
            cards.setdefault(unit.rsplit("-", 1)[0], []).append(unit)
        return client, [sorted(units) for _, units in sorted(cards.items())]

    def refusal(self, code, call, *arguments):
        with self.assertRaises(grpc.RpcError) as raised:
            call(*arguments)
        self.assertEqual(raised.exception.code(), code)
        return raised.exception.details()

    # The protocol between the kubelet and the plugin.

    def test_registers_with_version_socket_and_resource(self):
        kubelet = self.start_kubelet()
        self.start_plugin("--node", "off")
        request, client = self.client_of(kubelet)
        self.assertEqual((request.version, request.resource_name), ("v1beta1", RESOURCE))
        self.assertTrue(request.options.get_preferred_allocation_available)
        self.assertFalse(request.options.pre_start_required)
        self.assertTrue((self.plugins / request.endpoint).is_socket())
        self.assertEqual(client.options(), request.options)
        client.pre_start(["x"])

    def test_registers_with_a_kubelet_that_starts_later(self):
        self.start_plugin("--node", "off")
        deadline = time.monotonic() + WAIT
        while not list(self.plugins.iterdir()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.client_of(self.start_kubelet())

    def test_waits_for_a_crashed_kubelet_that_left_its_socket(self):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(self.plugins / "kubelet.sock"))
        self.start_plugin("--node", "off")
        deadline = time.monotonic() + WAIT
        while "did not register" not in self.log.read_text():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.client_of(self.start_kubelet())

    def test_lists_a_unit_for_each_gibibyte_of_each_card(self):
        _, cards = self.started()
        self.assertEqual([len(units) for units in cards], [8, 8])
        self.assertEqual(len({unit for units in cards for unit in units}), 16)

    def test_a_card_that_stops_answering_is_unhealthy_until_it_answers(self):
        kubelet = self.start_kubelet()
        self.start_plugin("--node", "off")
        _, client = self.client_of(kubelet)
        lists = client.watch()
        healths = lambda: set(lists.get(timeout=WAIT).values())  # noqa: E731
        self.assertEqual(healths(), {"Healthy"})
        self.books.chmod(0o644)  # NVML does not read books with this mode
        seen = [healths()]
        if len(seen[-1]) == 2:  # one card was reported before the other
            seen.append(healths())
        self.assertEqual(seen[-1], {"Unhealthy"})
        self.books.chmod(0o600)
        while seen[-1] != {"Healthy"}:
            seen.append(healths())

    def test_prefers_units_of_one_card_and_refuses_what_no_card_has(self):
        client, (first, second) = self.started()
        available = first + second[3:]
        self.assertEqual(client.prefer(available, 4), second[3:7])
        self.assertEqual(client.prefer(available, 6), first[:6])
        self.assertEqual(client.prefer(available, 2, [first[7]]), [first[7], first[0]])
        said = self.refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, client.prefer, available, 9)
        self.assertIn("the most free on one is 8", said)

    def test_refuses_to_allocate_units_of_two_cards_and_unknown_ones(self):
        client, (first, second) = self.started()
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        said = self.refusal(invalid, client.allocate, [first[0], second[0]])
        self.assertIn("2 units are spread over 2 cards", said)
        self.refusal(invalid, client.allocate, ["GPU-none-00000"])
        self.refusal(invalid, client.allocate, [])
        self.refusal(invalid, client.allocate, [first[0], first[0]])
        self.assertEqual(len(client.allocate(first[:1], second[:2])), 2, "two containers may")

    def test_serves_and_registers_again_when_the_kubelet_restarts(self):
        kubelet = self.start_kubelet()
        self.start_plugin("--node", "off")
        _, client = self.client_of(kubelet)
        lists = client.watch()
        self.assertEqual(len(lists.get(timeout=WAIT)), 16)
        for _ in range(2):
            kubelet.stop()
            kubelet = self.start_kubelet()  # removes every socket
            # A socket that the plugin has already made anew may be removed too. The watch then
            # ends, and the plugin registers once more.
            units = None
            while units is None:
                _, client = self.client_of(kubelet)
                units = client.watch().get(timeout=WAIT)
            self.assertEqual(len(units), 16)
        self.assertIsNone(lists.get(timeout=WAIT), "the old watch has ended")

    def test_a_killed_plugin_does_not_block_the_next(self):
        kubelet = self.start_kubelet()
        self.start_plugin("--node", "off")
        self.client_of(kubelet)
        self.plugin.kill()
        self.plugin.wait()
        self.start_plugin("--node", "off")
        _, client = self.client_of(kubelet)
        self.assertEqual(len(client.watch().get(timeout=WAIT)), 16)

    def test_exits_with_an_error_if_the_kubelet_refuses_it(self):
        self.start_kubelet(refuse="requested API version is not supported")
        self.start_plugin("--node", "off")
        self.assertEqual(self.plugin.wait(timeout=WAIT), 1)
        self.assertIn("API version is not supported", self.log.read_text())

    def test_exits_on_sigterm_while_a_kubelet_watches(self):
        kubelet = self.start_kubelet()
        self.start_plugin("--node", "off")
        _, client = self.client_of(kubelet)
        lists = client.watch()
        lists.get(timeout=WAIT)
        self.plugin.send_signal(signal.SIGTERM)
        self.assertEqual(self.plugin.wait(timeout=WAIT), 0)
        self.assertIsNone(lists.get(timeout=WAIT))
        self.assertFalse([name for name in os.listdir(self.plugins) if name != "kubelet.sock"])

    def test_exits_with_an_error_if_the_folder_is_removed(self):
        self.start_plugin("--node", "off")
        deadline = time.monotonic() + WAIT
        while not list(self.plugins.iterdir()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        while self.plugins.exists():  # the plugin may make its socket anew meanwhile
            shutil.rmtree(self.plugins, ignore_errors=True)
        self.assertEqual(self.plugin.wait(timeout=WAIT), 1)
        self.assertIn("folder of plugins has been removed", self.log.read_text())

    def test_names_invalid_options(self):
        def said(*options):
            ended = subprocess.run([BUILD / "bin/cuvmm-device-plugin", *options],
                                   capture_output=True, text=True, timeout=WAIT, check=False)
            return ended.returncode, ended.stdout + ended.stderr
        sim = f"--sim=card={self.card},memory=8G"
        libraries = ("--libraries", str(BUILD / "lib"))
        self.assertEqual(said(sim)[0], 2)
        self.assertIn("--libraries names", said(sim, "--libraries", "/none")[1])
        self.assertIn("--reserve", said(sim, *libraries, "--reserve", "much")[1])
        self.assertIn("card's name", said("--sim", *libraries)[1])
        self.assertEqual(said(sim, *libraries, "--node", "perhaps")[0], 2)
        status, text = said(sim, *libraries, "--plugins-folder", "/none")
        self.assertEqual(status, 1, text)
        long = self.place / ("x" * 120)  # longer than the limit for a socket address
        long.mkdir()
        status, text = said(sim, *libraries, "--plugins-folder", str(long))
        self.assertEqual(status, 1, text)
        self.assertIn("cannot listen", text)
        status, text = said(sim, *libraries, "--check")
        self.assertEqual((status, text.split(": ")[1].split()[0]), (0, "7"), "1 GiB is reserved")

    # What a container gets: its environment and its share of the card.

    def start_container(self, allocated, stderr=None):
        """Starts a process with the answer's environment and mounts."""
        mounts = []
        for mount in allocated.mounts:
            mounts.append(f"{mount.container_path}={mount.host_path}="
                          f"{'ro' if mount.read_only else 'rw'}")
        # A mount point that the host lacks is created in the namespace alone.
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                   "mount -t tmpfs none /usr/local/lib; " + IN_CONTAINER, "sh",
                   "env", *(f"{name}={value}" for name, value in allocated.envs.items()),
                   PYTHON, "-c", ALLOCATE]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=stderr, text=True,
                                   env={"PATH": "/usr/bin:/bin", "VMM_LOG_LEVEL": "error",
                                        "MOUNTS": " ".join(mounts)})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
            self.addCleanup(stream.close)
        return process

    def can_mount(self):
        tried = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
                               capture_output=True, check=False)
        if tried.returncode != 0:
            self.skipTest("no mount namespace here: " + tried.stderr.decode().strip())

    def test_containers_share_a_card_each_within_its_units(self):
        self.can_mount()
        client, (units,) = self.started(sim="memory=8G,devices=1,backing=none")
        small, large = client.allocate(units[:2], units[2:7])
        self.assertEqual((small.envs["VMM_LIMIT"], large.envs["VMM_LIMIT"]), ("2G", "5G"))
        containers = [self.start_container(one) for one in (small, large)]
        seen = [tuple(map(int, one.stdout.readline().split())) for one in containers]
        self.assertEqual(seen, [(2048, 2048), (5120, 5120)], "what it sees, what it can take")

    def test_programs_run_natively_where_libc_is_too_old_for_the_engine(self):
        self.can_mount()
        libraries = self.place / "lib"
        libraries.mkdir()
        shutil.copy(BUILD / "lib/libcuvmm_stub.so", libraries)
        shutil.copytree(BUILD / "lib/cuvmm/sim", libraries / "cuvmm/sim", symlinks=True)
        make_library_of_a_future_libc(libraries / "libcuvmm_preload.so", self.place)
        client, (units,) = self.started(sim="memory=8G,devices=1,backing=none", libraries=libraries)
        (allocated,) = client.allocate(units[:2])
        container = self.start_container(allocated, stderr=subprocess.PIPE)
        self.assertEqual(container.stdout.readline().split(), ["8192", "8192"], "natively")
        self.assertIn("GLIBC_9.9", container.stderr.readline())

    def test_the_node_service_leases_what_a_container_takes(self):
        self.can_mount()
        run = self.place / "run"
        run.mkdir()
        sim = f"--sim=card={self.card},memory=8G,devices=1,backing=none"
        service = subprocess.Popen([BUILD / "bin/cuvmmd", "--socket", run / "cuvmmd.sock", sim],
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(service.wait)
        self.addCleanup(service.kill)
        kubelet = self.start_kubelet()
        self.start_plugin("--node", "require", "--node-socket", run / "cuvmmd.sock",
                          sim="memory=8G,devices=1,backing=none")
        _, client = self.client_of(kubelet)
        units = sorted(client.watch().get(timeout=WAIT))
        (allocated,) = client.allocate(units[:3])
        deadline = time.monotonic() + WAIT
        while not (run / "cuvmmd.sock").is_socket():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        container = self.start_container(allocated)
        self.assertEqual(container.stdout.readline().split(), ["3072", "3072"])
        service.kill()
        service.wait()
        (run / "cuvmmd.sock").unlink(True)
        strict = self.start_container(allocated)
        self.assertEqual(strict.stdout.readline().split(), ["3072", "0"], "it requires the service")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
