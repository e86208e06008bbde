// SPDX-License-Identifier: Apache-2.0
#include "vmm/memory_in_hand.hpp"

namespace cuvmm {
namespace {

thread_local std::uint64_t begun_by_this_thread = 0;

}  // namespace

MemoryInHand::Holder::Holder(MemoryInHand& all) : all_(all) {
  all_.holders_.fetch_add(1);
  all_.begun_.fetch_add(1);
  ++begun_by_this_thread;
}

MemoryInHand::Watch::Watch(const MemoryInHand& all)
    : all_(all),
      held_(all.holders_.load() != 0),
      begun_(all.begun_.load()),
      begun_here_(begun_by_this_thread) {}

bool MemoryInHand::Watch::others_held_any() const {
  const std::uint64_t begun = all_.begun_.load() - begun_;
  return held_ || all_.holders_.load() != 0 || begun > begun_by_this_thread - begun_here_;
}

}  // namespace cuvmm
