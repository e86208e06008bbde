// SPDX-License-Identifier: Apache-2.0
#include "alloc/windows/window_addresses.hpp"

#include <algorithm>

#include "trace/record_event.hpp"

namespace cuvmm {

Result<CUdeviceptr> WindowAddresses::take(Size bytes) {
  auto found = by_size_.lower_bound({bytes, 0});
  if (found == by_size_.end()) {
    TRY(reserve(bytes));
    found = by_size_.lower_bound({bytes, 0});
  }
  const auto [size, address] = *found;
  remove_free(free_.find(address));
  if (size > bytes) add_free(address + bytes, size - bytes);
  return CUdeviceptr{address};
}

void WindowAddresses::give(CUdeviceptr address, Size bytes) {
  const Run after = free_.lower_bound(address);
  if (after != free_.end() && after->first == address + bytes && !is_seam(after->first)) {
    bytes += after->second;
    remove_free(after);
  }
  const Run above = free_.lower_bound(address);
  if (above != free_.begin() && !is_seam(address)) {
    const Run before = std::prev(above);
    if (before->first + before->second == address) {
      address = before->first;
      bytes += before->second;
      remove_free(before);
    }
  }
  add_free(address, bytes);
}

void WindowAddresses::add_free(CUdeviceptr address, Size bytes) {
  free_.emplace(address, bytes);
  by_size_.emplace(bytes, address);
  free_bytes_ += bytes;
}

void WindowAddresses::remove_free(Run run) {
  free_bytes_ -= run->second;
  by_size_.erase({run->second, run->first});
  free_.erase(run);
}

Result<void> WindowAddresses::reserve(Size bytes) {
  constexpr Size times_asked = 4;
  const Size left = bounds_.most - std::min(bounds_.most, reserved_bytes_);
  if (bytes > left) {
    return Error{.kind = ErrorKind::OutOfAddresses,
                 .doing = "take addresses for a window",
                 .asked = bytes,
                 .available = left};
  }
  const Size wanted = bytes > left / times_asked ? left : bytes * times_asked;
  Size step = round_down(std::clamp(std::max(wanted, bounds_.step), bytes, left), bounds_.granule);
  for (;;) {
    auto reserved = Reservation::create(driver_, step, bounds_.granule);
    if (reserved.ok()) {
      CUVMM_TRACE(.event = TraceEvent::Reserve, .address = reserved->address(), .size = step);
      seams_.insert(reserved->address());
      reserved_bytes_ += step;
      add_free(reserved->address(), step);
      reservations_.push_back(std::move(reserved).value());
      return {};
    }
    if (step == bytes || reserved.error().kind != ErrorKind::OutOfAddresses) {
      return reserved.error();
    }
    step = std::max(bytes, round_down(step / 2, bounds_.granule));
  }
}

bool WindowAddresses::in_one_reservation(CUdeviceptr address, Size bytes) const {
  return std::any_of(reservations_.begin(), reservations_.end(),
                     [&](const Reservation& one) { return one.contains(address, bytes); });
}

void WindowAddresses::clear() {
  for (const Reservation& one : reservations_) {
    CUVMM_TRACE(.event = TraceEvent::Unreserve, .address = one.address(), .size = one.size());
  }
  reservations_.clear();
  seams_.clear();
  free_.clear();
  by_size_.clear();
  reserved_bytes_ = free_bytes_ = 0;
}

InvariantViolation WindowAddresses::violation() const {
  Size free = 0;
  CUdeviceptr reached = 0;
  for (const auto& [address, bytes] : free_) {
    if (bytes == 0 || !is_multiple(bytes, bounds_.granule)) {
      return "window addresses: a free run is not in granules";
    }
    if (address < reached) return "window addresses: two free runs overlap";
    if (address == reached && !is_seam(address)) {
      return "window addresses: two free runs side by side are not one";
    }
    if (by_size_.count({bytes, address}) == 0) return "window addresses: a free run is not found";
    if (!in_one_reservation(address, bytes)) {
      return "window addresses: a free run is in no reservation";
    }
    reached = address + bytes;
    free += bytes;
  }
  if (by_size_.size() != free_.size()) return "window addresses: a free run is found that is not";
  if (free != free_bytes_) return "window addresses: free bytes are counted wrongly";
  Size reserved = 0;
  for (const Reservation& one : reservations_) reserved += one.size();
  if (reserved != reserved_bytes_) return "window addresses: reserved bytes are counted wrongly";
  return {};
}

}  // namespace cuvmm
