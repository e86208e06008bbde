// SPDX-License-Identifier: Apache-2.0
// Measures the time to share memory with another process, compared with the driver's own calls in
// two processes with only a socket between them; the number of grants per second; and the bandwidth
// of copies through the mapping. The program is its own importers.
//
//   cuvmm_bench_share [--benchmark_out=FILE]
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "bench/must_work.hpp"
#include "cuvmm/share.hpp"

namespace {

using cuvmm::bench::use_device;

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using cuvmm::SharedBuffer;
using cuvmm::ShareHost;
using cuvmm::ShareSession;
using cuvmm::bench::missing_driver;

constexpr std::uint64_t one_gib = std::uint64_t{1} << 30;
constexpr auto patience = 60s;
constexpr int rounds = 30;
constexpr int many_grants = 5000;

template <class T>
T need(cuvmm::Result<T> result) {
  if (!result.ok()) std::exit((std::fprintf(stderr, "%s\n", result.error().message()), 2));
  return std::move(result).value();
}
void need(const cuvmm::Result<void>& result) {
  if (!result.ok()) std::exit((std::fprintf(stderr, "%s\n", result.error().message()), 2));
}

double us(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The bandwidth of a copy from one half to the other, counting reads and writes.
double gb_a_second(CUdeviceptr address) {
  constexpr std::uint64_t half = one_gib / 2;
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) {
    const auto began = Clock::now();
    MUST_WORK(cuMemcpyDtoD, address + half, address, half);
    MUST_WORK(cuCtxSynchronize);
    times.push_back(us(Clock::now() - began));
  }
  return 2 * static_cast<double>(half) / 1e3 / median(times);
}

// Measures the time of each step.
class Steps {
 public:
  double next() {
    const auto now = Clock::now();
    return us(now - std::exchange(last_, now));
  }

