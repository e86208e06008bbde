// SPDX-License-Identifier: Apache-2.0
#include "alloc/last_uses.hpp"

#include <algorithm>

namespace cuvmm {

constinit std::atomic<LastUses*> LastUses::watched_{nullptr};

LastUses::LastUses() : spans_(new std::atomic<Span*>[span_count] {}) {}

LastUses::~LastUses() {
  for (std::size_t i = 0; i < span_count; ++i) delete spans_[i].load();
}

void LastUses::cover(CUdeviceptr address, Size size) {
  if (size == 0 || (address + size - 1) >> address_bits != 0) return;
  const std::size_t last = (address + size - 1) >> span_bits;
  for (std::size_t i = address >> span_bits; i <= last; ++i) {
    if (spans_[i].load(std::memory_order_relaxed) != nullptr) continue;
    auto* const made = new Span{};
    Span* nobodys = nullptr;
    if (!spans_[i].compare_exchange_strong(nobodys, made, std::memory_order_acq_rel)) delete made;
  }
}

LastUses::Moment LastUses::last_within(CUdeviceptr address, Size size) const {
  constexpr Size granule = Size{1} << granule_bits;
  Moment last = 0;
  for (CUdeviceptr at = address; at < address + size; at = round_down(at, granule) + granule) {
    const std::atomic<Moment>* const moment = moment_of(at);
    if (moment != nullptr) last = std::max(last, moment->load(std::memory_order_relaxed));
  }
  return last;
}

}  // namespace cuvmm
