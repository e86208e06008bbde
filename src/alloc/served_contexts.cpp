// SPDX-License-Identifier: Apache-2.0
#include "alloc/served_contexts.hpp"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <tuple>

#include "base/log.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {

AccessSet ServedContexts::access_to(CUcontext context, int device) const {
  AccessSet access = AccessSet::of(device);
  for (const PeerAccess& peer : peer_access_) {
    if (peer.of == context) access = access.with(peer.device);
  }
  return access;
}

AccessSet ServedContexts::access_to(CUcontext context) const {
  const int device = device_of(driver_, context);
  const Reading reading{lock_};
  return access_to(context, device);
}

ContextMemory* ServedContexts::serve(CUcontext handle) {
  {
    const Reading reading{lock_};
    const auto found = contexts_.find(handle);
    if (found != contexts_.end()) return found->second->memory.get();
  }
  DeviceMemory* where = parts_.devices.serve(device_of(driver_, handle));
  if (where == nullptr) return nullptr;
  clock_.context_began(handle);
  const Writing writing{lock_};
  const auto found = contexts_.find(handle);
  if (found != contexts_.end()) return found->second->memory.get();
  auto served = std::make_unique<ServedContext>(parts_, handle);
  auto made = ContextMemory::create(driver_, *where, clock_, handle,
                                    access_to(handle, where->ordinal()), served->quiescence);
  if (made.ok()) {
    served->memory = std::move(*made);
  } else {
    CUVMM_LOG(Warning, "%s; cuvmm does not serve the context's memory",
              made.error().text().c_str());
  }
  note(handle);
  return contexts_.emplace(handle, std::move(served)).first->second->memory.get();
}

bool ServedContexts::is_dead(CUcontext handle) const {
  if (dead_count_.load(std::memory_order_acquire) == 0) return false;
  const Reading reading{lock_};
  return dead_.contains(handle);
}

void ServedContexts::began(CUcontext handle) {
  clock_.context_began(handle);
  const Writing writing{lock_};
  note(handle);
  dead_.erase(handle);
  dead_count_.store(dead_.size(), std::memory_order_release);
}

// The caller holds lock_. A context that owns no memory may still name another's.
void ServedContexts::note(CUcontext handle) {
  if (only_ == nullptr) only_ = handle;
  if (only_ != handle) has_several_.store(true, std::memory_order_relaxed);
}

void ServedContexts::green_context_began(CUgreenCtx green, CUcontext context) {
  const Writing writing{lock_};
  green_contexts_[green] = context;
  if (!contexts_.contains(context)) {
    contexts_.emplace(context, std::make_unique<ServedContext>(parts_, context));
  }
}

CUcontext ServedContexts::context_of(CUgreenCtx green) const {
  const Reading reading{lock_};
  const auto found = green_contexts_.find(green);
  return found != green_contexts_.end() ? found->second : nullptr;
}

// The driver has destroyed the context and its work.
void ServedContexts::ended(CUcontext handle) {
  std::unique_ptr<ServedContext> ended;
  {
    const Writing writing{lock_};
    std::erase_if(peer_access_, [handle](const PeerAccess& access) { return access.of == handle; });
    for (PeerAccess& access : peer_access_) {
      if (access.by == handle) access.by = nullptr;
    }
    forget_repeated_access();
    std::erase_if(green_contexts_, [handle](const auto& one) { return one.second == handle; });
    if (only_ == handle) only_ = nullptr;
    dead_.insert(handle);
    dead_count_.store(dead_.size(), std::memory_order_release);
    const auto found = contexts_.find(handle);
    if (found != contexts_.end()) {
      ended = std::move(found->second);
      contexts_.erase(found);
    }
  }
  clock_.context_ended(handle);
  if (ended == nullptr) return;
  ended->quiescence.context_ended();
  if (ended->memory != nullptr) {
    parts_.lending.forget_all_of(*ended->memory);
    ended->memory->end();
  }
  parts_.retired.add(std::move(ended));
}

Result<void> ServedContexts::peer_access_begins(CUcontext by, CUcontext of) {
  const PeerAccess access{by, of, device_of(driver_, by)};
  const int owner = device_of(driver_, of);
  const Writing writing{lock_};
  peer_access_.push_back(access);
  const auto found = contexts_.find(of);
  if (found == contexts_.end() || found->second->memory == nullptr) return {};
  const auto given = found->second->memory->set_access(access_to(of, owner));
  if (!given.ok()) peer_access_.pop_back();
  return given;
}

void ServedContexts::peer_access_ends(CUcontext by, CUcontext of) {
  const Writing writing{lock_};
  for (PeerAccess& access : peer_access_) {
    if (access.by == by && access.of == of) access.by = nullptr;
  }
  forget_repeated_access();
}

void ServedContexts::peer_access_never_began(CUcontext by, CUcontext of) {
  const int owner = device_of(driver_, of);
  const Writing writing{lock_};
  const auto last =
      std::find_if(peer_access_.rbegin(), peer_access_.rend(),
                   [&](const PeerAccess& access) { return access.by == by && access.of == of; });
  if (last != peer_access_.rend()) peer_access_.erase(std::next(last).base());
  const auto found = contexts_.find(of);
  if (found == contexts_.end() || found->second->memory == nullptr) return;
  const auto taken = found->second->memory->set_access(access_to(of, owner));
  if (!taken.ok()) CUVMM_LOG(Warning, "%s", taken.error().text().c_str());
}

// The caller holds lock_.
void ServedContexts::forget_repeated_access() {
  const auto key = [](const PeerAccess& access) {
    return std::tuple{access.of, access.device, access.by};
  };
  std::sort(peer_access_.begin(), peer_access_.end(),
            [&](const PeerAccess& a, const PeerAccess& b) { return key(a) < key(b); });
  const auto same = [&](const PeerAccess& a, const PeerAccess& b) { return key(a) == key(b); };
  peer_access_.erase(std::unique(peer_access_.begin(), peer_access_.end(), same),
                     peer_access_.end());
}

CUcontext ServedContexts::any_on(int ordinal) const {
  {
    const Reading reading{lock_};
    for (const auto& [handle, served] : contexts_) {
      if (served->memory != nullptr && served->memory->device().ordinal() == ordinal) {
        return handle;
      }
    }
  }
  for (const CUcontext context : clock_.table().contexts()) {
    if (device_of(driver_, context) == ordinal) return context;
  }
  return nullptr;
}

bool ServedContexts::trace_holdings() const {
  const Writing alone{lock_, std::try_to_lock};
  if (!alone.owns_lock()) return false;
  for (const auto& [handle, served] : contexts_) {
    if (served->memory != nullptr) served->memory->trace_holdings();
  }
  return true;
}

InvariantViolation ServedContexts::violation() const {
  const Reading reading{lock_};
  for (const auto& [handle, served] : contexts_) {
    if (served->memory == nullptr) continue;
    if (auto violation = served->memory->violation()) return violation;
  }
  return std::nullopt;
}

}  // namespace cuvmm
