// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "vmm/access_set.hpp"
#include "vmm/chunk_store.hpp"

namespace cuvmm {

// The order in which a granule tries a pool's places. Full places are skipped.
enum class PoolPlacement : std::uint8_t {
  Pack,           // in the given order, for as few devices as possible
  Stripe,         // neighbouring granules on alternating devices
  LocalThenPeer,  // the device of the calling thread's context, then the others
};

// Whether granules may lie in host memory.
enum class HostUse : std::uint8_t { Never, Last, Only };

struct PlaceSettings {
  Size granule = 0;  // 0: the recommended one
  std::vector<int> devices = {0};
  PoolPlacement placement = PoolPlacement::Pack;
  HostUse host = HostUse::Never;
  int host_node = 0;
  Export exportable = Export::No;  // Yes: device memory can be lent to other processes
};

// Where the memory of pools comes from: devices and the host. All the devices can access all of it.
// Immutable, and shared by the pools over the same places.
class PoolPlaces {
 public:
  // The chunk store of a location; it lives as long as the process.
  using StoreOf = std::function<Result<ChunkStore*>(Location)>;

  // InvalidGranule; NotSupported if a device cannot access the memory of another device or of the
  // host.
  static Result<std::shared_ptr<const PoolPlaces>> create(const Driver& driver,
                                                          const StoreOf& store_of,
                                                          const PlaceSettings& settings);

  const Driver& driver() const { return driver_; }
  Size granule() const { return granule_; }
  // The access set of everything mapped in these pools.
  AccessSet access() const { return access_; }
  // The device whose context runs copies.
  int home_device() const { return devices_.front(); }

  std::size_t count() const { return places_.size(); }
  Location location(std::size_t index) const { return places_[index].location; }
  std::size_t index_of(Location location) const;
  ChunkStore& store(std::size_t index) const { return *places_[index].store; }

  // A chunk for each granule, in their order: all or none; on failure, chunks created on the way
  // are released. The Error says in `asked` how many bytes were wanted, and in `available` how many
  // could be had.
  Result<std::vector<ChunkRef>> take(const std::vector<Size>& granules) const;

  // For calls that fail after taking chunks: once those are free again, returns what is cached
  // beyond `before` (kept_bytes()) to the driver.
  std::vector<Size> kept_bytes() const;
  void release_beyond(const std::vector<Size>& before) const;

  // Returns the free chunks of every place to the driver. Returns the number of bytes.
  Size trim() const;
  // The size of the free chunks cached at all places.
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
  std::vector<PlaceStore> places_;  // devices in the given order, then the host
  std::size_t striped_ = 0;         // the first `striped_` places take turns
  Size granule_ = 0;
  Size least_granule_ = 0;  // the driver's minimum
  AccessSet access_;
};

}  // namespace cuvmm
