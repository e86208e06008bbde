// SPDX-License-Identifier: Apache-2.0
// What NVML tells the program of a device's memory: no more than its limit, as cuMemGetInfo does.
// Asking makes no driver call. Processes are listed as NVML lists them.
#pragma once

namespace cuvmm::hook {

bool is_named_like_nvmls_memory(const char* name);
bool nvml_is_loaded();

// What stands for dlsym(library, name), where that is NVML's; else what the real lookup finds.
void* nvml_door(void* library, const char* name, void* (*real_dlsym)(void*, const char*));

}  // namespace cuvmm::hook
