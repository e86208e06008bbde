// SPDX-License-Identifier: Apache-2.0
// What a client and its service agree about its devices, while the client is paused.
#include "daemon/leased_world.hpp"

namespace cuvmm::test {
namespace {

using node::PresenceNow;
using node::PresenceStep;

class PausedClients : public ::testing::Test {
 protected:
  PausedClients() {
    world.begin();
    EXPECT_FALSE(world.service.hear<node::PresenceReport>().is_paused);
  }
  // The service has paused a client that holds 64 MiB.
  void pause() {
    EXPECT_TRUE(world.commit(64 * MiB, [&] { world.service.grant_next(); }));
    world.tenant.held = 64 * MiB;
    world.tenant.comes_back = 64 * MiB;
    world.service.say(
        node::ReclaimDemand{3, a_device, node::ReclaimStep::Pause, 64 * MiB, 20'000'000});
    EXPECT_EQ(world.service.hear<node::ReclaimAnswer>().outcome, node::ReclaimOutcome::Applied);
    const auto report = world.service.hear<node::PresenceReport>();
    EXPECT_TRUE(report.is_paused);
    EXPECT_FALSE(report.has_held_calls);
    EXPECT_FALSE(report.is_off_devices);
  }
  node::PresenceAnswer demand(PresenceStep step, const node::ContextSizes& contexts = {}) {
    world.service.say(node::PresenceDemand{++last_, step, contexts});
    const auto answer = world.service.hear<node::PresenceAnswer>();
    EXPECT_EQ(answer.number, last_);
    return answer;
  }
  void leave() {
    EXPECT_EQ(demand(PresenceStep::Leave).now, PresenceNow::Leaving);
    EXPECT_EQ(demand(PresenceStep::HasLeft, {510, 0, 7}).now, PresenceNow::OffDevices);
  }

  LeasedWorld world;
  std::uint32_t last_ = 0;
};

TEST_F(PausedClients, LeaveTheirDevicesOnlyInAPause) {
  EXPECT_EQ(demand(PresenceStep::Look).now, PresenceNow::OnDevices);
  const auto refused = demand(PresenceStep::Leave);
  EXPECT_FALSE(refused.is_done);
  EXPECT_EQ(refused.why_not, "it is not paused");
  pause();
  EXPECT_TRUE(demand(PresenceStep::Leave).is_done);
}

// So the service's last report is never older than a helper's end.
TEST_F(PausedClients, ReportBeforeTheyAnswer) {
  pause();
  world.service.say(node::PresenceDemand{++last_, PresenceStep::Leave, {510}});
  const auto report = world.service.hear<node::PresenceReport>();
  EXPECT_TRUE(report.is_off_devices);
  EXPECT_EQ(world.service.hear<node::PresenceAnswer>().now, PresenceNow::Leaving);
}

TEST_F(PausedClients, AskForTheirMemoryOnceTheyAreBackOnTheirDevices) {
  pause();
  leave();
  world.tenant.held_calls = true;
  node::PresenceReport report;
  while (!report.has_held_calls) report = world.service.hear<node::PresenceReport>();
  EXPECT_TRUE(report.is_off_devices);
  EXPECT_EQ(report.contexts.at(0), 510u);
  EXPECT_EQ(report.contexts.at(2), 7u);
  ::usleep(100'000);
  EXPECT_TRUE(world.tenant.is_paused());
  EXPECT_EQ(demand(PresenceStep::HasReturned).now, PresenceNow::OnDevices);
  // No request came before the answer.
  EXPECT_EQ(world.service.hear<node::LeaseAsk>().bytes, 64 * MiB);
  world.service.say(node::LeaseGrant{2});
  EXPECT_TRUE(comes_true([&] { return world.tenant.resumes.load() == 1; }));
  while (report.is_paused) report = world.service.hear<node::PresenceReport>();
  EXPECT_FALSE(report.is_off_devices);
}

TEST_F(PausedClients, TellTheNextServiceThatTheyAreOffTheirDevices) {
  pause();
  leave();
  world.service.hang_up();
  world.service.accept();
  world.service.greet();
  const auto report = world.service.hear<node::PresenceReport>();
  EXPECT_TRUE(report.is_paused);
  EXPECT_TRUE(report.is_off_devices);
  EXPECT_EQ(report.contexts.at(0), 510u);
}

// A demand of the service that has gone is not for the next one to answer.
TEST_F(PausedClients, AnswerOnlyTheServiceThatAsked) {
  pause();
  world.service.say(node::PresenceDemand{77, PresenceStep::Leave, {}});
  world.service.hang_up();
  world.service.accept();
  world.service.greet();
  EXPECT_EQ(demand(PresenceStep::Look).number, last_);
}

}  // namespace
}  // namespace cuvmm::test
