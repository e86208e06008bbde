// SPDX-License-Identifier: Apache-2.0
// Memory as the hooks use it, over a driver that fails when told to.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "alloc/memory.hpp"
#include "support/driver_under_test.hpp"
#include "support/faulty_driver.hpp"
#include "support/unseen_program.hpp"

namespace cuvmm::test {

class MemoryTest : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    begin({});
  }
  void TearDown() override {
    end();
    DriverContract::TearDown();
  }

  void end() {
    memory_.reset();
    clock.reset();
  }
  void begin(const MemorySettings& settings) {
    end();
    clock.emplace(faulty.driver(), unseen_program(captures, gate));
    memory_.emplace(Memory::Dependencies{faulty.driver(), *clock, captures, gate, submission_epoch,
                                         [this] { return sees_everything; }},
                    settings);
  }
  Memory& memory() { return *memory_; }

  CUdeviceptr given(Size size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory().allocate(&address, size), Answer{CUDA_SUCCESS});
    return address;
  }
  CUdeviceptr given_ordered(Size size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory().allocate_ordered(&address, size, StreamName{}), Answer{CUDA_SUCCESS});
    return address;
  }

  FaultyDriver faulty{driver()};
  Captures captures;
  Gate gate;
  SubmissionEpoch submission_epoch;
  bool sees_everything = true;
  std::optional<StreamClock> clock;

 private:
  std::optional<Memory> memory_;
};

}  // namespace cuvmm::test
