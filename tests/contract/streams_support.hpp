// SPDX-License-Identifier: Apache-2.0
// Support for tests about order and waiting.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/size.hpp"
#include "support/driver_under_test.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {

// Streams that exist without being created.
inline const CUstream default_stream =
    nullptr;  // legacy, or the thread's own, depending on the call's flavour
inline const CUstream legacy_stream = CU_STREAM_LEGACY;
inline const CUstream per_thread_stream = CU_STREAM_PER_THREAD;

// Makes another context current for the length of the scope.
class Current {
 public:
  explicit Current(CUcontext context) { GIVEN(driver().cuCtxPushCurrent(context)); }
  ~Current() {
    CUcontext popped = nullptr;
    EXPECT_CUDA(driver().cuCtxPopCurrent(&popped));
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

// A driver call's answer on a thread without a context.
inline CUresult without_a_context(const std::function<CUresult()>& call) {
  CUresult answer = CUDA_ERROR_UNKNOWN;
  std::thread([&] { answer = call(); }).join();
  return answer;
}

// A driver call on a separate thread, with the creator's context current there, so that a test can
// see whether the call waits. A call that never returns ends the program, since nothing can be
// tested after it.
class CallElsewhere {
 public:
  explicit CallElsewhere(std::function<CUresult()> call) {
    CUcontext context = nullptr;
    GIVEN(driver().cuCtxGetCurrent(&context));
    thread_ = std::thread([this, context, call = std::move(call)] {
      CUresult answer = driver().cuCtxSetCurrent(context);
      begun();
      if (answer == CUDA_SUCCESS) answer = call();
      const std::lock_guard lock{mutex_};
      answer_ = answer;
      returned_ = true;
      changed_.notify_all();
    });
  }
  ~CallElsewhere() {
    if (!returned_within(patience)) {
      std::fprintf(stderr, "cuvmm tests: a driver call did not return in time\n");
      std::abort();
    }
    thread_.join();
  }
  CallElsewhere(const CallElsewhere&) = delete;
  CallElsewhere& operator=(const CallElsewhere&) = delete;

  // The call has not returned, although it had time to.
  bool waits() {
    {
      std::unique_lock lock{mutex_};  // the thread may have to wait for a core
      changed_.wait_for(lock, patience, [this] { return begun_; });
    }
    return !returned_within(a_moment);
  }
  bool returns() { return returned_within(patience); }

  CUresult answer() {
    if (!returns()) throw std::runtime_error("the driver call did not return in time");
    return answer_;
  }

 private:
  static constexpr std::chrono::milliseconds a_moment{40};
  // Longer than wait_for_flag waits, so that a kernel waited for by mistake ends by itself.
  static constexpr std::chrono::seconds patience{30};

  void begun() {
    const std::lock_guard lock{mutex_};
    begun_ = true;
    changed_.notify_all();
  }
  bool returned_within(std::chrono::milliseconds time) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, time, [this] { return returned_; });
  }

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool begun_ = false;
  bool returned_ = false;
  CUresult answer_ = CUDA_ERROR_UNKNOWN;

  std::thread thread_;
};

class GivenEvent {
 public:
  explicit GivenEvent(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    GIVEN(driver().cuEventCreate(&event_, flags));
  }
  ~GivenEvent() {
    if (event_ != nullptr) {
      EXPECT_CUDA(destroy());
    }
  }
  GivenEvent(const GivenEvent&) = delete;
  GivenEvent& operator=(const GivenEvent&) = delete;
  operator CUevent() const { return event_; }
  CUresult destroy() { return driver().cuEventDestroy(std::exchange(event_, nullptr)); }

 private:
  CUevent event_ = nullptr;
};

// Words of pinned host memory, initially zero.
class PinnedWords {
 public:
  explicit PinnedWords(Size count) : count_(count) {
    void* host = nullptr;
    GIVEN(driver().cuMemHostAlloc(&host, count * sizeof(std::uint32_t), CU_MEMHOSTALLOC_PORTABLE));
    words_ = static_cast<std::uint32_t*>(host);
    for (Size i = 0; i < count; ++i) words_[i] = 0;
  }
  ~PinnedWords() { EXPECT_CUDA(driver().cuMemFreeHost(words_)); }
  PinnedWords(const PinnedWords&) = delete;
  PinnedWords& operator=(const PinnedWords&) = delete;
  std::uint32_t* data() { return words_; }
  std::uint32_t operator[](Size index) const {
    return __atomic_load_n(words_ + index, __ATOMIC_ACQUIRE);
  }
  Size size() const { return count_ * sizeof(std::uint32_t); }

 private:
  std::uint32_t* words_ = nullptr;
  Size count_;
};

