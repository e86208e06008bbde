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
  std::uint64_t deferred = 0;  // copies that were put off
  std::uint64_t elided = 0;    // of those, replaced by a mapping
  Size elided_bytes = 0;       // that were not copied
  // That were put off, or could have been but for the reason.
  std::array<std::uint64_t, 16> run{};  // by WhyRun
};

// `B = malloc(more); memcpy(B, A); free(A)` without moving a byte. The copy is put off; if the free
// of A is the next call that could notice, A's chunks are put behind B's addresses instead. Any
// other such call runs the copy first (docs/life_of_a_resize.md).
//
// One copy at a time is put off, by whichever thread; every call that could notice waits for the
// lock under which that is decided.
class Resizer {
 public:
  // Who tells us of calls that could notice. Called under our lock.
  class Notice {
   public:
    virtual void begin() = 0;
    virtual void end() = 0;

   protected:
    ~Notice() = default;
  };
  // All of it outlives the resizer.
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

  // As Memory::allocate. In `elide` the first bytes of the block may have no memory until the next
  // call that could notice.
  Answer allocate(CUdeviceptr* address, Size size);

  // False at once for what is too small ever to be put off.
  bool may_be_deferred(Size size) const {
    return size >= smallest_.load(std::memory_order_relaxed);
  }
  // Instead of announcing a linear copy: CUDA_SUCCESS where it is put off, an error where what was
  // put off before could not be done. Nothing where it is to be announced and made.
  Answer defer(CUdeviceptr to, CUdeviceptr from, Size size, StreamName stream);

  // A blocking free; `ordinary()` announces and makes it. Not called where it is the free that a
  // copy was put off for.
  template <class Free>
  CUresult free(CUdeviceptr address, Free&& ordinary) {
    if (!is_pending()) return ordinary();
    if (const Answer answer = free_source(address)) return *answer;
    return free_target(address, ordinary);
  }
  // The same in the order of a stream, before which a copy from there is run.
  template <class Free>
  CUresult free_ordered(CUdeviceptr address, Free&& ordinary) {
    if (!is_pending()) return ordinary();
    if (const CUresult ran = run_from(address); ran != CUDA_SUCCESS) return ran;
    return free_target(address, ordinary);
  }

  // Before a call that could notice. What the call is answered without having been made, where that
  // is not CUDA_SUCCESS.
  enum class Caller : std::uint8_t {
    Works,  // it needs what it names to be there
    Waits,  // it only waits, or ends something
  };
  CUresult before(Caller caller);

  // A context is in use, or has ended.
  void context_began(CUcontext context);
  void context_ended(CUcontext context);
  // A stream is about to end, and the call was announced.
  void stream_ends(CUstream stream);
  // There is work that we cannot ask about.
  void order_is_lost() { order_is_lost_.store(true); }

  // Something waits for the next call that could notice.
  bool is_pending() const { return is_pending_.load(std::memory_order_acquire); }
  ResizeCounters counters() const;

 private:
  // Bytes of a block that were given without memory behind them.
  struct Promise {
    AllocationMap::Found block;
    ContextMemory* owner;

    bool is_to(std::uint64_t buffer_id) const { return block.facts.buffer_id == buffer_id; }
  };
  // What a block that is being freed takes with it: nobody will ever look at it.
  struct Dropped {
    Promise promise;
    std::optional<DeferredCopy> copy;
  };
  struct Context {
    CUcontext handle;
    int device;
  };
  enum class Match : std::uint8_t { None, Almost, Whole };

  GrowHint grow_hint() const;
  void note_fresh(CUdeviceptr address, Size size);
  Answer free_source(CUdeviceptr address);
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
  // The promises that `wanted(const Promise&)`: none is left of these, or what is wrong.
  CUresult keep_promises(const std::function<bool(const Promise&)>& wanted);
  void forget_promise_to(std::uint64_t buffer_id);
  void renew_notice();
  void count_run(const DeferredCopy& copy, WhyRun why);
  void count_elided(const DeferredCopy& copy, const Windows::Movable& moved);

  const Dependencies dependencies_;
  Notice& notice_;
  const Resize mode_;
  std::atomic<Size> smallest_{unlimited};
  std::atomic<bool> is_pending_{false};
  std::atomic<bool> order_is_lost_{false};

  mutable Lock lock_{LockOrder::Resize};  // guards what follows
  std::optional<DeferredCopy> pending_;
  std::vector<Promise> promises_;  // several where threads were given blocks at the same time
  FreshBlocks fresh_;
  std::vector<Context> contexts_;
  ResizeCounters counters_;
  bool is_noticing_ = false;
};

}  // namespace cuvmm
