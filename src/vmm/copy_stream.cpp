// SPDX-License-Identifier: Apache-2.0
#include "vmm/copy_stream.hpp"

#include <utility>

#include "driver/current_context.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

// Success if the context has ended, and its streams with it.
template <class Act>
CUresult in_its_context(const Driver& driver, CUcontext context, Act act) {
  const auto has_ended = [](CUresult answer) {
    return answer == CUDA_ERROR_INVALID_CONTEXT || answer == CUDA_ERROR_CONTEXT_IS_DESTROYED;
  };
  const InContext in_context{driver, context};
  if (has_ended(in_context.answer())) return CUDA_SUCCESS;
  const CUresult answer = act();
  return has_ended(answer) ? CUDA_SUCCESS : answer;
}

}  // namespace

CopyStream::CopyStream(const Driver& driver) : driver_(driver), context_(current_context(driver)) {
  // Falls back to the legacy stream, which is as good: nothing else is running.
  const bool is_made = context_.load() != nullptr &&
                       driver.cuStreamCreate(&handle_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
  if (!is_made) handle_ = nullptr;
}

CopyStream::~CopyStream() {
  const CUcontext context = context_.load();
  if (context == nullptr || handle_ == nullptr) return;
  release_or_defer(Deferred::Handle, [driver = &driver_, context, handle = handle_] {
    return in_its_context(*driver, context, [&] { return driver->cuStreamDestroy(handle); });
  });
}

void CopyStream::keep_until_idle(std::shared_ptr<ScratchMapping> mapping) {
  defer_release(Deferred::Copy, [stream = shared_from_this(), kept = std::move(mapping)] {
    return stream->wait();
  });
}

CUresult CopyStream::wait() const {
  const CUcontext context = context_.load();
  if (context == nullptr) return CUDA_SUCCESS;
  return in_its_context(driver_, context, [&] { return driver_.cuStreamSynchronize(handle_); });
}

}  // namespace cuvmm
