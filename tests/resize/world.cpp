// SPDX-License-Identifier: Apache-2.0
#include "resize/world.hpp"

#include <cstdlib>
#include <cstring>

#include "support/memory.hpp"

namespace cuvmm::test {

bool promises() {
  const char* mode = std::getenv("VMM_RESIZE");
  return mode != nullptr && std::strcmp(mode, "elide") == 0;
}

void ResizeTest::SetUp() {
  open_driver();
  ASSERT_DONE(through_door<Call::cuInit>(0u));
  ASSERT_DONE(through_door<Call::cuDevicePrimaryCtxRetain>(&context_, 0));
  ASSERT_DONE(through_door<Call::cuCtxSetCurrent>(context_));
  kernels_ = std::make_unique<Kernels>();
  before_ = counters();
}

void ResizeTest::TearDown() {
  kernels_.reset();
  expect_true_books();
  EXPECT_DONE(through_door<Call::cuDevicePrimaryCtxReset_v2>(0));
}

void ResizeTest::expect_true_books() {
  const InvariantViolation violation = Engine::get()->serving()->memory.violation();
  EXPECT_FALSE(violation) << *violation;
}

std::string ResizeTest::why_run() const {
  std::string text;
  const ResizeCounters now = counters();
  for (std::size_t i = 0; i < now.run.size(); ++i) {
    if (now.run[i] == before_.run[i]) continue;
    text += std::string(words_of(static_cast<WhyRun>(i))) + ": " +
            std::to_string(now.run[i] - before_.run[i]) + "\n";
  }
  return text;
}

CUdeviceptr ResizeTest::given_block(Size size) {
  CUdeviceptr address = 0;
  GIVEN(through_door<Call::cuMemAlloc_v2>(&address, static_cast<size_t>(size)));
  return address;
}

void ResizeTest::fill(CUdeviceptr address, Size size, std::uint32_t seed) {
  const Size count = size / 4;
  const auto words = std::make_unique_for_overwrite<std::uint32_t[]>(count);
  fill_host_pattern(words.get(), size, seed);
  GIVEN(through_door<Call::cuMemcpyHtoD_v2>(address, static_cast<const void*>(words.get()),
                                            std::size_t{count * 4}));
}

void ResizeTest::expect_filled(CUdeviceptr address, Size size, std::uint32_t seed, Size from) {
  const Size count = size / 4;
  const auto words = std::make_unique_for_overwrite<std::uint32_t[]>(count);
  GIVEN(through_door<Call::cuMemcpyDtoH_v2>(static_cast<void*>(words.get()), address,
                                            std::size_t{count * 4}));
  ASSERT_TRUE(has_pattern(words.get(), size, seed, from));
}

CUdeviceptr ResizeTest::given_filled(Size size, std::uint32_t seed) {
  const CUdeviceptr address = given_block(size);
  fill(address, size, seed);
  return address;
}

CUdeviceptr ResizeTest::given_put_off(CUdeviceptr from, Size size, Size larger) {
  const CUdeviceptr to = given_block(larger);
  GIVEN(copy(to, from, size));
  EXPECT_TRUE(is_pending()) << why_run();
  return to;
}

}  // namespace cuvmm::test
