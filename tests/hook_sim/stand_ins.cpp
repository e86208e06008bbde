// SPDX-License-Identifier: Apache-2.0
#include "hook_sim/stand_ins.hpp"

#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "hook_sim/doors.hpp"

namespace cuvmm::test {
namespace {

template <Call call>
auto of_the_driver() {
  using Function = typename hook::Row<call>::Function;
  return reinterpret_cast<Function>(dlsym(open_driver(), info(call).symbol));
}

const CUgreenCtx green_context = reinterpret_cast<CUgreenCtx>(0x1000);
bool exists = false;
CUcontext used_by = nullptr;

// A green context holds the primary context.
CUresult use() {
  if (used_by != nullptr) return CUDA_SUCCESS;
  CUcontext primary = nullptr;
  CUcontext current = nullptr;
  const CUresult made = of_the_driver<Call::cuCtxCreate_v2>()(&used_by, 0, 0);
  if (made != CUDA_SUCCESS) return made;
  of_the_driver<Call::cuCtxPopCurrent_v2>()(&current);
  return of_the_driver<Call::cuDevicePrimaryCtxRetain>()(&primary, 0);
}

CUresult convert(CUcontext* context, CUgreenCtx green) {
  if (green != green_context || !exists) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult made = use();
  *context = used_by;
  return made;
}

CUresult create_stream(CUstream* stream, CUgreenCtx green, unsigned flags, int) {
  CUcontext context = nullptr;
  if (const CUresult refused = convert(&context, green); refused != CUDA_SUCCESS) return refused;
  of_the_driver<Call::cuCtxPushCurrent_v2>()(context);
  const CUresult made = of_the_driver<Call::cuStreamCreate>()(stream, flags);
  of_the_driver<Call::cuCtxPopCurrent_v2>()(&context);
  return made;
}

CUresult destroy(CUgreenCtx green) {
  if (green != green_context || !std::exchange(exists, false)) return CUDA_ERROR_INVALID_HANDLE;
  if (used_by == nullptr) return CUDA_SUCCESS;
  of_the_driver<Call::cuDevicePrimaryCtxRelease_v2>()(0);
  return of_the_driver<Call::cuCtxDestroy_v2>()(std::exchange(used_by, nullptr));
}

std::function<void()> after_release;

CUresult release(CUdevice device) {
  const CUresult answer = of_the_driver<Call::cuDevicePrimaryCtxRelease_v2>()(device);
  if (const auto then = std::exchange(after_release, nullptr)) then();
  return answer;
}

// As if the driver opened memory of a native process.
CUresult open_foreign(CUdeviceptr* address, CUipcMemHandle, unsigned) {
  *address = foreign_memory;
  return CUDA_SUCCESS;
}
CUresult close_foreign(CUdeviceptr address) {
  return address == foreign_memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult import_external(CUexternalMemory* memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*) {
  *memory = foreign_external_memory;
  return CUDA_SUCCESS;
}
CUresult destroy_external(CUexternalMemory memory) {
  return memory == foreign_external_memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult bind(CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t size, unsigned long long) {
  return size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult launch(const CUlaunchConfig*, CUfunction, void**, void**) {
  return CUDA_SUCCESS;
}

template <class Function>
void* as_symbol(Function* function) {
  return reinterpret_cast<void*>(function);
}

void* stand_in(const char* name) {
  static const std::map<std::string_view, void*> all{
      {"cuCtxFromGreenCtx", as_symbol(&convert)},
      {"cuDestroyExternalMemory", as_symbol(&destroy_external)},
      {"cuDevicePrimaryCtxRelease", as_symbol(&release)},
      {"cuDevicePrimaryCtxRelease_v2", as_symbol(&release)},
      {"cuGreenCtxDestroy", as_symbol(&destroy)},
      {"cuGreenCtxStreamCreate", as_symbol(&create_stream)},
      {"cuImportExternalMemory", as_symbol(&import_external)},
      {"cuIpcCloseMemHandle", as_symbol(&close_foreign)},
      {"cuIpcOpenMemHandle", as_symbol(&open_foreign)},
      {"cuIpcOpenMemHandle_v2", as_symbol(&open_foreign)},
      {"cuLaunchKernelEx", as_symbol(&launch)},
      {"cuMulticastBindAddr", as_symbol(&bind)},
  };
  const auto found = all.find(name);
  return found != all.end() ? found->second : nullptr;
}

CUresult find_by_name(const char* name, void** found, int version, cuuint64_t flags,
                      CUdriverProcAddressQueryResult* status) {
  if (void* const function = stand_in(name)) {
    *found = function;
    return CUDA_SUCCESS;
  }
  return of_the_driver<Call::cuGetProcAddress_v2>()(name, found, version, flags, status);
}

void* find_symbol(void* library, const char* symbol) {
  if (std::strcmp(symbol, "cuGetProcAddress_v2") == 0) {
    return reinterpret_cast<void*>(&find_by_name);
  }
  void* const function = stand_in(symbol);
  return function != nullptr ? function : dlsym(library, symbol);
}

// Installed before any test's first call creates the engine.
[[maybe_unused]] const bool is_in_place = [] {
  driver_source().doors.symbol = &find_symbol;
  return true;
}();

}  // namespace

void after_next_release(std::function<void()> then) {
  after_release = std::move(then);
}

CUgreenCtx given_green_context() {
  exists = true;
  return green_context;
}

}  // namespace cuvmm::test
