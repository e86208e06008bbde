// SPDX-License-Identifier: Apache-2.0
#include "resize/program.hpp"

#include <algorithm>
#include <stdexcept>

namespace cuvmm::test {
namespace {

constexpr int steps_at_most = 30;

void must(CUresult answer, const char* what) {
  if (answer != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + " " + name_of(answer));
}
// The words are private to the thread, and many: ThreadSanitizer need not check each.
[[gnu::no_sanitize("thread")]] std::uint64_t sum_of(const std::uint32_t* words, std::size_t count) {
  std::uint64_t sum = count;
  for (std::size_t i = 0; i < count; ++i) sum = sum * 0x9E3779B97F4A7C15u + words[i];
  return sum;
}

#define MUST_BE_DONE(...) must((__VA_ARGS__), #__VA_ARGS__)

}  // namespace

RandomProgram::RandomProgram(CUcontext context, const Kernels& kernels, std::uint64_t seed,
                             Size least)
    : context_(context), kernels_(kernels), least_(least), most_(3 * least), random_(seed) {
  MUST_BE_DONE(through_door<Call::cuStreamCreate>(&streams_[1], unsigned{CU_STREAM_DEFAULT}));
  MUST_BE_DONE(through_door<Call::cuStreamCreate>(&streams_[2], unsigned{CU_STREAM_NON_BLOCKING}));
  MUST_BE_DONE(through_door<Call::cuEventCreate>(&event_, unsigned{CU_EVENT_DISABLE_TIMING}));
  MUST_BE_DONE(through_door<Call::cuMemAlloc_v2>(&words_, std::size_t{4096}));
  MUST_BE_DONE(
      through_door<Call::cuMemsetD8_v2>(words_, static_cast<unsigned char>(0), std::size_t{4096}));
  MUST_BE_DONE(through_door<Call::cuCtxSynchronize>());
}

RandomProgram::~RandomProgram() {
  through_door<Call::cuCtxSynchronize>();
  for (const Buffer& buffer : buffers_) {
    if (buffer.address != 0) through_door<Call::cuMemFree_v2>(buffer.address);
  }
  through_door<Call::cuMemFree_v2>(words_);
  through_door<Call::cuEventDestroy_v2>(event_);
  for (CUstream stream : streams_) {
    if (stream != nullptr) through_door<Call::cuStreamDestroy_v2>(stream);
  }
}

std::uint64_t RandomProgram::run() {
  const std::uint64_t steps = 5 + pick(steps_at_most - 4);
  for (std::uint64_t i = 0; i < steps; ++i) step();
  for (Buffer& buffer : buffers_) {
    if (buffer.address != 0) read(buffer);
  }
  return digest_;
}

// Whole granules half of the time, so that both moves and copies of edges happen.
Size RandomProgram::any_size() {
  const Size size = least_ + pick(most_ - least_);
  if (chance(50)) return round_down(size, granule);
  // Just below a multiple, to which the grant is rounded up.
  if (chance(20)) return round_up(size, granule) - 4 * (1 + pick(127));
  return round_down(size, 4);
}

void RandomProgram::step() {
  in_this_or_another_thread([&] { act(pick(100)); });
}

void RandomProgram::in_this_or_another_thread(const std::function<void()>& act) {
  if (!chance(4)) return act();
  std::string failure;
  std::thread([&] {
    through_door<Call::cuCtxSetCurrent>(context_);
    try {
      act();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }).join();
  if (!failure.empty()) throw std::runtime_error(failure);
}

void RandomProgram::act(std::uint64_t what) {
  Buffer& buffer = any_buffer();
  const std::size_t stream = pick(stream_count);
  if (buffer.address == 0) {
    allocate(buffer, any_size());
    if (chance(80)) set(buffer, stream);
  } else if (what < 45) {
    resize(buffer);
  } else if (what < 55) {
    read(buffer);
  } else if (what < 65) {
    launch(buffer, stream);
  } else if (what < 72) {
    set(buffer, stream);
  } else if (what < 80) {
    Buffer& other = any_buffer();
    if (&other == &buffer || other.address == 0) return look_around();
    copy(other, buffer, std::min(other.size, buffer.defined), stream);
  } else if (what < 88) {
    release(buffer);
  } else {
    look_around();
  }
}

void RandomProgram::allocate(Buffer& buffer, Size size) {
  buffer = {.size = size};
  MUST_BE_DONE(through_door<Call::cuMemAlloc_v2>(&buffer.address, std::size_t{size}));
}

void RandomProgram::release(Buffer& buffer) {
  if (chance(10)) {
    const std::size_t stream = chance(50) ? buffer.last_stream : pick(stream_count);
    order(buffer, stream);
    MUST_BE_DONE(through_door<Call::cuMemFreeAsync>(buffer.address, streams_[stream]));
  } else {
    MUST_BE_DONE(through_door<Call::cuMemFree_v2>(buffer.address));
  }
  buffer = {};
}

// Allocate, copy, free, with any other calls in between that a program might make there.
void RandomProgram::resize(Buffer& buffer) {
  const std::size_t stream = chance(60) ? 0 : pick(stream_count);
  Buffer larger;
  allocate(larger, chance(15)   ? buffer.size
                   : chance(20) ? any_size()
                                : buffer.size * 2 % most_ + least_);
  if (chance(5)) look_around();
  Size size = std::min({larger.size, buffer.defined, chance(10) ? any_size() : unlimited});
  if (size != 0) copy(larger, buffer, round_down(size, 4), stream);
  if (chance(20)) look_around();
  if (chance(5)) write_tail(larger, stream);
  if (chance(5)) launch(buffer, stream);
  if (chance(5)) read(chance(50) ? buffer : larger);
  release(buffer);
  if (chance(5)) release(larger);
  buffer = larger;
}

void RandomProgram::copy(Buffer& to, Buffer& from, Size size, std::size_t stream) {
  if (size == 0) return;
  order(from, stream);
  order(to, stream);
  if (stream == 0 && chance(50)) {
    MUST_BE_DONE(
        chance(50)
            ? through_door<Call::cuMemcpy>(to.address, from.address, std::size_t{size})
            : through_door<Call::cuMemcpyDtoD_v2>(to.address, from.address, std::size_t{size}));
  } else {
    MUST_BE_DONE(through_door<Call::cuMemcpyDtoDAsync_v2>(to.address, from.address,
                                                          std::size_t{size}, streams_[stream]));
  }
  to.defined = std::max(to.defined, size);
}

void RandomProgram::set(Buffer& buffer, std::size_t stream) {
  order(buffer, stream);
  MUST_BE_DONE(
      through_door<Call::cuMemsetD32Async>(buffer.address, static_cast<unsigned>(random_()),
                                           std::size_t{buffer.size / 4}, streams_[stream]));
  buffer.defined = round_down(buffer.size, 4);
  launch(buffer, stream);
}

// Makes some words differ from their neighbours, so that misplaced bytes show.
void RandomProgram::launch(Buffer& buffer, std::size_t stream) {
  order(buffer, stream);
  if (buffer.defined < 64) return;
  for (int i = 0; i < 3; ++i) {
    const Size at = round_down(pick(buffer.defined - 32), 4);
    MUST_BE_DONE(launch_through_door(kernels_.add_one, streams_[stream],
                                     std::uint64_t{buffer.address + at},
                                     static_cast<std::uint32_t>(1 + pick(8))));
  }
}

// The program may write the memory beyond the copy while the copy is deferred.
void RandomProgram::write_tail(Buffer& buffer, std::size_t stream) {
  const Size tail = buffer.size - buffer.defined;
  if (tail < 4) return;
  order(buffer, stream);
  MUST_BE_DONE(through_door<Call::cuMemsetD32Async>(
      buffer.address + round_up(buffer.defined, 4), static_cast<unsigned>(random_()),
      std::size_t{tail / 4 > 0 ? tail / 4 - (buffer.defined % 4 != 0) : 0}, streams_[stream]));
}

void RandomProgram::read(Buffer& buffer) {
  if (buffer.defined == 0) return;
  if (buffer.is_in_use) wait_for(buffer.last_stream);
  buffer.is_in_use = false;
  static thread_local std::vector<std::uint32_t> words;
  words.resize(buffer.defined / 4);
  MUST_BE_DONE(through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(words.data()), buffer.address,
                                                   words.size() * 4));
  digest_ = (digest_ ^ sum_of(words.data(), words.size())) * 0xD6E8FEB86659FD93u;
}

// Calls that read nothing, and yet could notice.
void RandomProgram::look_around() {
  size_t free = 0;
  size_t total = 0;
  switch (pick(10)) {
    case 0:
      through_door<Call::cuStreamQuery>(streams_[pick(stream_count)]);
      return;
    case 1:
      return wait_for(pick(stream_count));
    case 2:
      MUST_BE_DONE(through_door<Call::cuCtxSynchronize>());
      for (Buffer& buffer : buffers_) buffer.is_in_use = false;
      return;
    case 3:
      MUST_BE_DONE(through_door<Call::cuEventRecord>(event_, streams_[pick(stream_count)]));
      return;
    case 4:
      through_door<Call::cuEventQuery>(event_);
      return;
    case 5:
      MUST_BE_DONE(through_door<Call::cuStreamWaitEvent>(streams_[pick(stream_count)], event_, 0u));
      return;
    case 6: {
      const std::size_t stream = pick(stream_count);
      MUST_BE_DONE(launch_through_door(kernels_.add_one, streams_[stream],
                                       std::uint64_t{words_ + 4 * stream}, std::uint32_t{1}));
      return;
    }
    case 7:
      MUST_BE_DONE(through_door<Call::cuMemGetInfo_v2>(&free, &total));
      return;
    case 8: {
      CUdeviceptr other = 0;
      MUST_BE_DONE(through_door<Call::cuMemAlloc_v2>(&other, static_cast<std::size_t>(any_size())));
      MUST_BE_DONE(through_door<Call::cuMemFree_v2>(other));
      return;
    }
    default: {
      Buffer& buffer = any_buffer();
      const unsigned on = 1;
      const unsigned off = 0;
      if (buffer.address == 0) return;
      MUST_BE_DONE(through_door<Call::cuPointerSetAttribute>(
          static_cast<const void*>(&on), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer.address));
      MUST_BE_DONE(through_door<Call::cuPointerSetAttribute>(
          static_cast<const void*>(&off), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer.address));
    }
  }
}

void RandomProgram::wait_for(std::size_t stream) {
  MUST_BE_DONE(through_door<Call::cuStreamSynchronize>(streams_[stream]));
  for (Buffer& buffer : buffers_) {
    if (buffer.last_stream == stream) buffer.is_in_use = false;
  }
}

void RandomProgram::order(Buffer& buffer, std::size_t stream) {
  const bool is_ordered = buffer.last_stream == stream ||
                          (buffer.last_stream != 2 && stream == 0) ||
                          (buffer.last_stream == 0 && stream == 1);
  if (buffer.is_in_use && !is_ordered) {
    if (chance(50)) {
      wait_for(buffer.last_stream);
    } else {
      MUST_BE_DONE(through_door<Call::cuEventRecord>(event_, streams_[buffer.last_stream]));
      MUST_BE_DONE(through_door<Call::cuStreamWaitEvent>(streams_[stream], event_, 0u));
    }
  }
  buffer.last_stream = stream;
  buffer.is_in_use = true;
}

}  // namespace cuvmm::test
