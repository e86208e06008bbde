// SPDX-License-Identifier: Apache-2.0
// The calls that wait while a process is paused, and the socket by which it is told.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "engine/control.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

using share::ControlOutcome;
using share::ControlRequest;
using share::ControlWhat;

share::Deadline soon() {
  return share::Deadline::after(Duration{20'000'000});
}

class ControlTest : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
      GTEST_SKIP() << "the device cannot map memory of the host";
    }
    folder_ = std::filesystem::temp_directory_path() / ("cuvmm-test-" + std::to_string(::getpid()));
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

// As the process' engine has it: never destroyed, since the thread goes on. What it serves can end,
// when nobody asks the thread for anything any more.
struct Process {
  explicit Process(const Driver& driver) {
    clock.emplace(driver, captures);
    memory.emplace(
        Memory::Surroundings{driver, *clock, captures, gate, work_note, [] { return true; }},
        MemorySettings{});
    control.emplace(Pauser::Surroundings{.driver = driver, .memory = *memory, .calls = calls},
                    SizeLimit::none(), Duration{0});
  }
  void end_memory() {
    memory.reset();
    clock.reset();
  }
  Captures captures;
  Gate gate;
  WorkNote work_note;
  Threshold calls{Threshold::Of::Calls};
  std::optional<StreamClock> clock;
  std::optional<Memory> memory;
  std::optional<Control> control;
};

ControlRequest request(ControlWhat what) {
  ControlRequest words;
  words.what = what;
  words.timeout_us = 5'000'000;
  return words;
}

TEST_F(ControlTest, PausesAndResumesByTheSocket) {
  auto& process = *new Process{driver()};
  process.control->start();
  CUdeviceptr address = 0;
  ASSERT_EQ(process.memory->allocate(&address, 4 * MiB), Answer{CUDA_SUCCESS});
  fill_pattern(address, 4 * MiB, 3);
  process.work_note.leave();

  const auto paused = share::tell(::getpid(), request(ControlWhat::Pause), soon());
  ASSERT_TRUE(paused.ok()) << paused.error().text();
  EXPECT_EQ(paused->outcome, ControlOutcome::Done) << paused->text.data();
  EXPECT_EQ(paused->moved, 4 * MiB);
  EXPECT_EQ(paused->is_paused, 1u);

  std::atomic<bool> passed{false};
  std::thread caller{[&] {
    const Threshold::Pass call{process.calls};
    passed = true;
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  EXPECT_FALSE(passed);

  const auto resumed = share::tell(::getpid(), request(ControlWhat::Resume), soon());
  caller.join();
  ASSERT_TRUE(resumed.ok()) << resumed.error().text();
  EXPECT_EQ(resumed->outcome, ControlOutcome::Done) << resumed->text.data();
  EXPECT_EQ(resumed->moved, 4 * MiB);
  EXPECT_EQ(resumed->is_paused, 0u);
  EXPECT_TRUE(passed);
  expect_pattern(address, 4 * MiB, 3);
  EXPECT_EQ(process.memory->free(address), Answer{CUDA_SUCCESS});

  EXPECT_EQ(share::controlled_processes(), std::vector<pid_t>{::getpid()});
  // Nobody needs what was pinned any more.
  for (int tries = 0; tries < 200 && process.control->ready_bytes() != 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
  EXPECT_EQ(process.control->ready_bytes(), 0u);
  // Without the token nobody is let in.
  std::filesystem::resize_file(folder_ / "cuvmm" / ("token-" + std::to_string(::getpid())), 0);
  EXPECT_FALSE(share::tell(::getpid(), request(ControlWhat::State), soon()).ok());
  process.control->stay_out();
  process.clock->table().drop_events();
  process.end_memory();
}

TEST_F(ControlTest, WithoutASocketNobodyCanBeTold) {
  const auto told = share::tell(1, request(ControlWhat::State), soon());
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.error().kind, ErrorKind::NotFound);
}

}  // namespace
}  // namespace cuvmm::test
