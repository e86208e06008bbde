// SPDX-License-Identifier: Apache-2.0
// Every row with an effect, called with nothing but zeros while a capture is live: waiting
// subsystems are notified before the simulated driver refuses the call or performs it harmlessly.
#include <gtest/gtest.h>

#include "hook_sim/doors.hpp"
#include "support/zero_calls.hpp"

namespace cuvmm::test {
namespace {

class Listener final : public Watcher {
 public:
  Listener() { Engine::get()->watch().begin(*this, every_effect); }
  ~Listener() { Engine::get()->watch().end(*this); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  CUresult before(const CallSite& site) override {
    heard_ |= site.call == expected;
    return CUDA_SUCCESS;
  }
  bool has_heard() const { return heard_; }

  Call expected{};

 private:
  bool heard_ = false;
};

std::vector<Call> rows_with_an_effect() {
  std::vector<Call> rows;
  for (std::size_t i = 0; i < call_count; ++i) {
    if (all_calls()[i].effect != Effect::Neutral) rows.push_back(static_cast<Call>(i));
  }
  return rows;
}

std::string name_of_row(const ::testing::TestParamInfo<Call>& row) {
  return info(row.param).symbol;
}

class RowOverTheSimulatedDriver : public ::testing::TestWithParam<Call> {
 protected:
  void SetUp() override {
    open_driver();
    CUcontext context = nullptr;
    ASSERT_EQ(through_door<Call::cuInit>(0u), CUDA_SUCCESS);
    ASSERT_EQ(through_door<Call::cuDevicePrimaryCtxRetain>(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(through_door<Call::cuCtxSetCurrent>(context), CUDA_SUCCESS);
    ASSERT_EQ(through_door<Call::cuStreamCreate>(&stream_, unsigned{CU_STREAM_NON_BLOCKING}),
              CUDA_SUCCESS);
    ASSERT_EQ(through_door<Call::cuStreamBeginCapture_v2>(stream_, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
  }
  void TearDown() override {
    CUgraph graph = nullptr;
    through_door<Call::cuStreamEndCapture>(stream_, &graph);
    if (graph != nullptr) through_door<Call::cuGraphDestroy>(graph);
    through_door<Call::cuStreamDestroy_v2>(stream_);
    through_door<Call::cuDevicePrimaryCtxReset_v2>(0);
  }
  CUstream stream_ = nullptr;
};

TEST_P(RowOverTheSimulatedDriver, IsAnnouncedWhileACaptureIsLive) {
  Listener listener;
  listener.expected = GetParam();
  zero_calls[static_cast<std::size_t>(GetParam())](look_up(info(GetParam()).symbol));
  EXPECT_TRUE(listener.has_heard());
}

INSTANTIATE_TEST_SUITE_P(All, RowOverTheSimulatedDriver, ::testing::ValuesIn(rows_with_an_effect()),
                         name_of_row);

}  // namespace
}  // namespace cuvmm::test