// Owns a graph: one passed in, or a new one.
class GivenGraph {
 public:
  GivenGraph() { GIVEN(driver().cuGraphCreate(&graph_, 0)); }
  explicit GivenGraph(CUgraph taken_over) : graph_(taken_over) {}
  ~GivenGraph() {
    if (graph_ != nullptr) {
      EXPECT_CUDA(driver().cuGraphDestroy(graph_));
    }
  }
  GivenGraph(GivenGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  GivenGraph& operator=(GivenGraph&&) = delete;
  operator CUgraph() const { return graph_; }

  std::vector<CUgraphNode> nodes() const {
    size_t count = 0;
    GIVEN(driver().cuGraphGetNodes(graph_, nullptr, &count));
    std::vector<CUgraphNode> found(count);
    if (count > 0) GIVEN(driver().cuGraphGetNodes(graph_, found.data(), &count));
    return found;
  }

 private:
  CUgraph graph_ = nullptr;
};

class GivenExec {
 public:
  explicit GivenExec(CUgraph graph, unsigned long long flags = 0) {
    GIVEN(driver().cuGraphInstantiateWithFlags(&exec_, graph, flags));
  }
  ~GivenExec() { EXPECT_CUDA(driver().cuGraphExecDestroy(exec_)); }
  GivenExec(const GivenExec&) = delete;
  GivenExec& operator=(const GivenExec&) = delete;
  operator CUgraphExec() const { return exec_; }
  CUresult launch(CUstream stream) const { return driver().cuGraphLaunch(exec_, stream); }

 private:
  CUgraphExec exec_ = nullptr;
};

inline CUgraphNodeType type_of(CUgraphNode node) {
  CUgraphNodeType type{};
  EXPECT_CUDA(driver().cuGraphNodeGetType(node, &type));
  return type;
}

inline CUstreamCaptureStatus capture_status(CUstream stream) {
  CUstreamCaptureStatus status{};
  EXPECT_CUDA(driver().cuStreamIsCapturing(stream, &status));
  return status;
}

inline void begin_capture(CUstream stream, CUstreamCaptureMode mode) {
  GIVEN(driver().cuStreamBeginCapture(stream, mode));
}

inline GivenGraph end_capture(CUstream stream) {
  CUgraph graph = nullptr;
  GIVEN(driver().cuStreamEndCapture(stream, &graph));
  return GivenGraph{graph};
}

// Ends a capture, valid or not.
inline void abandon_capture(CUstream stream) {
  CUgraph graph = nullptr;
  (void)driver().cuStreamEndCapture(stream, &graph);
  const GivenGraph whatever_it_was{graph};
}

// The capture was invalidated, and ending it reports that.
inline void expect_invalidated(CUstream stream) {
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CUgraph graph = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver().cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

// The capture is intact, and ends with a graph.
inline void expect_well(CUstream stream) {
  EXPECT_EQ(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUgraph graph = nullptr;
  EXPECT_CUDA(driver().cuStreamEndCapture(stream, &graph));
  EXPECT_NE(graph, nullptr);
  const GivenGraph captured{graph};
}

// A pool of device 0 with the properties that the test requests.
class GivenPool {
 public:
  explicit GivenPool(CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_NONE, Size max = 0) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = handles;
    properties.location = device_location();
    properties.maxSize = max;
    GIVEN(driver().cuMemPoolCreate(&pool_, &properties));
  }
  ~GivenPool() {
    if (pool_ != nullptr) {
      EXPECT_CUDA(destroy());
    }
  }
  GivenPool(const GivenPool&) = delete;
  GivenPool& operator=(const GivenPool&) = delete;
  operator CUmemoryPool() const { return pool_; }
  CUresult destroy() { return driver().cuMemPoolDestroy(std::exchange(pool_, nullptr)); }

 private:
  CUmemoryPool pool_ = nullptr;
};

inline Size pool_bytes(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  EXPECT_CUDA(driver().cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

inline CUresult set_pool_bytes(CUmemoryPool pool, CUmemPool_attribute attribute, Size bytes) {
  cuuint64_t value = bytes;
  return driver().cuMemPoolSetAttribute(pool, attribute, &value);
}

inline Size used(CUmemoryPool pool) {
  return pool_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}
inline Size reserved(CUmemoryPool pool) {
  return pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}
inline void keep_everything(CUmemoryPool pool) {
  GIVEN(set_pool_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, unlimited));
}

inline CUdeviceptr given_async(Size size, CUstream stream) {
  CUdeviceptr address = 0;
  GIVEN(driver().cuMemAllocAsync(&address, size, stream));
  return address;
}

inline CUdeviceptr given_from(CUmemoryPool pool, Size size, CUstream stream) {
  CUdeviceptr address = 0;
  GIVEN(driver().cuMemAllocFromPoolAsync(&address, size, pool, stream));
  return address;
}

// All `count` words from `address` on hold the value.
inline ::testing::AssertionResult all_words_are(CUdeviceptr address, Size count,
                                                std::uint32_t expected) {
  std::vector<std::uint32_t> words(count);
  EXPECT_CUDA(driver().cuMemcpyDtoH(words.data(), address, count * sizeof expected));
  for (Size i = 0; i < count; ++i) {
    if (words[i] != expected) {
      return ::testing::AssertionFailure()
             << "word " << i << " of " << count << " is " << words[i] << ", expected " << expected;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace cuvmm::test
