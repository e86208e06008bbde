// SPDX-License-Identifier: Apache-2.0
// How a deferred copy ends: it is run before a call that could notice, or elided at the free.
#include "resize/resizer.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/undo.hpp"
#include "driver/current_context.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

// How long to wait for other threads to leave calls that submit work. A thread that takes longer is
// itself waiting for something.
constexpr std::uint64_t patience_ns = 2'000'000;

void record(TraceEvent event, const DeferredCopy& copy, Size bytes, std::uint32_t detail) {
  CUVMM_TRACE(.event = event, .device = copy.from.facts.device, .detail = detail,
              .address = copy.to_address(), .size = bytes,
              .stream = reinterpret_cast<std::uint64_t>(copy.stream), .other = copy.from_address());
}

}  // namespace

Resizer::Resizer(const Dependencies& dependencies, Notice& notice, Resize mode)
    : dependencies_(dependencies), notice_(notice), mode_(mode) {}

GrowHint Resizer::grow_hint() const {
  if (mode_ == Resize::Elide) return {.kind = GrowHint::Kind::Promise};
  return {.kind = GrowHint::Kind::Cuts, .granules_at_least = 66};
}

Answer Resizer::allocate(CUdeviceptr* address, Size size) {
  const Answer answer = dependencies_.memory.allocate(address, size, grow_hint());
  if (answer == CUDA_SUCCESS && ContextMemory::served_as(size) == Served::Window) {
    note_fresh(*address);
  }
  return answer;
}

Size Resizer::deferred_bytes_of(const Promise& promise) {
  return promise.owner->windows().transfer().deferred_bytes(
      static_cast<const WindowBlock&>(*promise.block.allocation));
}

void Resizer::note_fresh(CUdeviceptr address) {
  const auto found = dependencies_.memory.held().find_start(address);
  if (!found || found->facts.served != Served::Window) return;
  auto* owner = found->facts.context_memory();
  const Size smallest = smallest_at_granule(owner->device().granule());
  // Promises are decided by the granted size too, so none is missed here.
  if (found->facts.granted < smallest) return;
  const Promise promise{*found, owner};
  const Size deferred_bytes = deferred_bytes_of(promise);
  const Holding holding{lock_};
  smallest_.store(std::min(smallest, smallest_.load()));
  fresh_.add(address, found->facts.buffer_id, dependencies_.submission_epoch.take());
  if (deferred_bytes != 0) promises_.push_back(promise);
  renew_notice();
}

void Resizer::renew_notice() {
  const bool wanted = pending_ || !promises_.empty();
  is_pending_.store(wanted, std::memory_order_release);
  if (wanted == is_noticing_) return;
  is_noticing_ = wanted;
  wanted ? notice_.begin() : notice_.end();
}

Answer Resizer::defer(CUdeviceptr to, CUdeviceptr from, Size size, StreamName stream) {
  // Work was submitted after the last allocation, so no block is untouched. Most large copies end
  // here.
  if (dependencies_.submission_epoch.is_left()) return std::nullopt;
  const auto target = dependencies_.memory.held().find_start(to);
  const auto source = dependencies_.memory.held().find_start(from);
  if (!target || !source) return std::nullopt;
  return with_room([&] { return try_to_defer(*target, *source, size, stream); });
}

Answer Resizer::try_to_defer(const AllocationMap::Found& to, const AllocationMap::Found& from,
                             Size size, StreamName stream) {
  const Holding holding{lock_};
  if (pending_) {
    if (const CUresult ran = run(WhyRun::NextCall); ran != CUDA_SUCCESS) return ran;
  }
  const auto is_to_another = [&](const Promise& promise) {
    return !promise.is_to(to.facts.buffer_id);
  };
  if (const CUresult kept = keep_promises(is_to_another); kept != CUDA_SUCCESS) return kept;
  DeferredCopy copy{.to = to, .from = from, .size = size};
  WhyRun why{};
  const Match matches = match(copy, stream, why);
  if (matches == Match::Whole) {
    // An elision submits no work, yet the target has contents from now on.
    fresh_.forget(copy.to.facts.buffer_id);
    ++counters_.deferred;
    record(TraceEvent::CopyDeferred, copy, size, 0);
    return CUDA_SUCCESS;
  }
  pending_.reset();
  renew_notice();
  if (matches == Match::Almost) count_run(copy, why);
  return std::nullopt;
}

