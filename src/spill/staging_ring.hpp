// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/size.hpp"
#include "driver/driver.hpp"
#include "trace/futex.hpp"

namespace cuvmm {

enum class CopyDirection : std::uint8_t { Out, Back };  // of the device, or back to it

// Copies between a device and host memory that is not pinned, through a ring of pinned slots: the
// device copies to or from a slot at the link's speed, and threads copy between the slot and the
// memory. The threads are also the first to write to fresh memory, for which the kernel has to
// clear it. That takes longer than the copies, and less the more threads do it.
//
// Each copy has two legs, one by the device and one by a thread. A slot is reused once both are
// done, in the order in which copies were added.
class StagingRing {
 public:
  // `slots` is pinned, and outlives the ring.
  static Result<std::unique_ptr<StagingRing>> open(const Driver& driver, CopyDirection direction,
                                                   std::span<std::byte> slots);
  // Waits for the threads, but not for the device.
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // Waits for a slot if all are in use.
  Result<void> add(CUdeviceptr device, std::byte* host, Size size);
  // How many copies add() has begun; for wait_for().
  std::size_t begun() const { return begun_; }
  // Waits until that many copies have arrived.
  Result<void> wait_for(std::size_t copies);
  // After a failure: whether the device uses no slot any more.
  bool is_over();

 private:
  static constexpr std::size_t slot_count = 16;
  static constexpr std::size_t slots_of_device = 4;

  struct Slot {
    std::byte* bytes = nullptr;
    CUevent event = nullptr;
    CUdeviceptr device = 0;
    std::byte* host = nullptr;
    Size size = 0;
    FutexWord by_threads{0};  // copies through this slot that a thread has finished
  };

  StagingRing(const Driver& driver, CopyDirection direction, std::span<std::byte> slots);
  Result<void> create();
  void start_threads();
  std::size_t most_on_first_leg() const;
  Result<void> begin_second_leg();
  Result<void> end_oldest();
  Result<void> start_device(Slot& slot);
  void hand_to_threads(Slot& slot);
  void wait_for_threads(std::size_t copy);
  Result<void> wait_for_device(std::size_t copy);
  void carry(Slot& slot) const;
  void work();
  static void* run_thread(void* ring);

  Slot& slot(std::size_t copy) { return slots_[copy % slot_count]; }

  const Driver& driver_;
  const CopyDirection direction_;
  const Size slot_size_;
  CUstream stream_ = nullptr;
  bool device_runs_ = false;  // something was submitted and not waited for
  std::array<Slot, slot_count> slots_;
  // Copies are numbered. These have begun their first leg, begun their second, and arrived.
  std::size_t begun_ = 0;
  std::size_t on_second_leg_ = 0;
  std::size_t arrived_ = 0;
  FutexWord handed_{0};                 // copies that threads may carry
  std::atomic<std::uint32_t> next_{0};  // the copy that the next thread takes
  std::atomic<bool> ends_{false};
  std::vector<pthread_t> threads_;
};

}  // namespace cuvmm
