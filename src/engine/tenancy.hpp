// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "alloc/device_memory.hpp"
#include "base/options.hpp"
#include "lease/leases.hpp"

namespace cuvmm {

class Engine;

// Makes the engine's program a tenant of the node service (src/lease), with the engine's memory and
// pauses. Once the process is exiting, leaves them alone, except for a resume.
class Tenancy final : private lease::Tenant {
 public:
  // nullptr if the options disable it or there is no service.
  static std::unique_ptr<Tenancy> of(Engine& engine, const Options& options);

  Lessor& lessor() { return leases_; }
  void shares(const node::ShareKey& key) { leases_.shares(key); }
  // For the end of the process. Waits up to one second for the operation in progress.
  void shut_down();

 private:
  Tenancy(Engine& engine, lease::LeaseSettings settings);

  Size cached(const LeasedBudget& budget) override;
  void free_cache(LeasedBudget& budget, Size wanted) override;
  Size cold(const LeasedBudget& budget) override;
  void move_out_cold(LeasedBudget& budget, Size wanted, Duration within) override;
  bool is_idle() override;
  Result<void> pause(Duration within, const share::Fellows& fellows,
                     const std::function<void()>& has_released) override;
  Result<void> resume(Come how) override;
  void return_ahead() override;
  void leave_again() override;
  bool is_paused() const override;
  bool is_paused_by_command() const override;
  bool has_held_calls() const override;
  bool is_off_devices() const override;
  share::ControlAnswer agree(const share::ControlRequest& request) override;
  void wait_outside(const std::function<void()>& wait) override;

  DeviceMemory* device_with(const LeasedBudget& budget) const;
  const char* why_stays_on_devices() const;

  Engine& engine_;
  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;
  std::atomic<bool> stays_out_{false};
  std::uint64_t last_passes_ = 0;
  lease::Leases leases_;
};

}  // namespace cuvmm
