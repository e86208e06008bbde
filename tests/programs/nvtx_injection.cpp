// SPDX-License-Identifier: Apache-2.0
// Stands in for a profiler: NVTX loads it by NVTX_INJECTION64_PATH, and it prints each range's name
// once.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace {

int NVTX_API push(const char* name) {
  static std::mutex lock;
  static auto* const said = new std::set<std::string>;
  const std::lock_guard holding{lock};
  if (said->insert(name).second) std::fprintf(stderr, "range %s\n", name);
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePushA) {
    return 0;
  }
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&push);
  return 1;
}