CUresult Resizer::before(Caller caller) {
  const auto run_and_keep = [this] {
    const CUresult ran = pending_ ? run(WhyRun::NextCall) : CUDA_SUCCESS;
    return ran == CUDA_SUCCESS ? keep_promises([](const Promise&) { return true; }) : ran;
  };
  if (caller == Caller::Works) {
    return *with_room([&]() -> Answer {
      const Holding holding{lock_};
      return run_and_keep();
    });
  }
  const Holding holding{lock_};
  const CUresult answer = run_and_keep();
  // A call that only waits or ends something does not need the missing memory, and may free some.
  if (!pending_ && promises_.empty()) return answer;
  if (pending_) pending_->may_be_waited_for = true;
  return CUDA_SUCCESS;
}

Answer Resizer::with_room(const std::function<Answer()>& attempt) {
  Answer answer;
  const auto lacks_memory = [&] { return answer == Answer{CUDA_ERROR_OUT_OF_MEMORY}; };
  DeviceMemory* device = nullptr;
  Size missing = 0;
  for (int attempts_left = 16; missing == 0; --attempts_left) {
    answer = attempt();
    if (!lacks_memory()) return answer;
    const Holding holding{lock_};
    for (const Promise& promise : promises_) {
      device = &promise.owner->device();
      missing = deferred_bytes_of(promise);
      if (missing != 0) break;
    }
    // Another thread may have kept the promise, or freed its block, since the attempt failed.
    if (missing == 0 && (pending_ || attempts_left == 0)) return answer;
  }
  dependencies_.memory.reclaim_for(*device, missing, [&] {
    answer = attempt();
    return lacks_memory();
  });
  return answer;
}

// If a copy is still deferred after the announcement, there was no memory for it. Waits for all
// work that must precede the copy; after that, any stream can run it. Not under the lock, because
// another thread may have to end that work.
void Resizer::stream_ends(CUstream stream) {
  const auto is_pending_there = [&] { return pending_ && pending_->stream == stream; };
  if (!is_pending()) return;
  {
    const Holding holding{lock_};
    if (!is_pending_there()) return;
  }
  dependencies_.driver.cuStreamSynchronize(stream);
  const Holding holding{lock_};
  if (is_pending_there()) pending_->stream = CU_STREAM_LEGACY;
}

// Backs blocks that were handed out without memory. If there is none, the promise remains.
CUresult Resizer::keep_promises(const std::function<bool(const Promise&)>& wanted) {
  CUresult answer = CUDA_SUCCESS;
  const auto is_kept = [&](const Promise& promise) {
    if (answer != CUDA_SUCCESS || !wanted(promise)) return false;
    auto& block = static_cast<WindowBlock&>(*promise.block.allocation);
    const auto backed = promise.owner->windows().transfer().back(block);
    if (!backed.ok()) answer = to_cuda(backed.error());
    return backed.ok();
  };
  std::erase_if(promises_, is_kept);
  renew_notice();
  return answer;
}

void Resizer::forget_promise_to(std::uint64_t buffer_id) {
  std::erase_if(promises_, [&](const Promise& promise) { return promise.is_to(buffer_id); });
  renew_notice();
}

