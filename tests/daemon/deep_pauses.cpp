// SPDX-License-Identifier: Apache-2.0
// Paused programs that the service takes off their devices, and brings back.
#include <csignal>
#include <filesystem>

#include "base/clock.hpp"
#include "daemon/deep_pause_world.hpp"

namespace cuvmm::test {
namespace {

class ProgramsOffTheirDevices : public DeepPausesOfANode {
 public:
  // Prints what it is asked on a machine where the service runs.
  std::string run(const std::vector<std::string>& command) {
    static int count = 0;
    const std::string output = "said" + std::to_string(++count);
    RunningProgram asked{command, automatic(), file(output)};
    status_ = asked.wait();
    return read_file(output);
  }
  int status() const { return status_; }

 private:
  int status_ = 0;
};

// The arrays bypass cuvmm, as contexts do, and the service takes them for leased memory as long as
// their programs have leased more than they use.
TEST_F(ProgramsOffTheirDevices, AProgramGetsWhatItHasLeasedAlthoughTheDeviceIsFull) {
  start();
  ProgramOnDemand small{*this, "small", 32, {"VMM_NODE_WAIT=60s"}};
  ASSERT_TRUE(small.has_begun()) << small.said();
  small.tell("grow 2");  // leases 4 MiB
  ASSERT_TRUE(small.says("grew: 0")) << small.said();
  small.tell("work");  // idle, it would return the rest
  ASSERT_TRUE(small.says("works")) << small.said();
  ProgramOnDemand large{*this, "large", 190};
  EXPECT_TRUE(large.has_begun()) << large.said();
  EXPECT_TRUE(comes_true([&] { return is_idle("large"); }));
  EXPECT_EQ(look_at_device(socket()).leased, (36 + 190) * MiB);
  small.tell("grow 2");
  const auto answers = [&] {
    const std::string said = small.said();
    const std::size_t last = said.rfind("grew: ");
    return last == said.find("grew: ") ? std::string{} : said.substr(last, 7);
  };
  EXPECT_TRUE(comes_true([&] { return answers() == "grew: 0"; })) << small.said();
  small.expect_all_right();
  large.expect_all_right();
}

// Another program has the rest, and does not give way.
TEST_F(ProgramsOffTheirDevices, AnAllocationThatWaitsGetsWhatItsOwnProgramFrees) {
  start();
  ProgramOnDemand stopped{*this, "stopped", 100};
  ASSERT_TRUE(stopped.has_begun()) << stopped.said();
  ProgramOnDemand one{*this, "one", 2, {"VMM_NODE_WAIT=60s"}};
  ASSERT_TRUE(one.has_begun()) << one.said();
  stop(stopped.running());
  one.tell("grow 80");
  ASSERT_TRUE(one.says("grew: 0")) << one.said();
  one.tell("also 60");
  ::usleep(500'000);
  EXPECT_EQ(one.said().find("also"), std::string::npos) << one.said();
  const std::uint64_t began = now_us();
  one.tell("shrink");
  EXPECT_TRUE(one.says("also: 0")) << one.said();
  EXPECT_LT(now_us() - began, 20'000'000u);
  stopped.signal(SIGCONT);
  one.expect_all_right();
  stopped.expect_all_right();
}

TEST_F(ProgramsOffTheirDevices, AnIdleProgramLeavesAndAHeldCallBringsItBack) {
  start_with({});
  pause_a_program_deeply();
  EXPECT_TRUE(logs("idle is off its devices: 16.0 MiB of contexts and modules left"));
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).foreign == 0; }));
  give_back();
  program().tell("check");
  EXPECT_TRUE(program().says("right 1"));
  EXPECT_TRUE(logs("idle is back on its devices"));
  expect_all_right();
}

// The driver holds such a call, since no pause does.
TEST_F(ProgramsOffTheirDevices, ACallThatAPauseLetsThroughBringsTheProgramBack) {
  start_with({});
  pause_a_program_deeply();
  give_back();
  program().tell("look");
  EXPECT_TRUE(program().says("looked"));
  expect_all_right();
}

