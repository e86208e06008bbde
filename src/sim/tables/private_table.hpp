// SPDX-License-Identifier: Apache-2.0
// The driver's private tables that the CUDA runtime asks for (cuGetExportTable). What is known of
// them, and how, stands in docs/driver_facts.md. An entry that is not known refuses by name.
#pragma once

#include <cstddef>

#include "sim/cuda.hpp"

namespace cuvmm::sim {

// The entries of this table, or nullptr, which the log then says once a table.
const void* find_private_table(const CUuuid& id);

// What an entry that is not simulated answers: the table's name and the entry's number once in the
// log.
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
