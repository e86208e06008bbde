// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "base/lock.hpp"
#include "base/options.hpp"
#include "resize/deferred_copy.hpp"
#include "resize/fresh_blocks.hpp"
#include "stream/per_thread_use.hpp"

namespace cuvmm {

struct ResizeCounters {
  std::uint64_t deferred = 0;  // copies deferred
  std::uint64_t elided = 0;    // of those, replaced by a mapping
  Size elided_bytes = 0;       // not copied
  // Copies that were run: those deferred first, and those that only this reason kept from being
  // deferred.
  std::array<std::uint64_t, 16> run{};  // by WhyRun
};

// `B = malloc(more); memcpy(B, A); free(A)` without moving a byte. The copy is deferred. If the
// free of A is the next call that could notice, A's chunks are put behind B's addresses instead.
// Any other such call runs the copy first (docs/internals/life_of_a_resize.md).
//
// At most one copy is deferred at a time, over all threads. Every call that could notice waits for
// the lock under which that is decided.
class Resizer {
 public:
  // Turns the announcing of calls that could notice (before()) on and off. Called under our lock.
  class Notice {
   public:
    virtual void begin() = 0;
    virtual void end() = 0;

   protected:
    ~Notice() = default;
  };
  // All of it must outlive the resizer.
  struct Dependencies {
    const Driver& driver;
    Memory& memory;
    StreamClock& clock;
    const Captures& captures;
    Gate& gate;
    SubmissionEpoch& submission_epoch;
    const PerThreadUse& per_thread;
  };
  Resizer(const Dependencies& dependencies, Notice& notice, Resize mode);

  // Like Memory::allocate. With VMM_RESIZE=elide the first bytes of the block may have no memory
  // until the next call that could notice.
  Answer allocate(CUdeviceptr* address, Size size);

  // A quick test: false if the copy is too small to be deferred.
  bool may_be_deferred(Size size) const {
    return size >= smallest_.load(std::memory_order_relaxed);
  }
  // Called for a linear copy instead of announcing it. Returns CUDA_SUCCESS if the copy is
  // deferred, an error if an earlier deferred copy could not be made, and nullopt if the caller
  // must announce and make the copy.
  Answer defer(CUdeviceptr to, CUdeviceptr from, Size size, StreamName stream);

  // A blocking free. `ordinary()` announces and makes it; it is not called if this free completes
  // an elision.
  template <class Free>
  CUresult free(CUdeviceptr address, Free&& ordinary) {
    if (!is_pending()) return ordinary();
    if (const Answer answer = free_source(address)) return *answer;
    return free_target(address, ordinary);
  }
  // The same in the order of a stream. A deferred copy from that block is run first.
  template <class Free>
  CUresult free_ordered(CUdeviceptr address, Free&& ordinary) {
    if (!is_pending()) return ordinary();
    if (const CUresult ran = run_from(address); ran != CUDA_SUCCESS) return ran;
    return free_target(address, ordinary);
  }

  // Announces a call that could notice. If the result is not CUDA_SUCCESS, the call must not be
  // made and answers the result.
  enum class Caller : std::uint8_t {
    Works,  // it needs the memory that it names
    Waits,  // it only waits, or ends something
  };
  CUresult before(Caller caller);

  // Call when a context comes into use, and when it has ended.
  void context_began(CUcontext context);
  void context_ended(CUcontext context);
  // Call when a stream is about to end, after announcing that call.
  void stream_ends(CUstream stream);
  // Call when there is work that we cannot query.
  void order_is_lost() { order_is_lost_.store(true); }

  // Whether a copy or a promise waits for the next call that could notice.
  bool is_pending() const { return is_pending_.load(std::memory_order_acquire); }
  ResizeCounters counters() const;

 private:
  // A block that was handed out with bytes that have no memory yet.
  struct Promise {
    AllocationMap::Found block;
    ContextMemory* owner;

    bool is_to(std::uint64_t buffer_id) const { return block.facts.buffer_id == buffer_id; }
  };
  // The state dropped with a block that is being freed, because nothing can observe it any more.
  struct Dropped {
    Promise promise;
    std::optional<DeferredCopy> copy;
  };
  struct Context {
    CUcontext handle;
    int device;
  };
  enum class Match : std::uint8_t { None, Almost, Whole };

  // Repeats an attempt that lacks memory to keep a promise while memory is reclaimed. Not under the
  // lock, because another thread may have to end the work that is waited for.
  Answer with_room(const std::function<Answer()>& attempt);
  Answer try_to_defer(const AllocationMap::Found& to, const AllocationMap::Found& from, Size size,
                      StreamName stream);
  GrowHint grow_hint() const;
  static Size deferred_bytes_of(const Promise& promise);
  void note_fresh(CUdeviceptr address);
  Answer free_source(CUdeviceptr address);
  Answer try_to_free_source(CUdeviceptr address);
  CUresult run_from(CUdeviceptr address);
  template <class Free>
  CUresult free_target(CUdeviceptr address, Free&& ordinary) {
    const std::optional<Dropped> dropped = drop_promise_to(address);
    const CUresult answer = ordinary();
    if (dropped && answer != CUDA_SUCCESS) take_up_again(*dropped);
    return answer;
  }
  std::optional<Dropped> drop_promise_to(CUdeviceptr address);
  void take_up_again(const Dropped& dropped);

  // Under the lock.
  Match match(DeferredCopy& copy, StreamName stream, WhyRun& why);
  bool is_resize(const DeferredCopy& copy) const;
  bool is_shared(const DeferredCopy& copy) const;
  bool is_worth_while(const DeferredCopy& copy, WhyRun& why) const;
  bool is_certain(DeferredCopy& copy, StreamName stream, WhyRun& why);
  std::optional<WhyRun> doubt(const DeferredCopy& copy) const;
  bool no_work_since(std::uint64_t note) const;
  Answer elide();
  Result<void> copy_rest(const DeferredCopy& copy, Size done) const;
  CUresult run(WhyRun why);
  CUresult submit(const DeferredCopy& copy) const;
  CUresult submit_once(const DeferredCopy& copy) const;
  // Keeps the promises that `wanted(const Promise&)` selects. Returns the first error.
  CUresult keep_promises(const std::function<bool(const Promise&)>& wanted);
  void forget_promise_to(std::uint64_t buffer_id);
  void renew_notice();
  void count_run(const DeferredCopy& copy, WhyRun why);
  void count_elided(const DeferredCopy& copy, const WindowTransfer::Movable& moved);

  const Dependencies dependencies_;
  Notice& notice_;
  const Resize mode_;
  std::atomic<Size> smallest_{unlimited};
  std::atomic<bool> is_pending_{false};
  std::atomic<bool> order_is_lost_{false};

  mutable Lock lock_{LockOrder::Resize};  // guards what follows
  std::optional<DeferredCopy> pending_;
  std::vector<Promise> promises_;  // several if threads were given blocks at the same time
  FreshBlocks fresh_;
  std::vector<Context> contexts_;
  ResizeCounters counters_;
  bool is_noticing_ = false;
};

}  // namespace cuvmm
