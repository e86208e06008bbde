// SPDX-License-Identifier: Apache-2.0
#include "spill/staging_ring.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/start_thread.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

constexpr const char* staging = "copy to or from the host";
constexpr Duration look_again_after{100'000};

// Leaves some processors to others.
std::size_t threads_to_start() {
  constexpr std::size_t most = 12;
  cpu_set_t usable;
  CPU_ZERO(&usable);
  const int processors =
      ::sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
  return std::clamp<std::size_t>(static_cast<std::size_t>(processors) * 3 / 4, 1, most);
}

}  // namespace

StagingRing::StagingRing(const Driver& driver, CopyDirection direction, std::span<std::byte> slots)
    : driver_(driver), direction_(direction), slot_size_(slots.size() / slot_count) {
  for (std::size_t i = 0; i < slot_count; ++i) slots_[i].bytes = slots.data() + i * slot_size_;
}

Result<std::unique_ptr<StagingRing>> StagingRing::open(const Driver& driver,
                                                       CopyDirection direction,
                                                       std::span<std::byte> slots) {
  auto ring = std::unique_ptr<StagingRing>{new StagingRing{driver, direction, slots}};
  TRY(ring->create());
  return ring;
}

Result<void> StagingRing::create() {
  TRY(driver_.check(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), staging));
  for (Slot& slot : slots_) {
    TRY(driver_.check(driver_.cuEventCreate(&slot.event, CU_EVENT_DISABLE_TIMING), staging));
  }
  start_threads();
  return {};
}

// Without any, the caller copies.
void StagingRing::start_threads() {
  for (std::size_t wanted = threads_to_start(); wanted > 0; --wanted) {
    pthread_t thread{};
    if (start_thread(&thread, &run_thread, this) != 0) break;
    threads_.push_back(thread);
  }
}

StagingRing::~StagingRing() {
  ends_.store(true);
  handed_.fetch_add(1);  // so that none goes to sleep now
  wake_all(handed_);
  for (const pthread_t thread : threads_) ::pthread_join(thread, nullptr);
  for (const Slot& slot : slots_) {
    if (slot.event == nullptr) continue;
    release_or_defer(Deferred::Handle, [driver = &driver_, event = slot.event] {
      return driver->cuEventDestroy(event);
    });
  }
  if (stream_ == nullptr) return;
  release_or_defer(Deferred::Handle, [driver = &driver_, stream = stream_] {
    return driver->cuStreamDestroy(stream);
  });
}

Result<void> StagingRing::add(CUdeviceptr device, std::byte* host, Size size) {
  while (size != 0) {
    if (begun_ - arrived_ == slot_count) TRY(end_oldest());
    Slot& free = slot(begun_);
    free.device = device;
    free.host = host;
    free.size = std::min(size, slot_size_);
    device += free.size;
    host += free.size;
    size -= free.size;
    if (direction_ == CopyDirection::Out) {
      TRY(start_device(free));
    } else {
      hand_to_threads(free);
    }
    ++begun_;
    if (begun_ - on_second_leg_ > most_on_first_leg()) TRY(begin_second_leg());
  }
  return {};
}

// The device needs few slots to be kept busy. The rest are for the threads.
std::size_t StagingRing::most_on_first_leg() const {
  return direction_ == CopyDirection::Out ? slots_of_device : slot_count - slots_of_device;
}

Result<void> StagingRing::wait_for(std::size_t copies) {
  while (arrived_ < copies) TRY(on_second_leg_ < copies ? begin_second_leg() : end_oldest());
  if (arrived_ == begun_) device_runs_ = false;
  return {};
}

// Waits for the first leg.
Result<void> StagingRing::begin_second_leg() {
  if (direction_ == CopyDirection::Out) {
    TRY(wait_for_device(on_second_leg_));
    hand_to_threads(slot(on_second_leg_));
  } else {
    wait_for_threads(on_second_leg_);
    TRY(start_device(slot(on_second_leg_)));
  }
  ++on_second_leg_;
  return {};
}

Result<void> StagingRing::end_oldest() {
  if (direction_ == CopyDirection::Out) {
    wait_for_threads(arrived_);
  } else {
    TRY(wait_for_device(arrived_));
  }
  ++arrived_;
  return {};
}

Result<void> StagingRing::start_device(Slot& slot) {
  device_runs_ = true;
  TRY(driver_.check(direction_ == CopyDirection::Out
                        ? driver_.cuMemcpyDtoHAsync(slot.bytes, slot.device, slot.size, stream_)
                        : driver_.cuMemcpyHtoDAsync(slot.device, slot.bytes, slot.size, stream_),
                    staging, slot.size));
  return driver_.check(driver_.cuEventRecord(slot.event, stream_), staging);
}

Result<void> StagingRing::wait_for_device(std::size_t copy) {
  return driver_.check(driver_.cuEventSynchronize(slot(copy).event), staging);
}

void StagingRing::hand_to_threads(Slot& slot) {
  if (threads_.empty()) {
    carry(slot);
    slot.by_threads.fetch_add(1);
    return;
  }
  handed_.fetch_add(1);
  wake_all(handed_);
}

void StagingRing::wait_for_threads(std::size_t copy) {
  FutexWord& word = slot(copy).by_threads;
  const auto before = static_cast<std::uint32_t>(copy / slot_count);
  while (word.load() == before) wait_while(word, before, look_again_after);
}

void StagingRing::carry(Slot& slot) const {
  if (direction_ == CopyDirection::Out) {
    std::memcpy(slot.host, slot.bytes, slot.size);
  } else {
    std::memcpy(slot.bytes, slot.host, slot.size);
  }
}

void* StagingRing::run_thread(void* ring) {
  ::pthread_setname_np(::pthread_self(), "cuvmm-copy");
  static_cast<StagingRing*>(ring)->work();
  return nullptr;
}

void StagingRing::work() {
  for (;;) {
    const std::uint32_t mine = next_.fetch_add(1);
    for (;;) {
      const std::uint32_t handed = handed_.load();
      if (ends_.load()) return;
      if (mine < handed) break;
      wait_while(handed_, handed, look_again_after);
    }
    Slot& slot = this->slot(mine);
    carry(slot);
    slot.by_threads.fetch_add(1);
    wake_all(slot.by_threads);
  }
}

bool StagingRing::is_over() {
  const auto waited = [&] { return driver_.cuStreamSynchronize(stream_) == CUDA_SUCCESS; };
  if (device_runs_ && (waited() || waited())) device_runs_ = false;
  return !device_runs_;
}

}  // namespace cuvmm
