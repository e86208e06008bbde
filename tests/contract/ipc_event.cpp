// SPDX-License-Identifier: Apache-2.0
// Events shared between two processes.
#include "support/child.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

class IpcEvent : public DriverContract {};

class GivenEvent {
 public:
  explicit GivenEvent(unsigned flags) { GIVEN(driver().cuEventCreate(&event_, flags)); }
  ~GivenEvent() { EXPECT_CUDA(driver().cuEventDestroy(event_)); }
  GivenEvent(const GivenEvent&) = delete;
  GivenEvent& operator=(const GivenEvent&) = delete;
  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

constexpr unsigned shared = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;

CHILD_ROLE(watches_an_event) {
  PrimaryContext context;
  CUevent event = nullptr;
  ASSERT_CUDA(driver().cuIpcOpenEventHandle(&event, link.receive<CUipcEventHandle>()));
  EXPECT_ANSWER(CUDA_ERROR_NOT_READY, driver().cuEventQuery(event));
  link.signal();           // the parent may end its work
  link.wait_for_signal();  // and has ended it
  EXPECT_CUDA(driver().cuEventSynchronize(event));
  EXPECT_CUDA(driver().cuEventQuery(event));
  EXPECT_CUDA(driver().cuEventDestroy(event));
}

TEST_F(IpcEvent, IsPendingInAnotherProcessUntilItsWorkIsDone) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  GivenEvent event{shared};
  GivenStream stream;
  CUipcEventHandle handle{};
  GIVEN(driver().cuIpcGetEventHandle(&handle, event.get()));
  Child child{"watches_an_event"};
  {
    SlowWork work{kernels(), stream};
    GIVEN(driver().cuEventRecord(event.get(), stream));
    child.link().send(handle);
    child.link().wait_for_signal();
  }
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(IpcEvent, HasNoHandleUnlessItWasMadeForIt) {
  GivenEvent event{CU_EVENT_DISABLE_TIMING};
  CUipcEventHandle handle{};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuIpcGetEventHandle(&handle, event.get()));
}

TEST_F(IpcEvent, CannotMeasureTime) {
  CUevent event = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuEventCreate(&event, CU_EVENT_INTERPROCESS));
}

}  // namespace
}  // namespace cuvmm::test
