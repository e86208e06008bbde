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
    sees_everything = true;
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
                                         [] { return sees_everything; }},
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
  // A plain pointer reaches it, so there is one for all tests.
  inline static bool sees_everything = true;
  Captures captures{[] { return sees_everything; }};
  Gate gate;
  SubmissionEpoch submission_epoch;
  std::optional<StreamClock> clock;

 private:
  std::optional<Memory> memory_;
};

}  // namespace cuvmm::test