TEST_F(ProgramsOffTheirDevices, WithoutSuchASettingAProgramStaysPausedOnItsDevices) {
  start();
  pause_a_program();
  ::usleep(700'000);
  const auto seen = look_at_pause("idle");
  ASSERT_TRUE(seen.has_value());
  EXPECT_TRUE(seen->is_paused);
  EXPECT_EQ(seen->stay, node::DeviceStay::On);
  expect_all_right();
}

TEST_F(ProgramsOffTheirDevices, ARuleDecidesForTheClientsThatItFits) {
  write_file("c.toml",
             "deep_pause_after = \"200ms\"\n[[client]]\nname = \"idle\"\n"
             "deep_pause_after = \"off\"\n");
  start({"--config", file("c.toml")});
  pause_a_program();
  ::usleep(700'000);
  EXPECT_EQ(look_at_pause("idle")->stay, node::DeviceStay::On);
  write_file("c.toml", "[[client]]\nname = \"idle\"\ndeep_pause_after = \"200ms\"\n");
  service().signal(SIGHUP);
  EXPECT_TRUE(comes_to("idle", node::DeviceStay::Off));
  expect_all_right();
}

TEST_F(ProgramsOffTheirDevices, ProgramsThatEachNeedTheCardLeaveItToEachOther) {
  start_with({}, {"--deep-pause-after", "50ms"});
  ProgramOnDemand first{*this, "first", 192};
  ASSERT_TRUE(first.has_begun());
  ASSERT_TRUE(comes_true([&] { return is_idle("first"); }));
  ProgramOnDemand second{*this, "second", 192};
  ASSERT_TRUE(second.has_begun()) << second.said();
  for (int round = 1; round <= 3; ++round) {
    const std::string right = "right " + std::to_string(round) + "\n";
    EXPECT_TRUE(comes_to("first", node::DeviceStay::Off)) << "round " << round;
    first.tell("check");
    ASSERT_TRUE(first.says(right)) << first.said();
    EXPECT_TRUE(comes_to("second", node::DeviceStay::Off)) << "round " << round;
    second.tell("check");
    ASSERT_TRUE(second.says(right)) << second.said();
  }
  first.expect_all_right();
  second.expect_all_right();
}

// While the program is away the card is full, so its contexts have to be made room for, and its
// memory after them.
TEST_F(ProgramsOffTheirDevices, AProgramReturnsToAFullCardInItsTurn) {
  start_with({});
  ProgramOnDemand idle{*this, "idle", 160};
  ASSERT_TRUE(idle.has_begun());
  ASSERT_TRUE(comes_true([&] { return is_idle("idle"); }));
  RunningProgram busy{NodeService::program("busy", 200, 100), required(), file("busy")};
  ASSERT_TRUE(comes_to("idle", node::DeviceStay::Off));
  idle.tell("check");
  EXPECT_TRUE(idle.says("right 1")) << idle.said() << read_file("busy");
  idle.expect_all_right();
  EXPECT_EQ(busy.wait(), 0) << read_file("busy");
}

TEST_F(ProgramsOffTheirDevices, TheCommandLineShowsThatAProgramIsOffTheCard) {
  start_with({});
  pause_a_program_deeply();
  const std::string json = run({CUVMM_BIN "/cuvmm", "top", "--json"});
  EXPECT_NE(json.find("\"off_devices\": true"), std::string::npos) << json;
  EXPECT_NE(json.find("\"state\": \"off card\""), std::string::npos) << json;
  const std::string lines = run({CUVMM_BIN "/cuvmm", "top", "-1"});
  EXPECT_NE(lines.find(" off card "), std::string::npos) << lines;
  const std::string metrics = run({CUVMM_BIN "/cuvmm", "metrics"});
  for (const char* line :
       {"cuvmm_client_off_devices{client=\"idle\"} 1\n",
        "cuvmm_deep_pauses_total{client=\"idle\",phase=\"out\",outcome=\"done\"} 1\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << metrics;
  }
  expect_all_right();
}

TEST_F(ProgramsOffTheirDevices, TheServiceSaysWhoLeavesNoRoomForAReturn) {
  start_with({});
  pause_a_program_deeply();
  give_back();
  auto guaranteed = RawClient::at(*this, "guaranteed", 250 * MiB);
  ASSERT_TRUE(guaranteed.hear<node::Accepted>());
  program().tell("check");
  EXPECT_TRUE(logs("idle stays off its devices, and its calls wait: its contexts need 16.0 MiB"));
  EXPECT_TRUE(logs("guaranteed holds 0 B (250 MiB guaranteed)"));
  const std::string json = run({CUVMM_BIN "/cuvmm", "top", "--json"});
  EXPECT_NE(json.find("\"waits_for\": \"guaranteed\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"waited_for_bytes\": 16777216"), std::string::npos) << json;
  guaranteed.close();
  EXPECT_TRUE(program().says("right 1"));
  const std::string log = read_file("service.log");
  EXPECT_EQ(log.find("stays off its devices"), log.rfind("stays off its devices")) << log;
  expect_all_right();
}

// The service did not ask for this pause, so only the command ends it.
TEST_F(ProgramsOffTheirDevices, AProgramThatACommandHasPausedIsLeftAlone) {
  start_with({});
  ProgramOnDemand paused{*this, "paused", 32, {"VMM_CONTROL=on"}};
  ASSERT_TRUE(paused.has_begun());
  ASSERT_TRUE(comes_true([&] { return look_at("paused").has_value(); }));
  const std::string number = std::to_string(look_at("paused")->process);
  run({CUVMM_BIN "/cuvmm", "pause", number});
  ASSERT_EQ(status(), 0);
  ::usleep(700'000);
  EXPECT_EQ(look_at_pause("paused")->stay, node::DeviceStay::On);
  run({CUVMM_BIN "/cuvmm", "pause", "--deep", number});
  ASSERT_EQ(status(), 0);
  EXPECT_TRUE(comes_to("paused", node::DeviceStay::Off));
  paused.tell("check");
  ::usleep(700'000);
  EXPECT_EQ(paused.said().find("right"), std::string::npos) << "it waits for `cuvmm resume`";
  run({CUVMM_BIN "/cuvmm", "resume", number});
  EXPECT_EQ(status(), 0);
  EXPECT_TRUE(paused.says("right 1"));
  EXPECT_TRUE(comes_to("paused", node::DeviceStay::On));
  paused.expect_all_right();
}

TEST_F(ProgramsOffTheirDevices, TheCommandBringsBackAProgramThatTheServiceTookOff) {
  start_with({});
  pause_a_program_deeply();
  const std::string number = std::to_string(look_at("idle")->process);
  give_back();
  const std::string said = run({CUVMM_BIN "/cuvmm", "resume", number});
  EXPECT_EQ(status(), 0) << said;
  EXPECT_TRUE(comes_to("idle", node::DeviceStay::On));
  expect_all_right();
}

// It has no VMM_CONTROL: the socket for the command was opened when it left its devices.
TEST_F(ProgramsOffTheirDevices, WithoutAServiceTheCommandBringsAProgramBack) {
  start_with({});
  pause_a_program_deeply();
  const std::string number = std::to_string(look_at("idle")->process);
  kill_service();
  give_back();
  program().tell("look");
  EXPECT_TRUE(program().says("run `cuvmm resume " + number + "`"));
  EXPECT_EQ(program().said().find("looked"), std::string::npos);
  const std::string said = run({CUVMM_BIN "/cuvmm", "resume", number});
  EXPECT_EQ(status(), 0) << said;
  EXPECT_TRUE(program().says("looked"));
  program().expect_all_right();
}

TEST_F(ProgramsOffTheirDevices, TheNextServiceBringsAProgramBack) {
  start_with({});
  pause_a_program_deeply();
  kill_service();
  give_back();
  start();
  EXPECT_TRUE(comes_to("idle", node::DeviceStay::Off)) << "it says so";
  expect_all_right();
}

// Its helper acts as its user: root's would find neither its card nor its folder.
TEST_F(ProgramsOffTheirDevices, AProgramOfAnotherUserLeavesAndReturns) {
  constexpr const char* setpriv = "/usr/bin/setpriv";
  const struct Leftovers {
    ~Leftovers() {
      std::error_code none;
      for (const char* folder : {"/tmp/cuvmm-54399", "/dev/shm/cuvmm-54399"}) {
        std::filesystem::remove_all(folder, none);
      }
      std::filesystem::remove(card, none);
    }
    std::string card;
  } leftovers{"/dev/shm/cuvmm-sim-card-54399-" + card_file().substr(card_file().find("node-"))};
  if (::geteuid() != 0 || ::access(setpriv, X_OK) != 0) GTEST_SKIP() << "needs root and setpriv";
  start_with({}, {"--deep-pause-after", "200ms", "--all-users"});
  ProgramOnDemand idle{*this,
                       "idle",
                       160,
                       {"XDG_RUNTIME_DIR="},
                       {setpriv, "--reuid=54399", "--regid=54399", "--clear-groups"}};
  if (!idle.has_begun()) GTEST_SKIP() << "another user cannot run it: " << idle.said();
  ASSERT_TRUE(comes_true([&] { return is_idle("idle"); }));
  take_memory();
  EXPECT_TRUE(comes_to("idle", node::DeviceStay::Off));
  give_back();
  idle.expect_all_right();
}

TEST_F(ProgramsOffTheirDevices, AProgramThatIsKilledThereLeavesNothing) {
  start_with({});
  pause_a_program_deeply();
  expect_that_its_death_leaves_nothing();
}

}  // namespace
}  // namespace cuvmm::test
