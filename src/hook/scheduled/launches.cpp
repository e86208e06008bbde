// SPDX-License-Identifier: Apache-2.0
// Kernels, host functions and graphs.
#include <algorithm>
#include <optional>

#include "hook/packed_parameters.hpp"
#include "hook/scheduled/dispatch_mode.hpp"

namespace cuvmm::hook {
namespace {

constexpr std::size_t few_parameter_bytes = 256;
constexpr std::uint64_t most_blocks_x = (std::uint64_t{1} << 31) - 1;
constexpr unsigned most_blocks_y_z = 65535;
constexpr unsigned most_threads_x_y = 1024;
constexpr unsigned most_threads_z = 64;
constexpr std::size_t most_parameters = 512;

struct Shape {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared;

  std::uint64_t blocks() const { return std::uint64_t{grid[0]} * grid[1] * grid[2]; }
  std::uint64_t threads() const { return std::uint64_t{block[0]} * block[1] * block[2]; }
};

// The checks that the driver makes before it accepts a launch. If acceptance is not certain, the
// driver is asked.
bool is_certain_to_be_accepted(const Shape& shape, const KernelFacts& facts) {
  return shape.blocks() != 0 && shape.threads() != 0 && shape.grid[0] <= most_blocks_x &&
         shape.grid[1] <= most_blocks_y_z && shape.grid[2] <= most_blocks_y_z &&
         shape.block[0] <= most_threads_x_y && shape.block[1] <= most_threads_x_y &&
         shape.block[2] <= most_threads_z &&
         shape.threads() <= static_cast<std::uint64_t>(facts.most_threads) &&
         shape.shared <= static_cast<unsigned>(std::max(0, facts.most_dynamic_shared));
}

// A kernel's parameters as of its launch, one by one or packed.
class Parameters {
 public:
  // nullopt if the driver has to check them.
  static std::optional<Parameters> keep(std::shared_ptr<const KernelFacts> facts,
                                        void* const* given, void* const* extra) {
    if (given != nullptr && extra != nullptr) return std::nullopt;
    if (extra != nullptr) return keep_packed(extra, facts->parameter_bytes);
    if (!can_be_copied(*facts, given)) return std::nullopt;
    Parameters kept{facts->parameter_bytes};
    if (!kept.bytes_.ok()) return std::nullopt;
    for (std::size_t i = 0; i < facts->parameters.size(); ++i) {
      const KernelFacts::Parameter& one = facts->parameters[i];
      std::memcpy(kept.bytes_.data() + one.offset, given[i], one.size);
    }
    kept.facts_ = std::move(facts);
    return kept;
  }

  // Calls `launch(pointers, extra)`, whose arguments are valid only during that call.
  template <class Launch>
  CUresult pass_to(Launch&& launch) {
    if (facts_ == nullptr) {
      std::size_t size = bytes_.size();
      void* list[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, bytes_.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                      &size, CU_LAUNCH_PARAM_END};
      return launch(static_cast<void**>(nullptr), static_cast<void**>(list));
    }
    void* pointers[most_parameters];
    for (std::size_t i = 0; i < facts_->parameters.size(); ++i) {
      pointers[i] = bytes_.data() + facts_->parameters[i].offset;
    }
    return launch(static_cast<void**>(pointers), static_cast<void**>(nullptr));
  }

 private:
  explicit Parameters(std::size_t size) : bytes_(size) {}

  static bool can_be_copied(const KernelFacts& facts, void* const* given) {
    const std::size_t count = facts.parameters.size();
    if (count == 0) return true;
    if (given == nullptr || count > most_parameters) return false;
    return std::all_of(given, given + count, [](const void* one) { return one != nullptr; });
  }

  // The driver accepts a size with the parameter struct's padding, and refuses anything larger.
  static std::optional<Parameters> keep_packed(void* const* extra, std::size_t parameter_bytes) {
    const PackedParameters packed{extra};
    if (!packed.is_understood || packed.size > round_up(parameter_bytes, 8)) return std::nullopt;
    Parameters kept{packed.size};
    if (!kept.bytes_.ok()) return std::nullopt;
    std::memcpy(kept.bytes_.data(), packed.bytes, packed.size);
    return kept;
  }

  std::shared_ptr<const KernelFacts> facts_;  // nullptr: packed
  KeptBytes<few_parameter_bytes> bytes_;
};

std::uint64_t kind_of(CUfunction function, const Shape& shape) {
  return (reinterpret_cast<std::uint64_t>(function) >> 4) * 31 + shape.blocks() * 7 + 1;
}

// What a launch's attributes imply for launching it later.
enum class Attributes : std::uint8_t {
  Harmless,   // affect how it runs, but nothing that others wait for
  MayRefuse,  // clusters, which the driver may refuse
  Others,
};

Attributes mean(const CUlaunchAttribute& attribute) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return Attributes::Harmless;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      return attribute.value.cooperative == 0 ? Attributes::Harmless : Attributes::Others;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return Attributes::MayRefuse;
    default:
      return Attributes::Others;
  }
}

