// SPDX-License-Identifier: Apache-2.0
#include "vmm/window_maps.hpp"

#include "trace/record_event.hpp"
#include "vmm/deferred_release.hpp"
#include "vmm/insist.hpp"

namespace cuvmm {

Result<void> WindowMaps::map(CUdeviceptr address, const ChunkRef& chunk) {
  const Size size = chunk->size();
  TRY(driver_.check(driver_.cuMemMap(address, size, 0, chunk->handle(), 0), "map a window", size));
  note_mapped(address, chunk);
  return {};
}

void WindowMaps::note_mapped(CUdeviceptr address, const ChunkRef& chunk) {
  mapped_bytes_ += chunk->size();
  CUVMM_TRACE(.event = TraceEvent::Map, .device = static_cast<std::int16_t>(device_), .detail = 1,
              .address = address, .size = chunk->size(), .other = chunk->handle());
}

Result<void> WindowMaps::allow(CUdeviceptr address, Size bytes) {
  return change_access({address, bytes}, AccessSet::none(), access_);
}

Result<void> WindowMaps::unmap(CUdeviceptr address, const ChunkRef& chunk) {
  const Size size = chunk->size();
  TRY(driver_.check(driver_.cuMemUnmap(address, size), "unmap a window", size));
  note_unmapped(address, chunk);
  return {};
}

void WindowMaps::note_unmapped(CUdeviceptr address, const ChunkRef& chunk) {
  mapped_bytes_ -= chunk->size();
  CUVMM_TRACE(.event = TraceEvent::Unmap, .device = static_cast<std::int16_t>(device_), .detail = 1,
              .address = address, .size = chunk->size(), .other = chunk->handle());
}

void WindowMaps::unmap_or_defer(CUdeviceptr address, const ChunkRef& chunk) {
  release_or_defer(Deferred::Mapping, [driver = &driver_, address, chunk] {
    return driver->cuMemUnmap(address, chunk->size());
  });
}

Result<void> WindowMaps::change_access(const MappedRun& run, const AccessSet& before,
                                       const AccessSet& after) const {
  const AccessChange change{before, after};
  if (change.lines().empty()) return {};
  return driver_.check(
      driver_.cuMemSetAccess(run.address, run.bytes, change.lines().data(), change.lines().size()),
      "give access to windows", run.bytes);
}

Result<void> WindowMaps::set_access(const AccessSet& access, const std::vector<MappedRun>& all) {
  if (access == access_) return {};
  std::size_t changed = 0;
  Result<void> outcome;
  for (const MappedRun& run : all) {
    ++changed;  // a refused call may have changed part of it
    outcome = change_access(run, access_, access);
    if (!outcome.ok()) break;
  }
  if (outcome.ok()) {
    access_ = access;
    return outcome;
  }
  bool complete = true;
  while (changed-- > 0) {
    complete &= insist([&] { return change_access(all[changed], access, access_); });
  }
  if (complete) return outcome;
  Error error = outcome.error();
  error.subject = "and what was done before it could not all be undone";
  return error;
}

}  // namespace cuvmm
