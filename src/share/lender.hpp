// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "alloc/memory.hpp"
#include "share/ipc_handle.hpp"

namespace cuvmm::share {

// Runs code of ours on a thread of ours.
using AsOurs = std::function<void(const std::function<void()>&)>;

// Gives blocking memory of this process to those who come with its IPC handle. A thread answers
// them from the first handle on; before that there is neither thread nor socket.
class Lender {
 public:
  Lender(Memory& memory, AsOurs as_ours);
  // A process that holds our memory loses the connection, and keeps the memory.
  ~Lender();
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // The IPC handle of the allocation that holds the address.
  Result<IpcHandle> lend(CUdeviceptr address);

  // 0 as long as nothing was lent.
  std::uint64_t instance() const { return instance_.load(std::memory_order_acquire); }

 private:
  class LendServer;  // the thread, and what it works with
  Result<LendServer*> server();

  Memory& memory_;
  const AsOurs as_ours_;
  std::atomic<std::uint64_t> instance_{0};

  Lock lock_{LockOrder::IpcLender};     // guards what follows
  std::unique_ptr<LendServer> server_;  // from the first time on
};

}  // namespace cuvmm::share
