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

// A context: its streams and its sticky error.
class Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> create(Device& device, unsigned flags, bool primary);

  Device& device() const { return device_; }
  bool is_primary() const { return primary_; }
  std::uint64_t id() const { return id_; }
  CUcontext handle() const;
  unsigned flags() const { return flags_.load(); }
  void set_flags(unsigned flags) { flags_.store(flags); }

  // One use is that of the creator. detach() returns true if it ended the last one.
  void attach() { uses_.fetch_add(1); }
  bool detach() { return uses_.fetch_sub(1) == 1; }

  // CUDA_SUCCESS, or the error that every further call in this context returns.
  CUresult sticky_error() const { return sticky_.load(); }
  void fail(CUresult error);

  std::shared_ptr<Stream> legacy_stream() const { return legacy_; }
  std::shared_ptr<Stream> per_thread_stream();  // of the calling thread
  void add_stream(const std::shared_ptr<Stream>& stream);
  // For a stream that the program destroyed, or whose thread has ended. Its pending work still
  // counts as work of this context.
  void retire_stream(const std::shared_ptr<Stream>& stream);
  // Retires the calling thread's own stream when the thread ends.
  void retire_per_thread_stream();
  std::vector<std::shared_ptr<Stream>> streams() const;  // all, including the implicit ones
  // The pending work of all blocking streams, retired ones included: the legacy stream waits for
  // it.
  std::vector<Point> blocking_work() const;

  // Called when the context ends. Its own streams no longer keep any part of it alive.
  void forget_streams();

  // Waits for all work submitted to any stream of this context before the call.
  void wait_for_all_work();

  // Peers whose blocking memory this context may use.
  bool enable_peer(const std::shared_ptr<Context>& peer);
  bool disable_peer(const std::shared_ptr<Context>& peer);
  bool has_peer(const Context& peer) const;
  // The devices whose contexts may use this context's blocking memory; its own comes first.
  std::vector<int> accessors() const;

  SmallBlocks& small_blocks() { return small_blocks_; }

  // Orders submissions to the legacy stream and to blocking streams, as they depend on each other.
  Lock& submission_lock() { return submission_lock_; }

  std::map<int, std::size_t> limits;  // cuCtxSetLimit; guarded by the lock of Process
  std::atomic<int> cache_config{0};
  std::atomic<int> shared_memory_config{0};

 private:
  Context(Device& device, unsigned flags, bool primary);
  Device& device_;
  const bool primary_;
  const std::uint64_t id_;
  std::atomic<unsigned> flags_;
  std::atomic<int> uses_{1};
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};
  std::shared_ptr<Stream> legacy_;

  SmallBlocks small_blocks_;

  Lock submission_lock_{LockOrder::SimContext};

  mutable SharedLock lock_{LockOrder::SimStreams};  // guards the members below
  std::vector<std::shared_ptr<Stream>> streams_;
  std::map<std::uint64_t, std::shared_ptr<Stream>> per_thread_;  // by thread number
  struct RetiredWork {
    Point point;
    bool is_blocking;  // whether the stream was blocking
  };
  std::vector<RetiredWork> retired_work_;
  std::set<CUcontext> peers_;
};

// The context stack of the calling thread. Its entries are handles, since a context may be
// destroyed while it is on a stack.
class ContextStack {
 public:
  static std::vector<CUcontext>& of_this_thread();
  // Returns nullptr if no context is current or the current one has been destroyed.
  static std::shared_ptr<Context> current();
};

// Whether the handle can be made current: that of a living context, or of a device's primary
// context, which is valid even while the context does not exist.
bool may_be_current(CUcontext handle);

// The current context, or the error for a call that has no usable one.
struct CurrentContext {
  std::shared_ptr<Context> context;
  CUresult answer = CUDA_SUCCESS;
};
CurrentContext current_context();

}  // namespace cuvmm::sim

// Declares the current context as `name`, or returns the error if there is no usable one.
#define CUVMM_SIM_CONTEXT(name)                                        \
  const auto name##_found = ::cuvmm::sim::current_context();           \
  if (name##_found.answer != CUDA_SUCCESS) return name##_found.answer; \
  [[maybe_unused]] const auto& name = name##_found.context
