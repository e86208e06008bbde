// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "sim/cuda.hpp"
#include "sim/executor.hpp"

namespace cuvmm::sim {

class Context;
class Function;
struct Event;

// A launch with its own copy of everything it was given.
struct Launch {
  std::shared_ptr<Function> function;
  CUfunction handle = nullptr;        // as the program named it
  CUDA_KERNEL_NODE_PARAMS shape{};    // grid, block, shared bytes; its pointers are not used
  std::vector<std::byte> parameters;  // all, at the offsets the kernel declares
};

// What a graph shows of a node, beside what it does.
using NodeParameters = std::variant<std::monostate, Launch, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
                                    CUDA_HOST_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUdeviceptr,
                                    std::shared_ptr<Event>, std::vector<CUstreamBatchMemOpParams>>;

// Something a stream does: a function of the context it runs in. Kept as data because a capture
// turns it into a graph node, which runs many times.
struct Operation {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::function<void(Context&)> run;  // guarded: a fault fails the context
  Duration duration = Duration::Short;
  NodeParameters parameters;
};

// Runs it in this context, unless the context has failed. A fault becomes its sticky error.
void run_operation(const Operation& operation, Context& context);

}  // namespace cuvmm::sim
