// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "alloc/program_lending.hpp"
#include "share/ipc_handle.hpp"

namespace cuvmm::share {

// Runs internal code on an internal thread.
using AsOurs = std::function<void(const std::function<void()>&)>;

// Grants blocking memory of this process, and memory that the program manages itself, to processes
// that present its IPC handle. A thread serves them, started with the first handle; before that
// there is neither a thread nor a socket.
class Lender {
 public:
  Lender(Memory& memory, ProgramChunks& chunks, AsOurs as_ours);
  // Closes the connections of importers; they keep the memory.
  ~Lender();
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // The IPC handle of the allocation that holds the address, or of the program's own mapping.
  Result<IpcHandle> lend(CUdeviceptr address);

  bool holds(CUdeviceptr address) const {
    return memory_.find(address).has_value() || programs_.holds(address);
  }

  // 0 until the first lend().
  std::uint64_t instance() const { return instance_.load(std::memory_order_acquire); }

 private:
  class LendServer;  // the thread and its state
  Result<LendServer*> server();

  Memory& memory_;
  ProgramLending programs_;
  const AsOurs as_ours_;
  std::atomic<std::uint64_t> instance_{0};

  Lock lock_{LockOrder::IpcLender};     // guards what follows
  std::unique_ptr<LendServer> server_;  // created by the first lend()
};

}  // namespace cuvmm::share
