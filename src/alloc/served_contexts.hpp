// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "alloc/context_memory.hpp"
#include "alloc/lending.hpp"
#include "alloc/quiesced_context.hpp"
#include "alloc/retired.hpp"
#include "alloc/served_devices.hpp"

namespace cuvmm {

// The program's contexts, their memory, and which devices may use it. Thread-safe.
class ServedContexts {
 public:
  // All of it must outlive this object.
  struct Parts {
    const MemoryDependencies& dependencies;
    const LiveMovePolicy& policy;
    ServedDevices& devices;
    Lending& lending;  // forgets the memory of contexts that end
    Retired& retired;  // takes contexts that end
  };
  explicit ServedContexts(const Parts& parts)
      : parts_(parts), driver_(parts.dependencies.driver), clock_(parts.dependencies.clock) {}

  // Serves the context from now on. nullptr if the driver serves it.
  ContextMemory* serve(CUcontext handle);

  // The driver answers for a handle that has ended, until a new context has that handle.
  void began(CUcontext handle);
  void ended(CUcontext handle);
  bool is_dead(CUcontext handle) const;
  // Notes the context through which a green context is used. The driver serves its memory, counts
  // it as memory of the device's primary context, and keeps it when the green context ends.
  void green_context_began(CUgreenCtx green, CUcontext context);
  // nullptr if the program has not asked for one.
  CUcontext context_of(CUgreenCtx green) const;

  // Grants access to memory of `of` to the device of `by`, and keeps it after the program has ended
  // it; peer_access_never_began() undoes it.
  Result<void> peer_access_begins(CUcontext by, CUcontext of);
  void peer_access_never_began(CUcontext by, CUcontext of);
  void peer_access_ends(CUcontext by, CUcontext of);
  // The access of all devices to the context's blocking memory.
  AccessSet access_to(CUcontext context) const;

  // False while the process has had only one context, so that no copy can use blocking memory of
  // another context.
  bool has_several() const { return has_several_.load(std::memory_order_relaxed); }
  // Gives these devices access to the memory of the allocation's context, as far as they can reach
  // it.
  void let_reach(const AllocationFacts& held, const AccessSet& devices);
  // Whether the current context may use the allocation for more than copies.
  bool may_use(const AllocationFacts& held) const;

  // Any context that can be used for copies on the device; nullptr if none is known.
  CUcontext any_on(int ordinal) const;
  // Calls `visit(ContextMemory&)` for each context of the device.
  template <class Visit>
  void for_each(int ordinal, Visit visit) const {
    const Reading reading{lock_};
    for (const auto& [handle, served] : contexts_) {
      ContextMemory* const memory = served->memory.get();
      if (memory != nullptr && memory->device().ordinal() == ordinal) visit(*memory);
    }
  }
  // Returns false, without waiting, if a thread is using the contexts.
  bool trace_holdings() const;
  InvariantViolation violation() const;

 private:
  struct ServedContext {
    ServedContext(const Parts& parts, CUcontext context)
        : quiescence(parts.dependencies, parts.policy, context) {}
    QuiescedContext quiescence;
    std::unique_ptr<ContextMemory> memory;
  };
  struct PeerAccess {
    // nullptr: not enabled by the program, or no longer, but its copies may need it. A graph with
    // such a copy may be launched at any time, so the device keeps this access.
    CUcontext by;
    CUcontext of;
    int device;  // of `by`
  };

  AccessSet access_to(CUcontext context, int device) const;
  void note(CUcontext handle);
  void forget_repeated_access();

  const Parts parts_;
  const Driver& driver_;
  StreamClock& clock_;

  mutable SharedLock lock_{LockOrder::Contexts};  // guards what follows
  std::unordered_map<CUcontext, std::unique_ptr<ServedContext>> contexts_;
  std::unordered_map<CUgreenCtx, CUcontext> green_contexts_;
  std::unordered_set<CUcontext> dead_;
  std::atomic<std::size_t> dead_count_{0};
  std::vector<PeerAccess> peer_access_;
  CUcontext only_ = nullptr;              // meaningless once there were several at a time
  std::atomic<bool> has_several_{false};  // written under the lock
};

}  // namespace cuvmm
