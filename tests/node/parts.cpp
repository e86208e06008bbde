// SPDX-License-Identifier: Apache-2.0
// Requests that are granted in parts, while others give back the rest.
#include "policy_world.hpp"

namespace cuvmm::test {
namespace {

class Parts : public ::testing::Test {
 protected:
  Parts() { EXPECT_TRUE(world.lease(owner, 60)); }

  RequestId ask_in_parts(ClientId client, Size gib) {
    const RequestId request = 1000 + client;
    world.tell(LeaseRequested{client, request, card, gib * GiB, false, true});
    return request;
  }
  std::vector<Size> parts() const {
    std::vector<Size> sizes;
    for (const PartGranted& part : world.all<PartGranted>()) sizes.push_back(part.bytes / GiB);
    return sizes;
  }
  const ClientHolding& of_owner() const {
    return world.policy.books().find_client(owner)->at.at(card);
  }

  PolicyWorld world;
  const ClientId owner = world.come();
  const ClientId asker = world.come();
};

TEST_F(Parts, AreGrantedWhileTheRestIsOnItsWay) {
  world.report(owner, 0, 0, true);
  const RequestId request = ask_in_parts(asker, 80);
  const ReclaimRequested pause = world.request(owner);
  EXPECT_EQ(pause.bytes, 60 * GiB);
  EXPECT_EQ(parts(), std::vector<Size>{40}) << "what was free";
  world.give_back(owner, 30);
  EXPECT_EQ(parts(), (std::vector<Size>{40, 30}));
  EXPECT_FALSE(world.is_granted(request));
  world.answer(pause, ReclaimOutcome::Applied, 30);
  EXPECT_TRUE(world.is_granted(request));
  EXPECT_EQ(world.all<LeaseGranted>().back().bytes, 10 * GiB);
  EXPECT_EQ(world.leased(asker), 80 * GiB);
  EXPECT_EQ(world.leased(owner), 0u);
  EXPECT_FALSE(of_owner().refuses_to_pause) << "it gave everything, in two steps";
  EXPECT_TRUE(of_owner().is_away);
}

TEST_F(Parts, AreNotGrantedToARequestThatDoesNotTakeThem) {
  world.report(owner, 0, 0, true);
  world.ask(asker, 80);
  world.give_back(owner, 10);
  EXPECT_TRUE(parts().empty());
  EXPECT_EQ(world.leased(asker), 0u);
}

TEST_F(Parts, AreNotGrantedIfNothingIsOnItsWay) {
  world.report(owner, 0, 0, false);
  PolicyTimes times;
  ask_in_parts(asker, 80);
  EXPECT_TRUE(world.requests(owner).empty() || world.has_turn(asker));
  if (!world.has_turn(asker)) {
    EXPECT_TRUE(parts().empty());
  }
}

TEST_F(Parts, AreNotGrantedAheadOfAnEarlierRequest) {
  world.report(owner, 0, 0, true);
  const RequestId first = world.ask(world.come(), 70);
  const RequestId behind = ask_in_parts(asker, 30);
  world.give_back(owner, 20);
  EXPECT_TRUE(parts().empty()) << "60 GiB are free, and the first request waits for 70";
  EXPECT_FALSE(world.is_granted(first));
  EXPECT_FALSE(world.is_granted(behind));
}

TEST_F(Parts, AreWorthTheTrouble) {
  world.report(owner, 0, 0, true);
  ask_in_parts(asker, 80);
  world.tell(LeaseReturned{owner, card, 100 * MiB});
  EXPECT_EQ(parts(), std::vector<Size>{40});
  world.tell(LeaseReturned{owner, card, 156 * MiB});
  EXPECT_EQ(parts().size(), 2u) << "a quarter of a GiB";
}

TEST_F(Parts, StayWithAClientThatNoLongerWaits) {
  world.report(owner, 0, 0, true);
  const RequestId request = ask_in_parts(asker, 80);
  world.tell(RequestCancelled{asker, request});
  EXPECT_EQ(world.leased(asker), 40 * GiB);
  world.give_back(owner, 60);
  EXPECT_EQ(world.leased(asker), 40 * GiB);
}

TEST_F(Parts, APauseThatAnswersLateIsAwayIfItGaveSome) {
  world.report(owner, 0, 0, true);
  ask_in_parts(asker, 80);
  const ReclaimRequested pause = world.request(owner);
  world.give_back(owner, 60);
  world.after(pause.deadline - world.now());
  world.answer(pause, ReclaimOutcome::Applied, 0);
  EXPECT_TRUE(of_owner().is_away);
}

TEST_F(Parts, AreNotExpectedTwice) {
  world.report(owner, 0, 0, true);
  ask_in_parts(asker, 80);
  world.give_back(owner, 50);
  EXPECT_EQ(world.policy.open_reclaims().expected(card), 10 * GiB);
}

}  // namespace
}  // namespace cuvmm::test
