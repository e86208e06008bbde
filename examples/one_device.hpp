// SPDX-License-Identifier: Apache-2.0
// A kernel that keeps a whole device busy for a given time: PTX on a card; on the simulated driver,
// a host function that has the one device to itself while it runs.
#pragma once

#include <sys/prctl.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "cuvmm/sim.h"

namespace one_device {

inline const char* const ptx = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry keep_busy(.param .u64 nanoseconds, .param .u32 urgent)
{
  .reg .pred %done;
  .reg .b64 %end, %now, %length;
  ld.param.u64 %length, [nanoseconds];
  mov.u64 %end, %globaltimer;
  add.u64 %end, %end, %length;
again:
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %done, %now, %end;
  @%done bra again;
  ret;
}
)";

inline void sleep_ns(std::uint64_t ns) {
  const timespec time{static_cast<time_t>(ns / 1'000'000'000),
                      static_cast<long>(ns % 1'000'000'000)};
  ::nanosleep(&time, nullptr);
}

// First come, first served, but urgent waiters go before others, just as a card prefers streams of
// a higher priority.
class Device {
 public:
  void use(std::uint64_t ns, bool urgent) {
    if (urgent) ++urgent_waiting_;
    const std::uint64_t mine = urgent ? 0 : next_.fetch_add(1);
    while (!take(mine, urgent)) sleep_ns(2'000);
    if (urgent) --urgent_waiting_;
    sleep_ns(ns);
    if (!urgent) served_.fetch_add(1);
    busy_.store(false);
  }

 private:
  bool take(std::uint64_t mine, bool urgent) {
    if (!urgent && (urgent_waiting_.load() != 0 || served_.load() != mine)) return false;
    bool idle = false;
    return busy_.compare_exchange_strong(idle, true);
  }

  std::atomic<bool> busy_{false};
  std::atomic<int> urgent_waiting_{0};
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> served_{0};
};

}  // namespace one_device

CUVMM_SIM_KERNEL(keep_busy) {
  static one_device::Device device;
  static thread_local const int precise = ::prctl(PR_SET_TIMERSLACK, 1'000UL);  // short sleeps
  static_cast<void>(precise);
  std::uint64_t nanoseconds = 0;
  std::uint32_t urgent = 0;
  std::memcpy(&nanoseconds, launch->parameters[0], sizeof nanoseconds);
  std::memcpy(&urgent, launch->parameters[1], sizeof urgent);
  device.use(nanoseconds, urgent != 0);
}
