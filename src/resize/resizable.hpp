// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "alloc/device_memory.hpp"
#include "vmm/map_plan.hpp"

namespace cuvmm {

// A buffer with addresses for all that it may ever need, and memory behind as much as it has. It
// grows and shrinks where it lies, and nothing is ever copied.
class Resizable final : private ReclaimClient {
 public:
  // When memory that it no longer has may be taken from behind its addresses. None: once all work
  // of the current context is done, which is waited for. A stream: once that has come so far, which
  // is not.
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

  // All or nothing. What it grows by can be used by work that is submitted from now on.
  Result<void> resize(Size size, const After& after);

  // Whether some memory waits for a stream to come so far. Looks.
  bool is_waiting();

 private:
  // Beyond so many bytes nothing is needed any more once the event has happened.
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
  Result<void> shrink_now(Size size);
  Result<void> shrink_after(Size size, CUstream stream);

  // Under the lock.
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
  std::vector<Shrink> shrinks_;  // in the order in which they were asked for

  ReclaimRegistration registration_;  // ends first
};

}  // namespace cuvmm
