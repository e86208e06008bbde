// SPDX-License-Identifier: Apache-2.0
// Streams that wait for a value in memory, or write one.
#include <atomic>
#include <chrono>
#include <thread>

#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/entry.hpp"
#include "sim/process.hpp"
#include "sim/value_batch.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {
namespace {

using namespace std::chrono_literals;

template <class Value>
std::atomic_ref<Value> value_at(const Context& context, CUdeviceptr address) {
  const int current = context.device().ordinal();
  const int viewer = Process::get().space().viewer_of(address, current);
  return std::atomic_ref<Value>{*reinterpret_cast<Value*>(Views::at(viewer, address))};
}

template <class Value>
bool holds(Value now, Value wanted, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<Value>>(now - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & wanted) != 0;
    default:
      return static_cast<Value>(~(now | wanted)) != 0;  // NOR
  }
}

template <class Value>
void wait_for_value(const Context& context, CUdeviceptr address, Value wanted, unsigned condition) {
  for (int polls = 0; !holds<Value>(value_at<Value>(context, address).load(), wanted, condition);
       ++polls) {
    // Nothing that this queue waits for is the work that writes the value, so VMM_SIM_ORDER=lazy
    // may hold it back.
    if (polls % 50 == 0) {
      for (const auto& stream : context.streams()) stream->queue->allow_all();
    }
    std::this_thread::sleep_for(20us);
  }
}

template <class Value>
CUresult check_address(CUdeviceptr address) {
  const bool good = address != 0 && is_multiple(address, sizeof(Value)) &&
                    Process::get().space().covers(address, sizeof(Value));
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// One step of a batch, checked and turned into work; an error if its parameters are invalid.
struct ValueStep {
  CUresult answer = CUDA_SUCCESS;
  std::function<void(Context&)> run;
};

template <class Value>
ValueStep wait_step(CUdeviceptr address, Value wanted, unsigned flags) {
  constexpr unsigned conditions = CU_STREAM_WAIT_VALUE_NOR;
  if ((flags & ~(conditions | CU_STREAM_WAIT_VALUE_FLUSH)) != 0) {
    return {CUDA_ERROR_INVALID_VALUE, {}};
  }
  return {check_address<Value>(address), [=](Context& context) {
            wait_for_value<Value>(context, address, wanted, flags & conditions);
          }};
}

template <class Value>
ValueStep write_step(CUdeviceptr address, Value value, unsigned flags) {
  if ((flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) != 0) {
    return {CUDA_ERROR_INVALID_VALUE, {}};
  }
  return {check_address<Value>(address),
          [=](Context& context) { value_at<Value>(context, address).store(value); }};
}

ValueStep step_of(const CUstreamBatchMemOpParams& step) {
  switch (step.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return wait_step<cuuint32_t>(step.waitValue.address, step.waitValue.value,
                                   step.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return wait_step<cuuint64_t>(step.waitValue.address, step.waitValue.value64,
                                   step.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return write_step<cuuint32_t>(step.writeValue.address, step.writeValue.value,
                                    step.writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return write_step<cuuint64_t>(step.writeValue.address, step.writeValue.value64,
                                    step.writeValue.flags);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return {CUDA_SUCCESS, [](Context&) {}};  // memory here is always coherent
    default:
      return {CUDA_ERROR_INVALID_VALUE, {}};
  }
}

CUresult batch(CUstream handle, std::vector<CUstreamBatchMemOpParams> steps) {
  CUVMM_SIM_CONTEXT(context);
  const auto stream = find_stream(context, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Operation operation;
  const CUresult made = make_value_batch(std::move(steps), &operation);
  return made == CUDA_SUCCESS ? submit(stream, std::move(operation)) : made;
}

template <class Value>
CUstreamBatchMemOpParams wait_parameters(CUdeviceptr address, Value value, unsigned flags) {
  CUstreamBatchMemOpParams step{};
  constexpr bool wide = sizeof(Value) == 8;
  step.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
  step.waitValue.address = address;
  step.waitValue.value64 = value;
  step.waitValue.flags = flags;
  return step;
}

template <class Value>
CUstreamBatchMemOpParams write_parameters(CUdeviceptr address, Value value, unsigned flags) {
  CUstreamBatchMemOpParams step{};
  constexpr bool wide = sizeof(Value) == 8;
  step.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
  step.writeValue.address = address;
  step.writeValue.value64 = value;
  step.writeValue.flags = flags;
  return step;
}

CUresult given_batch(CUstream stream, unsigned count, const CUstreamBatchMemOpParams* steps,
                     unsigned flags) {
  constexpr unsigned most = 256;
  if (steps == nullptr || count == 0 || count > most || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return batch(stream, {steps, steps + count});
}

}  // namespace

CUresult make_value_batch(std::vector<CUstreamBatchMemOpParams> steps, Operation* operation) {
  std::vector<std::function<void(Context&)>> runs;
  for (const CUstreamBatchMemOpParams& step : steps) {
    ValueStep checked = step_of(step);
    if (checked.answer != CUDA_SUCCESS) return checked.answer;
    runs.push_back(std::move(checked.run));
  }
  operation->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  operation->duration = Duration::Long;
  operation->run = [runs = std::move(runs)](Context& running_in) {
    for (const auto& run : runs) run(running_in);
  };
  operation->parameters = std::move(steps);
  return CUDA_SUCCESS;
}

CUVMM_SIM(cuStreamWaitValue32_v2)
(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return batch(stream, {wait_parameters(address, value, flags)});
}
CUVMM_SIM(cuStreamWaitValue64_v2)
(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return batch(stream, {wait_parameters(address, value, flags)});
}
CUVMM_SIM(cuStreamWriteValue32_v2)
(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return batch(stream, {write_parameters(address, value, flags)});
}
CUVMM_SIM(cuStreamWriteValue64_v2)
(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return batch(stream, {write_parameters(address, value, flags)});
}
CUVMM_SIM(cuStreamBatchMemOp_v2)
(CUstream stream, unsigned count, CUstreamBatchMemOpParams* steps, unsigned flags) {
  return given_batch(stream, count, steps, flags);
}

// The first version of the signatures works only if an administrator has enabled it, which the
// ..._V1 attributes report: not on the measured card, and not here.
CUVMM_SIM(cuStreamWaitValue32)(CUstream, CUdeviceptr, cuuint32_t, unsigned) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUVMM_SIM(cuStreamWaitValue64)(CUstream, CUdeviceptr, cuuint64_t, unsigned) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUVMM_SIM(cuStreamWriteValue32)(CUstream, CUdeviceptr, cuuint32_t, unsigned) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUVMM_SIM(cuStreamWriteValue64)(CUstream, CUdeviceptr, cuuint64_t, unsigned) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUVMM_SIM(cuStreamBatchMemOp)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace cuvmm::sim
