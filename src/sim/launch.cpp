// SPDX-License-Identifier: Apache-2.0
#include "sim/launch.hpp"

#include <algorithm>
#include <cstring>

#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/entry.hpp"
#include "sim/interpreter/grid.hpp"
#include "sim/library.hpp"
#include "sim/settings.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {
namespace {

constexpr unsigned most_blocks_y_z = 65535;
constexpr unsigned most_threads_z = 64;

// The arguments of the host function, all allocated before it runs, since a fault abandons it
// without unwinding.
struct HostLaunch {
  cuvmm_sim_launch launch{};
  cuvmm_sim_kernel kernel = nullptr;
  std::vector<std::byte> parameters;
  std::vector<const void*> pointers;
  std::shared_ptr<Function> function;
};

void* memory_of(const cuvmm_sim_launch* launch, std::uint64_t device_address) {
  return Views::at(launch->device, device_address);
}

CUresult check_shape(const CUDA_KERNEL_NODE_PARAMS& shape, const FunctionAttributes& function,
                     Cooperation cooperation) {
  if (shape.gridDimX == 0 || shape.gridDimY == 0 || shape.gridDimZ == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.blockDimX == 0 || shape.blockDimY == 0 || shape.blockDimZ == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.gridDimX > INT32_MAX || shape.gridDimY > most_blocks_y_z ||
      shape.gridDimZ > most_blocks_y_z || shape.blockDimX > most_threads_per_block ||
      shape.blockDimY > most_threads_per_block || shape.blockDimZ > most_threads_z) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Size threads = Size{shape.blockDimX} * shape.blockDimY * shape.blockDimZ;
  if (threads > function.most_threads()) return CUDA_ERROR_INVALID_VALUE;
  if (shape.sharedMemBytes > function.most_dynamic_shared_bytes()) return CUDA_ERROR_INVALID_VALUE;
  if (cooperation == Cooperation::WholeGrid) {
    const Size blocks = Size{shape.gridDimX} * shape.gridDimY * shape.gridDimZ;
    const Size fitting = blocks_per_multiprocessor(function, threads, shape.sharedMemBytes);
    if (blocks > fitting * multiprocessors) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

// Reads the buffer that CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE describe.
CUresult copy_extra(void* const* extra, std::vector<std::byte>& parameters) {
  const void* buffer = nullptr;
  size_t size = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      if (extra[1] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      size = *static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  // Measured: too many bytes are refused, too few are not. Trailing padding of a struct is allowed.
  if (size > round_up(parameters.size(), 8)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const size_t given = std::min(size, parameters.size());
  if (given != 0 && buffer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (given != 0) std::memcpy(parameters.data(), buffer, given);
  return CUDA_SUCCESS;
}

CUresult copy_parameters(const Function& function, void* const* pointers, void* const* extra,
                         std::vector<std::byte>& parameters) {
  parameters.resize(function.parameter_bytes());
  if (pointers != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) return copy_extra(extra, parameters);
  if (parameters.empty()) return CUDA_SUCCESS;
  if (pointers == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const PtxParameter& parameter : function.parameters()) {
    const void* from = *pointers++;
    if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(parameters.data() + parameter.offset, from, parameter.size);
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<HostLaunch> prepare(const Launch& launch, cuvmm_sim_kernel kernel, int device) {
  auto host = std::make_shared<HostLaunch>();
  host->kernel = kernel;
  host->function = launch.function;
  host->parameters = launch.parameters;
  for (const PtxParameter& parameter : launch.function->parameters()) {
    host->pointers.push_back(host->parameters.data() + parameter.offset);
  }
  const CUDA_KERNEL_NODE_PARAMS& shape = launch.shape;
  host->launch = {.grid = {shape.gridDimX, shape.gridDimY, shape.gridDimZ},
                  .block = {shape.blockDimX, shape.blockDimY, shape.blockDimZ},
                  .shared_bytes = shape.sharedMemBytes,
                  .device = device,
                  .parameters = host->pointers.data(),
                  .parameter_count = static_cast<std::uint32_t>(host->pointers.size()),
                  .memory = &memory_of};
  return host;
}

// Prepares the kernel's PTX. The launch keeps the text and the parameters alive.
CUresult prepare_interpreted(const Launch& launch, int device, Cooperation cooperation,
                             Operation& operation) {
  std::string missing;
  auto program = launch.function->program(missing);
  if (program == nullptr) {
    const std::string what = "cannot run the kernel " + launch.function->name() +
                             ": the interpreter does not know " + missing;
    return lacking("cuLaunchKernel", what.c_str());
  }
  operation.run = [program = std::move(program), function = launch.function,
                   parameters = launch.parameters, shape = launch.shape, device,
                   together = cooperation == Cooperation::WholeGrid](Context& context) {
    const GridLaunch grid{.program = program.get(),
                          .grid = {shape.gridDimX, shape.gridDimY, shape.gridDimZ},
                          .block = {shape.blockDimX, shape.blockDimY, shape.blockDimZ},
                          .dynamic_shared_bytes = shape.sharedMemBytes,
                          .device = device,
                          .parameters = parameters.data(),
                          .parameter_bytes = parameters.size()};
    const CUresult answer = run_grid(grid, together);
    if (answer != CUDA_SUCCESS) context.fail(answer);
  };
  return CUDA_SUCCESS;
}

}  // namespace

CUresult make_launch(const CUDA_KERNEL_NODE_PARAMS& shape, const std::shared_ptr<Context>& context,
                     Cooperation cooperation, Operation& operation) {
  Launch launch{.shape = shape};
  launch.handle = shape.func != nullptr ? shape.func : reinterpret_cast<CUfunction>(shape.kern);
  const CUresult found = find_function(launch.handle, context, launch.function);
  if (found != CUDA_SUCCESS) return found;
  const Function& function = *launch.function;
  const auto module = function.module();
  if (module == nullptr || module->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = check_shape(shape, function.attributes, cooperation);
      refused != CUDA_SUCCESS) {
    return refused;
  }
  if (const CUresult refused =
          copy_parameters(function, shape.kernelParams, shape.extra, launch.parameters);
      refused != CUDA_SUCCESS) {
    return refused;
  }
  launch.shape.kernelParams = nullptr;
  launch.shape.extra = nullptr;
  operation = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .duration = Duration::Long};
  // Without backing there is no memory that a kernel could access, so it does not run.
  if (has_backing()) {
    const cuvmm_sim_kernel kernel = find_host_kernel(function.name());
    if (kernel == nullptr) {
      const CUresult refused =
          prepare_interpreted(launch, context->device().ordinal(), cooperation, operation);
      if (refused != CUDA_SUCCESS) return refused;
    } else {
      operation.run = [host = prepare(launch, kernel, context->device().ordinal())](Context&) {
        host->kernel(&host->launch);
      };
    }
  }
  operation.parameters = std::move(launch);
  return CUDA_SUCCESS;
}

Operation make_host_call(const CUDA_HOST_NODE_PARAMS& call) {
  return {.type = CU_GRAPH_NODE_TYPE_HOST,
          .run =
              [call](Context&) {
                const InHostFunction inside;
                call.fn(call.userData);
              },
          .duration = Duration::Long,
          .parameters = call};
}

}  // namespace cuvmm::sim