// If the stream has finished all earlier work, the program may have waited for it: then only the
// copy itself remains to wait for.
CUresult Resizer::submit_once(const DeferredCopy& copy) const {
  const Driver& driver = dependencies_.driver;
  const InContext in_context{driver, copy.owner->context()};
  if (!in_context.ok()) return in_context.answer();
  const RelaxedCapture relaxed{driver};
  const Gate::Pass pass{dependencies_.gate};
  const bool is_anothers =
      copy.own_stream_of != 0 && copy.own_stream_of != PerThreadUse::this_thread();
  const CUstream stream = is_anothers ? CU_STREAM_LEGACY : copy.stream;
  const bool waits = copy.may_be_waited_for && driver.cuStreamQuery(stream) == CUDA_SUCCESS;
  const CUresult answer =
      driver.cuMemcpyDtoDAsync(copy.to_address(), copy.from_address(), copy.size, stream);
  dependencies_.submission_epoch.leave();
  dependencies_.clock.work_was_submitted();
  if (answer == CUDA_SUCCESS && waits) driver.cuStreamSynchronize(stream);
  return answer;
}

// The program was told that the copy is done, so a refused copy is tried again after making room.
CUresult Resizer::submit(const DeferredCopy& copy) const {
  const CUresult answer = submit_once(copy);
  if (answer == CUDA_SUCCESS || says_nothing_runs(answer)) return answer;
  dependencies_.memory.make_room();
  return submit_once(copy);
}

void Resizer::count_run(const DeferredCopy& copy, WhyRun why) {
  ++counters_.run[static_cast<std::size_t>(why)];
  record(TraceEvent::CopyRun, copy, copy.size, static_cast<std::uint32_t>(why));
}

void Resizer::count_elided(const DeferredCopy& copy, const WindowTransfer::Movable& moved) {
  ++counters_.elided;
  counters_.elided_bytes += moved.bytes;
  record(TraceEvent::CopyElided, copy, moved.bytes, static_cast<std::uint32_t>(moved.chunks));
}

ResizeCounters Resizer::counters() const {
  const Holding holding{lock_};
  return counters_;
}

// Makes the copy now, on the stream that it was meant for. If there is no memory for it, or the
// driver refuses, it stays deferred, and the call that made us run it fails. If the context is
// lost, so is the copy.
CUresult Resizer::run(WhyRun why) {
  const DeferredCopy copy = *pending_;
  const auto is_to_its_target = [&](const Promise& promise) {
    return promise.is_to(copy.to.facts.buffer_id);
  };
  CUresult answer = keep_promises(is_to_its_target);
  if (answer == CUDA_SUCCESS) answer = submit(copy);
  if (!says_nothing_runs(answer)) return answer;
  pending_.reset();
  renew_notice();
  count_run(copy, why);
  return answer;
}

std::optional<Resizer::Dropped> Resizer::drop_promise_to(CUdeviceptr address) {
  const Holding holding{lock_};
  const auto found = std::find_if(promises_.begin(), promises_.end(), [&](const Promise& promise) {
    return promise.block.facts.address == address;
  });
  if (found == promises_.end()) return std::nullopt;
  Dropped dropped{.promise = *found, .copy = std::nullopt};
  if (pending_ && found->is_to(pending_->to.facts.buffer_id)) dropped.copy.swap(pending_);
  promises_.erase(found);
  renew_notice();
  return dropped;
}

// Called if the free was refused. The copy's source may have changed since.
void Resizer::take_up_again(const Dropped& dropped) {
  const Holding holding{lock_};
  promises_.push_back(dropped.promise);
  if (dropped.copy && !pending_ && !doubt(*dropped.copy)) pending_ = dropped.copy;
  renew_notice();
}

CUresult Resizer::run_from(CUdeviceptr address) {
  return *with_room([&]() -> Answer {
    const Holding holding{lock_};
    if (!pending_ || pending_->from_address() != address) return CUDA_SUCCESS;
    return run(WhyRun::NextCall);
  });
}

Answer Resizer::free_source(CUdeviceptr address) {
  return with_room([&] { return try_to_free_source(address); });
}

