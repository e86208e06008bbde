// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "driver/driver.hpp"
#include "stream/legacy_barrier.hpp"
#include "stream/stream_state.hpp"

namespace cuvmm {

// A stream as a call names it. NULL, 1 and 2 stand for the legacy stream or the calling thread's
// default stream in the current context.
struct StreamName {
  CUstream handle = nullptr;
  bool null_is_per_thread = false;

  bool is_per_thread() const {
    return handle == CU_STREAM_PER_THREAD || (handle == nullptr && null_is_per_thread);
  }
  bool is_legacy() const {
    return handle == CU_STREAM_LEGACY || (handle == nullptr && !null_is_per_thread);
  }
  bool is_default() const { return is_per_thread() || is_legacy(); }
  // The handle that every driver function accepts for it, in either API flavour.
  CUstream explicit_handle() const {
    return is_per_thread() ? CU_STREAM_PER_THREAD : is_legacy() ? CU_STREAM_LEGACY : handle;
  }
};

// The streams of the process. Each is added when it is created or first named.
class StreamTable {
 public:
  // `legacy` is notified of the first blocking stream. It must outlive the table.
  explicit StreamTable(const Driver& driver, LegacyBarrier* legacy = nullptr);
  ~StreamTable();
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  // Returns nullptr if the driver does not know the stream, or if no context is current.
  StreamState* find(StreamName name);
  // The same without asking the driver: nullptr if no call has named the stream yet. Not for a
  // thread's default stream.
  StreamState* known(StreamName name) const;
  // Call after the driver has created the stream. A record of that handle belongs to a stream that
  // has ended with its context, of which the table is yet to be told.
  void stream_began(CUstream handle);
  // Represents all the work of a live context.
  StreamState& everything_of(CUcontext context);
  // One for each known context.
  [[gnu::cold]] std::vector<StreamState*> everything_of_all();

  // Also finds streams that have ended. Returns nullptr if the record has been reused, which means
  // that everything the stream freed, or had waited for, is done.
  StreamState* by_id(StreamId id) const;
  // Of the streams that have ended, the oldest whose record is not up for reuse yet; nullptr if all
  // are.
  StreamState* last_left_alone() const;
  // The live streams of a context, including its `Everything`.
  std::vector<StreamState*> of_context(CUcontext context) const;
  // The same for all contexts of a device.
  std::vector<StreamState*> of_device(int device) const;
  // Like of_context, but for hot paths: only reads, unless a stream has been added or ended.
  template <class Visit>
  void for_each_of(CUcontext context, Visit&& visit) const {
    const Gathered& here = gathered_of(context);
    if (here.fit) {
      for (std::size_t i = 0; i < here.count; ++i) visit(*here.streams[i]);
    } else {
      for (StreamState* stream : of_context(context)) visit(*stream);
    }
  }

  // The last unfinished frees of streams that have ended.
  std::vector<FreeTicket> ended_of(CUcontext context) const;

  // Everything freed up to these places is done. Ignores streams whose records have been reused.
  enum class Told : std::uint8_t { ByTheDevice, ByAWait };  // the program's own wait
  void note_done(const std::vector<FreeTicket>& places, Told told) const;

  // Live contexts with at least one known stream.
  [[gnu::cold]] std::vector<CUcontext> contexts() const;

  // Streams with unfinished frees that belong to the device or have freed its memory, including
  // streams that have ended.
  std::vector<StreamState*> with_unfinished(int device) const;

  // While one is held, no stream ends unless it already has `ended` set, and no context ends unless
  // its streams have `context_ends` set. This makes it safe to pass another thread's stream to the
  // driver, which would write to a destroyed stream.
  class Staying {
   public:
    explicit Staying(const StreamTable& table) : reading_(table.ends_) {}

   private:
    const Reading reading_;
  };
  // Call before the driver destroys the stream.
  void stream_ended(CUstream handle);
  // Call context_ends() before a driver call that may destroy a context, and one of the others
  // after it. Such calls may overlap: two threads may release the same primary context.
  void context_ends(CUcontext context);
  void context_stays(CUcontext context);
  void context_ended(CUcontext context);
  // The thread's default streams are never used again.
  void thread_ended(std::uint64_t thread);

  // An event left by the context's ended streams; nullptr if there is none.
  CUevent spare_event_of(CUcontext context);
  // Destroys all events that mark places in the streams' work.
  void drop_events();

 private:
  struct Key {
    CUcontext context;  // nullptr for a stream with a handle of its own
    CUstream handle;
    std::uint64_t thread;
    bool operator==(const Key&) const = default;
  };
  static constexpr CUstream everything = nullptr;  // the handle of an `Everything`
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  struct Recent;
  // The streams of the context that this thread last asked about. Plain data, like Recent.
  struct Gathered {
    static constexpr std::size_t most = 16;
    const StreamTable* table;
    std::uint64_t change;
    CUcontext context;
    std::size_t count;
    bool fit;  // whether it holds all of them
    StreamState* streams[most];
  };

  StreamState* learn(const Key& key, StreamName name, CUcontext current);
  [[gnu::cold]] StreamState& add(const Key& key, CUcontext context, CUstream handle,
                                 StreamKind kind);
  bool transfer_events_to_context(StreamState& state);
  bool knows_unfinished(StreamState& state) const;
  StreamState& unused_record();
  bool is_ending(CUcontext context) const;
  void forget_ending(CUcontext context);
  void end(StreamState& state);
  void drop_events_of(StreamState& state);
  static void forget_events_of(StreamState& state);

  const Gathered& gathered_of(CUcontext context) const;

  static thread_local Recent recent_;
  static thread_local Gathered gathered_;
  // Invalidates the threads' cached lookups, after a stream was added or ended.
  static void note_change() { changes_.fetch_add(1, std::memory_order_acq_rel); }
  struct alignas(64) Changes : std::atomic<std::uint64_t> {
    using atomic::atomic;
  };
  static Changes changes_;

  const Driver& driver_;
  LegacyBarrier* const legacy_;
  mutable SharedLock ends_{LockOrder::StreamEnds};
  mutable SharedLock lock_{LockOrder::Streams};  // guards the members below
  std::unordered_map<Key, StreamState*, KeyHash> by_key_;
  std::unordered_map<StreamId, StreamState*> by_id_;
  std::vector<std::unique_ptr<StreamState>> all_;           // never shrinks: readers hold no lock
  std::deque<StreamState*> ended_;                          // in the order in which they ended
  mutable std::atomic<bool> some_ended_unfinished_{false};  // as of the last check
  std::vector<CUcontext> ending_contexts_;  // one entry for each call that may end it
  StreamId last_id_ = no_stream;
};

}  // namespace cuvmm
