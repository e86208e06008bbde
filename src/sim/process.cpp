// SPDX-License-Identifier: Apache-2.0
#include "sim/process.hpp"

#include <pthread.h>

#include "sim/context.hpp"
#include "sim/guard.hpp"
#include "sim/settings.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {

Process::Process() = default;

Process& Process::get() {
  static auto* process = new Process;  // outlives every thread
  return *process;
}

CUresult Process::start() {
  const Holding holding{lock};
  if (started()) return CUDA_SUCCESS;
  const int count = settings().devices;
  if (count == 0) return CUDA_ERROR_NO_DEVICE;
  if (has_backing() && !Views::reserve(count)) {
    CUVMM_LOG(Error, "the addresses for device memory cannot be reserved");
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    devices_.push_back(std::make_unique<Device>(ordinal, round_down(settings().memory, 2 * MiB)));
  }
  Guard::install();
  pthread_atfork(nullptr, nullptr, [] { Process::get().forked_ = true; });
  started_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

Device* Process::device(int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return nullptr;
  return devices_[static_cast<std::size_t>(ordinal)].get();
}

}  // namespace cuvmm::sim
