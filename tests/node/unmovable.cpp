// SPDX-License-Identifier: Apache-2.0
// Memory that a pause cannot move, as that which another process uses.
#include "policy_world.hpp"

namespace cuvmm::test {
namespace {

// A pause of the lender, which holds 60 GiB of a card of 100, yields all but 10.
class UnmovableMemory : public ::testing::Test {
 protected:
  UnmovableMemory() { EXPECT_TRUE(world.lease(lender, 60)); }

  // The lender gives way to a guarantee, and then gets its memory back. It is busy all the time, so
  // it has nothing to report.
  void pause_once() {
    ask_within_guarantee();
    world.answer(world.request(lender), ReclaimOutcome::Applied, 50);
    world.give_back(guaranteed, 90);
    ASSERT_TRUE(world.lease(lender, 50));
  }
  RequestId ask_within_guarantee() { return world.ask(guaranteed, 90); }

  PolicyWorld world;
  const ClientId lender = world.come(terms(0, 0, "lenders"));
  const ClientId guaranteed = world.come(terms(90));
};

TEST_F(UnmovableMemory, DoesNotKeepTheRestFromAGuarantee) {
  pause_once();
  const RequestId asked = ask_within_guarantee();
  EXPECT_EQ(world.request(lender).bytes, 50 * GiB) << "only that can move";
  world.apply(world.request(lender));
  EXPECT_TRUE(world.is_granted(asked));
}

// By then, new terms guaranteed what it kept.
TEST_F(UnmovableMemory, IsNotWhatNewTermsHadGuaranteed) {
  ask_within_guarantee();
  const ReclaimRequested pause = world.request(lender);
  world.tell(TermsChanged{lender, terms(10, 0, "lenders")});
  world.answer(pause, ReclaimOutcome::Applied, 50);
  world.give_back(guaranteed, 90);
  ASSERT_TRUE(world.lease(lender, 50));
  world.tell(TermsChanged{lender, terms(0, 0, "lenders")});
  ask_within_guarantee();
  EXPECT_EQ(world.request(lender).bytes, 60 * GiB);
}

TEST_F(UnmovableMemory, DoesNotKeepTheRestFromATurn) {
  pause_once();
  world.after(PolicyTimes{}.stays);
  const ClientId other = world.come();
  const RequestId asked = world.ask(other, 80);
  ASSERT_TRUE(world.has_turn(other));
  world.apply(world.request(lender));
  EXPECT_TRUE(world.is_granted(asked));
}

TEST_F(UnmovableMemory, OfOneMemberDoesNotKeepItsGroupFromAPause) {
  const ClientId member = world.come(terms(0, 0, "lenders"));
  ASSERT_TRUE(world.lease(member, 20));
  ask_within_guarantee();
  world.answer(world.request(lender), ReclaimOutcome::Applied, 60);
  world.answer(world.request(member), ReclaimOutcome::Applied, 10);
  world.give_back(guaranteed, 90);
  ASSERT_TRUE(world.lease(lender, 60));
  const RequestId asked = ask_within_guarantee();
  EXPECT_EQ(world.request(lender).bytes, 60 * GiB);
  EXPECT_EQ(world.request(member).bytes, 0u) << "it pauses along with the group";
  world.apply(world.request(member));
  world.apply(world.request(lender));
  EXPECT_TRUE(world.is_granted(asked));
}

TEST_F(UnmovableMemory, IsNoReasonForAPause) {
  world.give_back(lender, 40);
  ask_within_guarantee();
  world.answer(world.request(lender), ReclaimOutcome::Applied);
  ask_within_guarantee();
  EXPECT_TRUE(world.requests(lender).empty());
}

TEST_F(UnmovableMemory, MayHaveBecomeMovableAfterAWhile) {
  pause_once();
  world.after(PolicyTimes{}.unmovable_for);
  ask_within_guarantee();
  EXPECT_EQ(world.request(lender).bytes, 60 * GiB);
}

TEST_F(UnmovableMemory, BecomesMovableAsFarAsTheClientReportsSo) {
  pause_once();
  world.report(lender, 56, 0, false);
  world.report(lender, 0, 0, false);
  ask_within_guarantee();
  EXPECT_EQ(world.request(lender).bytes, 56 * GiB);
}

TEST_F(UnmovableMemory, IsNotARefusalWhichKeepsAClientFromPausesUntilItReports) {
  ask_within_guarantee();
  world.answer(world.request(lender), ReclaimOutcome::Refused);
  world.after(PolicyTimes{}.unmovable_for);
  ask_within_guarantee();
  EXPECT_TRUE(world.requests(lender).empty());
  world.report(lender, 0, 0, false);
  ask_within_guarantee();
  EXPECT_EQ(world.request(lender).bytes, 60 * GiB);
}

}  // namespace
}  // namespace cuvmm::test
