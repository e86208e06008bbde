// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/lock.hpp"
#include "base/size.hpp"
#include "vmm/location.hpp"

namespace cuvmm {

// A holder of chunks, some of which it may be able to release.
class ReclaimClient {
 public:
  // Releases chunks at `where`, up to `wanted` bytes, and returns how many bytes. Called with no
  // lock of the store held, but on a thread that asked for memory and may hold locks of its own. So
  // a client only tries its locks, never waits for them, and returns 0 if it cannot take one.
  virtual Size reclaim(Size wanted, Location where) = 0;

 protected:
  ~ReclaimClient() = default;
};

class ReclaimClients;

// A client is asked until its registration ends. The destructor waits for a call in progress.
class ReclaimRegistration {
 public:
  ReclaimRegistration() = default;
  ReclaimRegistration(ReclaimRegistration&& other) noexcept
      : clients_(std::exchange(other.clients_, nullptr)), id_(other.id_) {}
  ReclaimRegistration& operator=(ReclaimRegistration&& other) noexcept {
    std::swap(clients_, other.clients_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~ReclaimRegistration();

 private:
  friend class ReclaimClients;
  ReclaimRegistration(ReclaimClients& clients, std::uint64_t id) : clients_(&clients), id_(id) {}
  ReclaimClients* clients_ = nullptr;
  std::uint64_t id_ = 0;
};

// The clients that are asked for memory, in ascending order numbers, and those with equal numbers
// in the order of registration.
class ReclaimClients {
 public:
  [[nodiscard]] ReclaimRegistration add(ReclaimClient& client, int order);

  // Asks the clients one after the other, except `asker`, until they have released `wanted` bytes.
  // Returns how many bytes they report.
  Size ask(Size wanted, Location where, const ReclaimClient* asker);

 private:
  friend class ReclaimRegistration;
  struct Entry {
    int order;
    std::uint64_t id;
    ReclaimClient* client;
    int calls_under_way;
    bool comes_after(int other_order, std::uint64_t other_id) const {
      return order != other_order ? order > other_order : id > other_id;
    }
  };
  void remove(std::uint64_t id);

  Lock lock_{LockOrder::ChunkStore};  // guards what follows; never held while the store's own is
  Condition call_ended_;
  std::vector<Entry> entries_;  // in the order in which they are asked
  std::uint64_t last_id_ = 0;
};

}  // namespace cuvmm
