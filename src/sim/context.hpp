// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/lock.hpp"
#include "sim/blocking.hpp"
#include "sim/cuda.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {

class Device;

// A context: streams, and the errors that stick to it.
class Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> create(Device& device, unsigned flags, bool primary);

  Device& device() const { return device_; }
  bool is_primary() const { return primary_; }
  std::uint64_t id() const { return id_; }
  CUcontext handle() const;
  unsigned flags() const { return flags_.load(); }
  void set_flags(unsigned flags) { flags_.store(flags); }

  // CUDA_SUCCESS, or the error after which nothing works here any more.
  CUresult sticky_error() const { return sticky_.load(); }
  void fail(CUresult error);

  std::shared_ptr<Stream> legacy_stream() const { return legacy_; }
  std::shared_ptr<Stream> per_thread_stream();  // the calling thread's
  void add_stream(const std::shared_ptr<Stream>& stream);
  // The program destroyed it, or its thread has ended; what it was given still counts as this
  // context's work.
  void retire_stream(const std::shared_ptr<Stream>& stream);
  // The calling thread ends, and its own stream with it.
  void retire_per_thread_stream();
  std::vector<std::shared_ptr<Stream>> streams() const;  // all, the implicit ones included
  // What is left to do of all blocking streams there are and were: what the legacy stream waits
  // for.
  std::vector<Point> blocking_work() const;

  // At the end: nothing of the context is kept alive by its own streams any more.
  void forget_streams();

  // Waits for all that any stream of this context was given until now.
  void wait_for_all_work();

  // Peers whose blocking memory this context may use.
  bool enable_peer(const std::shared_ptr<Context>& peer);
  bool disable_peer(const std::shared_ptr<Context>& peer);
  bool has_peer(const Context& peer) const;
  // Devices from whose contexts this context's blocking memory may be used: its own first.
  std::vector<int> accessors() const;

  SmallBlocks& small_blocks() { return small_blocks_; }

  // Order of submissions where the legacy stream and blocking ones depend on each other.
  Lock& submission_lock() { return submission_lock_; }

  std::map<int, std::size_t> limits;  // cuCtxSetLimit; guarded by Process' lock
  std::atomic<int> cache_config{0};
  std::atomic<int> shared_memory_config{0};

 private:
  Context(Device& device, unsigned flags, bool primary);
  Device& device_;
  const bool primary_;
  const std::uint64_t id_;
  std::atomic<unsigned> flags_;
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};
  std::shared_ptr<Stream> legacy_;

  SmallBlocks small_blocks_;

  Lock submission_lock_{LockOrder::SimContext};

  mutable SharedLock lock_{LockOrder::SimStreams};  // guards what follows
  std::vector<std::shared_ptr<Stream>> streams_;
  std::map<std::uint64_t, std::shared_ptr<Stream>> per_thread_;  // by the thread's number
  struct RetiredWork {
    Point point;
    bool is_blocking;  // the stream was
  };
  std::vector<RetiredWork> retired_work_;
  std::set<CUcontext> peers_;
};

// This thread's stack of contexts. Entries are handles, since a context may be destroyed while it
// is somewhere on a stack.
class ContextStack {
 public:
  static std::vector<CUcontext>& of_this_thread();
  // nullptr where none is current, or the current one is gone.
  static std::shared_ptr<Context> current();
};

// Whether this may be made current: a living context, or the primary one of a device, whose handle
// is good while the context is not there.
bool may_be_current(CUcontext handle);

// The current context, or the answer that a call without a usable one gives.
struct CurrentContext {
  std::shared_ptr<Context> context;
  CUresult answer = CUDA_SUCCESS;
};
CurrentContext current_context();

}  // namespace cuvmm::sim

// The current context as `name`, or return why there is none to be used.
#define CUVMM_SIM_CONTEXT(name)                                        \
  const auto name##_found = ::cuvmm::sim::current_context();           \
  if (name##_found.answer != CUDA_SUCCESS) return name##_found.answer; \
  [[maybe_unused]] const auto& name = name##_found.context
