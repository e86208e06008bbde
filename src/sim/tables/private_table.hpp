// SPDX-License-Identifier: Apache-2.0
// The driver's private tables that the CUDA runtime requests (cuGetExportTable).
// docs/internals/driver_facts.md lists the known entries and where that knowledge comes from.
// Unknown entries return an error and log their name.
#pragma once

#include <cstddef>

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// Returns the entries of this table. For an unknown table, returns nullptr and logs it once.
const void* find_private_table(const CUuuid& id);

// The implementation of entries that are not simulated: logs the table's name and the entry's
// number once, and returns the error.
CUresult refuse_entry(const char* table, std::size_t index);

namespace tables {

// The first word of a table is its size in bytes.
const void* const* runtime_interface();
const void* const* validity_check();
const void* const* context_storage();
const void* const* context_check();
const void* const* tool_hooks();
const void* const* tool_storage();
const void* const* library_interface();

}  // namespace tables
}  // namespace cuvmm::sim
