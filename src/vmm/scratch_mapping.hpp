// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "vmm/map_plan.hpp"

namespace cuvmm {

// A temporary mapping for a copy, of chunks that are mapped elsewhere or not at all yet.
struct ScratchMapping {
  // Maps the chunks side by side, with read and write access for the device.
  static Result<std::shared_ptr<ScratchMapping>> of(const Driver& driver, Size granule,
                                                    const std::vector<ChunkRef>& chunks,
                                                    int device) {
    Size size = 0;
    for (const ChunkRef& chunk : chunks) size += chunk->size();
    auto place = std::make_shared<ScratchMapping>(TRY(Reservation::create(driver, size, granule)));
    MapPlan plan;
    Size offset = 0;
    for (const ChunkRef& chunk : chunks) {
      plan.map(place->mapping, offset, chunk, AccessSet::of(device));
      offset += chunk->size();
    }
    TRY(plan.commit());
    return place;
  }

  explicit ScratchMapping(Reservation&& taken)
      : addresses(std::move(taken)), mapping(Mapping::of(addresses)) {}

  Reservation addresses;
  Mapping mapping;
};

}  // namespace cuvmm
