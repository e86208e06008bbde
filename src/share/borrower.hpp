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

// Memory of other processes that this one has opened by IPC handles: counted for each context, and
// at one address as long as it is open there. Everything may be called from any thread; a process
// that does not answer holds up those who wait for it, for as long as their patience, and no
// others.
class Borrower {
 public:
  // `patience`: with a process that does not answer. Answering takes microseconds, but one that is
  // stopped may be continued.
  Borrower(const Driver& driver, Memory& memory, Duration patience)
      : driver_(driver), memory_(memory), patience_(patience) {}
  // What is still open is unmapped.
  ~Borrower();
  Borrower(const Borrower&) = delete;
  Borrower& operator=(const Borrower&) = delete;

  Result<CUdeviceptr> open(const IpcHandle& handle, CUcontext context);
  // NotFound where nothing opened begins there.
  Result<void> close(CUdeviceptr address);

  // The driver has taken the context down, and nothing of it can be waited for.
  void context_ended(CUcontext context);
  // Other devices than before may use the context's memory.
  Result<void> access_changed(CUcontext context);

 private:
  struct Owner;  // the connection to a process that memory was opened of
  struct Key {
    std::uint64_t instance;
    std::uint64_t memory;
    CUcontext context;
    auto operator<=>(const Key&) const = default;
  };
  enum class State : std::uint8_t { Opening, Open, Closing };
  // What it takes to have memory open.
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
  std::map<std::uint64_t, std::shared_ptr<Owner>> owners_;  // by instance, as long as they answer
  RecordPool<PlainAllocation> records_;
};

}  // namespace cuvmm::share
