// SPDX-License-Identifier: Apache-2.0
#include "sched/failures.hpp"

#include <algorithm>
#include <mutex>

#include "base/log.hpp"
#include "driver/driver.hpp"

namespace cuvmm {

// Keeps a stream's first failure: later ones are often its consequences.
void Failures::add(const Request& request, CUresult answer) {
  CUVMM_LOG(Info, "scheduler: %s was refused when it was issued (CUDA error %d)",
            info(request.call).symbol, static_cast<int>(answer));
  const StreamId stream = request.stream != nullptr ? request.stream->id : no_stream;
  if (is_sticky(answer)) {
    context_is_lost(request.stream != nullptr ? request.stream->context : request.context);
  }
  const Holding holding{lock_};
  const bool known = std::any_of(failures_.begin(), failures_.end(), [&](const Failure& failure) {
    return failure.context == request.context && failure.stream == stream;
  });
  if (!known) failures_.push_back({request.context, stream, answer});
  any_.store(true, std::memory_order_release);
}

template <class Covers>
CUresult Failures::take(Covers&& covers) {
  if (!any_.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const Holding holding{lock_};
  CUresult first = CUDA_SUCCESS;
  std::erase_if(failures_, [&](const Failure& failure) {
    if (!covers(failure)) return false;
    if (first == CUDA_SUCCESS) first = failure.answer;
    return true;
  });
  any_.store(!failures_.empty(), std::memory_order_release);
  return first;
}

CUresult Failures::take_of_stream(StreamId stream) {
  return take([&](const Failure& failure) { return failure.stream == stream; });
}

CUresult Failures::take_of_context(CUcontext context) {
  return take([&](const Failure& failure) { return failure.context == context; });
}

void Failures::context_is_lost(CUcontext context) {
  const Holding holding{lock_};
  if (std::find(lost_.begin(), lost_.end(), context) == lost_.end()) lost_.push_back(context);
  any_lost_.store(true, std::memory_order_release);
}

void Failures::context_ended(CUcontext context) {
  static_cast<void>(take_of_context(context));
  const Holding holding{lock_};
  std::erase(lost_, context);
  any_lost_.store(!lost_.empty(), std::memory_order_release);
}

}  // namespace cuvmm
