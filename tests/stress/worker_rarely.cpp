// SPDX-License-Identifier: Apache-2.0
// Occasional operations of a program: waits, captures, short-lived contexts, pools and streams; and
// of a driver: failures.
#include <array>

#include "base/undo.hpp"
#include "support/memory.hpp"
#include "worker.hpp"

namespace cuvmm::test {

void Worker::wait_somewhere() {
  const int device = some_device();
  program_.make_current(device);
  const CUevent event = events_[static_cast<std::size_t>(device)];
  const CUstream stream = some_stream(device);
  switch (below(5)) {
    case 0:
      EXPECT_CUDA(program_.synchronize(stream));
      return;
    case 1:
      EXPECT_CUDA(program_.record(event, stream));
      EXPECT_CUDA(program_.synchronize(event));
      return;
    case 2:
      static_cast<void>(program_.query(stream));
      return;
    case 3:
      EXPECT_CUDA(program_.record(event, stream));
      static_cast<void>(program_.query(event));
      return;
    default:
      break;
  }
  if (is_capturing_) return;
  const std::unique_lock alone{common_.capturing, std::try_to_lock};
  if (!alone.owns_lock()) return;
  EXPECT_CUDA(program_.synchronize_context());
}

void Worker::ask_for_room() {
  const int device = some_device();
  program_.make_current(device);
  Memory& memory = program_.memory();
  if (one_in(3)) {
    memory.make_room();
    return;
  }
  if (one_in(2)) return program_.trim(program_.pool(device, 0), below(common_.card));
  const auto info = memory.info({.free = common_.card, .total = common_.card});
  if (info.free > info.total || info.total > common_.card) oracle_.fail("more free than there is");
}

// Other threads continue during the capture, and so does this one on other streams.
void Worker::capture() {
  const int device = some_device();
  program_.make_current(device);
  constexpr std::array modes{CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                             CU_STREAM_CAPTURE_MODE_GLOBAL};
  const CUstreamCaptureMode mode = modes[below(modes.size())];
  const std::shared_lock with_others{common_.capturing};
  std::unique_lock alone{common_.unsafe_calls, std::defer_lock};
  if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL && !alone.try_lock()) return;
  is_capturing_ = true;
  broke_its_capture_ = false;
  common_.captures_live.fetch_add(1);
  common_.captures_begun.fetch_add(1);
  const Undo ended_then{[this] {
    common_.captures_live.fetch_sub(1);
    is_capturing_ = false;
  }};
  const CUstream stream = program_.make_stream(CU_STREAM_NON_BLOCKING);
  if (const CUresult begun = program_.begin_capture(stream, mode); begun != CUDA_SUCCESS) {
    return oracle_.fail("a capture was refused: " + name_of(begun));
  }
  CUdeviceptr node = 0;
  By by = By::Us;
  const CUresult made = program_.allocate_ordered(&node, 1 + below(MiB), nullptr, stream, &by);
  if (made == CUDA_SUCCESS && by == By::Us) oracle_.fail("memory of a graph was served by us");
  for (std::uint64_t steps = below(6); steps != 0; --steps) {
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
      step();
      continue;
    }
    // No capture forbids this if cuvmm serves the memory. If cuvmm cannot, because of an injected
    // fault, the driver is asked and answers as it would without cuvmm: this breaks the capture.
    program_.make_current(device);
    allocate_ordered(device, some_stream(device));
    if (!blocks_.empty()) use_one();
  }
  program_.make_current(device);
  if (made == CUDA_SUCCESS) static_cast<void>(program_.free_ordered(node, stream));
  CUgraph graph = nullptr;
  const CUresult ended = program_.end_capture(stream, &graph);
  std::shared_lock allowed{common_.unsafe_calls, std::defer_lock};
  if (!alone.owns_lock()) allowed.lock();
  if (ended == CUDA_SUCCESS) {
    CUgraphExec exec = nullptr;
    if (driver().cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS) {
      static_cast<void>(driver().cuGraphLaunch(exec, stream));
      EXPECT_CUDA(program_.synchronize(stream));
      driver().cuGraphExecDestroy(exec);
    }
    driver().cuGraphDestroy(graph);
  } else if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && !broke_its_capture_) {
    oracle_.fail("a capture of mode " + std::to_string(mode) + " was broken: " + name_of(ended));
  }
  program_.end_stream(stream);
}

// The context's memory ends with it.
void Worker::live_in_a_context() {
  const int device = some_device();
  program_.make_current(device);
  const CUcontext context = program_.make_context(device);
  std::vector<CUdeviceptr> held;
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr address = 0;
    By by = By::Us;
    const CUresult answer = program_.allocate(&address, some_size(), &by);
    if (answer != CUDA_SUCCESS || by == By::Driver) continue;
    held.push_back(address);
  }
  if (held.size() > 1) {
    EXPECT_CUDA(program_.free(held.back()));
    held.pop_back();
  }
  program_.end_context(context);
  program_.make_current(device);
}

// The pool is destroyed before its memory is freed.
void Worker::live_in_a_pool() {
  const int device = some_device();
  program_.make_current(device);
  const CUstream stream = some_stream(device);
  const CUmemoryPool pool = program_.make_pool(device);
  std::vector<CUdeviceptr> held;
  for (int i = 0; i < 3; ++i) {
    CUdeviceptr address = 0;
    By by = By::Us;
    if (program_.allocate_ordered(&address, some_size(), pool, stream, &by) == CUDA_SUCCESS) {
      held.push_back(address);
    }
  }
  program_.end_pool(pool);
  for (const CUdeviceptr address : held) EXPECT_CUDA(program_.free_ordered(address, stream));
}

// Frees on the stream are still pending, and it is the last stream of some blocks.
void Worker::replace_a_stream() {
  const int device = some_device();
  program_.make_current(device);
  CUstream& stream = own_streams_[static_cast<std::size_t>(device)];
  const CUstream instead = common_.streams[static_cast<std::size_t>(device)].back();
  for (const BlockRef& block : blocks_) {
    if (block->device != device || block->stream != stream) continue;
    follow(*block, instead);
    touch(block, instead);
  }
  const CUstream made =
      program_.make_stream(one_in(2) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
  program_.end_stream(stream);
  stream = made;
}

void Worker::inject_a_fault() {
  if (!injects_faults_) return;
  constexpr std::array calls{"cuMemCreate",  "cuMemMap",     "cuMemSetAccess",
                             "cuMemUnmap",   "cuMemRelease", "cuMemAddressReserve",
                             "cuEventCreate"};
  constexpr std::array answers{"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_UNKNOWN"};
  const std::string call = calls[below(calls.size())];
  const std::string which = std::to_string(1 + below(20));
  const std::string fault = call + ":" + which + "=" + answers[below(answers.size())];
  common_.has_faults.store(true);
  if (sim()->set_faults(fault.c_str()) != 0) oracle_.fail("the fault is not understood");
}

}  // namespace cuvmm::test
