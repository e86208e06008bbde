// SPDX-License-Identifier: Apache-2.0
// Limits the device memory that NVML reports to the program's limit, as cuMemGetInfo does. Makes no
// driver call. The list of processes is left as NVML reports it.
#pragma once

namespace cuvmm::hook {

bool is_named_like_nvmls_memory(const char* name);
bool nvml_is_loaded();

// The door for dlsym(library, name) if it finds a function of NVML; otherwise what dlsym finds.
void* nvml_door(void* library, const char* name, void* (*real_dlsym)(void*, const char*));

}  // namespace cuvmm::hook
