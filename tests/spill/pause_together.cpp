// SPDX-License-Identifier: Apache-2.0
// A process's part in a pause of several: it moves nothing before it is told to.
#include <poll.h>

#include <chrono>
#include <optional>
#include <thread>

#include "controlled_process.hpp"
#include "share/packet.hpp"

namespace cuvmm::test {
namespace {

// Has asked this process to pause together with others.
class Sender {
 public:
  Sender() {
    auto opened = share::ControlConnection::open(::getpid(), soon());
    EXPECT_TRUE(opened.ok()) << opened.error().text();
    connection_.emplace(std::move(*opened));
    ControlRequest words = request(ControlWhat::Pause);
    words.flags = share::control_flag::together;
    send(words);
  }
  void say(GroupStep step) {
    ControlRequest words = request(ControlWhat::Step);
    words.step = static_cast<std::uint32_t>(step);
    send(words);
  }
  ControlOutcome hear() {
    for (;;) {
      const auto said = connection_->receive();
      EXPECT_TRUE(said.ok()) << said.error().text();
      if (!said.ok()) return ControlOutcome::Refused;
      if (*said) return (**said).outcome;
      EXPECT_TRUE(share::wait_for(connection_->socket(), POLLIN, soon(), "hear").ok());
    }
  }
  void go() { connection_.reset(); }

 private:
  void send(const ControlRequest& words) { EXPECT_TRUE(connection_->send(words, soon()).ok()); }

  std::optional<share::ControlConnection> connection_;
};

class PauseTogether : public ControlTest {
 protected:
  void SetUp() override {
    ControlTest::SetUp();
    serve_commands(*process_.control);
  }
  void TearDown() override {
    EXPECT_TRUE(comes_to_pass([&] { return process_.control->ready_bytes() == 0; }));
    process_.end();
    ControlTest::TearDown();
  }
  bool calls_run() {
    return comes_to_pass([&] { return !process_.calls.is_shut(); });
  }

  ControlledProcess& process_ = *new ControlledProcess{driver()};
};

TEST_F(PauseTogether, MovesNothingBeforeAllHoldTheirCalls) {
  const CUdeviceptr address = process_.given_block();
  Sender sender;
  EXPECT_EQ(sender.hear(), ControlOutcome::EndedWork);
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  EXPECT_TRUE(process_.calls.is_shut());
  EXPECT_FALSE(process_.control->is_paused());
  sender.say(GroupStep::Move);
  EXPECT_EQ(sender.hear(), ControlOutcome::Done);
  EXPECT_TRUE(process_.control->is_paused());
  EXPECT_TRUE(process_.control->is_paused_by_command());
  ASSERT_TRUE(process_.control->resume(Partly::No).ok());
  EXPECT_EQ(process_.memory->free(address), Answer{CUDA_SUCCESS});
}

TEST_F(PauseTogether, RunsOnWhileAnothersKernelSpinsForIt) {
  Sender sender;
  EXPECT_EQ(sender.hear(), ControlOutcome::EndedWork);
  sender.say(GroupStep::Run);
  EXPECT_TRUE(calls_run());
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  EXPECT_FALSE(process_.calls.is_shut());
  sender.say(GroupStep::Hold);
  EXPECT_EQ(sender.hear(), ControlOutcome::EndedWork);
  EXPECT_TRUE(process_.calls.is_shut());
  sender.say(GroupStep::Move);
  EXPECT_EQ(sender.hear(), ControlOutcome::Done);
  ASSERT_TRUE(process_.control->resume(Partly::No).ok());
}

TEST_F(PauseTogether, SaysThatItsWorkGoesOn) {
  EndlessWork work{driver(), process_};
  Sender sender;
  EXPECT_EQ(sender.hear(), ControlOutcome::Works);
  EXPECT_TRUE(process_.calls.is_shut());
  work.let_end(driver());
  EXPECT_EQ(sender.hear(), ControlOutcome::EndedWork);
  sender.say(GroupStep::Move);
  EXPECT_EQ(sender.hear(), ControlOutcome::Done);
  ASSERT_TRUE(process_.control->resume(Partly::No).ok());
  work.end(driver());
}

TEST_F(PauseTogether, EndsWithItsSender) {
  Sender sender;
  EXPECT_EQ(sender.hear(), ControlOutcome::EndedWork);
  sender.go();
  EXPECT_TRUE(calls_run());
  EXPECT_FALSE(process_.control->is_paused());
}

TEST_F(PauseTogether, EndsWithItsSenderWhileItsCallsRun) {
  Sender sender;
  EXPECT_EQ(sender.hear(), ControlOutcome::EndedWork);
  sender.say(GroupStep::Run);
  EXPECT_TRUE(calls_run());
  sender.go();
  std::optional<Sender> another{std::in_place};
  ControlOutcome said = another->hear();
  // Refused at most once: the process may have looked for the first sender just before it went.
  if (said == ControlOutcome::Refused) said = another.emplace().hear();
  EXPECT_EQ(said, ControlOutcome::EndedWork);
  another->say(GroupStep::Over);
  EXPECT_EQ(another->hear(), ControlOutcome::Refused);
  EXPECT_FALSE(process_.calls.is_shut());
}

TEST_F(PauseTogether, IsCancelledByAResume) {
  Sender sender;
  EXPECT_EQ(sender.hear(), ControlOutcome::EndedWork);
  const auto resumed = share::tell(::getpid(), request(ControlWhat::Resume), soon());
  ASSERT_TRUE(resumed.ok()) << resumed.error().text();
  EXPECT_EQ(resumed->outcome, ControlOutcome::Done);
  EXPECT_EQ(sender.hear(), ControlOutcome::Refused);
  EXPECT_FALSE(process_.calls.is_shut());
}

}  // namespace
}  // namespace cuvmm::test
