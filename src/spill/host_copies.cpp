// SPDX-License-Identifier: Apache-2.0
#include "spill/host_copies.hpp"

#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

constexpr const char* copying = "copy to or from the host";

}  // namespace

Result<std::unique_ptr<HostCopies>> HostCopies::open(const Driver& driver, CopyDirection direction,
                                                     std::span<std::byte> ring) {
  auto copies = std::unique_ptr<HostCopies>{new HostCopies{driver, direction}};
  for (CUstream& stream : copies->streams_) {
    TRY(driver.check(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), copying));
  }
  for (CUevent& event : copies->events_) {
    TRY(driver.check(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), copying));
  }
  if (!ring.empty()) copies->ring_ = TRY(StagingRing::open(driver, direction, ring));
  return copies;
}

// Copies still running on the streams finish on their own.
HostCopies::~HostCopies() {
  for (CUevent event : events_) {
    if (event == nullptr) continue;
    release_or_defer(Deferred::Handle,
                     [driver = &driver_, event] { return driver->cuEventDestroy(event); });
  }
  for (CUstream stream : streams_) {
    if (stream == nullptr) continue;
    release_or_defer(Deferred::Handle,
                     [driver = &driver_, stream] { return driver->cuStreamDestroy(stream); });
  }
}

Result<void> HostCopies::add(CUdeviceptr device, std::byte* pinned, Size size) {
  const bool follows = piece_.size != 0 && piece_.device + piece_.size == device &&
                       piece_.host + piece_.size == pinned;
  if (follows) {
    piece_.size += size;
    return {};
  }
  TRY(submit());
  piece_ = {device, pinned, size};
  return {};
}

Result<void> HostCopies::add_staged(CUdeviceptr device, std::byte* host, Size size) {
  return ring_->add(device, host, size);
}

Result<void> HostCopies::submit() {
  if (piece_.size == 0) return {};
  const auto [device, host, size] = std::exchange(piece_, {});
  runs_ = part_is_begun_ = true;
  return driver_.check(direction_ == CopyDirection::Out
                           ? driver_.cuMemcpyDtoHAsync(host, device, size, stream())
                           : driver_.cuMemcpyHtoDAsync(device, host, size, stream()),
                       copying, size);
}

Result<void> HostCopies::end_part() {
  TRY(submit());
  if (begun_ >= parts_at_once) TRY(wait_for(begun_ - parts_at_once + 1));
  if (ring_ != nullptr) staged_[begun_ % parts_at_once] = ring_->begun();
  TRY(driver_.check(driver_.cuEventRecord(events_[begun_ % parts_at_once], stream()), copying));
  ++begun_;
  part_is_begun_ = false;
  return {};
}

Result<void> HostCopies::wait_for(std::size_t parts) {
  for (; done_ < parts; ++done_) {
    if (ring_ != nullptr) TRY(ring_->wait_for(staged_[done_ % parts_at_once]));
    TRY(driver_.check(driver_.cuEventSynchronize(events_[done_ % parts_at_once]), copying));
  }
  if (done_ == begun_ && !part_is_begun_) runs_ = false;
  return {};
}

bool HostCopies::are_over() {
  if (ring_ != nullptr && !ring_->is_over()) return false;
  if (!runs_) return true;
  for (CUstream stream : streams_) {
    const auto waited = [&] { return driver_.cuStreamSynchronize(stream) == CUDA_SUCCESS; };
    if (stream != nullptr && !waited() && !waited()) return false;
  }
  runs_ = false;
  return true;
}

}  // namespace cuvmm