Attributes mean(const CUlaunchConfig& config) {
  if (config.numAttrs == 0) return Attributes::Harmless;
  if (config.attrs == nullptr) return Attributes::Others;
  Attributes all = Attributes::Harmless;
  for (unsigned i = 0; i < config.numAttrs; ++i) all = std::max(all, mean(config.attrs[i]));
  return all;
}

// Visits the events that the launch itself records.
template <class Visit>
void for_each_event(const CUlaunchConfig& config, const Visit& visit) {
  if (config.attrs == nullptr) return;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      visit(attribute.value.programmaticEvent.event);
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      visit(attribute.value.launchCompletionEvent.event);
    }
  }
}

// Queued waits for an event's last record come before a launch that records it again.
[[gnu::noinline]] CUresult launch_now(const DispatchMode& mode, const Request& request,
                                      const Forward<Call::cuLaunchKernelEx>& forward,
                                      const CUlaunchConfig& config, CUfunction function,
                                      void** given, void** extra) {
  Scheduler& scheduler = mode.scheduler();
  for_each_event(config, [&](CUevent event) { scheduler.settle_event(event, true); });
  const CUlaunchConfig* const configured = &config;
  const CUresult answer = make_in_turn(mode, request, forward, configured, function, given, extra);
  if (answer == CUDA_SUCCESS && mode.stream != nullptr) {
    for_each_event(config, [&](CUevent event) {
      scheduler.event_recorded_directly(event, mode.stream->context);
    });
  }
  return answer;
}

// A hash of everything that the driver checks before it accepts a launch with clusters.
std::uint64_t number_of(const CUlaunchConfig& config, CUfunction function, const Shape& shape,
                        int device) {
  std::uint64_t number = 0;
  const auto add = [&](std::uint64_t word) {
    number = (number ^ word) * 0x9E3779B97F4A7C15u;
    number ^= number >> 29;
  };
  add(reinterpret_cast<std::uint64_t>(function));
  for (const unsigned side : shape.grid) add(side);
  for (const unsigned side : shape.block) add(side);
  add(shape.shared);
  add(static_cast<std::uint64_t>(device));
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (mean(attribute) != Attributes::MayRefuse) continue;
    add(static_cast<std::uint64_t>(attribute.id));
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      add(attribute.value.clusterDim.x);
      add(attribute.value.clusterDim.y);
      add(attribute.value.clusterDim.z);
    } else {
      add(static_cast<std::uint64_t>(attribute.value.clusterSchedulingPolicyPreference));
    }
  }
  return number;
}

// All blocks of a cooperative launch must be resident on the device at once.
bool fits_at_once(Engine& engine, CUfunction function, const Shape& shape, int device) {
  int blocks = 0;
  int processors = 0;
  const Driver& driver = engine.driver();
  return driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
             &blocks, function, static_cast<int>(shape.threads()), shape.shared) == CUDA_SUCCESS &&
         driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                     device) == CUDA_SUCCESS &&
         shape.blocks() <= static_cast<std::uint64_t>(blocks) * static_cast<unsigned>(processors);
}

}  // namespace

CUVMM_SCHEDULE(cuLaunchKernel, CUfunction function, unsigned grid_x, unsigned grid_y,
               unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
               unsigned shared, CUstream stream, void** given, void** extra) {
  const Shape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared};
  const DispatchMode mode = dispatch_mode(forward, stream);
  const Request request = mode.request(Call::cuLaunchKernel, kind_of(function, shape));
  const auto asks_driver = [&] {
    return make_in_turn(mode, request, forward, function, grid_x, grid_y, grid_z, block_x, block_y,
                        block_z, shared, stream, given, extra);
  };
  if (!mode.is_open_to_queue) return asks_driver();
  const auto facts = mode.parts->kernels.find(function, mode.stream->device);
  if (facts == nullptr || !is_certain_to_be_accepted(shape, *facts)) return asks_driver();
  auto parameters = Parameters::keep(facts, given, extra);
  if (!parameters) return asks_driver();
  return queue(
      mode, request,
      [forward, function, shape, stream, kept = std::move(*parameters)]() mutable {
        return kept.pass_to([&](void** pointers, void** packed) {
          return make_now(forward, function, shape.grid[0], shape.grid[1], shape.grid[2],
                          shape.block[0], shape.block[1], shape.block[2], shape.shared, stream,
                          pointers, packed);
        });
      },
      forward, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, given,
      extra);
}

