// SPDX-License-Identifier: Apache-2.0
#include "pool/pool_places.hpp"

#include <algorithm>

#include "base/undo.hpp"
#include "driver/current_context.hpp"
#include "driver/device_attribute.hpp"

namespace cuvmm {
namespace {

constexpr const char* doing = "make a pool";
constexpr Size smallest_granule = 64 * KiB;

Error not_supported(const char* why) {
  return {.kind = ErrorKind::NotSupported, .doing = doing, .subject = why};
}

}  // namespace

// The order in which one request tries the places.
class PoolPlaces::Order {
 public:
  explicit Order(const PoolPlaces& places) : places_(places), is_full_(places.count(), false) {
    if (places.placement_ == PoolPlacement::LocalThenPeer) local_ = local_place();
  }

  // The place to try for that granule after `tried` others; count() if none is left.
  std::size_t at(Size granule, std::size_t tried) const {
    const std::size_t count = places_.count();
    const std::size_t in_turn = places_.placement_ == PoolPlacement::Stripe ? places_.striped_ : 0;
    if (tried < in_turn) return (granule + tried) % in_turn;
    if (places_.placement_ != PoolPlacement::LocalThenPeer) return std::min(tried, count);
    if (tried == 0) return local_;
    return tried <= local_ ? tried - 1 : std::min(tried, count);
  }
  bool is_full(std::size_t place) const { return is_full_[place]; }
  void found_full(std::size_t place) { is_full_[place] = true; }

 private:
  std::size_t local_place() const {
    const CUcontext context = current_context(places_.driver_);
    if (context == nullptr) return 0;
    const int device = device_of(places_.driver_, context);
    const auto& devices = places_.devices_;
    const auto found = std::find(devices.begin(), devices.end(), device);
    if (found == devices.end()) return 0;
    const auto index = static_cast<std::size_t>(found - devices.begin());
    return index < places_.count() ? index : 0;
  }

  const PoolPlaces& places_;
  std::vector<bool> is_full_;
  std::size_t local_ = 0;
};

Result<std::shared_ptr<const PoolPlaces>> PoolPlaces::create(const Driver& driver,
                                                             const StoreOf& store_of,
                                                             const PlaceSettings& settings) {
  if (settings.devices.empty()) return Error::invalid(doing, "no device is named");
  auto devices = settings.devices;
  std::sort(devices.begin(), devices.end());
  if (std::adjacent_find(devices.begin(), devices.end()) != devices.end()) {
    return Error::invalid(doing, "a device is named twice");
  }
  const std::shared_ptr<PoolPlaces> places{new PoolPlaces{driver, settings}};
  for (const int device : settings.devices) {
    // Even if only host memory is used: asking for the store initializes the driver and detects
    // whether the device supports mapping.
    TRY(store_of(Location::device(device)));
    places->access_ = places->access_.with(device);
    if (settings.host != HostUse::Only) TRY(places->add(Location::device(device), store_of));
  }
  places->striped_ = places->places_.size();
  TRY(places->check_devices());
  if (settings.host != HostUse::Never) {
    TRY(places->check_host());
    TRY(places->add(Location::host(settings.host_node), store_of));
  }
  TRY(places->choose_granule(settings.granule));
  return std::shared_ptr<const PoolPlaces>{places};
}

Result<void> PoolPlaces::add(Location location, const StoreOf& store_of) {
  ChunkStore* const store = TRY(store_of(location));
  least_granule_ = std::max(least_granule_, TRY(granularity_of(driver_, location)));
  places_.push_back({location, store});
  return {};
}

Result<void> PoolPlaces::choose_granule(Size wanted) {
  const Size least = std::max(least_granule_, smallest_granule);
  granule_ = wanted != 0 ? wanted : least;
  const auto refuse = [&](const char* why) {
    return Error{.kind = ErrorKind::InvalidGranule,
                 .doing = doing,
                 .subject = why,
                 .asked = granule_,
                 .available = least_granule_};
  };
  if (!is_power_of_two(granule_)) return refuse("it is not a power of two");
  if (granule_ < smallest_granule) return refuse("it is smaller than 64 KiB");
  if (!is_multiple(granule_, least_granule_)) return refuse("it is not a multiple of the driver's");
  return {};
}

Result<void> PoolPlaces::check_devices() const {
  if (places_.empty()) return {};
  for (const int by : devices_) {
    for (const int of : devices_) {
      if (by == of) continue;
      int can = 0;
      TRY(driver_.check(driver_.cuDeviceCanAccessPeer(&can, by, of), doing));
      if (can == 0) return not_supported("a device has no path to another's memory");
    }
  }
  return {};
}

Result<void> PoolPlaces::check_host() const {
  for (const int device : devices_) {
    constexpr auto maps_host = CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    if (device_attribute_or(0, driver_, maps_host, device) == 0)
      return not_supported("a device cannot map the host's memory");
  }
  return {};
}

std::size_t PoolPlaces::index_of(Location location) const {
  std::size_t index = 0;
  while (index < places_.size() && !(places_[index].location == location)) ++index;
  return index;
}

Result<std::vector<ChunkRef>> PoolPlaces::take(const std::vector<Size>& granules) const {
  Undo release{[this, before = kept_bytes()] { release_beyond(before); }};
  std::vector<ChunkRef> taken;  // destroyed before `release` runs
  taken.reserve(granules.size());
  Order order{*this};
  Error refusal;
  for (const Size granule : granules) {
    for (std::size_t tried = 0;; ++tried) {
      const std::size_t place = order.at(granule, tried);
      if (place == count()) {
        refusal.subject = "the pool's devices are full, or at VMM_LIMIT";
        refusal.asked = granules.size() * granule_;
        refusal.available = taken.size() * granule_;
        return refusal;
      }
      if (order.is_full(place)) continue;
      const Location where = places_[place].location;
      auto chunk = places_[place].store->take(
          {granule_, where, where.is_device() ? exportable_ : Export::No});
      if (chunk.ok()) {
        taken.push_back(std::move(*chunk));
        break;
      }
      if (chunk.error().kind != ErrorKind::OutOfMemory) return chunk.error();
      refusal = chunk.error();
      order.found_full(place);
    }
  }
  release.keep();
  return taken;
}

std::vector<Size> PoolPlaces::kept_bytes() const {
  std::vector<Size> kept;
  kept.reserve(count());
  for (const PlaceStore& place : places_) {
    kept.push_back(place.store->counters(place.location).physical_free);
  }
  return kept;
}

void PoolPlaces::release_beyond(const std::vector<Size>& before) const {
  for (std::size_t i = 0; i < count(); ++i) places_[i].store->trim(places_[i].location, before[i]);
}

Size PoolPlaces::trim() const {
  Size released = 0;
  for (const PlaceStore& place : places_) released += place.store->trim(place.location, 0);
  return released;
}

Size PoolPlaces::cached_bytes() const {
  Size bytes = 0;
  for (const PlaceStore& place : places_) {
    const ChunkCounters counters = place.store->counters(place.location);
    bytes += counters.physical_free + counters.physical_unreleased;
  }
  return bytes;
}

}  // namespace cuvmm
