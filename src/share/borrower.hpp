// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <list>
#include <map>
#include <memory>

#include "alloc/memory.hpp"
#include "alloc/record_pool.hpp"
#include "share/imported.hpp"
#include "share/ipc_handle.hpp"

namespace cuvmm::share {

// Memory of other processes that this process has opened through IPC handles. Each context counts
// its opens; memory stays at one address in a context until its last close. Thread-safe. A process
// that does not answer delays only the threads that wait for it, for at most `patience`.
class Borrower {
 public:
  // `patience`: how long to wait for a process that does not answer. An answer takes microseconds,
  // but a stopped process may yet be continued.
  Borrower(const Driver& driver, Memory& memory, Duration patience)
      : driver_(driver), memory_(memory), patience_(patience) {}
  // Unmaps whatever is still open.
  ~Borrower();
  Borrower(const Borrower&) = delete;
  Borrower& operator=(const Borrower&) = delete;

  Result<CUdeviceptr> open(const IpcHandle& handle, CUcontext context);
  // NotFound if no opened memory begins there.
  Result<void> close(CUdeviceptr address);

  // Call after the driver has destroyed the context, when its work can no longer be waited for.
  void context_ended(CUcontext context);
  // The set of devices that may use the context's memory has changed.
  Result<void> access_changed(CUcontext context);

 private:
  struct Owner;  // the connection to an exporting process
  struct Key {
    std::uint64_t instance;
    std::uint64_t memory;
    CUcontext context;
    auto operator<=>(const Key&) const = default;
  };
  enum class State : std::uint8_t { Opening, Open, Closing };
  // The resources behind opened memory.
  struct Held {
    std::shared_ptr<Owner> owner;
    std::uint64_t grant = 0;
    std::optional<MappedGrant> mapped;
  };
  struct Opened {
    State state = State::Opening;
    std::uint64_t opens = 1;
    PlainAllocation* record = nullptr;
    Held held;
  };
  using All = std::map<Key, Opened>;

  Result<Held> bring(const IpcHandle& handle, CUcontext context);
  std::shared_ptr<Owner> owner_of(const IpcHandle& handle);
  void forget(const std::shared_ptr<Owner>& owner);
  void forget_ended();  // the caller holds lock_
  Result<Imported> fetch(const IpcHandle& handle, Held& held, Deadline until);
  void release(Held held);
  All::iterator find(CUdeviceptr address);
  void end(All::iterator opened, Holding& holding);

  const Driver& driver_;
  Memory& memory_;
  const Duration patience_;

  Lock lock_{LockOrder::IpcOpened};  // guards what follows
  Condition changed_;
  All all_;
  std::map<std::uint64_t, std::shared_ptr<Owner>> owners_;  // by instance, while they answer
  RecordPool<PlainAllocation> records_;
};

}  // namespace cuvmm::share
