// SPDX-License-Identifier: Apache-2.0
// Lets the CUDA runtime find a device's primary context and load the code that nvcc embedded.
#include "sim/bodies.hpp"
#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/process.hpp"
#include "sim/tables/private_table.hpp"

namespace cuvmm::sim {
namespace {

constexpr const char* name = "CUDART_INTERFACE";

template <std::size_t index>
CUresult refuse() {
  return refuse_entry(name, index);
}

CUresult load_module(CUmodule* module, const void* fat_binary) {
  return sim_cuModuleLoadData(module, fat_binary);
}

CUresult load_module_with_options(CUmodule* module, const void* fat_binary, void* first,
                                  void* second, unsigned count) {
  if (first != nullptr || second != nullptr || count != 0) return refuse<6>();
  return sim_cuModuleLoadData(module, fat_binary);
}

CUresult load_module_from(const void* fat_binary, CUmodule* module, void* first, void* second,
                          unsigned count) {
  if (first != nullptr || second != nullptr || count != 0) return refuse<8>();
  return sim_cuModuleLoadData(module, fat_binary);
}

// Returns the handle that a later cuDevicePrimaryCtxRetain returns, without retaining the context.
CUresult primary_context_of(CUcontext* context, CUdevice ordinal) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = Process::get().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *context = device->primary_handle();
  return CUDA_SUCCESS;
}

void take_note(std::uintptr_t) {}

// Nothing is compiled here.
CUresult load_compilers() {
  return CUDA_SUCCESS;
}

}  // namespace

const void* const* tables::runtime_interface() {
  static const void* const entries[] = {reinterpret_cast<const void*>(13 * sizeof(void*)),
                                        reinterpret_cast<const void*>(&load_module),
                                        reinterpret_cast<const void*>(&primary_context_of),
                                        reinterpret_cast<const void*>(&refuse<3>),
                                        reinterpret_cast<const void*>(&refuse<4>),
                                        reinterpret_cast<const void*>(&refuse<5>),
                                        reinterpret_cast<const void*>(&load_module_with_options),
                                        reinterpret_cast<const void*>(&take_note),
                                        reinterpret_cast<const void*>(&load_module_from),
                                        reinterpret_cast<const void*>(&refuse<9>),
                                        reinterpret_cast<const void*>(&refuse<10>),
                                        reinterpret_cast<const void*>(&refuse<11>),
                                        reinterpret_cast<const void*>(&load_compilers)};
  return entries;
}

}  // namespace cuvmm::sim
