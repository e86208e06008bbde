// SPDX-License-Identifier: Apache-2.0
// Copies, and nothing else, can reach blocking memory of another device.
#include "alloc_memory_world.hpp"
#include "driver/current_context.hpp"

namespace cuvmm::test {
namespace {

constexpr Size held_bytes = 8 * MiB;

class MemoryReach : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    NEEDS_DEVICES(2);
    here_ = given(held_bytes);
    there_.emplace(1);
    given(held_bytes);
  }
  void TearDown() override {
    if (there_) {
      there_.reset();
      GIVEN(driver().cuCtxSetCurrent(primary()));
    }
    MemoryTest::TearDown();
  }
  AllocationFacts facts() { return memory().find(here_).value(); }
  bool device_1_has_access() const {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {1}};
    unsigned long long flags = 0;
    GIVEN(driver().cuMemGetAccess(&flags, &location, here_));
    return flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }

  CUdeviceptr here_ = 0;
  std::optional<PrimaryContext> there_;
};

TEST_F(MemoryReach, IsGrantedOnceADeviceCopies) {
  EXPECT_FALSE(device_1_has_access());
  memory().contexts().let_reach(facts(), AccessSet::of(0).with(1));
  EXPECT_TRUE(device_1_has_access());
  EXPECT_FALSE(memory().contexts().may_use(facts())) << "copies alone may";
  faulty.forget_calls();
  memory().contexts().let_reach(facts(), AccessSet::of(1));
  EXPECT_EQ(faulty.count_of("cuMemSetAccess"), 0U) << "it has it";
}

TEST_F(MemoryTest, AContextWithoutMemoryOfItsOwnMayNameAnothers) {
  EXPECT_FALSE(memory().contexts().has_several());
  given(held_bytes);
  memory().contexts().began(primary());
  EXPECT_FALSE(memory().contexts().has_several());
  const auto other = reinterpret_cast<CUcontext>(0x1000);
  memory().contexts().began(other);
  EXPECT_TRUE(memory().contexts().has_several());
  memory().contexts().ended(other);
}

TEST_F(MemoryReach, OutlivesPeerAccessThatTheProgramEnds) {
  memory().contexts().let_reach(facts(), AccessSet::of(1));
  const CUcontext by = there_->get();
  ASSERT_TRUE(memory().contexts().peer_access_begins(by, primary()).ok());
  EXPECT_TRUE(memory().contexts().may_use(facts()));
  memory().contexts().peer_access_ends(by, primary());
  EXPECT_FALSE(memory().contexts().may_use(facts()));
  EXPECT_TRUE(device_1_has_access());
}

// A captured copy is made whenever its graph is launched.
TEST_F(MemoryReach, OutlivesPeerAccessThatWasEnabledBeforeTheCopy) {
  const CUcontext by = there_->get();
  ASSERT_TRUE(memory().contexts().peer_access_begins(by, primary()).ok());
  memory().contexts().let_reach(facts(), AccessSet::of(1));
  memory().contexts().peer_access_ends(by, primary());
  EXPECT_FALSE(memory().contexts().may_use(facts()));
  EXPECT_TRUE(device_1_has_access());
}

TEST_F(MemoryReach, IsUndoneIfTheDriverRefusesPeerAccess) {
  const CUcontext by = there_->get();
  ASSERT_TRUE(memory().contexts().peer_access_begins(by, primary()).ok());
  ASSERT_TRUE(memory().contexts().peer_access_begins(by, primary()).ok());
  memory().contexts().peer_access_never_began(by, primary());
  EXPECT_TRUE(device_1_has_access()) << "it was enabled before";
  memory().contexts().peer_access_never_began(by, primary());
  EXPECT_FALSE(device_1_has_access());
}

TEST_F(MemoryReach, LaterAllocationsAreReachedToo) {
  memory().contexts().let_reach(facts(), AccessSet::of(1));
  GIVEN(driver().cuCtxPushCurrent(primary()));
  here_ = given(held_bytes);
  CUcontext popped = nullptr;
  GIVEN(driver().cuCtxPopCurrent(&popped));
  EXPECT_TRUE(device_1_has_access());
}

TEST_F(MemoryReach, ARefusedGrantIsTriedAgain) {
  faulty.fail_call(Call::cuMemSetAccess, 1, CUDA_ERROR_UNKNOWN);
  memory().contexts().let_reach(facts(), AccessSet::of(1));
  EXPECT_EQ(faulty.faults(), 1U);
  EXPECT_FALSE(device_1_has_access());
  faulty.stop_failing();
  memory().contexts().let_reach(facts(), AccessSet::of(1));
  EXPECT_TRUE(device_1_has_access());
  EXPECT_EQ(memory().violation(), std::nullopt);
}

}  // namespace
}  // namespace cuvmm::test
