// SPDX-License-Identifier: Apache-2.0
#include "sim/graph_parameters.hpp"

#include "sim/context.hpp"
#include "sim/event.hpp"
#include "sim/module.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {

CUDA_KERNEL_NODE_PARAMS kernel_parameters(Node& node) {
  const Launch& launch = std::get<Launch>(node.work.operation->parameters);
  node.parameter_pointers.clear();
  for (const PtxParameter& parameter : launch.function->parameters()) {
    const std::byte* value = launch.parameters.data() + parameter.offset;
    node.parameter_pointers.push_back(const_cast<std::byte*>(value));
  }
  CUDA_KERNEL_NODE_PARAMS told = launch.shape;
  told.kernelParams = node.parameter_pointers.data();
  const auto context = node.work.context.lock();
  if (context != nullptr) told.ctx = context->handle();
  return told;
}

CUDA_KERNEL_NODE_PARAMS_v1 narrow(const CUDA_KERNEL_NODE_PARAMS& wide) {
  return {.func = wide.func,
          .gridDimX = wide.gridDimX,
          .gridDimY = wide.gridDimY,
          .gridDimZ = wide.gridDimZ,
          .blockDimX = wide.blockDimX,
          .blockDimY = wide.blockDimY,
          .blockDimZ = wide.blockDimZ,
          .sharedMemBytes = wide.sharedMemBytes,
          .kernelParams = wide.kernelParams,
          .extra = wide.extra};
}

CUDA_BATCH_MEM_OP_NODE_PARAMS batch_parameters(const Node& node) {
  const auto& steps =
      std::get<std::vector<CUstreamBatchMemOpParams>>(node.work.operation->parameters);
  const auto context = node.work.context.lock();
  return {.ctx = context == nullptr ? nullptr : context->handle(),
          .count = static_cast<unsigned>(steps.size()),
          .paramArray = const_cast<CUstreamBatchMemOpParams*>(steps.data()),
          .flags = 0};
}

CUevent event_parameter(const Node& node) {
  const auto& event = std::get<std::shared_ptr<Event>>(node.work.operation->parameters);
  return Registry<Event, CUevent>::handle_of(event.get());
}

}  // namespace cuvmm::sim
