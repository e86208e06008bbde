// SPDX-License-Identifier: Apache-2.0
#include "sim/managed_advice.hpp"

#include "base/made_once.hpp"

namespace cuvmm::sim {
namespace {

constexpr Size managed_step = 4 * KiB;

CUdeviceptr begin_of(CUdeviceptr address) {
  return round_down(address, managed_step);
}
CUdeviceptr end_of(CUdeviceptr address, Size size) {
  return round_up(address + size, managed_step);
}

}  // namespace

ManagedAdvices& ManagedAdvices::get() {
  static constinit MadeOnce<ManagedAdvices> advices;
  return advices.get();
}

void ManagedAdvices::add(CUdeviceptr address, Size size) {
  const Holding holding{lock_};
  // The second entry marks the end.
  allocations_[address] = {{begin_of(address), {}}, {end_of(address, size), {}}};
}

void ManagedAdvices::remove(CUdeviceptr address) {
  const Holding holding{lock_};
  allocations_.erase(address);
}

ManagedAdvices::Pieces::iterator ManagedAdvices::split_at(Pieces& pieces, CUdeviceptr address) {
  const auto after = pieces.lower_bound(address);
  if (after != pieces.end() && after->first == address) return after;
  return pieces.emplace_hint(after, address, std::prev(after)->second);
}

void ManagedAdvices::change(CUdeviceptr allocation, CUdeviceptr address, Size size,
                            const std::function<void(ManagedAdvice&)>& change) {
  const Holding holding{lock_};
  const auto found = allocations_.find(allocation);
  if (found == allocations_.end()) return;
  const auto first = split_at(found->second, begin_of(address));
  const auto last = split_at(found->second, end_of(address, size));
  for (auto piece = first; piece != last; ++piece) change(piece->second);
}

std::vector<ManagedAdvice> ManagedAdvices::of(CUdeviceptr allocation, CUdeviceptr address,
                                              Size size) const {
  const Holding holding{lock_};
  std::vector<ManagedAdvice> advice;
  const auto found = allocations_.find(allocation);
  if (found == allocations_.end()) return advice;
  const auto last = found->second.lower_bound(end_of(address, size));
  for (auto piece = std::prev(found->second.upper_bound(begin_of(address))); piece != last;
       ++piece) {
    advice.push_back(piece->second);
  }
  return advice;
}

}  // namespace cuvmm::sim
