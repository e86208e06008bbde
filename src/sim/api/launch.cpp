// SPDX-License-Identifier: Apache-2.0
#include "sim/launch.hpp"

#include "sim/bodies.hpp"
#include "sim/capture.hpp"
#include "sim/context.hpp"
#include "sim/entry.hpp"
#include "sim/process.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

CUresult launch(const CUDA_KERNEL_NODE_PARAMS& shape, CUstream handle, Cooperation cooperation) {
  CUVMM_SIM_CONTEXT(current);
  const auto stream = find_stream(current, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto context = stream->context.lock();
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Operation operation;
  const CUresult made = make_launch(shape, context, cooperation, operation);
  return made == CUDA_SUCCESS ? submit(stream, std::move(operation)) : made;
}

// Attributes that affect only performance are accepted and ignored.
CUresult read_attributes(const CUlaunchConfig& config, Cooperation& cooperation) {
  if (config.numAttrs != 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool has_cluster = false;
  bool has_preferred_cluster = false;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        if (attribute.value.cooperative != 0) cooperation = Cooperation::WholeGrid;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const auto& cluster = attribute.value.clusterDim;
        if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 ||
            config.gridDimX % cluster.x != 0 || config.gridDimY % cluster.y != 0 ||
            config.gridDimZ % cluster.z != 0) {
          return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        }
        has_cluster = true;
        break;
      }
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        has_preferred_cluster = true;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return lacking("cuLaunchKernelEx", "cannot record events inside of a kernel");
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return lacking("cuLaunchKernelEx", "has no kernel nodes that the device updates");
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  // A preferred cluster size requires a regular one as a fallback.
  return has_preferred_cluster && !has_cluster ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

}  // namespace

CUVMM_SIM(cuLaunchKernel)
(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
 unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** parameters,
 void** extra) {
  return launch({.func = function,
                 .gridDimX = grid_x,
                 .gridDimY = grid_y,
                 .gridDimZ = grid_z,
                 .blockDimX = block_x,
                 .blockDimY = block_y,
                 .blockDimZ = block_z,
                 .sharedMemBytes = shared,
                 .kernelParams = parameters,
                 .extra = extra},
                stream, Cooperation::None);
}

CUVMM_SIM(cuLaunchKernelEx)
(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto cooperation = Cooperation::None;
  const CUresult read = read_attributes(*config, cooperation);
  if (read != CUDA_SUCCESS) return read;
  return launch({.func = function,
                 .gridDimX = config->gridDimX,
                 .gridDimY = config->gridDimY,
                 .gridDimZ = config->gridDimZ,
                 .blockDimX = config->blockDimX,
                 .blockDimY = config->blockDimY,
                 .blockDimZ = config->blockDimZ,
                 .sharedMemBytes = config->sharedMemBytes,
                 .kernelParams = parameters,
                 .extra = extra},
                config->hStream, cooperation);
}

CUVMM_SIM(cuLaunchCooperativeKernel)
(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
 unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** parameters) {
  return launch({.func = function,
                 .gridDimX = grid_x,
                 .gridDimY = grid_y,
                 .gridDimZ = grid_z,
                 .blockDimX = block_x,
                 .blockDimY = block_y,
                 .blockDimZ = block_z,
                 .sharedMemBytes = shared,
                 .kernelParams = parameters},
                stream, Cooperation::WholeGrid);
}

CUVMM_SIM(cuLaunchHostFunc)(CUstream handle, CUhostFn function, void* data) {
  CUVMM_SIM_CONTEXT(current);
  const auto stream = find_stream(current, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, make_host_call({.fn = function, .userData = data}));
}

CUVMM_SIM(cuStreamAddCallback)
(CUstream handle, CUstreamCallback callback, void* data, unsigned flags) {
  CUVMM_SIM_CONTEXT(current);
  const auto stream = find_stream(current, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = refuse_captured_stream(*stream); refused != CUDA_SUCCESS) {
    return refused;
  }
  const auto call = [handle, callback, data](Context& context) {
    const InHostFunction inside;
    callback(handle, context.sticky_error(), data);
  };
  submit_now(stream, {.type = CU_GRAPH_NODE_TYPE_HOST, .run = call, .duration = Duration::Long});
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
