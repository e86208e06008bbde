// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/clock.hpp"
#include "sched/operation.hpp"
#include "trace/futex.hpp"

namespace cuvmm {

class Client;

// What one client has submitted for one device and what is not issued yet, in order. Bounded: who
// submits to a full lane waits.
//
// Places are taken under the scheduler's lock, then filled in without it; one thread issues.
// What those who submit write and what the issuing thread writes lie in lines of their own.
class Lane {  // NOLINT(clang-analyzer-optin.performance.Padding)
 public:
  Lane(Client& client, int device, std::size_t capacity);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Client& client() const { return client_; }
  int device() const { return device_; }
  std::size_t capacity() const { return capacity_; }

  // Under the scheduler's lock: a place for the next operation, nullptr where the lane is full.
  Operation* take_place();
  // What was taken is written, and may be issued.
  static void publish(Operation& operation) {
    operation.is_ready.store(true, std::memory_order_seq_cst);
  }

  std::uint64_t submitted() const { return submitted_.load(std::memory_order_acquire); }
  std::uint64_t issued() const { return issued_.load(std::memory_order_acquire); }
  bool is_empty() const { return issued() == submitted(); }
  std::size_t waiting() const { return static_cast<std::size_t>(submitted() - issued()); }
  // Somebody can do nothing but wait for what it holds.
  bool is_waited_for() const { return waiters_.load(std::memory_order_relaxed) != 0; }

  // For the issuing thread. nullptr where nothing is ready to be issued.
  Operation* first();
  // The one `further` places behind it, as far as it is written.
  Operation* behind_first(std::size_t further);
  void first_is_issued();

  // Nothing will ever be submitted again, and all is issued. Its record stays, since others may ask
  // whether an operation is issued.
  void give_room_back() { ring_.reset(); }

  // Its issuing thread has ended: what is not issued now never will be.
  void abandon();
  bool is_abandoned() const { return abandoned_.load(std::memory_order_acquire); }

  // False where it has not been issued after `at_most`, or the lane is abandoned. Keeps a processor
  // busy for a moment first.
  bool wait_until_issued(std::uint64_t number, Duration at_most);
  // Until there is room for several more.
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
  FutexWord changes_{0};  // grows with each that is issued while somebody waits
};

inline bool QueuePosition::is_issued() const {
  return lane == nullptr || lane->issued() >= number;
}

}  // namespace cuvmm