 private:
  Clock::time_point last_ = Clock::now();
};

// The importer with cuvmm: for every grant, it maps, reports, and releases.
enum Tag : std::uint64_t { take_only, tell_mapping_time, tell_bandwidth };

int import_by_us(const std::string& path) {
  use_device();
  ShareSession session = need(ShareSession::connect(path, patience));
  for (;;) {
    auto received = session.receive(patience);
    if (!received.ok()) return 0;  // the exporter has gone
    const auto tag = need(received->info()).tag;
    if (tag != take_only) {
      Steps steps;
      const auto mapping = need(received->map(0));
      double told = steps.next();
      if (tag == tell_bandwidth) told = gb_a_second(mapping.address());
      need(session.acknowledge(*received, static_cast<std::uint32_t>(told), patience));
    }
    need(session.release(std::move(*received), patience));
  }
}

// Times of the driver calls that an importer cannot do without.
struct ByHand {
  double import = 0;
  double reserve = 0;
  double map = 0;
  double access = 0;
};

ByHand map_by_hand(int descriptor, CUdeviceptr& address, CUmemGenericAllocationHandle& chunk) {
  ByHand took;
  Steps steps;
  MUST_WORK(cuMemImportFromShareableHandle, &chunk,
            reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  took.import = steps.next();
  MUST_WORK(cuMemAddressReserve, &address, one_gib, 0, 0, 0);
  took.reserve = steps.next();
  MUST_WORK(cuMemMap, address, one_gib, 0, chunk, 0);
  took.map = steps.next();
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MUST_WORK(cuMemSetAccess, address, one_gib, &access, 1);
  took.access = steps.next();
  return took;
}

// Sends a message of a few bytes with at most one descriptor.
void say(int socket, const void* bytes, std::size_t size, int descriptor = -1) {
  iovec data{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet{};
  packet.msg_iov = &data;
  packet.msg_iovlen = 1;
  if (descriptor >= 0) {
    packet.msg_control = control;
    packet.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  if (::sendmsg(socket, &packet, MSG_NOSIGNAL) < 0) std::exit((std::perror("sendmsg"), 2));
}
// Returns false if the other side has gone.
bool hear(int socket, void* bytes, std::size_t size, int* descriptor = nullptr) {
  iovec data{bytes, size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet{};
  packet.msg_iov = &data;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  if (::recvmsg(socket, &packet, MSG_CMSG_CLOEXEC) <= 0) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&packet);
  if (descriptor != nullptr && header != nullptr) {
    std::memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
  }
  return true;
}

int import_by_hand(int socket) {
  use_device();
  char byte = 0;
  say(socket, &byte, 1);
  for (int descriptor = -1; hear(socket, &byte, 1, &descriptor);) {
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle chunk = 0;
    const ByHand took = map_by_hand(descriptor, address, chunk);
    say(socket, &took, sizeof took);
    ::close(descriptor);
    MUST_WORK(cuMemUnmap, address, one_gib);
    MUST_WORK(cuMemAddressFree, address, one_gib);
    MUST_WORK(cuMemRelease, chunk);
    say(socket, &byte, 1);
  }
  return 0;
}

std::uint32_t wait_for(ShareHost& host, cuvmm_share_event_kind kind) {
  for (;;) {
    const auto event = need(host.wait(patience));
    if (event.kind == kind) return event.status;
  }
}

// Starts the same program as another process.
pid_t start(const char* program, const char* role, const std::string& with) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::execl(program, program, role, with.c_str(), static_cast<char*>(nullptr));
  ::_exit(127);
}

// The times of one quantity, by round.
class Times {
 public:
  void add(double time) { times_.push_back(time); }
  double first() const { return times_.front(); }
  double warm() const { return median({times_.begin() + 1, times_.end()}); }

 private:
  std::vector<double> times_;
};

struct Figures {
  Times by_hand, by_hand_export, by_hand_import, by_hand_reserve, by_hand_map, by_hand_access;
  Times by_us, by_us_map;
  double grants_a_second = 0;
  double local_gb_s = 0;
  double remote_gb_s = 0;
};

void share_by_hand(int socket, const SharedBuffer& buffer, Figures& figures) {
  Steps all;
  Steps steps;
  const int descriptor = need(buffer.export_chunk(0));
  figures.by_hand_export.add(steps.next());
  char byte = 0;
  ByHand took;
  say(socket, &byte, 1, descriptor);
  if (!hear(socket, &took, sizeof took)) std::exit(2);
  figures.by_hand.add(all.next());
  figures.by_hand_import.add(took.import);
  figures.by_hand_reserve.add(took.reserve);
  figures.by_hand_map.add(took.map);
  figures.by_hand_access.add(took.access);
  ::close(descriptor);
  if (!hear(socket, &byte, 1)) std::exit(2);  // the importer has released its memory
}

void share_by_us(ShareHost& host, std::uint64_t peer, const SharedBuffer& buffer,
                 Figures& figures) {
  Steps all;
  need(host.send(peer, buffer, {.tag = tell_mapping_time}));
  const std::uint32_t mapping_took = wait_for(host, CUVMM_SHARE_ACKNOWLEDGED);
  figures.by_us.add(all.next());
  figures.by_us_map.add(mapping_took);
  wait_for(host, CUVMM_SHARE_RELEASED);
}

// The measured quantities, with their names in both output formats.
constexpr struct {
  const char* words;
  const char* name;
  Times Figures::*times;
} told[] = {
    {"the driver's calls by hand", "ByHand1GiB", &Figures::by_hand},
    {"  cuMemExportToShareableHandle", "ByHand1GiB/export", &Figures::by_hand_export},
    {"  cuMemImportFromShareableHandle", "ByHand1GiB/import", &Figures::by_hand_import},
    {"  cuMemAddressReserve", "ByHand1GiB/reserve", &Figures::by_hand_reserve},
    {"  cuMemMap", "ByHand1GiB/map", &Figures::by_hand_map},
    {"  cuMemSetAccess", "ByHand1GiB/access", &Figures::by_hand_access},
    {"a grant, imported and mapped", "Share1GiB", &Figures::by_us},
    {"  of that mapping", "Share1GiB/map", &Figures::by_us_map},
};

void print(const Figures& figures) {
  std::printf("1 GiB, one chunk, from one process into another (median of %d)\n", rounds);
  for (const auto& [words, name, times] : told) {
    std::printf("%-58s %8.0f us first %8.0f us warm\n", words, (figures.*times).first(),
                (figures.*times).warm());
  }
  std::printf("%-58s %26.0f us warm\n", "beyond the driver",
              figures.by_us.warm() - figures.by_hand.warm());
  std::printf("%-58s %8.0f\n", "grants a second, one after the other, imported and released",
              figures.grants_a_second);
  std::printf("%-58s %8.0f GB/s\n", "copy within 1 GiB: here", figures.local_gb_s);
  std::printf("%-58s %8.0f GB/s\n", "copy within 1 GiB: in the other process", figures.remote_gb_s);
}

// Writes google-benchmark's format, so that its readers can read these results.
void write(const std::string& path, const Figures& figures) {
  std::ofstream file{path};
  const std::string of_share =
      R"(, "beyond_the_driver_us": )" +
      std::to_string(figures.by_us.warm() - figures.by_hand.warm()) + R"(, "grants_a_second": )" +
      std::to_string(figures.grants_a_second) + R"(, "bandwidth_over_local": )" +
      std::to_string(figures.remote_gb_s / figures.local_gb_s);
  file << "{\"benchmarks\": [";
  const char* separator = "\n";
  for (const auto& [words, name, times] : told) {
    file << separator << R"({"name": ")" << name << R"(", "real_time": )" << (figures.*times).warm()
         << R"(, "time_unit": "us", "first_us": )" << (figures.*times).first()
         << (times == &Figures::by_us ? of_share : "") << "}";
    separator = ",\n";
  }
  file << "\n]}\n";
}

int measure(const char* program, const std::string& out) {
  use_device();
  const std::string path = "/tmp/cuvmm-bench-share-" + std::to_string(::getpid());
  SharedBuffer buffer = need(SharedBuffer::create(0, one_gib));
  const auto address = need(buffer.map());
  auto host = std::make_unique<ShareHost>(need(ShareHost::listen(path)));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) return 2;
  ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  const pid_t by_hand = start(program, "--by-hand", std::to_string(ends[1]));
  ::close(ends[1]);
  char byte = 0;
  if (!hear(ends[0], &byte, 1)) return 2;
  const pid_t by_us = start(program, "--by-us", path);
  const auto peer = need(host->wait(patience)).peer;

  Figures figures;
  for (int i = 0; i <= rounds; ++i) {
    share_by_hand(ends[0], buffer, figures);
    share_by_us(*host, peer, buffer, figures);
  }
  ::close(ends[0]);

  Steps steps;
  for (int i = 0; i < many_grants; ++i) {
    need(host->send(peer, buffer));
    wait_for(*host, CUVMM_SHARE_RELEASED);
  }
  figures.grants_a_second = many_grants / steps.next() * 1e6;

  figures.local_gb_s = gb_a_second(address);
  need(host->send(peer, buffer, {.tag = tell_bandwidth}));
  figures.remote_gb_s = wait_for(*host, CUVMM_SHARE_ACKNOWLEDGED);
  wait_for(*host, CUVMM_SHARE_RELEASED);
  print(figures);
  if (!out.empty()) write(out, figures);
  host.reset();
  int failed = 0;
  for (const pid_t child : {by_hand, by_us}) {
    int status = -1;
    ::waitpid(child, &status, 0);
    failed += status != 0;
  }
  ::unlink((path + ".lock").c_str());
  ::unlink((path + ".token").c_str());
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  std::string out;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--by-us" && i + 1 < count) return import_by_us(words[i + 1]);
    if (word == "--by-hand" && i + 1 < count) return import_by_hand(std::atoi(words[i + 1]));
    constexpr std::string_view out_option = "--benchmark_out=";
    if (word.compare(0, out_option.size(), out_option) == 0) out = word.substr(out_option.size());
  }
  return measure(words[0], out);
}
