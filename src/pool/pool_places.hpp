// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "vmm/access_set.hpp"
#include "vmm/chunk_store.hpp"

namespace cuvmm {

// Which of a pool's places a granule is taken from first. A place that is full is passed over.
enum class PoolPlacement : std::uint8_t {
  Pack,           // as the places were given: as few devices as possible
  Stripe,         // neighbouring granules on devices in turn
  LocalThenPeer,  // the device of the calling thread's context, then the others
};

// Whether granules may lie in the host's memory.
enum class HostUse : std::uint8_t { Never, Last, Only };

struct PlaceSettings {
  Size granule = 0;  // 0: the recommended one
  std::vector<int> devices = {0};
  PoolPlacement placement = PoolPlacement::Pack;
  HostUse host = HostUse::Never;
  int host_node = 0;
  Export exportable = Export::No;  // Yes: memory of devices can be lent to other processes
};

// Where the memory of pools comes from: the devices, and the host. All devices named may use all of
// it. Immutable, and shared by the pools over the same places.
class PoolPlaces {
 public:
  // The store with a location's chunks, which lives as long as the process.
  using StoreOf = std::function<Result<ChunkStore*>(Location)>;

  // InvalidGranule; NotSupported where a device cannot reach another's memory or the host's.
  static Result<std::shared_ptr<const PoolPlaces>> create(const Driver& driver,
                                                          const StoreOf& store_of,
                                                          const PlaceSettings& settings);

  const Driver& driver() const { return driver_; }
  Size granule() const { return granule_; }
  // Of everything mapped in these pools.
  AccessSet access() const { return access_; }
  // Whose context copies are made in.
  int home_device() const { return devices_.front(); }

  std::size_t count() const { return places_.size(); }
  Location location(std::size_t index) const { return places_[index].location; }
  std::size_t index_of(Location location) const;
  const ChunkStore& store(std::size_t index) const { return *places_[index].store; }

  // A chunk for each granule, in their order: all or none, and then what was made on the way is
  // released. An Error says how many bytes were wanted in `asked`, and in `available` how many
  // could be had.
  Result<std::vector<ChunkRef>> take(const std::vector<Size>& granules) const;

  // For calls that fail after they have taken chunks: once these are free again, gives what is kept
  // beyond `before` (kept_bytes()) back to the driver.
  std::vector<Size> kept_bytes() const;
  void release_beyond(const std::vector<Size>& before) const;

  // Gives free chunks back to the driver, of every place. Returns how many bytes went.
  Size trim() const;
  // Free chunks of every place that are kept.
  Size cached_bytes() const;

 private:
  struct PlaceStore {
    Location location;
    ChunkStore* store;
  };
  class Order;

  PoolPlaces(const Driver& driver, const PlaceSettings& settings)
      : driver_(driver),
        devices_(settings.devices),
        placement_(settings.placement),
        exportable_(settings.exportable) {}

  Result<void> add(Location location, const StoreOf& store_of);
  Result<void> choose_granule(Size wanted);
  Result<void> check_devices() const;
  Result<void> check_host() const;

  const Driver& driver_;
  const std::vector<int> devices_;
  const PoolPlacement placement_;
  const Export exportable_;
  std::vector<PlaceStore> places_;  // devices in their order, then the host
  std::size_t striped_ = 0;         // the first so many take turns
  Size granule_ = 0;
  Size least_granule_ = 0;  // what the driver asks for
  AccessSet access_;
};

}  // namespace cuvmm
