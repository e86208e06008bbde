// SPDX-License-Identifier: Apache-2.0
// The reader of PyTorch's memory snapshots, for libFuzzer. A snapshot that is read must be
// consistent: blocks are freed once, and the peaks are sums of what is live. ./dev fuzz runs it;
// the unit tests run it on mutations of its corpus (tests/fuzz/pickle).
#include <cstdlib>
#include <string_view>
#include <vector>

#include "replay/read_trace.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cuvmm;
  const auto trace = replay::read_pytorch_snapshot({reinterpret_cast<const char*>(data), size});
  if (!trace.ok()) return 0;
  std::vector<bool> live(trace->allocations);
  for (const replay::ReplayEvent& event : trace->events) {
    const bool allocates = event.action == replay::Action::Allocate;
    if (event.block >= live.size() || live[event.block] == allocates) std::abort();
    live[event.block] = allocates;
  }
  if (trace->addresses.size() != trace->allocations) std::abort();
  return 0;
}
