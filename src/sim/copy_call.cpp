// SPDX-License-Identifier: Apache-2.0
#include "sim/copy_call.hpp"

#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

// What an asynchronous copy from pageable memory takes along. A larger one waits for its turn
// (measured: 2 MiB do not wait, one byte more does).
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

CUresult call_blocking(const std::shared_ptr<Context>& context, Operation operation, Waits waits) {
  const auto stream = implicit_stream(context);
  if (const CUresult refused = refuse_captured_stream(*stream); refused != CUDA_SUCCESS) {
    return refused;
  }
  return waits == Waits::Yes ? submit_and_finish(stream, std::move(operation))
                             : submit(stream, std::move(operation));
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

CUresult copy_blocking(const std::shared_ptr<Context>& context, const CopyPlan& plan) {
  if (plan.is_empty()) return CUDA_SUCCESS;
  // A copy from pageable memory may be on its last few bytes when the card's call returns; here it
  // is done.
  const bool early = may_return_early(plan.source()) && may_return_early(plan.target());
  return call_blocking(context, plan.operation(), early ? Waits::No : Waits::Yes);
}

CUresult set_blocking(const std::shared_ptr<Context>& context, const SetPlan& plan) {
  if (plan.is_empty()) return CUDA_SUCCESS;
  const bool early = may_return_early(plan.target());
  return call_blocking(context, plan.operation(), early ? Waits::No : Waits::Yes);
}

CUresult copy_async(const std::shared_ptr<Stream>& stream, CopyPlan plan) {
  if (plan.is_empty()) return CUDA_SUCCESS;
  // A graph reads its sources whenever it runs.
  if (is_captured(*stream)) return submit(stream, plan.operation());
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

CUresult set_async(const std::shared_ptr<Stream>& stream, const SetPlan& plan) {
  return plan.is_empty() ? CUDA_SUCCESS : submit(stream, plan.operation());
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
