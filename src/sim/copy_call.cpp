// SPDX-License-Identifier: Apache-2.0
#include "sim/copy_call.hpp"

#include <algorithm>
#include <vector>

#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

// How many bytes an asynchronous copy from pageable memory stages. A larger copy waits until it has
// run (measured: 2 MiB do not wait, one byte more does).
constexpr Size most_staged_bytes = 2 * MiB;

enum class Waits : std::uint8_t { No, Yes };

bool may_return_early(const NamedMemory& memory) {
  return memory.place == MemoryPlace::Device && !memory.sync_memops;
}

CUresult refuse_legacy_work_on(const Stream& stream) {
  if (stream.kind != StreamKind::Legacy) return CUDA_SUCCESS;
  const auto context = stream.context.lock();
  return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : refuse_legacy_work(*context);
}

// The other contexts in whose order a stream's work runs too. Measured: a copy on the legacy stream
// that names another context, or that context's blocking memory, is also work of that context's
// legacy stream, on any device. A copy on another stream is not.
class OtherContexts {
 public:
  OtherContexts(const std::shared_ptr<Stream>& stream, const NamedContexts& named,
                std::initializer_list<const NamedMemory*> memory)
      : stream_(stream) {
    if (stream->kind != StreamKind::Legacy) return;
    for (const auto& context : named) add(context);
    for (const NamedMemory* one : memory) add(one->owner.lock());
  }

  // Runs `submit()` in the order of all these contexts.
  template <class Submit>
  CUresult in_order(Submit submit) const {
    for (const auto& other : others_) {
      const CUresult refused = refuse_legacy_work(*other);
      if (refused != CUDA_SUCCESS) return refused;
    }
    for (const auto& other : others_) {
      order_after(*stream_, submit_now(other->legacy_stream(), Operation{}));
    }
    const CUresult answer = submit();
    const Point done = stream_->queue->last();
    for (const auto& other : others_) {
      order_after(*other->legacy_stream(), done);
      submit_now(other->legacy_stream(), Operation{});
    }
    return answer;
  }

 private:
  void add(const std::shared_ptr<Context>& context) {
    if (context == nullptr || context == stream_->context.lock()) return;
    if (std::find(others_.begin(), others_.end(), context) != others_.end()) return;
    others_.push_back(context);
  }

  const std::shared_ptr<Stream>& stream_;
  std::vector<std::shared_ptr<Context>> others_;
};

CUresult call_blocking(const std::shared_ptr<Stream>& stream, Operation operation, Waits waits) {
  if (const CUresult refused = refuse_captured_stream(*stream); refused != CUDA_SUCCESS) {
    return refused;
  }
  return waits == Waits::Yes ? submit_and_finish(stream, std::move(operation))
                             : submit(stream, std::move(operation));
}

CUresult submit_copy(const std::shared_ptr<Stream>& stream, CopyPlan& plan) {
  const bool within_host = plan.source().is_host() && plan.target().is_host();
  if (within_host || plan.target().place == MemoryPlace::Pageable) {
    return submit_and_finish(stream, plan.operation());
  }
  if (plan.source().place == MemoryPlace::Pageable) {
    if (plan.bytes() > most_staged_bytes) return submit_and_finish(stream, plan.operation());
    plan.stage();
  }
  return submit(stream, plan.operation());
}

}  // namespace

CUresult submit_and_finish(const std::shared_ptr<Stream>& stream, Operation operation) {
  if (const CUresult refused = refuse_legacy_work_on(*stream); refused != CUDA_SUCCESS) {
    return refused;
  }
  Queue::wait_for(submit_now(stream, std::move(operation)));
  const auto context = stream->context.lock();
  return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->sticky_error();
}

CUresult copy_blocking(const std::shared_ptr<Context>& context, const CopyPlan& plan,
                       const NamedContexts& named) {
  if (plan.is_empty()) return CUDA_SUCCESS;
  // On a card, a copy from pageable memory may still be writing its last few bytes when the call
  // returns. Here it is done by then.
  const bool early = may_return_early(plan.source()) && may_return_early(plan.target());
  const auto stream = implicit_stream(context);
  return OtherContexts{stream, named, {&plan.source(), &plan.target()}}.in_order(
      [&] { return call_blocking(stream, plan.operation(), early ? Waits::No : Waits::Yes); });
}

CUresult set_blocking(const std::shared_ptr<Context>& context, const SetPlan& plan) {
  if (plan.is_empty()) return CUDA_SUCCESS;
  const bool early = may_return_early(plan.target());
  const auto stream = implicit_stream(context);
  return OtherContexts{stream, {}, {&plan.target()}}.in_order(
      [&] { return call_blocking(stream, plan.operation(), early ? Waits::No : Waits::Yes); });
}

CUresult copy_async(const std::shared_ptr<Stream>& stream, CopyPlan plan,
                    const NamedContexts& named) {
  if (plan.is_empty()) return CUDA_SUCCESS;
  // A graph reads its sources when it runs, so nothing is staged.
  if (is_captured(*stream)) return submit(stream, plan.operation());
  return OtherContexts{stream, named, {&plan.source(), &plan.target()}}.in_order(
      [&] { return submit_copy(stream, plan); });
}

CUresult set_async(const std::shared_ptr<Stream>& stream, const SetPlan& plan) {
  if (plan.is_empty()) return CUDA_SUCCESS;
  return OtherContexts{stream, {}, {&plan.target()}}.in_order(
      [&] { return submit(stream, plan.operation()); });
}

CUresult call_copy(const CUDA_MEMCPY3D& asked) {
  CUVMM_SIM_CONTEXT(context);
  CopyPlan plan;
  const CUresult answer = CopyPlan::make(asked, context->device().ordinal(), &plan);
  return answer == CUDA_SUCCESS ? copy_blocking(context, plan) : answer;
}

CUresult call_copy(const CUDA_MEMCPY3D& asked, CUstream named) {
  CUVMM_SIM_CONTEXT(context);
  const auto stream = find_stream(context, named);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CopyPlan plan;
  const CUresult answer = CopyPlan::make(asked, context->device().ordinal(), &plan);
  return answer == CUDA_SUCCESS ? copy_async(stream, std::move(plan)) : answer;
}

CUresult call_set(const CUDA_MEMSET_NODE_PARAMS& asked) {
  CUVMM_SIM_CONTEXT(context);
  SetPlan plan;
  const CUresult answer = SetPlan::make(asked, context->device().ordinal(), &plan);
  return answer == CUDA_SUCCESS ? set_blocking(context, plan) : answer;
}

CUresult call_set(const CUDA_MEMSET_NODE_PARAMS& asked, CUstream named) {
  CUVMM_SIM_CONTEXT(context);
  const auto stream = find_stream(context, named);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  SetPlan plan;
  const CUresult answer = SetPlan::make(asked, context->device().ordinal(), &plan);
  return answer == CUDA_SUCCESS ? set_async(stream, plan) : answer;
}

}  // namespace cuvmm::sim
