// SPDX-License-Identifier: Apache-2.0
// How calls give copies and sets to streams, and which of them wait. Measured on an H200: blocking
// calls care for no capture mode; they wait unless all they name is device memory.
#pragma once

#include <array>
#include <memory>

#include "sim/copy_plan.hpp"

namespace cuvmm::sim {

class Context;
struct Stream;

// The whole of a call in the current context: blocking, or in the order of the stream it names.
CUresult call_copy(const CUDA_MEMCPY3D& asked);
CUresult call_copy(const CUDA_MEMCPY3D& asked, CUstream named);
CUresult call_set(const CUDA_MEMSET_NODE_PARAMS& asked);
CUresult call_set(const CUDA_MEMSET_NODE_PARAMS& asked, CUstream named);

// Contexts that a copy names, beside those that own its memory.
using NamedContexts = std::array<std::shared_ptr<Context>, 2>;

// Blocking calls, on the stream that calls without a stream argument run on.
CUresult copy_blocking(const std::shared_ptr<Context>& context, const CopyPlan& plan,
                       const NamedContexts& named = {});
CUresult set_blocking(const std::shared_ptr<Context>& context, const SetPlan& plan);

// Asynchronous calls.
CUresult copy_async(const std::shared_ptr<Stream>& stream, CopyPlan plan,
                    const NamedContexts& named = {});
CUresult set_async(const std::shared_ptr<Stream>& stream, const SetPlan& plan);

// Gives the operation to a stream that is not captured, and waits for it.
CUresult submit_and_finish(const std::shared_ptr<Stream>& stream, Operation operation);

}  // namespace cuvmm::sim
