// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/lock.hpp"
#include "base/size.hpp"
#include "vmm/location.hpp"

namespace cuvmm {

// Somebody who holds chunks that he could do without.
class ReclaimClient {
 public:
  // Releases chunks at `where`, `wanted` bytes if it can, and returns how many. Called with
  // no lock of the store held, but on a thread that asked for memory and may hold locks of its own:
  // so a client tries its locks and never waits for them, and answers 0 when it cannot.
  virtual Size reclaim(Size wanted, Location where) = 0;

 protected:
  ~ReclaimClient() = default;
};

class ReclaimClients;

// A client is asked until this ends; ending waits for a call that is under way.
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

// Who is asked for memory, and in which order: low numbers first, equal ones as they came.
class ReclaimClients {
 public:
  [[nodiscard]] ReclaimRegistration add(ReclaimClient& client, int order);

  // Asks one after the other until they have released `wanted` bytes; skips `asker`. Returns
  // how many bytes they report.
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
