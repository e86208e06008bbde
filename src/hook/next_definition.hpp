// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm::hook {

// Whether the address is a function that cuvmm's library exports.
bool is_export(const void* address);

// Whether the program finds a function of its own under this name, before cuvmm's.
bool another_comes_first(const char* symbol);

// The function that the program would find under this name without cuvmm, in the libraries that it
// is linked to or has opened for all. Null if there is none. It need not be the driver's: programs
// are linked to mocks of the driver, or to clients of a driver on another machine.
void* next_definition(const char* symbol);

}  // namespace cuvmm::hook
