// SPDX-License-Identifier: Apache-2.0
// Which requests are granted, and which are refused.
#include "policy_world.hpp"

namespace cuvmm::test {
namespace {

TEST(Leases, FreeMemoryIsGrantedAtOnce) {
  PolicyWorld world;
  const ClientId client = world.come();
  EXPECT_TRUE(world.lease(client, 100));
  EXPECT_EQ(world.leased(client), 100 * GiB);
  EXPECT_EQ(world.policy.books().free(card), 0u);
}

TEST(Leases, ReturnedMemoryIsFree) {
  PolicyWorld world;
  const ClientId client = world.come();
  ASSERT_TRUE(world.lease(client, 100));
  world.give_back(client, 30);
  EXPECT_EQ(world.policy.books().free(card), 30 * GiB);
  world.give_back(client, 1000);  // more than it has leased
  EXPECT_EQ(world.policy.books().free(card), 100 * GiB);
  EXPECT_EQ(world.leased(client), 0u);
}

TEST(Leases, BeyondTheLimitIsRefusedAtOnce) {
  PolicyWorld world;
  ClientTerms limited;
  limited.shares[card].limit = 10 * GiB;
  const ClientId client = world.come(limited);
  EXPECT_TRUE(world.lease(client, 10));
  const RequestId more = world.ask(client, 1);
  ASSERT_NE(world.refusal(more), nullptr);
  EXPECT_EQ(world.refusal(more)->why, RefusalReason::BeyondLimit);
  EXPECT_TRUE(world.lease(client, 1, other_card));
}

TEST(Leases, AnImpossibleRequestIsRefusedAndNamesTheHolders) {
  PolicyWorld world;
  const ClientId guaranteed = world.come(terms(60));
  ASSERT_TRUE(world.lease(guaranteed, 60));
  world.tell(ForeignUseSeen{card, 10 * GiB});
  const ClientId client = world.come();
  const RequestId request = world.ask(client, 31);
  const LeaseRefused* refused = world.refusal(request);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->why, RefusalReason::BeyondCapacity);
  EXPECT_EQ(refused->free, 30 * GiB);
  EXPECT_EQ(refused->foreign, 10 * GiB);
  ASSERT_EQ(refused->holders.size(), 1u);
  EXPECT_EQ(refused->holders[0].client, guaranteed);
  EXPECT_EQ(refused->holders[0].leased, 60 * GiB);
  EXPECT_TRUE(world.lease(client, 30));
}

// A service that has just been started sees the memory of its predecessor's clients before they
// come.
TEST(Leases, WhatAClientHoldsWhenItComesIsNoLongerForeign) {
  PolicyWorld world;
  world.tell(ForeignUseSeen{card, 60 * GiB});
  const ClientId client = world.come(terms(), {{card, 50 * GiB}});
  EXPECT_TRUE(world.requests(client).empty());
  EXPECT_EQ(world.policy.books().find_place(card)->foreign, 10 * GiB);
  EXPECT_TRUE(world.lease(client, 40));

  const ClientTerms again = world.policy.books().find_client(client)->terms;
  world.tell(ClientCame{client, again, {{card, 90 * GiB}}});
  EXPECT_EQ(world.policy.books().find_place(card)->foreign, 10 * GiB);
  EXPECT_EQ(world.leased(client), 90 * GiB);
}

TEST(Leases, AnImmediateRequestReclaimsNothingAndDoesNotWait) {
  PolicyWorld world;
  const ClientId lender = world.come();
  ASSERT_TRUE(world.lease(lender, 80));
  world.report(lender, 80, 0, true);
  const ClientId client = world.come();
  world.tell(LeaseRequested{client, 71, card, 30 * GiB, true});
  ASSERT_NE(world.refusal(71), nullptr);
  EXPECT_EQ(world.refusal(71)->why, RefusalReason::NotAtOnce);
  EXPECT_EQ(world.refusal(71)->free, 20 * GiB);
  EXPECT_TRUE(world.requests(lender).empty());
  world.tell(LeaseRequested{client, 72, card, 20 * GiB, true});
  EXPECT_TRUE(world.is_granted(72));
}

TEST(Leases, ACancelledRequestIsNeverGranted) {
  PolicyWorld world;
  const ClientId holder = world.come();
  ASSERT_TRUE(world.lease(holder, 100));
  const ClientId client = world.come();
  const RequestId request = world.ask(client, 30);
  EXPECT_EQ(world.policy.waited_for(client, card), 30 * GiB);
  world.tell(RequestCancelled{holder, request});  // another client's request
  EXPECT_EQ(world.policy.waited_for(client, card), 30 * GiB);
  world.tell(RequestCancelled{client, request});
  EXPECT_EQ(world.policy.waiting_requests(), 0u);
  world.give_back(holder, 100);
  EXPECT_FALSE(world.is_granted(request));
  EXPECT_EQ(world.leased(client), 0u);
}

TEST(Leases, APauseHasTimeForTheMemoryThatItMoves) {
  PolicyTimes times;
  times.moved_per_second = 10 * GiB;
  PolicyWorld world{times};
  const ClientId lender = world.come();
  ASSERT_TRUE(world.lease(lender, 100));
  const ClientId owner = world.come(terms(50));
  world.ask(owner, 50);
  const ReclaimRequested pause = world.request(lender);
  EXPECT_EQ(pause.step, ReclaimStep::Pause);
  EXPECT_EQ(pause.asker, owner);
  EXPECT_EQ(pause.deadline, world.now() + std::min(times.reclaim_within + 10 * second,
                                                   times.guarantee_within + 5 * second));
}

TEST(Leases, AMissingPlaceIsRefused) {
  PolicyWorld world;
  const RequestId request = world.ask(world.come(), 1, 77);
  ASSERT_NE(world.refusal(request), nullptr);
  EXPECT_EQ(world.refusal(request)->why, RefusalReason::UnknownPlace);
}

TEST(Leases, AFloodOfRequestsIsRefused) {
  PolicyWorld world;
  const ClientId holder = world.come();
  ASSERT_TRUE(world.lease(holder, 100));
  world.report(holder, 100, 0, false);
  const ClientId client = world.come();
  for (std::size_t i = 0; i < NodePolicy::most_waiting_of_a_client; ++i) {
    EXPECT_EQ(world.refusal(world.ask(client, 1)), nullptr);
  }
  const RequestId one_more = world.ask(client, 1);
  ASSERT_NE(world.refusal(one_more), nullptr);
  EXPECT_EQ(world.refusal(one_more)->why, RefusalReason::TooMany);
}

TEST(Leases, ALeavingClientReturnsEverything) {
  PolicyWorld world;
  const ClientId client = world.come(terms(50));
  ASSERT_TRUE(world.lease(client, 80));
  ASSERT_TRUE(world.lease(client, 8, host));
  world.tell(ClientLeft{client});
  EXPECT_EQ(world.policy.books().free(card), 100 * GiB);
  EXPECT_EQ(world.policy.books().free(host), 200 * GiB);
  EXPECT_EQ(world.policy.books().guaranteed(card), 0u);
}

TEST(Leases, AReturningClientKeepsItsHoldings) {
  PolicyWorld world;
  const ClientId client = world.come(terms(), {{card, 70 * GiB}, {77, GiB}});
  EXPECT_EQ(world.leased(client), 70 * GiB);
  EXPECT_EQ(world.policy.books().free(card), 30 * GiB);
}

TEST(Leases, AWaitingRequestIsServedBeforeALaterOne) {
  PolicyWorld world;
  const ClientId holder = world.come();
  ASSERT_TRUE(world.lease(holder, 90));
  world.report(holder, 90, 0, false);
  const ClientId first = world.come();
  const ClientId second_one = world.come();
  const RequestId large = world.ask(first, 30);
  const RequestId small = world.ask(second_one, 5);
  EXPECT_FALSE(world.is_granted(small)) << "10 GiB are free, and kept for the first";
  world.apply(world.request(holder));
  EXPECT_TRUE(world.is_granted(large));
}

TEST(Leases, ARequestWithinAGuaranteeGoesBeforeAWaitingOne) {
  PolicyWorld world;
  const ClientId owner = world.come(terms(10));
  const ClientId holder = world.come();
  ASSERT_TRUE(world.lease(holder, 90));
  world.report(holder, 90, 0, false);
  const RequestId waiting = world.ask(world.come(), 30);
  ASSERT_FALSE(world.is_granted(waiting));
  EXPECT_TRUE(world.lease(owner, 10)) << "10 GiB are free";
}

TEST(HostMemory, IsNeverMoreThanConfiguredAndNeverReclaimed) {
  PolicyWorld world;
  const ClientId client = world.come();
  EXPECT_TRUE(world.lease(client, 200, host));
  const RequestId more = world.ask(world.come(), 1, host);
  ASSERT_NE(world.refusal(more), nullptr);
  EXPECT_EQ(world.refusal(more)->why, RefusalReason::BeyondCapacity);
  EXPECT_TRUE(world.all<ReclaimRequested>().empty());
}

TEST(HostMemory, GuaranteedMemoryIsKeptFree) {
  PolicyWorld world;
  ClientTerms sure;
  sure.shares[host].guarantee = 150 * GiB;
  const ClientId client = world.come(sure);
  const ClientId other = world.come();
  EXPECT_FALSE(world.lease(other, 51, host));
  EXPECT_TRUE(world.lease(other, 50, host));
  EXPECT_TRUE(world.lease(client, 150, host));
}

TEST(HostMemory, CannotBeGuaranteedOnceOthersHaveIt) {
  PolicyWorld world;
  ASSERT_TRUE(world.lease(world.come(), 100, host));
  ClientTerms sure;
  sure.shares[host].guarantee = 101 * GiB;
  world.come(sure);
  ASSERT_EQ(world.all<TermsRefused>().size(), 1u);
  EXPECT_EQ(world.all<TermsRefused>()[0].guaranteed, 201 * GiB);
}

TEST(Guarantees, ThatDoNotFitTogetherAreRefusedWithTheSum) {
  PolicyWorld world;
  world.come(terms(60));
  const ClientId second_one = world.come(terms(41));
  const auto refused = world.all<TermsRefused>();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].client, second_one);
  EXPECT_EQ(refused[0].guaranteed, 101 * GiB);
  EXPECT_EQ(refused[0].capacity, 100 * GiB);
  EXPECT_EQ(world.policy.books().find_client(second_one), nullptr);
}

