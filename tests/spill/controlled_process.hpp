// SPDX-License-Identifier: Apache-2.0
// A process whose memory is controlled through its socket, as the engine's is.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "engine/control.hpp"
#include "engine/control_service.hpp"
#include "served_memory.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {

using share::ControlOutcome;
using share::ControlRequest;
using share::ControlWhat;

inline share::Deadline soon() {
  return share::Deadline::after(Duration{60'000'000});
}

inline bool comes_to_pass(const std::function<bool()>& what) {
  const auto until = soon();
  while (!what()) {
    if (until.is_over()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

class ControlTest : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
      GTEST_SKIP() << "the device cannot map memory of the host";
    }
    folder_ = std::filesystem::temp_directory_path() / ("cuvmm-test-" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);  // of a process with this number that has died
    std::filesystem::create_directories(folder_);
    ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(folder_);
    DriverContract::TearDown();
  }
  std::filesystem::path folder_;
};

// Never destroyed, like a process's engine, since its thread goes on. The memory that it serves can
// end once nobody asks the thread for anything.
struct ControlledProcess : ServedMemory {
  explicit ControlledProcess(const Driver& driver) : ServedMemory(driver, {}), chunks(driver) {
    control.emplace(
        ProgramParts{.driver = driver, .memory = *memory, .calls = calls, .chunks = &chunks},
        ending_contexts, SizeLimit::none(), Duration{0});
  }
  void end() {
    control->shut_down();
    clock->table().drop_events();
    end_memory();
  }
  void end_memory() {
    memory.reset();
    clock.reset();
  }
  // Returns the address of 4 MiB with contents.
  CUdeviceptr given_block() {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory->allocate(&address, 4 * MiB), Answer{CUDA_SUCCESS});
    fill_pattern(address, 4 * MiB, 3);
    submission_epoch.leave();
    return address;
  }
  ProgramChunks chunks;
  EndingContexts ending_contexts;
  std::optional<Control> control;
};

inline ControlRequest request(ControlWhat what) {
  ControlRequest words;
  words.what = what;
  words.timeout_us = 30'000'000;
  return words;
}

}  // namespace cuvmm::test
