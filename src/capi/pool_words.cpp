// SPDX-License-Identifier: Apache-2.0
#include "capi/pool_words.hpp"

#include <cstdio>
#include <string>

namespace cuvmm::capi {

Result<PlaceSettings> place_settings(const cuvmm_places* places) {
  constexpr const char* doing = "make a pool";
  PlaceSettings settings;
  if (places == nullptr) return settings;
  if (!is_unused(places->reserved)) return Error::invalid(doing, "a reserved member is not 0");
  if (places->shareable != 0 && places->shareable != 1) {
    return Error::invalid(doing, "it is neither shareable nor not");
  }
  settings.exportable = places->shareable == 1 ? Export::Yes : Export::No;
  settings.granule = places->granule;
  if (places->device_count != 0) {
    if (places->devices == nullptr) return Error::invalid(doing, "no devices are named");
    if (places->device_count > AccessSet::most_devices) {
      return Error::invalid(doing, "too many devices");
    }
    settings.devices.assign(places->devices, places->devices + places->device_count);
  }
  switch (places->placement) {
    case CUVMM_PLACE_PACK:
      settings.placement = PoolPlacement::Pack;
      break;
    case CUVMM_PLACE_STRIPE:
      settings.placement = PoolPlacement::Stripe;
      break;
    case CUVMM_PLACE_LOCAL_THEN_PEER:
      settings.placement = PoolPlacement::LocalThenPeer;
      break;
    default:
      return Error::invalid(doing, "no such placement");
  }
  switch (places->host) {
    case CUVMM_HOST_NEVER:
      settings.host = HostUse::Never;
      break;
    case CUVMM_HOST_LAST:
      settings.host = HostUse::Last;
      break;
    case CUVMM_HOST_ONLY:
      settings.host = HostUse::Only;
      break;
    default:
      return Error::invalid(doing, "no such use of the host");
  }
  settings.host_node = places->host_node;
  return settings;
}

void say_where(const Error& error, Stretch stretch, cuvmm_error& details) {
  const auto say = [&](const char* form, Size number) {
    const std::string why = *error.subject != '\0' ? std::string("; ") + error.subject : "";
    std::string text = std::string(error.doing) + ": " + name_of(error.kind) + ", " +
                       std::to_string(stretch.size) + " bytes at offset " +
                       std::to_string(stretch.offset);
    text += std::string(form) + std::to_string(number) + why;
    std::snprintf(details.message, sizeof details.message, "%s", text.c_str());
  };
  if (error.asked == 0) return;  // the error is not about a place
  const Size in_the_way = stretch.offset + error.available;
  if (error.kind == ErrorKind::AlreadyMapped) say(" reach what lies at offset ", in_the_way);
  if (error.kind == ErrorKind::NotMapped) say(", and nothing lies at offset ", in_the_way);
  if (error.kind == ErrorKind::InvalidOffset)
    say(" do not fit into a capacity of ", error.available);
}

Result<std::shared_ptr<const PoolPlaces>> pool_places(const cuvmm_places* places) {
  Engine& running = *TRY(engine());
  const PlaceSettings settings = TRY(place_settings(places));
  const auto store_of = [&](Location where) -> Result<ChunkStore*> {
    if (where.is_host()) return running.stores().host(where.id());
    return &TRY(running.stores().device(where.id()))->store();
  };
  return PoolPlaces::create(running.driver(), store_of, settings);
}

Result<AllocationTraits> traits_of(std::uint32_t traits) {
  constexpr std::uint32_t known = CUVMM_MOVABLE | CUVMM_EVICTABLE;
  if ((traits & ~known) != 0) return Error::invalid("allocate in a pool", "no such trait");
  return AllocationTraits{
      .movable = (traits & CUVMM_MOVABLE) != 0 ? Movable::Yes : Movable::No,
      .evictable = (traits & CUVMM_EVICTABLE) != 0 ? Evictable::Yes : Evictable::No};
}

cuvmm_elastic_pool_stats stats_of(const ElasticStats& stats) {
  return {.capacity = stats.capacity,
          .allocated_bytes = stats.allocated,
          .physical_bytes = stats.physical,
          .mapped_granules = stats.mapped_granules,
          .free_bytes = stats.free,
          .largest_free = stats.largest_free,
          .fragmentation = stats.fragmentation(),
          .reserved = {}};
}

void report(const PoolCompaction& done, cuvmm_moved moved, void* user, cuvmm_compaction* counts) {
  if (counts != nullptr) {
    *counts = {.moves = done.moves.size(),
               .physical_released = done.physical_released,
               .cached_released = done.cached_released,
               .reserved = {}};
  }
  if (moved == nullptr) return;
  const HooksRestored hooks;
  for (const Move& move : done.moves) {
    const cuvmm_move told{.from = move.from, .to = move.to, .size = move.size};
    moved(user, &told);
  }
}

}  // namespace cuvmm::capi
