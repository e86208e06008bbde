// SPDX-License-Identifier: Apache-2.0
// Before a destroying call returns, the driver may already reuse the handle. So cuvmm must have
// forgotten the handle by then.
#include <gtest/gtest.h>

#include "hook/driver_behind.hpp"

namespace cuvmm::test {
namespace {

const CUevent event = reinterpret_cast<CUevent>(0x1000);
const CUcontext context = reinterpret_cast<CUcontext>(0x2000);
const CUcontext of_the_next = reinterpret_cast<CUcontext>(0x3000);

Scheduler& scheduler() {
  return engine_over_silent_driver().scheduling().ready_parts().scheduler;
}

std::string symbol_of(const testing::TestParamInfo<Call>& row) {
  return info(row.param).symbol;
}

class EndedEvent : public testing::TestWithParam<Call> {};

TEST_P(EndedEvent, IsForgottenBeforeItsHandleIsReused) {
  scheduler().event_began(event, context);
  let_driver_do(GetParam(), [] {
    EXPECT_EQ(scheduler().context_of(event), nullptr);
    scheduler().event_began(event, of_the_next);  // meanwhile another thread creates one
  });
  void* const door = hook::all_doors()[static_cast<std::size_t>(GetParam())].legacy;
  reinterpret_cast<CUresult (*)(CUevent)>(door)(event);
  EXPECT_EQ(scheduler().context_of(event), of_the_next);
}

INSTANTIATE_TEST_SUITE_P(By, EndedEvent,
                         testing::Values(Call::cuEventDestroy, Call::cuEventDestroy_v2), symbol_of);

}  // namespace
}  // namespace cuvmm::test
