// SPDX-License-Identifier: Apache-2.0
#include "oracle.hpp"

#include <algorithm>
#include <cstdio>

#include "cuvmm/sim.h"

namespace cuvmm::test {
namespace {

// The bytes of a block that are written and checked, and their values.
constexpr int probes = 6;

std::uint64_t mix(std::uint64_t number) {
  number ^= number >> 31;
  number *= 0x9E3779B97F4A7C15u;
  return number ^ (number >> 29);
}

Size probe(const Block& block, int number) {
  if (number == 0) return 0;
  if (number == 1) return block.size - 1;
  return mix(block.address * 8 + static_cast<std::uint64_t>(number)) % block.size;
}

std::byte byte_of(std::uint32_t stamp, Size offset) {
  return static_cast<std::byte>(mix(stamp + (offset << 32)) >> 17);
}

std::string describe(const Block& block) {
  char text[160];
  std::snprintf(text, sizeof text, "%s block%s of %llu bytes at 0x%llx on device %d",
                block.kind == Kind::Blocking ? "blocking" : "ordered",
                block.by == By::Driver ? " of the driver" : "",
                static_cast<unsigned long long>(block.size),
                static_cast<unsigned long long>(block.address), block.device);
  return text;
}

}  // namespace

void Oracle::fail(const std::string& what) {
  const std::lock_guard holding{mutex_};
  if (failure_.empty()) failure_ = what;
  has_failed_.store(true, std::memory_order_release);
}

std::string Oracle::failure() const {
  const std::lock_guard holding{mutex_};
  return failure_;
}

void Oracle::forget_what_is_done() {
  std::erase_if(freed_, [](const Freed& freed) { return freed.block->pending.load() == 0; });
  until_forgetting_ = 64;
}

std::vector<BlockRef> Oracle::begin(const BlockRef& block) {
  constexpr Size alignment = 256;
  if (block->address % alignment != 0) fail(describe(*block) + " is not aligned");
  std::string overlaps;
  std::vector<BlockRef> predecessors;
  {
    const std::lock_guard holding{mutex_};
    auto next = live_.lower_bound(block->end());
    if (next != live_.begin()) {
      const Block& below = *std::prev(next)->second;
      if (below.end() > block->address)
        overlaps = describe(*block) + " overlaps " + describe(below);
    }
    live_.emplace(block->address, block);
    if (--until_forgetting_ < 0) forget_what_is_done();
    for (const Freed& freed : freed_) {
      if (freed.begin < block->end() && block->address < freed.end &&
          freed.block->pending.load() != 0) {
        predecessors.push_back(freed.block);
      }
    }
  }
  if (!overlaps.empty()) fail(overlaps);
  return predecessors;
}

void Oracle::end(const BlockRef& block) {
  const std::lock_guard holding{mutex_};
  live_.erase(block->address);
  if (block->pending.load() != 0) freed_.push_back({block->address, block->end(), block});
}

void Oracle::end_was_refused(const BlockRef& block) {
  const std::lock_guard holding{mutex_};
  live_.emplace(block->address, block);
  std::erase_if(freed_, [&](const Freed& freed) { return freed.block == block; });
}

std::string Oracle::faulted() const {
  const std::lock_guard holding{mutex_};
  std::string text;
  const auto look_at = [&](const Block& block, const char* what) {
    if (block.entered.load() != 0) text += std::string{what} + describe(block) + "\n";
  };
  for (const auto& [address, block] : live_) look_at(*block, "live: ");
  for (const Freed& freed : freed_) look_at(*freed.block, "freed: ");
  return text;
}

std::vector<BlockRef> Oracle::live() const {
  const std::lock_guard holding{mutex_};
  std::vector<BlockRef> blocks;
  for (const auto& [address, block] : live_) blocks.push_back(block);
  return blocks;
}

Size Oracle::live_bytes(const std::function<bool(const Block&)>& which) const {
  const std::lock_guard holding{mutex_};
  Size bytes = 0;
  for (const auto& [address, block] : live_) {
    if (which(*block)) bytes += block->size;
  }
  return bytes;
}

void Touch::run(const std::function<std::byte*(CUdeviceptr)>& memory) const {
  for (const BlockRef& earlier : predecessors) {
    if (earlier->pending.load() == 0) continue;
    oracle.fail(describe(*block) + " is in use before the work of a freed " + describe(*earlier) +
                " has run");
  }
  block->entered.fetch_add(1);
  std::byte* const bytes = memory(block->address);
  for (int i = 0; i < probes && holds_something; ++i) {
    const Size at = probe(*block, i);
    if (bytes[at] == byte_of(before, at)) continue;
    oracle.fail(describe(*block) + " has lost its byte " + std::to_string(at));
  }
  for (int i = 0; i < probes; ++i) {
    const Size at = probe(*block, i);
    bytes[at] = byte_of(after, at);
  }
  block->entered.fetch_sub(1);
  block->pending.fetch_sub(1);
}

}  // namespace cuvmm::test

CUVMM_SIM_KERNEL(stress_touch) {
  using cuvmm::test::Touch;
  const std::unique_ptr<Touch> work{*static_cast<Touch* const*>(launch->parameters[0])};
  work->run([launch](CUdeviceptr address) {
    return static_cast<std::byte*>(launch->memory(launch, address));
  });
}
