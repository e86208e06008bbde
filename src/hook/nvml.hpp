// SPDX-License-Identifier: Apache-2.0
// Limits the device memory that NVML reports to the program's limit, as for cuMemGetInfo. In NVML's
// process lists, this process's entry shows the memory used under that limit. Makes no driver call.
#pragma once

namespace cuvmm::hook {

bool is_named_like_nvmls(const char* name);
bool nvml_is_loaded();

// Performs dlsym(library, name). Returns the door if the lookup finds a function of NVML that has
// one, otherwise the lookup's own result.
void* nvml_door(void* library, const char* name, void* (*real_dlsym)(void*, const char*));

}  // namespace cuvmm::hook
