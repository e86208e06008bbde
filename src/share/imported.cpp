// SPDX-License-Identifier: Apache-2.0
#include "share/imported.hpp"

namespace cuvmm::share {

struct MappedGrant::GrantMapping {
  explicit GrantMapping(Reservation&& addresses)
      : reservation(std::move(addresses)), mapping(Mapping::of(reservation)) {}
  Reservation reservation;
  Mapping mapping;  // destroyed first
};

void MappedGrant::GrantMappingEnd::operator()(GrantMapping* place) const {
  delete place;
}

Result<Imported> Imported::fetch(const Driver& driver, Session& session, const Grant& grant,
                                 Deadline until) {
  constexpr const char* doing = "import memory";
  std::vector<ChunkRef> chunks;
  Size total = 0;
  int first_descriptor = -1;
  while (chunks.size() < grant.chunks) {
    const auto first = static_cast<std::uint32_t>(chunks.size());
    const Session::Batch batch = TRY(session.fetch(grant, first, until));
    if (first == 0) first_descriptor = batch.descriptors.front().number();
    for (std::size_t i = 0; i < batch.sizes.size(); ++i) {
      if (batch.sizes[i] > grant.total - total) {
        return Error::invalid(doing, "its chunks are more than was granted");
      }
      total += batch.sizes[i];
      chunks.push_back(
          ChunkRef::adopt(TRY(Chunk::import_fd(driver, batch.descriptors[i], batch.sizes[i]))));
    }
  }
  if (total != grant.total) return Error::invalid(doing, "its chunks are less than was granted");
  return Imported{grant, std::move(chunks), first_descriptor};
}

MappedGrant::MappedGrant(std::unique_ptr<GrantMapping> place, CUdeviceptr address, Size size,
                         GrantAccess access)
    : place_(place.release()), address_(address), size_(size), access_(access) {}

namespace {

// Limits the wanted access to what the exporter granted.
AccessSet allowed(const AccessSet& wanted, GrantAccess granted) {
  if (granted == GrantAccess::ReadWrite) return wanted;
  AccessSet reading;
  for (int device = 0; device < AccessSet::most_devices; ++device) {
    if (wanted.of_device(device) != Access::None) reading = reading.with(device, Access::Read);
  }
  return reading;
}

}  // namespace

Result<MappedGrant> MappedGrant::map(const Driver& driver, const Imported& imported,
                                     const AccessSet& who, CUdeviceptr hint) {
  const Grant& grant = imported.grant();
  const Size granule = TRY(granularity_of(driver, imported.chunks().front()->location()));
  auto place = std::make_unique<GrantMapping>(
      TRY(Reservation::create(driver, grant.total, granule, granule, hint)));
  MapPlan plan;
  Size offset = 0;
  for (const ChunkRef& chunk : imported.chunks()) {
    plan.map(place->mapping, offset, chunk, allowed(who, grant.access));
    offset += chunk->size();
  }
  TRY(plan.commit());
  const CUdeviceptr address = place->mapping.address() + grant.offset;
  return MappedGrant{std::move(place), address, grant.size, grant.access};
}

Result<void> MappedGrant::set_access(const AccessSet& who) {
  MapPlan plan;
  plan.allow(place_->mapping, {0, place_->mapping.size()}, allowed(who, access_));
  return plan.commit();
}

}  // namespace cuvmm::share
