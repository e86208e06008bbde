// SPDX-License-Identifier: Apache-2.0
// Pools between processes. The exporting pool's file is a catalogue: which process it is, and for
// each piece of memory that holds an exported allocation the file behind it.
#pragma once

#include <memory>

#include "base/fd.hpp"
#include "sim/cuda.hpp"
#include "sim/shared_file.hpp"

namespace cuvmm::sim {

class Pool;
struct Allocation;

// A new descriptor of the pool's catalogue, which is made when first asked for; -1 where the
// system has none to give.
int export_pool(const std::shared_ptr<Pool>& pool);
CUresult export_pointer(const std::shared_ptr<Pool>& pool, const Allocation& allocation,
                        CUmemPoolPtrExportData* data);

// The pool behind a catalogue; nullptr where the descriptor is none.
std::shared_ptr<Pool> import_pool(int descriptor);
CUresult import_pointer(const std::shared_ptr<Pool>& pool, const CUmemPoolPtrExportData& data,
                        CUdeviceptr* address);
// Of an allocation that the address space no longer knows.
void unmap_imported(const Allocation& allocation);

}  // namespace cuvmm::sim
