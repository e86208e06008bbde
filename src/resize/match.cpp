// SPDX-License-Identifier: Apache-2.0
// Which copies may be deferred. If any doubt remains, the copy is made.
#include <algorithm>

#include "base/undo.hpp"
#include "driver/current_context.hpp"
#include "resize/cost_model.hpp"
#include "resize/order.hpp"
#include "resize/resizer.hpp"

namespace cuvmm {

bool Resizer::no_work_since(std::uint64_t note) const {
  return !dependencies_.submission_epoch.is_left() && dependencies_.submission_epoch.take() == note;
}

// Whether it copies from the start of one block to the start of another that is still untouched.
bool Resizer::is_resize(const DeferredCopy& copy) const {
  const AllocationFacts& to = copy.to.facts;
  const AllocationFacts& from = copy.from.facts;
  if (to.served != Served::Window || from.served != Served::Window) return false;
  if (!(to.owner == from.owner) || to.buffer_id == from.buffer_id) return false;
  if (copy.size > to.asked || copy.size > from.asked) return false;
  const auto note = fresh_.note_of(to.address, to.buffer_id);
  return note && no_work_since(*note);
}

// Whether other processes, devices or contexts may use the memory.
bool Resizer::is_shared(const DeferredCopy& copy) const {
  const AllocationFacts& from = copy.from.facts;
  if (copy.to.facts.pins != 0 || from.pins != 0) return true;
  if (!(copy.owner->access() == AccessSet::of(from.device))) return true;
  const auto is_here = [&](const Context& known) {
    return known.device == from.device || known.device < 0;
  };
  return !std::all_of(contexts_.begin(), contexts_.end(), [&](const Context& known) {
    return !is_here(known) || known.handle == copy.owner->context();
  });
}

bool Resizer::is_worth_while(const DeferredCopy& copy, WhyRun& why) const {
  const WindowTransfer& transfer = copy.owner->windows().transfer();
  const WindowTransfer::Movable change = transfer.movable(copy.source(), copy.target(), copy.size);
  why = WhyRun::NoWholeChunk;
  if (change.bytes == 0) return false;
  why = WhyRun::CostsMore;
  // With VMM_RESIZE=elide, memory counts, not time.
  return mode_ == Resize::Elide ||
         CostModel{copy.owner->device().granule()}.wins(change, copy.size);
}

// Once pending_ is set, every call that could notice reaches us and waits for our lock; calls that
// began earlier are seen here. So what holds now holds until the copy is run or elided. The
// exception is threads in the middle of a call, for which elide() checks again.
bool Resizer::is_certain(DeferredCopy& copy, StreamName stream, WhyRun& why) {
  pending_ = copy;
  renew_notice();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (const auto doubts = doubt(copy)) {
    why = *doubts;
    return false;
  }
  why = WhyRun::Unordered;
  if (order_is_lost_.load() || current_context(dependencies_.driver) != copy.owner->context()) {
    return false;
  }
  const StreamState* state = dependencies_.clock.table().find(stream);
  if (state == nullptr || state->context != copy.owner->context()) return false;
  copy.stream = state->handle;
  if (state->kind == StreamKind::PerThread) {
    copy.stream = CU_STREAM_PER_THREAD;
    copy.own_stream_of = PerThreadUse::this_thread();
  }
  pending_ = copy;
  // Query streams only while no thread is blocked in a launch on one of them.
  if (!dependencies_.gate.close(now_ns())) return false;
  const Undo open{[this] { dependencies_.gate.open(); }};
  return is_ordered_after_everything(dependencies_.driver, dependencies_.clock,
                                     dependencies_.per_thread, *state);
}

std::optional<WhyRun> Resizer::doubt(const DeferredCopy& copy) const {
  if (!dependencies_.memory.work().sees_everything() ||
      dependencies_.memory.work().has_lost_a_context()) {
    return WhyRun::Unseen;
  }
  if (dependencies_.captures.any()) return WhyRun::Capture;
  if (is_shared(copy)) return WhyRun::Shared;
  if (!no_work_since(copy.note)) return WhyRun::NewWork;
  const auto same = [](const AllocationMap::Found& before) {
    const auto now = before.allocation->facts();
    return now && now->buffer_id == before.facts.buffer_id && now->pins == before.facts.pins;
  };
  if (!same(copy.to) || !same(copy.from)) return WhyRun::Changed;
  if (dependencies_.memory.live_moves().is_known_to_register_by_address()) return WhyRun::Shared;
  return std::nullopt;
}

Resizer::Match Resizer::match(DeferredCopy& copy, StreamName stream, WhyRun& why) {
  if (!is_resize(copy)) return Match::None;
  copy.owner = copy.to.facts.context_memory();
  copy.note = *fresh_.note_of(copy.to.facts.address, copy.to.facts.buffer_id);
  why = WhyRun::Shared;
  if (is_shared(copy) || !is_worth_while(copy, why)) return Match::Almost;
  return is_certain(copy, stream, why) ? Match::Whole : Match::Almost;
}

}  // namespace cuvmm