TEST(Guarantees, CannotOverflow) {
  PolicyWorld world;
  world.come(terms(60));
  ClientTerms greedy;
  greedy.shares[card].guarantee = node::unlimited;
  world.come(greedy);
  ASSERT_EQ(world.all<TermsRefused>().size(), 1u);
  EXPECT_EQ(world.all<TermsRefused>()[0].guaranteed, node::unlimited);
}

TEST(Guarantees, ThatCannotBeHeldAreRefusedWhileTheClientRuns) {
  PolicyWorld world;
  world.come(terms(60));
  const ClientId client = world.come(terms(20));
  world.tell(TermsChanged{client, terms(41)});
  EXPECT_EQ(world.all<TermsRefused>().size(), 1u);
  EXPECT_EQ(world.policy.books().find_client(client)->guarantee(card), 20 * GiB);
  world.tell(TermsChanged{client, terms(40)});
  EXPECT_EQ(world.policy.books().find_client(client)->guarantee(card), 40 * GiB);
}

TEST(Guarantees, RefuseALowerCapacity) {
  PolicyWorld world;
  world.come(terms(60));
  world.tell(PlaceConfigured{card, PlaceKind::Device, 59 * GiB});
  ASSERT_EQ(world.all<CapacityRefused>().size(), 1u);
  EXPECT_EQ(world.policy.books().find_place(card)->capacity, 100 * GiB);
  world.tell(PlaceConfigured{card, PlaceKind::Device, 60 * GiB});
  EXPECT_EQ(world.policy.books().find_place(card)->capacity, 60 * GiB);
}

