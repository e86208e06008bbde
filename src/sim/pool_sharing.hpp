// SPDX-License-Identifier: Apache-2.0
// Sharing of pools between processes. The file of an exported pool is a catalogue: it names the
// process and, for each piece of memory that contains an exported allocation, the file behind it.
#pragma once

#include <memory>

#include "base/fd.hpp"
#include "sim/cuda.hpp"
#include "sim/shared_file.hpp"

namespace cuvmm::sim {

class Pool;
struct Allocation;

// Returns a new descriptor of the pool's catalogue, which is created on first use. Returns -1 if
// the system cannot create one.
int export_pool(const std::shared_ptr<Pool>& pool);
CUresult export_pointer(const std::shared_ptr<Pool>& pool, const Allocation& allocation,
                        CUmemPoolPtrExportData* data);

// Returns the pool behind a catalogue, or nullptr if the descriptor is not a catalogue.
std::shared_ptr<Pool> import_pool(int descriptor);
CUresult import_pointer(const std::shared_ptr<Pool>& pool, const CUmemPoolPtrExportData& data,
                        CUdeviceptr* address);
// Unmaps an allocation that was already removed from the address space.
void unmap_imported(const Allocation& allocation);

}  // namespace cuvmm::sim
