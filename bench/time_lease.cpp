// SPDX-License-Identifier: Apache-2.0
// Measures what a launch costs in addition while processes share a device's time, over a driver
// whose functions do nothing: the check before it, and the bookkeeping after it. Goal for a launch
// that need not wait: at most 20 ns.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "engine/time_lease.hpp"
#include "lease/leases.hpp"
#include "lease/tenant.hpp"
#include "node/grant_board.hpp"
#include "trace/futex.hpp"

namespace cuvmm {
namespace {

using node::TimeGrant;

Driver idle_driver() {
  Driver driver{};
  driver.cuCtxGetDevice_v2000 = [](CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
  };
  driver.cuCtxGetCurrent = [](CUcontext* context) {
    static int some = 0;
    *context = reinterpret_cast<CUcontext>(&some);
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetUuid = [](CUuuid* uuid, CUdevice) {
    *uuid = {};
    uuid->bytes[0] = 1;
    return CUDA_SUCCESS;
  };
  driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  driver.cuEventCreate = [](CUevent* event, unsigned) {
    static int some = 0;
    *event = reinterpret_cast<CUevent>(&some);
    return CUDA_SUCCESS;
  };
  driver.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
  driver.cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };
  driver.cuEventElapsedTime_v2000 = [](float* milliseconds, CUevent, CUevent) {
    *milliseconds = 0.01F;
    return CUDA_SUCCESS;
  };
  driver.cuEventDestroy = [](CUevent) { return CUDA_SUCCESS; };
  return driver;
}

class NobodysMemory final : public lease::Tenant {
 public:
  Size cached(const LeasedBudget&) override { return 0; }
  void free_cache(LeasedBudget&, Size) override {}
  Size cold(const LeasedBudget&) override { return 0; }
  void move_out_cold(LeasedBudget&, Size, Duration) override {}
  bool is_idle() override { return false; }
  Result<void> pause(Duration, const share::Fellows&, const std::function<void()>&) override {
    return {};
  }
  Result<void> resume(Come) override { return {}; }
  void return_ahead() override {}
  void leave_again() override {}
  bool is_paused() const override { return false; }
  bool is_paused_by_command() const override { return false; }
  bool has_held_calls() const override { return false; }
  bool is_off_devices() const override { return false; }
  share::ControlAnswer agree(const share::ControlRequest&) override { return {}; }
  void wait_outside(const std::function<void()>& wait) override { wait(); }
};

// A process with a board, and its service. Never destroyed, since its thread goes on.
class Process {
 public:
  Process() : file_(::memfd_create("board", MFD_CLOEXEC)) {
    if (::ftruncate(file_.number(), sizeof(node::GrantBoard)) != 0 || !grants_.take(file_)) {
      ::perror("no memory for a board");
      std::exit(1);
    }
    grants_.board()->devices[0].device[0] = 1;
    lease.begin(leases_, grants_);
  }

  void decide(TimeGrant grant, std::uint32_t window_us) {
    node::GrantBoard& board = *grants_.board();
    board.beat_ns.store(now_ns());
    board.devices[0].window.store(window_us);
    board.devices[0].grant.store(node::grant_word(++decisions_, grant));
    board.changes.fetch_add(1);
    wake_all_shared(board.changes);
    while (lease.counts() != (grant != TimeGrant::Open)) ::usleep(100);
  }
  void launch() {
    watch_.before({Call::cuLaunchKernel, Effect::Submits});
    if (lease.counts()) lease.submitted(Call::cuLaunchKernel, StreamName{}, 1);
  }

 private:
  Fd file_;
  std::uint32_t decisions_ = 0;
  const Driver driver_ = idle_driver();
  NobodysMemory tenant_;
  lease::Leases leases_{lease::LeaseSettings{}, tenant_};
  lease::Grants grants_;
  Watch watch_;
  CallBarrier calls_{CallBarrier::Of::Calls};
  Captures captures_;
  LegacyBarrier legacy_;

 public:
  TimeLease lease{{driver_, watch_, calls_, captures_, legacy_}};
};

void launches(benchmark::State& state, TimeGrant grant, std::uint32_t window_us) {
  static auto* const process = new Process;
  process->decide(grant, window_us);
  unsigned launched = 0;
  for (auto _ : state) {
    process->launch();
    if (++launched % 64 == 0) process->lease.forget_ended_work();  // as if it had waited for it
  }
}

void nobody_competes(benchmark::State& state) {
  launches(state, TimeGrant::Open, 0);
}
BENCHMARK(nobody_competes);

void in_the_foreground(benchmark::State& state) {
  launches(state, TimeGrant::Held, 0);
}
BENCHMARK(in_the_foreground);

void with_a_share(benchmark::State& state) {
  launches(state, TimeGrant::Held, 1'000'000);
}
BENCHMARK(with_a_share);

}  // namespace
}  // namespace cuvmm

BENCHMARK_MAIN();
