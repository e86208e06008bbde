// SPDX-License-Identifier: Apache-2.0
// Submitted kernels, host functions and graphs.
#include "hook/events/words.hpp"

namespace cuvmm::hook {
namespace {

struct Shape {
  unsigned width = 1, height = 1, depth = 1;
  std::uint64_t count() const { return std::uint64_t{width} * height * depth; }
};

TraceRecord launch(const Called& called, std::uint64_t function, std::uint64_t threads,
                   std::uint64_t stream, unsigned shared = 0) {
  return {.event = TraceEvent::Launch,
          .detail = shared,
          .address = function,
          .size = threads,
          .stream = stream,
          .other = called.took};
}

TraceRecord host_function(const Called& called, std::uint64_t function, CUstream stream) {
  TraceRecord event = launch(called, function, 0, called.stream(stream));
  event.flags |= trace_flag::on_host;
  return event;
}

TraceRecord graph(const Called& called, CUgraphExec executable, CUstream stream) {
  return {.event = TraceEvent::GraphLaunch,
          .address = number(executable),
          .stream = called.stream(stream),
          .other = called.took};
}

}  // namespace

CUVMM_EVENT(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
            void**, void**) {
  const Shape grid{grid_x, grid_y, grid_z};
  const Shape block{block_x, block_y, block_z};
  return launch(called, number(function), grid.count() * block.count(), called.stream(stream),
                shared);
}

CUVMM_EVENT(cuLaunchKernelEx, const CUlaunchConfig* config, CUfunction function, void**, void**) {
  const auto given_config = given(called, config);
  const Shape grid{given_config.gridDimX, given_config.gridDimY, given_config.gridDimZ};
  const Shape block{given_config.blockDimX, given_config.blockDimY, given_config.blockDimZ};
  return launch(called, number(function), grid.count() * block.count(),
                called.stream(given_config.hStream), given_config.sharedMemBytes);
}

CUVMM_EVENT(cuLaunchCooperativeKernel, CUfunction function, unsigned grid_x, unsigned grid_y,
            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
            CUstream stream, void**) {
  const Shape grid{grid_x, grid_y, grid_z};
  const Shape block{block_x, block_y, block_z};
  return launch(called, number(function), grid.count() * block.count(), called.stream(stream),
                shared);
}

// One record for all devices, with the first device's kernel.
CUVMM_EVENT(cuLaunchCooperativeKernelMultiDevice, CUDA_LAUNCH_PARAMS* list, unsigned count,
            unsigned) {
  const auto one = first(called, list, count);
  const Shape grid{one.gridDimX, one.gridDimY, one.gridDimZ};
  const Shape block{one.blockDimX, one.blockDimY, one.blockDimZ};
  return launch(called, number(one.function), grid.count() * block.count() * count,
                called.stream(one.hStream), one.sharedMemBytes);
}

CUVMM_EVENT(cuLaunch, CUfunction function) {
  return launch(called, number(function), 0, called.own_stream());
}

CUVMM_EVENT(cuLaunchGrid, CUfunction function, int, int) {
  return launch(called, number(function), 0, called.own_stream());
}

CUVMM_EVENT(cuLaunchGridAsync, CUfunction function, int, int, CUstream stream) {
  return launch(called, number(function), 0, called.stream(stream));
}

CUVMM_EVENT(cuLaunchHostFunc, CUstream stream, CUhostFn function, void*) {
  return host_function(called, number(function), stream);
}

CUVMM_EVENT(cuStreamAddCallback, CUstream stream, CUstreamCallback function, void*, unsigned) {
  return host_function(called, number(function), stream);
}

CUVMM_EVENT(cuGraphLaunch, CUgraphExec executable, CUstream stream) {
  return graph(called, executable, stream);
}

}  // namespace cuvmm::hook