CUVMM_SCHEDULE(cuLaunchCooperativeKernel, CUfunction function, unsigned grid_x, unsigned grid_y,
               unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
               unsigned shared, CUstream stream, void** given) {
  const Shape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared};
  const DispatchMode mode = dispatch_mode(forward, stream);
  const Request request = mode.request(Call::cuLaunchCooperativeKernel, kind_of(function, shape));
  const auto asks_driver = [&] {
    return make_in_turn(mode, request, forward, function, grid_x, grid_y, grid_z, block_x, block_y,
                        block_z, shared, stream, given);
  };
  if (!mode.is_open_to_queue) return asks_driver();
  const auto facts = mode.parts->kernels.find(function, mode.stream->device);
  if (facts == nullptr || !is_certain_to_be_accepted(shape, *facts) ||
      !fits_at_once(forward.engine(), function, shape, mode.stream->device)) {
    return asks_driver();
  }
  auto parameters = Parameters::keep(facts, given, nullptr);
  if (!parameters) return asks_driver();
  return queue(
      mode, request,
      [forward, function, shape, stream, kept = std::move(*parameters)]() mutable {
        return kept.pass_to([&](void** pointers, void**) {
          return make_now(forward, function, shape.grid[0], shape.grid[1], shape.grid[2],
                          shape.block[0], shape.block[1], shape.block[2], shape.shared, stream,
                          pointers);
        });
      },
      forward, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, given);
}

CUVMM_SCHEDULE(cuLaunchKernelEx, const CUlaunchConfig* config, CUfunction function, void** given,
               void** extra) {
  const DispatchMode mode = dispatch_mode(forward, config != nullptr ? config->hStream : nullptr);
  if (config == nullptr) return make_directly(mode, {}, forward, config, function, given, extra);
  const Shape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ},
                    config->sharedMemBytes};
  const Request request = mode.request(Call::cuLaunchKernelEx, kind_of(function, shape));
  const auto asks_driver = [&] {
    return launch_now(mode, request, forward, *config, function, given, extra);
  };
  const Attributes attributes_mean = mean(*config);
  if (!mode.is_open_to_queue || attributes_mean == Attributes::Others) return asks_driver();
  if (attributes_mean == Attributes::MayRefuse) {
    const std::uint64_t launch = number_of(*config, function, shape, mode.stream->device);
    if (!mode.parts->kernels.was_taken(launch)) {
      const CUresult answer = asks_driver();
      if (answer == CUDA_SUCCESS) mode.parts->kernels.taken(launch);
      return answer;
    }
  }
  const auto facts = mode.parts->kernels.find(function, mode.stream->device);
  if (facts == nullptr || !is_certain_to_be_accepted(shape, *facts)) return asks_driver();
  auto parameters = Parameters::keep(facts, given, extra);
  if (!parameters) return asks_driver();
  std::vector<CUlaunchAttribute> attributes(config->attrs, config->attrs + config->numAttrs);
  return queue(
      mode, request,
      [forward, function, again = *config, attributes = std::move(attributes),
       kept = std::move(*parameters)]() mutable {
        return kept.pass_to([&](void** pointers, void** packed) {
          again.attrs = attributes.data();
          const CUlaunchConfig* configured = &again;
          return make_now(forward, configured, function, pointers, packed);
        });
      },
      forward, config, function, given, extra);
}

CUVMM_SCHEDULE(cuLaunchHostFunc, CUstream stream, CUhostFn function, void* data) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  const Request request = mode.request(Call::cuLaunchHostFunc);
  if (function == nullptr) return make_in_turn(mode, request, forward, stream, function, data);
  return queue_as_it_is(mode, request, forward, stream, function, data);
}

CUVMM_SCHEDULE(cuStreamAddCallback, CUstream stream, CUstreamCallback function, void* data,
               unsigned flags) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  const Request request = mode.request(Call::cuStreamAddCallback);
  if (function == nullptr || flags != 0) {
    return make_in_turn(mode, request, forward, stream, function, data, flags);
  }
  return queue_as_it_is(mode, request, forward, stream, function, data, flags);
}

CUVMM_SCHEDULE(cuGraphLaunch, CUgraphExec graph, CUstream stream) {
  const DispatchMode mode = dispatch_mode(forward, stream);
  Request request = mode.request(Call::cuGraphLaunch, reinterpret_cast<std::uint64_t>(graph) >> 4);
  request.graph = graph;
  request.is_after_all = forward.engine().scheduling().do_graphs_use_events();
  if (mode.client == nullptr) {
    if (request.is_after_all) mode.scheduler().settle_all();
    return make_directly(mode, ordered_by(request), forward, graph, stream);
  }
  cuuint64_t flags = 0;
  const bool is_known = graph != nullptr && forward.engine().driver().cuGraphExecGetFlags(
                                                graph, &flags) == CUDA_SUCCESS;
  if (!is_known) return make_in_turn(mode, request, forward, graph, stream);
  return queue_as_it_is(mode, request, forward, graph, stream);
}

}  // namespace cuvmm::hook
