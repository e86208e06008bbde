// SPDX-License-Identifier: Apache-2.0
#include "worker.hpp"

#include <algorithm>

#include "support/memory.hpp"

namespace cuvmm::test {

Worker::Worker(Common& common, std::uint64_t seed, bool injects_faults)
    : common_(common),
      program_(common.program),
      oracle_(common.oracle),
      random_(seed),
      injects_faults_(injects_faults) {
  for (int device = 0; device < Program::devices; ++device) {
    const auto index = static_cast<std::size_t>(device);
    program_.make_current(device);
    GIVEN(driver().cuEventCreate(&events_[index], CU_EVENT_DISABLE_TIMING));
    own_streams_[index] = program_.make_stream(CU_STREAM_NON_BLOCKING);
  }
}

Worker::~Worker() {
  for (int device = 0; device < Program::devices; ++device) {
    const auto index = static_cast<std::size_t>(device);
    program_.make_current(device);
    program_.end_stream(own_streams_[index]);
    driver().cuEventDestroy(events_[index]);
  }
}

void Worker::run(std::uint64_t operations) {
  for (std::uint64_t i = 0; i < operations && !oracle_.has_failed(); ++i) step();
}

void Worker::step() {
  const std::uint64_t what = below(1000);
  if (what < 430) return allocate();
  if (what < 800) {
    if (blocks_.empty()) return;
    return free_one(take_any());
  }
  if (what < 880) return use_one();
  if (what < 920) return hand_on_or_take();
  if (what < 950) return look_up();
  if (what < 960) return free_one_wrongly();
  if (what < 966) return pin_one();
  if (what < 970) return inject_a_fault();
  if (what < 973) {
    if (!is_capturing_) capture();
    return;
  }
  const std::shared_lock allowed{common_.unsafe_calls, std::try_to_lock};
  if (!allowed.owns_lock()) return;
  if (what < 993) return wait_somewhere();
  if (what < 997) return ask_for_room();
  if (what < 998) return live_in_a_pool();
  if (what < 999) return replace_a_stream();
  if (one_in(4)) live_in_a_context();
}

Size Worker::some_size() {
  switch (below(64)) {
    case 0:
      return common_.card + below(common_.card);  // more than the card has
    case 1:
      return 1 + below(common_.card);
    case 2:
    case 3:
      return 1 + below(common_.card / 8);
    default:
      break;
  }
  switch (below(8)) {
    case 0:
      return 1 + below(512);
    case 1:
    case 2:
      return 1 + below(64 * KiB);
    case 3:
      return 64 * KiB << below(6);
    case 4:
      return 512 * (1 + below(64));
    case 5:
      return 1 + below(2 * MiB);
    case 6:
      return 2 * MiB * (1 + below(3));
    default:
      return 1 + below(8 * MiB);
  }
}

CUstream Worker::some_stream(int device) {
  const auto& shared = common_.streams[static_cast<std::size_t>(device)];
  const std::uint64_t chosen = below(shared.size() + 2);
  if (chosen < shared.size()) return shared[chosen];
  return chosen == shared.size() ? CU_STREAM_PER_THREAD
                                 : own_streams_[static_cast<std::size_t>(device)];
}

CUmemoryPool Worker::some_pool(int device) {
  const std::uint64_t chosen = below(Program::pools_a_device + 3);
  return chosen < Program::pools_a_device ? program_.pool(device, static_cast<int>(chosen))
                                          : nullptr;
}

void Worker::allocate() {
  const int device = some_device();
  program_.make_current(device);
  if (one_in(3)) return allocate_blocking(device);
  allocate_ordered(device, some_stream(device));
}

void Worker::allocate_blocking(int device) {
  const auto block = std::make_shared<Block>();
  block->size = some_size();
  block->device = device;
  block->kind = Kind::Blocking;
  CUdeviceptr address = 0;
  const CUresult answer = program_.allocate(&address, block->size, &block->by);
  if (answer != CUDA_SUCCESS) return expect_refusal(block, answer);
  block->address = address;
  for (const BlockRef& earlier : oracle_.begin(block)) {
    if (earlier->pending.load() != 0) oracle_.fail("a blocking block is given while work uses it");
  }
  blocks_.push_back(block);
  touch(block, some_stream(device));
}

void Worker::allocate_ordered(int device, CUstream stream) {
  const auto block = std::make_shared<Block>();
  block->size = some_size();
  block->device = device;
  block->kind = Kind::Ordered;
  block->pool = some_pool(device);
  CUdeviceptr address = 0;
  const CUresult answer =
      program_.allocate_ordered(&address, block->size, block->pool, stream, &block->by);
  if (answer == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) broke_its_capture_ = true;
  if (answer != CUDA_SUCCESS) return expect_refusal(block, answer);
  block->address = address;
  std::vector<BlockRef> predecessors = oracle_.begin(block);
  blocks_.push_back(block);
  touch(block, stream, std::move(predecessors));
}

void Worker::expect_refusal(const BlockRef& block, CUresult answer) {
  if (answer == CUDA_ERROR_OUT_OF_MEMORY) return;
  if (answer == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && block->kind == Kind::Blocking) return;
  if (common_.has_faults.load()) return;
  oracle_.fail("an allocation of " + std::to_string(block->size) + " bytes was answered " +
               name_of(answer));
}

// Submits work on a stream that comes after all the block's work so far.
void Worker::touch(const BlockRef& block, CUstream stream, std::vector<BlockRef> predecessors) {
  const std::uint32_t after = static_cast<std::uint32_t>(random_());
  auto work = std::make_unique<Touch>(Touch{.oracle = oracle_,
                                            .block = block,
                                            .holds_something = block->is_used,
                                            .before = block->stamp,
                                            .after = after,
                                            .predecessors = std::move(predecessors)});
  block->pending.fetch_add(1);
  const CUresult answer = program_.launch(block->device, stream, work.get());
  if (answer != CUDA_SUCCESS) return oracle_.fail("a launch was answered " + name_of(answer));
  static_cast<void>(work.release());
  block->stamp = after;
  block->is_used = true;
  block->stream = stream;
}

// Makes the next work of `stream` come after the block's work.
void Worker::follow(const Block& block, CUstream stream) {
  if (!block.is_used || block.stream == stream) return;
  const CUevent event = events_[static_cast<std::size_t>(block.device)];
  EXPECT_CUDA(program_.record(event, block.stream));
  EXPECT_CUDA(program_.wait_for(stream, event));
}

BlockRef Worker::take_any() {
  std::swap(blocks_[below(blocks_.size())], blocks_.back());
  BlockRef taken = std::move(blocks_.back());
  blocks_.pop_back();
  program_.make_current(taken->device);
  return taken;
}

void Worker::use_one() {
  if (blocks_.empty()) return;
  const BlockRef block = take_any();
  const CUstream stream = some_stream(block->device);
  follow(*block, stream);
  touch(block, stream);
  blocks_.push_back(block);
}

void Worker::free_one(const BlockRef& block) {
  const CUresult answer = free_block(block);
  if (answer == CUDA_SUCCESS) return;
  oracle_.end_was_refused(block);
  blocks_.push_back(block);
  if (answer == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) return;
  oracle_.fail("a free was answered " + name_of(answer));
}

// Frees the block in one of four ways. cuMemFree of stream-ordered memory waits for nothing,
// natively and here, so a program must not call it before the block's work is done.
CUresult Worker::free_block(const BlockRef& block) {
  if (one_in(2)) touch(block, block->stream);
  const bool needs_order = block->kind == Kind::Ordered && block->pending.load() != 0;
  const bool at_once = one_in(3) && !needs_order;
  CUstream stream = block->stream;
  if (!at_once && one_in(4)) {
    stream = some_stream(block->device);
    follow(*block, stream);
  }
  oracle_.end(block);
  const std::uint64_t captures = common_.captures_begun.load();
  const bool beside_a_capture = common_.captures_live.load() != 0;
  if (!at_once) return program_.free_ordered(block->address, stream);
  const CUresult answer = program_.free(block->address);
  // On a full card a live capture lets the free return without waiting.
  const bool waits = block->kind == Kind::Blocking && common_.free == FreeMode::Exact &&
                     !beside_a_capture && captures == common_.captures_begun.load();
  if (waits && answer == CUDA_SUCCESS && block->pending.load() != 0) {
    oracle_.fail("a blocking free did not wait for the block's work");
  }
  return answer;
}

void Worker::free_one_wrongly() {
  if (blocks_.empty()) return;
  const BlockRef& block = blocks_.back();
  program_.make_current(block->device);
  if (block->size < 2 || block->by == By::Driver) return;
  const CUdeviceptr inner = block->address + 1 + below(block->size - 1);
  const CUresult answer =
      one_in(2) ? program_.free(inner) : program_.free_ordered(inner, some_stream(block->device));
  if (answer != CUDA_ERROR_INVALID_VALUE) {
    oracle_.fail("a free of an inner address was answered " + name_of(answer));
  }
}

// A thread that takes a block must be able to name its stream.
void Worker::hand_on_or_take() {
  if (one_in(2)) {
    const std::lock_guard holding{common_.mutex};
    if (common_.handed_on.empty()) return;
    blocks_.push_back(std::move(common_.handed_on.back()));
    common_.handed_on.pop_back();
    return;
  }
  if (blocks_.empty()) return;
  const BlockRef block = take_any();
  if (block->by == By::Driver) return blocks_.push_back(block);
  const CUstream stream = common_.streams[static_cast<std::size_t>(block->device)].front();
  follow(*block, stream);
  touch(block, stream);
  const std::lock_guard holding{common_.mutex};
  common_.handed_on.push_back(block);
}

void Worker::look_up() {
  if (blocks_.empty()) return;
  const Block& block = *blocks_[below(blocks_.size())];
  if (block.by == By::Driver) return;
  const auto facts = program_.memory().find(block.address + below(block.size));
  if (!facts || facts->address != block.address || facts->asked != block.size) {
    oracle_.fail("an allocation that is held is not found");
  }
}

void Worker::pin_one() {
  if (blocks_.empty()) return;
  const BlockRef block = blocks_[below(blocks_.size())];
  if (block->by == By::Driver) return;
  if (one_in(4)) {
    program_.memory().held().pin(block->address, pin::dma_buf);
  } else {
    program_.memory().held().set_sync_memops(block->address, one_in(2));
  }
}

void Worker::free_all() {
  while (!blocks_.empty() && !oracle_.has_failed()) free_one(take_any());
}

void Worker::free_those_of_the_driver() {
  const auto others = std::partition(blocks_.begin(), blocks_.end(),
                                     [](const BlockRef& block) { return block->by == By::Us; });
  const std::vector<BlockRef> freed{others, blocks_.end()};
  blocks_.erase(others, blocks_.end());
  for (const BlockRef& block : freed) {
    program_.make_current(block->device);
    free_one(block);
  }
}

}  // namespace cuvmm::test
