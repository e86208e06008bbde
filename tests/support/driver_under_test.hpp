// SPDX-License-Identifier: Apache-2.0
// The driver that a test program runs against: the simulated one, or the machine's own with
// CUVMM_TEST_DRIVER=libcuda.so.1.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cuvmm/sim.h"
#include "driver/driver.hpp"

namespace cuvmm::test {

// Loaded at the first call. Aborts with one line if it cannot be loaded.
const Driver& driver();
const std::string& driver_path();

// The simulated driver's own functions; nullptr on a card.
struct SimControls {
  decltype(&cuvmm_sim_set_kernel) set_kernel;
  decltype(&cuvmm_sim_set_faults) set_faults;
  decltype(&cuvmm_sim_read_counters) read_counters;
  decltype(&cuvmm_sim_read_card) read_card;
  decltype(&cuvmm_sim_calls) calls;
  decltype(&cuvmm_sim_modelled_microseconds) modelled_microseconds;
  decltype(&cuvmm_sim_leaks) leaks;
};
const SimControls* sim();
// All addresses that are reserved now, in the simulated driver.
Size reserved_addresses();
inline bool simulated() {
  return sim() != nullptr;
}

// What dlsym finds in the driver's library: the door for linked programs.
void* driver_symbol(const char* name);

CUdevice device(int ordinal = 0);
int device_count();
int attribute(CUdevice_attribute which, int ordinal = 0);

// "CUDA_ERROR_INVALID_VALUE (1)"
std::string name_of(CUresult answer);

// A step that a test depends on. If it fails the test cannot continue, so it throws; GoogleTest
// reports that as the test's failure, after unwinding. Only tests do so.
void given(CUresult answer, const char* what);
#define GIVEN(expression) ::cuvmm::test::given(expression, #expression)

::testing::AssertionResult succeeds(const char* expression, CUresult answer);
::testing::AssertionResult answers(const char* expected_text, const char* expression,
                                   CUresult expected, CUresult answer);
#define EXPECT_CUDA(expression) EXPECT_PRED_FORMAT1(::cuvmm::test::succeeds, expression)
#define ASSERT_CUDA(expression) ASSERT_PRED_FORMAT1(::cuvmm::test::succeeds, expression)
#define EXPECT_ANSWER(expected, expression) \
  EXPECT_PRED_FORMAT2(::cuvmm::test::answers, expected, expression)
#define ASSERT_ANSWER(expected, expression) \
  ASSERT_PRED_FORMAT2(::cuvmm::test::answers, expected, expression)

#define NEEDS_DEVICES(count)                                                                       \
  if (::cuvmm::test::device_count() < (count)) {                                                   \
    GTEST_SKIP() << "needs " << (count) << " devices, here are " << ::cuvmm::test::device_count(); \
  }
// Whether cuvmm stands in front of the driver and serves memory, so that the scenarios are those of
// a program under it. What they query about the driver's own memory then says nothing.
bool served();
#define NEEDS_THE_DRIVERS_OWN_MEMORY() \
  if (::cuvmm::test::served()) GTEST_SKIP() << "asks what the driver's own memory alone can tell"
#define NEEDS_SIMULATED_DRIVER() \
  if (!::cuvmm::test::simulated()) GTEST_SKIP() << "asks the simulated driver's own interface"
#define NEEDS_ATTRIBUTE(which) \
  if (::cuvmm::test::attribute(which) == 0) GTEST_SKIP() << "the device has no " #which
#define NEEDS_HOST_CHUNKS() \
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
#define NEEDS_CALL(call)                                   \
  if (!::cuvmm::test::driver().has(::cuvmm::Call::call)) { \
    GTEST_SKIP() << "this driver has no " #call;           \
  }

// Waits for all work of the current context.
CUresult synchronize();

// Retains a device's primary context and makes it current until the end of the scope.
class PrimaryContext {
 public:
  explicit PrimaryContext(int ordinal = 0);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  CUcontext get() const { return context_; }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

// A context of its own beside the primary one. The driver makes it current on creation; leave()
// pops it. Destroyed at the end of the scope unless destroy() was called.
class OwnContext {
 public:
  explicit OwnContext(int ordinal = 0);
  ~OwnContext();
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;
  CUcontext get() const { return context_; }
  void leave();
  CUresult destroy();

 private:
  CUcontext context_ = nullptr;
};

class Kernels;

// A scenario over the driver, with device 0's primary context current. Afterwards the context must
// be free of errors, and the simulated driver must hold nothing that it did not hold before.
class DriverContract : public ::testing::Test {
 public:
  DriverContract();
  ~DriverContract() override;

 protected:
  void SetUp() override;
  void TearDown() override;

  // The test kernels in the primary context, loaded on first use.
  const Kernels& kernels();
  CUcontext primary() const { return context_->get(); }

 private:
  std::unique_ptr<PrimaryContext> context_;
  std::unique_ptr<Kernels> kernels_;
  uint64_t held_before_ = 0;
};

}  // namespace cuvmm::test