TEST(Guarantees, AreHonouredFromABusyBorrower) {
  PolicyWorld world;
  const ClientId owner = world.come(terms(10));
  const ClientId borrower = world.come(terms(0, 5));
  ASSERT_TRUE(world.lease(borrower, 100));
  const RequestId request = world.ask(owner, 10);
  const ReclaimRequested asked = world.request(borrower);
  EXPECT_EQ(asked.step, ReclaimStep::Pause);
  EXPECT_LE(asked.deadline, world.now() + PolicyTimes{}.reclaim_within);
  world.apply(asked);
  EXPECT_TRUE(world.is_granted(request));
}

TEST(Guarantees, DoNotTakeFromOtherGuarantees) {
  PolicyWorld world;
  const ClientId owner = world.come(terms(40));
  const ClientId other = world.come(terms(50));
  ASSERT_TRUE(world.lease(other, 100));
  const RequestId request = world.ask(owner, 40);
  EXPECT_EQ(world.request(other).bytes, 50 * GiB) << "all that it has borrowed";
  world.apply(world.request(other));
  EXPECT_TRUE(world.is_granted(request));
  EXPECT_EQ(world.leased(other), 50 * GiB);
}

TEST(Guarantees, AreDecidedByTheirDeadlineEvenIfABorrowerStalls) {
  PolicyWorld world;
  const ClientId owner = world.come(terms(10));
  const ClientId borrower = world.come();
  ASSERT_TRUE(world.lease(borrower, 100));
  const RequestId request = world.ask(owner, 10);
  ASSERT_FALSE(world.requests(borrower).empty());
  world.after(PolicyTimes{}.reclaim_within);
  ASSERT_NE(world.refusal(request), nullptr);
  EXPECT_EQ(world.refusal(request)->why, RefusalReason::NotReturned);
  EXPECT_EQ(world.refusal(request)->holders.at(0).client, borrower);
}

