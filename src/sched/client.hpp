// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "sched/lane.hpp"

namespace cuvmm {

inline constexpr int most_scheduled_devices = 16;

// Clients are numbered from 1; a number is never reused.
using ClientId = std::uint32_t;
inline constexpr ClientId no_client = 0;

// A client's totals so far.
struct ClientFigures {
  std::uint64_t operations = 0;  // issued
  std::uint64_t bytes = 0;
  std::uint64_t queued_ns = 0;  // time in its lanes, summed over all operations
  std::uint64_t longest_queued_ns = 0;
  std::uint64_t device_ns = 0;  // measured on the device
  std::uint64_t waits_for_room = 0;
};

// A user whose work is scheduled: its priority and weight, and a lane for each device that it uses.
class Client {
 public:
  Client(std::string name, int priority, int weight, ClientId id)
      : name_(std::move(name)), priority_(priority), weight_(weight), id_(id) {}

  const std::string& name() const { return name_; }
  int priority() const { return priority_; }
  int weight() const { return weight_; }
  ClientId id() const { return id_; }

  // nullptr if it has not used the device yet.
  Lane* lane(int device) const {
    return lanes_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
  }
  // Requires the scheduler's lock.
  Lane& add_lane(int device, std::size_t capacity) {
    auto& place = owned_[static_cast<std::size_t>(device)];
    place = std::make_unique<Lane>(*this, device, capacity);
    lanes_[static_cast<std::size_t>(device)].store(place.get(), std::memory_order_release);
    return *place;
  }

  // From now on nothing may be submitted.
  void end() { ended_.store(true, std::memory_order_release); }
  bool has_ended() const { return ended_.load(std::memory_order_acquire); }

  void count_issued(std::uint64_t queued_ns);
  // Call once the driver has accepted the operation.
  void count_bytes(Size bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void count_device_time(std::uint64_t ns) { device_ns_.fetch_add(ns, std::memory_order_relaxed); }
  void count_wait_for_room() { waits_for_room_.fetch_add(1, std::memory_order_relaxed); }
  ClientFigures figures() const;

 private:
  const std::string name_;
  const int priority_;
  const int weight_;
  const ClientId id_;
  std::atomic<bool> ended_{false};
  std::array<std::atomic<Lane*>, most_scheduled_devices> lanes_{};
  std::array<std::unique_ptr<Lane>, most_scheduled_devices> owned_;  // under the scheduler's lock

  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> queued_ns_{0};
  std::atomic<std::uint64_t> longest_queued_ns_{0};
  std::atomic<std::uint64_t> device_ns_{0};
  std::atomic<std::uint64_t> waits_for_room_{0};
};

}  // namespace cuvmm