Answer Resizer::try_to_free_source(CUdeviceptr address) {
  ContextMemory* owner = nullptr;
  std::uint64_t source = 0;
  {
    const Holding holding{lock_};
    if (!pending_ || pending_->from_address() != address) return std::nullopt;
    owner = pending_->owner;
    source = pending_->from.facts.buffer_id;
  }
  // Wait as the free would, without our lock: other threads may run the copy meanwhile.
  const bool is_done =
      !dependencies_.captures.any() && dependencies_.memory.work().wait_before_free(*owner);
  const Holding holding{lock_};
  if (!pending_ || pending_->from.facts.buffer_id != source) return std::nullopt;
  if (is_done) return elide();
  const CUresult ran = run(WhyRun::Unordered);
  return ran == CUDA_SUCCESS ? std::nullopt : Answer{ran};
}

// Called when all work before the copy is done. No thread submits work until this returns.
Answer Resizer::elide() {
  const DeferredCopy copy = *pending_;
  std::optional<WhyRun> why = WhyRun::Busy;
  if (dependencies_.gate.close(now_ns() + patience_ns)) {
    const Undo open{[this] { dependencies_.gate.open(); }};
    why = doubt(copy);
    // Only here, once for each elision, since it examines every descriptor of the process.
    if (!why && dependencies_.memory.live_moves().may_be_registered_by_address())
      why = WhyRun::Shared;
    if (!why && !dependencies_.memory.held().try_release(copy.from)) why = WhyRun::Changed;
    if (!why) {
      const auto moved = copy.owner->windows().transfer().transfer(
          copy.source(), copy.target(), copy.size,
          [&](Size done) { return copy_rest(copy, done); });
      if (moved.ok()) {
        pending_.reset();
        forget_promise_to(copy.to.facts.buffer_id);
        copy.owner->handed_over(copy.from.facts.asked);
        count_elided(copy, *moved);
        return CUDA_SUCCESS;
      }
      copy.from.allocation->restore_held();
      why = WhyRun::Refused;
    }
  }
  // An undo that was refused may have left bytes without memory.
  if (copy.owner->windows().transfer().deferred_bytes(copy.target()) != 0) {
    forget_promise_to(copy.to.facts.buffer_id);
    promises_.push_back({copy.to, copy.owner});
    renew_notice();
  }
  const CUresult ran = run(*why);
  return ran == CUDA_SUCCESS ? std::nullopt : Answer{ran};
}

// Copies what lies beyond the chunks that moved, while nothing else runs. Nothing may be unmapped
// before the copy is done, so if the driver refuses one kind of wait, tries another.
Result<void> Resizer::copy_rest(const DeferredCopy& copy, Size done) const {
  const Driver& driver = dependencies_.driver;
  const InContext in_context{driver, copy.owner->context()};
  if (!in_context.ok()) return Error::invalid("copy the rest", "the context is gone");
  const Size rest = copy.size - done;
  TRY(driver.check(driver.cuMemcpyDtoDAsync(copy.to_address() + done, copy.from_address() + done,
                                            rest, CU_STREAM_LEGACY),
                   "copy the rest", rest));
  const CUresult waited = driver.cuStreamSynchronize(CU_STREAM_LEGACY);
  if (waited == CUDA_SUCCESS || driver.cuCtxSynchronize_v2000() == CUDA_SUCCESS) return {};
  return driver.check(waited, "wait for that copy", rest);
}

void Resizer::context_began(CUcontext context) {
  const Holding holding{lock_};
  const auto same = [context](const Context& known) { return known.handle == context; };
  if (std::any_of(contexts_.begin(), contexts_.end(), same)) return;
  contexts_.push_back({context, device_of(dependencies_.driver, context)});
}

void Resizer::context_ended(CUcontext context) {
  const Holding holding{lock_};
  std::erase_if(contexts_, [context](const Context& known) { return known.handle == context; });
  if (pending_ && pending_->owner->context() == context) pending_.reset();
  std::erase_if(promises_,
                [context](const Promise& promise) { return promise.owner->context() == context; });
  renew_notice();
}

}  // namespace cuvmm
