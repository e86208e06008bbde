// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "alloc/device_memory.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm {

// A buffer with addresses for its maximum size and memory for its current size. It grows and
// shrinks in place, and nothing is ever copied.
class Resizable final : private ReclaimClient {
 public:
  // When memory beyond a smaller size may be unmapped. nullopt: after a wait for all work of the
  // current context. A stream: once the stream has reached this point, without waiting for it.
  using After = std::optional<CUstream>;

  static Result<std::unique_ptr<Resizable>> create(const Driver& driver, DeviceMemory& device,
                                                   Size most);
  ~Resizable();
  Resizable(const Resizable&) = delete;
  Resizable& operator=(const Resizable&) = delete;

  CUdeviceptr address() const { return addresses_.address(); }
  Size most() const { return most_; }
  Size size() const;
  Size physical_bytes() const;

  // All or nothing. Work submitted from now on can use the bytes that are added.
  Result<void> resize(Size size, const After& after);

  // Whether some memory still waits for a stream. First unmaps what streams have passed.
  bool is_waiting();

 private:
  // Once the event has completed, nothing beyond the first `keep` bytes is needed.
  struct Shrink {
    Size keep;
    CUcontext context;
    CUevent event;
  };

  Resizable(const Driver& driver, DeviceMemory& device, Size most, Reservation addresses);

  Size whole(Size size) const { return round_up(size, device_.granule()); }
  Result<void> grow(Size size);
  Result<std::vector<ChunkRef>> take(Size bytes);
  Error refusal(Error error, Size wanted) const;
  Result<void> wait_for_work() const;
  Result<void> shrink_now(Size size);
  Result<void> shrink_after(Size size, CUstream stream);

  // Under the lock.
  void set_size(Size size);
  Size mapped_end() const;
  Result<void> release_mapping_beyond(Size keep);
  Size settle();
  Size reclaim(Size wanted, Location where) override;

  const Driver& driver_;
  DeviceMemory& device_;
  const Size most_;
  const Reservation addresses_;

  mutable Lock lock_{LockOrder::Resizable};  // guards what follows
  Mapping mapping_;
  Size size_ = 0;
  RequestedBytes requested_;
  std::vector<Shrink> shrinks_;  // in the order of the requests

  ReclaimRegistration registration_;  // ends first
};

}  // namespace cuvmm
