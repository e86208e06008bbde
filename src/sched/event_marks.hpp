// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <vector>

#include "base/lock.hpp"
#include "sched/driver_side.hpp"
#include "stream/captures.hpp"
#include "stream/legacy_barrier.hpp"
#include "stream/stream_table.hpp"

namespace cuvmm {

// The implementation for the real driver: marks are timing events.
class EventMarks final : public DriverSide {
 public:
  // `begin_thread` registers the calling thread as an internal one.
  EventMarks(const Driver& driver, const Captures& captures, const StreamTable& streams,
             LegacyBarrier& legacy, void (*begin_thread)())
      : driver_(driver),
        captures_(captures),
        streams_(streams),
        legacy_(legacy),
        begin_thread_(begin_thread) {}

  void thread_begins() override;
  void make_current(CUcontext context) override;
  bool mark_begin(Batch& batch) override;
  bool mark_end(Batch& batch) override;
  std::optional<std::uint64_t> device_time(Batch& batch) override;
  bool is_still_pending(const Request& request) override;
  void drop(Batch& batch) override;

  // The context's events were destroyed with it.
  void context_ended(CUcontext context);

 private:
  CUevent take(CUcontext context);
  void give_back(CUcontext context, CUevent event);
  CUevent record(const Batch& batch);
  bool record(CUevent event, const Batch& batch) const;
  float time_between(CUevent first, CUevent second) const;

  const Driver& driver_;
  const Captures& captures_;
  const StreamTable& streams_;
  LegacyBarrier& legacy_;
  void (*const begin_thread_)();

  struct OfContext {
    std::vector<CUevent> spare;
    CUevent last_end = nullptr;  // of the batch that completed last
  };
  Lock lock_{LockOrder::Marks};  // guards what follows
  std::unordered_map<CUcontext, OfContext> contexts_;
};

}  // namespace cuvmm