TEST(Limits, LoweredBelowTheLeaseMoveMemoryAndEndNoClient) {
  PolicyWorld world;
  const ClientId client = world.come();
  ASSERT_TRUE(world.lease(client, 50));
  world.report(client, 5, 20, false);
  ClientTerms lower;
  lower.shares[card].limit = 30 * GiB;
  world.tell(TermsChanged{client, lower});
  const ReclaimRequested asked = world.request(client);
  EXPECT_EQ(asked.step, ReclaimStep::Cold);
  EXPECT_EQ(asked.bytes, 20 * GiB);
  world.apply(asked);
  EXPECT_EQ(world.leased(client), 30 * GiB);
  EXPECT_TRUE(world.requests(client).empty());
}

TEST(Limits, LoweredBelowTheLeaseKeepNoPausedClientFromReturning) {
  PolicyWorld world;
  const ClientId owner = world.come(terms(60));
  const ClientId client = world.come();
  ASSERT_TRUE(world.lease(client, 80));
  ASSERT_TRUE(world.lease(owner, 20));
  ClientTerms lower;
  lower.shares[card].limit = 30 * GiB;
  world.tell(TermsChanged{client, lower});
  ASSERT_FALSE(world.is_granted(world.ask(owner, 40)));
  const ReclaimRequested pause = world.request(client);
  ASSERT_EQ(pause.step, ReclaimStep::Pause);
  world.give_back(client, 50);  // while it is being paused
  world.answer(pause, ReclaimOutcome::Applied, 30);
  ASSERT_EQ(world.leased(client), 0u);
  world.give_back(owner, 60);
  ASSERT_TRUE(world.lease(client, 10)) << "within the limit, by another thread";
  const RequestId returns = world.ask(client, 70);
  EXPECT_TRUE(world.is_granted(returns)) << "it had as much before";
  world.give_back(client, 10);
  const RequestId more = world.ask(client, 10);
  ASSERT_NE(world.refusal(more), nullptr) << "only the return exceeds the limit";
  EXPECT_EQ(world.refusal(more)->why, RefusalReason::BeyondLimit);
}

ClientTerms untrusted_terms(std::uint32_t user) {
  ClientTerms made;
  made.untrusted_user = user;
  return made;
}

TEST(UntrustedClients, ClaimNoMoreThanThereIsRoomFor) {
  PolicyWorld world;
  ASSERT_TRUE(world.lease(world.come(), 70));
  world.tell(ForeignUseSeen{card, 10 * GiB});
  const ClientId liar = world.come(untrusted_terms(7), {{card, unlimited}});
  EXPECT_EQ(world.leased(liar), 30 * GiB);
  EXPECT_EQ(world.policy.books().overcommitted(card), 0u);
  EXPECT_TRUE(world.all<ReclaimRequested>().empty()) << "a claim takes memory from nobody";
}

TEST(UntrustedClients, OfOneUserLeaveHostMemoryToOthers) {
  PolicyWorld world;
  world.tell(PlaceConfigured{host, PlaceKind::Host, 200 * GiB, 150 * GiB});
  const ClientId claims = world.come(untrusted_terms(7), {{host, unlimited}});
  EXPECT_EQ(world.leased(claims, host), 150 * GiB);
  world.give_back(claims, 50, host);
  const ClientId asks = world.come(untrusted_terms(7));
  EXPECT_TRUE(world.lease(asks, 50, host));
  const RequestId request = world.ask(asks, 1, host);
  ASSERT_NE(world.refusal(request), nullptr);
  EXPECT_EQ(world.refusal(request)->why, RefusalReason::BeyondLimit);
  EXPECT_TRUE(world.lease(world.come(untrusted_terms(8)), 25, host));
  EXPECT_TRUE(world.lease(world.come(), 25, host)) << "no user is bounded by another's leases";
}

TEST(ForeignUse, BeyondFreeMemoryIsCoveredByCachesAndIdleClients) {
  PolicyWorld world;
  const ClientId busy = world.come();
  const ClientId idle = world.come();
  ASSERT_TRUE(world.lease(busy, 50));
  ASSERT_TRUE(world.lease(idle, 50));
  world.report(busy, 10, 0, false);
  world.report(idle, 0, 0, true);
  world.tell(ForeignUseSeen{card, 8 * GiB});
  EXPECT_EQ(world.request(busy).step, ReclaimStep::Cache);
  world.apply(world.request(busy));
  EXPECT_TRUE(world.requests(idle).empty());
  world.tell(ForeignUseSeen{card, 20 * GiB});
  EXPECT_EQ(world.request(idle).step, ReclaimStep::Pause);
}

}  // namespace
}  // namespace cuvmm::test
