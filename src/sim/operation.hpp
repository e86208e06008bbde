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

// A launch with its own copy of all arguments.
struct Launch {
  std::shared_ptr<Function> function;
  CUfunction handle = nullptr;        // as the program passed it
  CUDA_KERNEL_NODE_PARAMS shape{};    // grid, block, shared bytes; its pointers are not used
  std::vector<std::byte> parameters;  // all of them, at the offsets that the kernel declares
};

// The parameters of a node that a graph reports.
using NodeParameters = std::variant<std::monostate, Launch, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
                                    CUDA_HOST_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUdeviceptr,
                                    std::shared_ptr<Event>, std::vector<CUstreamBatchMemOpParams>>;

// An item of work for a stream: a function of the context that it runs in. It is data because a
// capture turns it into a graph node, which can run many times.
struct Operation {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::function<void(Context&)> run;  // guarded: a fault fails the context
  Duration duration = Duration::Short;
  NodeParameters parameters;
};

// Runs it in this context, unless the context has failed. A fault becomes the context's sticky
// error.
void run_operation(const Operation& operation, Context& context);

}  // namespace cuvmm::sim
