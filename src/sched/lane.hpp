// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/clock.hpp"
#include "sched/operation.hpp"
#include "trace/futex.hpp"

namespace cuvmm {

class Client;

// One client's queue of operations for one device: submitted but not yet issued, in order. Bounded:
// submitting to a full lane waits.
//
// Places are taken under the scheduler's lock and filled in without it; one thread issues. Fields
// written by submitters and fields written by the issuing thread lie in separate cache lines.
class Lane {  // NOLINT(clang-analyzer-optin.performance.Padding)
 public:
  Lane(Client& client, int device, std::size_t capacity);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Client& client() const { return client_; }
  int device() const { return device_; }
  std::size_t capacity() const { return capacity_; }

  // Requires the scheduler's lock. A place for the next operation, or nullptr if the lane is full.
  Operation* take_place();
  // The operation is complete and may be issued.
  static void publish(Operation& operation) {
    operation.is_ready.store(true, std::memory_order_seq_cst);
  }

  std::uint64_t submitted() const { return submitted_.load(std::memory_order_acquire); }
  std::uint64_t issued() const { return issued_.load(std::memory_order_acquire); }
  bool is_empty() const { return issued() == submitted(); }
  std::size_t waiting() const { return static_cast<std::size_t>(submitted() - issued()); }
  // A thread is blocked until the lane makes progress.
  bool is_waited_for() const { return waiters_.load(std::memory_order_relaxed) != 0; }

  // For the issuing thread. nullptr if nothing is ready to be issued.
  Operation* first();
  // The operation `further` places behind the first; nullptr if it is not complete.
  Operation* behind_first(std::size_t further);
  void first_is_issued();

  // Frees the ring. Nothing may be submitted any more, and everything must have been issued. The
  // counters stay, since others may still ask whether an operation is issued.
  void give_room_back() { ring_.reset(); }

  // The issuing thread has ended: operations not issued by now never will be.
  void abandon();
  bool is_abandoned() const { return abandoned_.load(std::memory_order_acquire); }

  // False if the operation has not been issued within `at_most`, or the lane is abandoned. Spins
  // for a moment first.
  bool wait_until_issued(std::uint64_t number, Duration at_most);
  // Waits until there is room for several more.
  bool wait_for_room(Duration at_most);

 private:
  Operation& at(std::uint64_t number) { return ring_[number % capacity_]; }

  Client& client_;
  const int device_;
  const std::size_t capacity_;
  std::unique_ptr<Operation[]> ring_;
  std::atomic<std::uint64_t> submitted_{0};  // places taken
  alignas(64) std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint32_t> waiters_{0};
  std::atomic<bool> abandoned_{false};
  FutexWord changes_{0};  // incremented for each operation issued while a thread waits
};

inline bool QueuePosition::is_issued() const {
  return lane == nullptr || lane->issued() >= number;
}

}  // namespace cuvmm
