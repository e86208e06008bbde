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

// A stream as a call names it: NULL, 1 and 2 mean the legacy or the calling thread's own stream of
// the current context.
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
  // What every function of the driver takes for it, in either flavour.
  CUstream explicit_handle() const {
    return is_per_thread() ? CU_STREAM_PER_THREAD : is_legacy() ? CU_STREAM_LEGACY : handle;
  }
};

// The streams of the process. Each is learnt of when it is made or first named.
class StreamTable {
 public:
  // `legacy`: learns of the first blocking stream; outlives the table.
  explicit StreamTable(const Driver& driver, LegacyBarrier* legacy = nullptr);
  ~StreamTable();
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  // nullptr where the driver does not know the stream, or no context is current.
  StreamState* find(StreamName name);
  // The same without asking the driver: nullptr where nobody has named it yet. Not for a thread's
  // default stream.
  StreamState* known(StreamName name) const;
  // Stands for all the work of a context that is alive.
  StreamState& everything_of(CUcontext context);
  // Of each context that is known.
  std::vector<StreamState*> everything_of_all();

  // A stream that is gone may be asked for; nullptr where its record serves another by now, so all
  // that it freed is done.
  StreamState* by_id(StreamId id) const;
  // Live streams of a context, `Everything` among them.
  std::vector<StreamState*> of_context(CUcontext context) const;
  // The same for what every call may do: only reads, while no stream comes or goes.
  template <class Visit>
  void for_each_of(CUcontext context, Visit&& visit) const {
    const Gathered& here = gathered_of(context);
    if (here.fit) {
      for (std::size_t i = 0; i < here.count; ++i) visit(*here.streams[i]);
    } else {
      for (StreamState* stream : of_context(context)) visit(*stream);
    }
  }

  // The last frees, where not known to be done, of those that have ended.
  std::vector<FreeTicket> ended_of(CUcontext context) const;

  // All that was freed up to these places is done. Nothing is noted of streams whose records serve
  // others by now.
  enum class Told : std::uint8_t { ByTheDevice, ByAWait };  // the program's own, that is
  void note_done(const std::vector<FreeTicket>& places, Told told) const;

  // Live ones that any stream is known of.
  std::vector<CUcontext> contexts() const;

  // Those of the device, and others that have freed memory of it, with frees that are not known to
  // be done; ended ones too.
  std::vector<StreamState*> with_unfinished(int device) const;

  // While somebody holds one no stream ends that has not `ended` yet, and no context whose streams
  // do not say so, so that another thread's can be named to the driver: to one that is gone it
  // would write.
  class Staying {
   public:
    explicit Staying(const StreamTable& table) : reading_(table.ends_) {}

   private:
    const Reading reading_;
  };
  // Before the driver ends it.
  void stream_ended(CUstream handle);
  // Before the driver ends a context, and afterwards where it has not.
  void context_ends(CUcontext context, bool ends);
  void context_ended(CUcontext context);
  // The thread's own streams are never used again.
  void thread_ended(std::uint64_t thread);

  // One that streams of the context which ended have left; nullptr if there is none.
  CUevent spare_event_of(CUcontext context);
  // Gives back all events that mark places in the streams' work.
  void drop_events();

 private:
  struct Key {
    CUcontext context;  // nullptr for a stream with a handle of its own
    CUstream handle;
    std::uint64_t thread;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  struct Recent;
  // The streams of the context that this thread asked about last. Plain data, as Recent is.
  struct Gathered {
    static constexpr std::size_t most = 16;
    const StreamTable* table;
    std::uint64_t change;
    CUcontext context;
    std::size_t count;
    bool fit;  // all of them
    StreamState* streams[most];
  };

  StreamState* learn(const Key& key, StreamName name, CUcontext current);
  StreamState& add(const Key& key, CUcontext context, CUstream handle, StreamKind kind);
  bool hand_on_events(StreamState& state);
  StreamState& unused_record();
  void end(StreamState& state);
  void drop_events_of(StreamState& state);
  static void forget_events_of(StreamState& state);

  const Gathered& gathered_of(CUcontext context) const;

  static thread_local Recent recent_;
  static thread_local Gathered gathered_;
  // What threads remember is worth nothing once a stream has come or gone.
  static void note_change() { changes_.fetch_add(1, std::memory_order_acq_rel); }
  struct alignas(64) Changes : std::atomic<std::uint64_t> {
    using atomic::atomic;
  };
  static Changes changes_;

  const Driver& driver_;
  LegacyBarrier* const legacy_;
  mutable SharedLock ends_{LockOrder::StreamEnds};
  mutable SharedLock lock_{LockOrder::Streams};  // guards what follows
  std::unordered_map<Key, StreamState*, KeyHash> by_key_;
  std::unordered_map<StreamId, StreamState*> by_id_;
  std::vector<std::unique_ptr<StreamState>> all_;  // never taken away from: readers hold no lock
  std::deque<StreamState*> ended_;                 // in the order in which they ended
  mutable std::atomic<bool> some_ended_unfinished_{false};  // as far as anybody has looked
  StreamId last_id_ = no_stream;
};

}  // namespace cuvmm
