// SPDX-License-Identifier: Apache-2.0
// What it takes to share memory with another process, beside what the driver's own export, import
// and mapping take; how many grants a second; and what copies reach through the mapping. The
// program is its own importer.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuvmm/share.hpp"
#include "examples/driver_calls.hpp"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using cuvmm::SharedBuffer;
using cuvmm::ShareHost;
using cuvmm::ShareSession;

constexpr std::uint64_t one_gib = std::uint64_t{1} << 30;
constexpr auto patience = 60s;
constexpr int rounds = 30;
constexpr int many_grants = 5000;

[[noreturn]] void missing_driver(const char* symbol) {
  std::exit((std::fprintf(stderr, "no %s\n", symbol), 2));
}

void need(CUresult answer, const char* what) {
  if (answer != CUDA_SUCCESS) std::exit((std::fprintf(stderr, "%s: %d\n", what, answer), 2));
}
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

void use_device() {
  need(CALL(cuInit)(0), "cuInit");
  CUcontext context = nullptr;
  need(CALL(cuDevicePrimaryCtxRetain)(&context, 0), "cuDevicePrimaryCtxRetain");
  need(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
}

// Of a copy from one half of it to the other, reads and writes together.
double gb_a_second(CUdeviceptr address) {
  constexpr std::uint64_t half = one_gib / 2;
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) {
    const auto began = Clock::now();
    need(CALL(cuMemcpyDtoD)(address + half, address, half), "cuMemcpyDtoD");
    need(CALL(cuCtxSynchronize)(), "cuCtxSynchronize");
    times.push_back(us(Clock::now() - began));
  }
  return 2 * static_cast<double>(half) / 1e3 / median(times);
}

// The importer: as often as it is granted something, it maps, says so and lets go.
int import_all(const std::string& path) {
  use_device();
  ShareSession session = need(ShareSession::connect(path, patience));
  for (;;) {
    auto received = session.receive(patience);
    if (!received.ok()) return 0;  // the exporter has gone
    const auto tag = need(received->info()).tag;
    std::uint32_t told = 0;
    if (tag != 0) {
      const auto began = Clock::now();
      const auto mapping = need(received->map(0));
      told = static_cast<std::uint32_t>(us(Clock::now() - began));
      if (tag == 2) told = static_cast<std::uint32_t>(gb_a_second(mapping.address()));
      need(session.acknowledge(*received, told, patience));
    }
    need(session.release(std::move(*received), patience));
  }
}

std::uint32_t wait_for(ShareHost& host, cuvmm_share_event_kind kind) {
  for (;;) {
    const auto event = need(host.wait(patience));
    if (event.kind == kind) return event.status;
  }
}

// What the driver alone takes, in one process: export, import, reserve, map, set access.
double by_the_driver(const SharedBuffer& buffer) {
  const auto began = Clock::now();
  const int fd = need(buffer.export_chunk(0));
  CUmemGenericAllocationHandle chunk = 0;
  need(CALL(cuMemImportFromShareableHandle)(
           &chunk, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)),
           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
       "cuMemImportFromShareableHandle");
  CUdeviceptr address = 0;
  need(CALL(cuMemAddressReserve)(&address, one_gib, 0, 0, 0), "cuMemAddressReserve");
  need(CALL(cuMemMap)(address, one_gib, 0, chunk, 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  need(CALL(cuMemSetAccess)(address, one_gib, &access, 1), "cuMemSetAccess");
  const double took = us(Clock::now() - began);
  ::close(fd);
  need(CALL(cuMemUnmap)(address, one_gib), "cuMemUnmap");
  need(CALL(cuMemAddressFree)(address, one_gib), "cuMemAddressFree");
  need(CALL(cuMemRelease)(chunk), "cuMemRelease");
  return took;
}

int measure(const char* program) {
  use_device();
  const std::string path = "/tmp/cuvmm-bench-share-" + std::to_string(::getpid());
  SharedBuffer buffer = need(SharedBuffer::create(0, one_gib));
  const auto address = need(buffer.map());
  auto host = std::make_unique<ShareHost>(need(ShareHost::listen(path)));
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(program, program, path.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  const auto event = need(host->wait(patience));

  const double first_alone = by_the_driver(buffer);
  std::vector<double> alone;
  std::vector<double> shared;
  for (int i = 0; i < rounds; ++i) {
    alone.push_back(by_the_driver(buffer));
    const auto began = Clock::now();
    need(host->send(event.peer, buffer, {.tag = 1}));
    wait_for(*host, CUVMM_SHARE_ACKNOWLEDGED);
    shared.push_back(us(Clock::now() - began));
    wait_for(*host, CUVMM_SHARE_RELEASED);
  }
  std::printf("1 GiB, one chunk: the driver's export, import and mapping, first    %8.0f us\n",
              first_alone);
  std::printf("1 GiB, one chunk: the same, warm (median of %d)                     %8.0f us\n",
              rounds, median(alone));
  std::printf("1 GiB, one chunk: shared and mapped in another process, warm        %8.0f us\n",
              median(shared));
  std::printf("beyond the driver                                                   %8.0f us\n",
              median(shared) - median(alone));

  const auto began = Clock::now();
  for (int i = 0; i < many_grants; ++i) {
    need(host->send(event.peer, buffer));
    wait_for(*host, CUVMM_SHARE_RELEASED);
  }
  std::printf("grants a second, one after the other, imported and released         %8.0f\n",
              many_grants / us(Clock::now() - began) * 1e6);

  std::printf("copy within 1 GiB: here                                             %8.0f GB/s\n",
              gb_a_second(address));
  need(host->send(event.peer, buffer, {.tag = 2}));
  std::printf("copy within 1 GiB: in the other process                             %8.0f GB/s\n",
              static_cast<double>(wait_for(*host, CUVMM_SHARE_ACKNOWLEDGED)));
  wait_for(*host, CUVMM_SHARE_RELEASED);
  host.reset();
  int status = -1;
  ::waitpid(child, &status, 0);
  ::unlink((path + ".lock").c_str());
  ::unlink((path + ".token").c_str());
  return status == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  return count > 1 ? import_all(words[1]) : measure(words[0]);
}
