// SPDX-License-Identifier: Apache-2.0
// Notes the memory that the program's calls name, while last uses are tracked
// (alloc/last_uses.hpp).
#pragma once

#include <string_view>
#include <type_traits>

#include "driver/calls.hpp"
#include "engine/control.hpp"
#include "engine/engine.hpp"

namespace cuvmm::hook {

constexpr bool is_launch_with_parameters(std::string_view name) {
  return name == "cuLaunchKernel" || name == "cuLaunchKernelEx" ||
         name == "cuLaunchCooperativeKernel";
}

// The parameters of a graph's kernels are not examined.
constexpr bool is_launch_of_a_graph(std::string_view name) {
  return name == "cuGraphLaunch";
}

// After such a call, function handles may be reused.
constexpr bool ends_functions(std::string_view name) {
  return name == "cuModuleUnload" || name == "cuLibraryUnload" ||
         name.starts_with("cuCtxDestroy") || name.starts_with("cuDevicePrimaryCtxRe") ||
         name == "cuGreenCtxDestroy";
}

template <Call call, class... Arguments>
inline constexpr bool names_memory = is_launch_with_parameters(info(call).name) ||
                                     is_launch_of_a_graph(info(call).name) ||
                                     (has(info(call).effect, Effect::Reads | Effect::Writes) &&
                                      (std::is_same_v<Arguments, CUdeviceptr> || ...));

// Notes every word of the parameters that could be an address, for a sample of the launches.
void note_parameters(Engine& engine, LastUses& uses, CUfunction function, void* const* parameters,
                     void* const* packed);

template <class... Shape>
void note_launch(Engine& engine, LastUses& uses, CUfunction function, unsigned, unsigned, unsigned,
                 unsigned, unsigned, unsigned, unsigned, CUstream, void** parameters,
                 Shape... packed) {
  void* const* list = nullptr;
  ((list = packed), ...);
  note_parameters(engine, uses, function, parameters, list);
}
inline void note_launch(Engine& engine, LastUses& uses, const CUlaunchConfig*, CUfunction function,
                        void** parameters, void** packed) {
  note_parameters(engine, uses, function, parameters, packed);
}

template <Call call, class... Arguments>
[[gnu::noinline, gnu::cold]] void note_uses(Engine& engine, LastUses& uses,
                                            Arguments... arguments) {
  if constexpr (is_launch_with_parameters(info(call).name)) {
    note_launch(engine, uses, arguments...);
  } else if constexpr (is_launch_of_a_graph(info(call).name)) {
    uses.note_unseen();
  } else {
    const auto note = [&](auto argument) {
      if constexpr (std::is_same_v<decltype(argument), CUdeviceptr>) uses.note(argument);
    };
    (note(arguments), ...);
  }
}

void forget_functions(Engine& engine);

}  // namespace cuvmm::hook
