// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/host_memory.hpp"
#include "vmm/budget.hpp"

namespace cuvmm {

// Returns how much memory the host has available.
using HostMemoryReader = Size (*)();

inline Size read_available_host_memory() {
  return available_host_memory();
}

// A budget of host memory that also refuses more than the host has available: the kernel would
// grant it and then kill processes. Thread-safe.
class AvailableHostBudget final : public Budget {
 public:
  // `within`: nullptr for no other limit.
  explicit AvailableHostBudget(std::shared_ptr<Budget> within,
                               HostMemoryReader read = &read_available_host_memory)
      : within_(within != nullptr ? std::move(within) : std::make_shared<LocalBudget>()),
        read_(read) {}

  void note_native(Size size) override { within_->note_native(size); }
  void forget_native(Size size) override { within_->forget_native(size); }
  Size native_bytes() const override { return within_->native_bytes(); }
  Size available() const override;
  Size excess() const override { return within_->excess(); }

 private:
  bool grant(Size size) override;
  void take_back(Size size) override { take_back_of(*within_, size); }
  Size left() const;

  const std::shared_ptr<Budget> within_;
  const HostMemoryReader read_;
  // The host's figure costs several files to read, so it is kept for a moment. What is granted
  // meanwhile counts as taken.
  mutable std::atomic<std::uint64_t> read_at_{0};
  mutable std::atomic<Size> left_{0};
};

}  // namespace cuvmm
