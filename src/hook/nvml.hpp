// SPDX-License-Identifier: Apache-2.0
// Limits the device memory that NVML reports to the program's limit, as cuMemGetInfo does; in its
// lists of processes, this process uses as much as it then reports. Makes no driver call.
#pragma once

namespace cuvmm::hook {

bool is_named_like_nvmls(const char* name);
bool nvml_is_loaded();

// The door for dlsym(library, name) if it finds a function of NVML; otherwise what dlsym finds.
void* nvml_door(void* library, const char* name, void* (*real_dlsym)(void*, const char*));

}  // namespace cuvmm::hook
