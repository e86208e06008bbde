// SPDX-License-Identifier: Apache-2.0
// How calls submit copies and sets to streams, and which of them wait. Measured on an H200:
// blocking calls ignore the capture mode, and wait unless they name device memory only.
#pragma once

#include <array>
#include <memory>

#include "sim/copy_plan.hpp"

namespace cuvmm::sim {

class Context;
struct Stream;

// Handle a whole call in the current context: blocking, or ordered in the stream that it names.
CUresult call_copy(const CUDA_MEMCPY3D& asked);
CUresult call_copy(const CUDA_MEMCPY3D& asked, CUstream named);
CUresult call_set(const CUDA_MEMSET_NODE_PARAMS& asked);
CUresult call_set(const CUDA_MEMSET_NODE_PARAMS& asked, CUstream named);

// Contexts that a copy names, in addition to the owners of its memory.
using NamedContexts = std::array<std::shared_ptr<Context>, 2>;

// Blocking calls. They run on the stream that serves calls without a stream argument.
CUresult copy_blocking(const std::shared_ptr<Context>& context, const CopyPlan& plan,
                       const NamedContexts& named = {});
CUresult set_blocking(const std::shared_ptr<Context>& context, const SetPlan& plan);

// Asynchronous calls.
CUresult copy_async(const std::shared_ptr<Stream>& stream, CopyPlan plan,
                    const NamedContexts& named = {});
CUresult set_async(const std::shared_ptr<Stream>& stream, const SetPlan& plan);

// Submits the operation to a stream that is not captured, and waits for it.
CUresult submit_and_finish(const std::shared_ptr<Stream>& stream, Operation operation);

}  // namespace cuvmm::sim
