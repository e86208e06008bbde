// SPDX-License-Identifier: Apache-2.0
// Clients that share a device's time through their boards.
#include <fcntl.h>
#include <signal.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.hpp"
#include "daemon/config.hpp"
#include "daemon/time_client.hpp"

namespace cuvmm::test {
namespace {

class DeviceTime : public NodeService {};

TEST_F(DeviceTime, IsFreeForAllWithoutAPolicy) {
  start();
  TimeClient first{*this, "first"};
  TimeClient second{*this, "second"};
  first.want(true);
  second.want(true);
  ::usleep(100'000);
  EXPECT_EQ(first.grant(), TimeGrant::Open);
  EXPECT_EQ(second.grant(), TimeGrant::Open);
}

TEST_F(DeviceTime, IsHandedOverRepeatedlyBetweenTwoClients) {
  start({"--time", "share"});
  TimeClient first{*this, "first"};
  EXPECT_EQ(first.grant(), TimeGrant::Open) << "nobody else is there";
  TimeClient second{*this, "second"};
  first.want(true);
  second.want(true);
  int hand_overs = 0;
  bool both = false;
  TimeGrant before = TimeGrant::None;
  EXPECT_TRUE(comes_true([&] {
    for (int i = 0; i < 40; ++i) {
      // Reads the grant of the client that loses it first.
      const TimeGrant of_first = first.grant();
      both |= of_first == TimeGrant::Held && second.grant() == TimeGrant::Held &&
              first.grant() == TimeGrant::Held;
      if (of_first == TimeGrant::Held && before != TimeGrant::Held) ++hand_overs;
      before = of_first;
      first.report_drained();
      second.report_drained();
      ::usleep(500);
    }
    return hand_overs >= 20;
  }));
  EXPECT_FALSE(both);
  second.want(false);
  EXPECT_TRUE(comes_true([&] { return first.grant() == TimeGrant::Held; }));
}

TEST_F(DeviceTime, IsTakenFromASilentOrDepartedClient) {
  start({"--time", "share"});
  TimeClient other{*this, "other"};
  {
    TimeClient silent{*this, "silent"};
    silent.want(true);
    EXPECT_TRUE(comes_true([&] { return silent.grant() != TimeGrant::None; }));
    other.want(true);
    EXPECT_TRUE(comes_true([&] { return other.grant() != TimeGrant::None; }));
  }
  EXPECT_TRUE(comes_true([&] { return other.grant() == TimeGrant::Open; }));
}

TEST_F(DeviceTime, IsNotHandedOverWhileTheBoardOfTheHolderSaysThatItsWorkRuns) {
  start({"--time", "share"});
  TimeClient holder{*this, "holder"};
  TimeClient next{*this, "next"};
  holder.want(true);
  next.want(true);
  std::uint64_t ends_at = 0;
  EXPECT_TRUE(comes_true([&] {
    holder.report_drained();
    next.report_drained();
    if (holder.grant() != TimeGrant::Held) return false;
    ends_at = now_ns() + 60'000'000;
    holder.words().in_flight_until_ns.store(ends_at);  // without a message
    return holder.grant() == TimeGrant::Held;          // else the service may not have seen it
  }));
  EXPECT_TRUE(comes_true([&] { return holder.grant() == TimeGrant::None; }));
  EXPECT_TRUE(comes_true([&] { return next.grant() != TimeGrant::None; }));
  EXPECT_GE(now_ns(), ends_at) << "although the grace for a silent holder is 5 ms";
}

// NVML of a simulated card reads the card's books, so a lock on them holds its answers back.
class SlowNvml {
 public:
  explicit SlowNvml(const std::string& card_file) : file_(::open(card_file.c_str(), O_RDWR)) {
    struct flock all {};
    all.l_type = F_WRLCK;
    all.l_whence = SEEK_SET;
    EXPECT_EQ(::fcntl(file_.number(), F_OFD_SETLKW, &all), 0);
  }

 private:
  Fd file_;
};

TEST_F(DeviceTime, IsTakenFromTheBackgroundWhileNvmlDoesNotAnswer) {
  start({"--time", "priority"});
  TimeClient front{*this, "front", 100, 5};
  TimeClient back{*this, "back"};
  front.want(true);
  back.want(true);
  EXPECT_TRUE(comes_true([&] {
    back.report_drained();
    return front.grant() == TimeGrant::Held && back.grant() == TimeGrant::None;
  }));
  front.want(false);
  EXPECT_TRUE(comes_true([&] { return back.grant() == TimeGrant::Held; }));
  const SlowNvml slow{card_file()};
  // NVML is asked at least once a second.
  for (int i = 0; i < 60; ++i) {
    back.raw().say(node::TimeNews{});
    ::usleep(20'000);
  }
  front.want(true);
  EXPECT_TRUE(comes_true([&] { return back.grant() == TimeGrant::None; }));
}

TEST_F(DeviceTime, WaitingClientsSeeTheServicesHeartbeat) {
  start({"--time", "share"});
  TimeClient holder{*this, "holder"};
  TimeClient waiting{*this, "waiting"};
  holder.want(true);
  waiting.want(true);
  const std::uint64_t before = waiting.beat();
  EXPECT_TRUE(comes_true([&] { return waiting.beat() > before + 150'000'000; }));
}

TEST_F(DeviceTime, ACapIsTheSmallestOfWishAndRuleAndChangesAtOnce) {
  write_file("c.toml", "[time]\npolicy = \"share\"\n[[client]]\nname = \"capped\"\ncap = 40\n");
  start({"--config", file("c.toml")});
  TimeClient capped{*this, "capped", 50};
  RawClient observer{socket()};
  const auto cap_now = [&] {
    observer.say(node::StateAsk{});
    const auto state = observer.hear<node::TimeState>();
    static_cast<void>(observer.hear<node::StateEnd>());
    return state ? state->cap : 0;
  };
  EXPECT_EQ(cap_now(), 40u);
  observer.say(node::TimeTermsAsk{.name = "capped", .cap = 20});
  const auto answer = observer.hear<node::ObserverAnswer>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->changed, 1u);
  EXPECT_EQ(cap_now(), 20u);
  observer.say(node::TimeTermsAsk{.name = "nobody", .cap = 20});
  EXPECT_EQ(observer.hear<node::ObserverAnswer>()->why_not, "there is no client of that name");
}

TEST_F(DeviceTime, ABoardTellsWhetherItsClientHasTimeLeftUnderItsCap) {
  start({"--time", "share"});
  TimeClient capped{*this, "capped", 1};
  TimeClient other{*this, "other"};
  capped.want(true);
  other.want(true);
  const auto is_over_cap = [&] {
    capped.report_drained();
    other.report_drained();
    EXPECT_EQ(other.board().is_over_cap.load(), 0u);
    return capped.board().is_over_cap.load() == 1;
  };
  EXPECT_TRUE(comes_true(is_over_cap));
  RawClient observer{socket()};
  observer.say(node::TimeTermsAsk{.name = "capped", .cap = 100});
  EXPECT_TRUE(comes_true([&] { return !is_over_cap(); }));
}

TEST_F(DeviceTime, AForgedBoardDoesNotAffectOtherClients) {
  start({"--time", "share"});
  TimeClient liar{*this, "liar"};
  TimeClient honest{*this, "honest"};
  honest.want(true);
  std::uint64_t random = 1;
  for (int i = 0; i < 2'000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    liar.words().wants.store(static_cast<std::uint32_t>(random >> 40));
    liar.words().drained.store(static_cast<std::uint32_t>(random >> 30));
    liar.words().grant.store(static_cast<std::uint32_t>(random >> 20));
    liar.words().window.store(static_cast<std::uint32_t>(random >> 10));
    liar.words().in_flight_until_ns.store(random);
    if (i % 20 == 0) liar.raw().say(node::TimeNews{});
    honest.report_drained();
  }
  EXPECT_TRUE(comes_true([&] {
    honest.report_drained();
    return honest.grant() != TimeGrant::None;
  }));
}

TEST(TimeConfiguration, SetsPolicyAndCaps) {
  const auto parsed = [](const std::string& text) {
    return daemon::parse_config(text, "f.toml", daemon::Serves::OneUser);
  };
  const auto read = parsed("[time]\npolicy = \"priority\"\n[[client]]\nname = \"a\"\ncap = 30\n");
  ASSERT_TRUE(read.ok()) << read.problem;
  EXPECT_EQ(read.config.time.rule, node::TimeRule::Priority);
  EXPECT_EQ(read.config.rules[0].cap, 30u);
  EXPECT_EQ(parsed("").config.time.rule, node::TimeRule::Off);
  EXPECT_EQ(parsed("[time]\npolicy = \"fast\"\n").problem,
            "f.toml:2: policy: allowed: off, share, priority, turns");
  EXPECT_EQ(parsed("[time]\nspeed = 1\n").problem,
            "f.toml:2: speed: there is no such key; allowed: policy");
  EXPECT_EQ(parsed("[[client]]\nname = \"a\"\ncap = 0\n").problem,
            "f.toml:3: cap: must be a whole number from 1 to 100");
}

// Programs that know nothing of time grants.
class ProgramsThatShareTime : public NodeService {
 protected:
  std::vector<std::string> busy(const std::string& name, const std::vector<std::string>& more = {},
                                const std::vector<std::string>& terms = {}) const {
    std::vector<std::string> command{
        std::string{CUVMM_BIN} + "/cuvmm", "run", "--quiet", sim(), "--name", name};
    command.insert(command.end(), terms.begin(), terms.end());
    // Each launch costs the simulated driver processor time, whatever the length of its kernel.
    command.insert(command.end(),
                   {"--", std::string{CUVMM_BIN} + "/busy", "--json", "--kernel", "400us"});
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  void stop_or_kill(const RunningProgram& program, int signal) const {
    if (signal == SIGSTOP) return stop(program);
    program.signal(signal);
  }
  std::vector<std::string> with_service() const {
    return {"VMM_NODE=require", "VMM_NODE_SOCKET=" + socket()};
  }
  std::map<std::string, node::TimeState> times() const {
    std::map<node::ClientId, std::string> names;
    std::map<std::string, node::TimeState> found;
    for (const node::ObserverMessage& said : look_at_state(socket())) {
      if (const auto* const client = std::get_if<node::ClientState>(&said)) {
        names[client->client] = client->name;
      }
      if (const auto* const time = std::get_if<node::TimeState>(&said)) {
        found[names[time->client]] = *time;
      }
    }
    return found;
  }
  bool is_well(const std::string& name) const {
    return read_file(name).find("\"device_seconds\"") != std::string::npos;
  }
};

TEST_F(ProgramsThatShareTime, TwoBusyOnesTakeTurnsOnADeviceAndFinish) {
  for (const char* rule : {"share", "priority"}) {
    start({"--time", rule});
    RunningProgram first{busy("first", {"--seconds", "6"}), with_service(), file("first")};
    RunningProgram second{busy("second", {"--seconds", "6", "--graph"}, {"--priority", "5"}),
                          with_service(), file("second")};
    EXPECT_TRUE(comes_true([&] {
      const auto seen = times();
      return seen.contains("first") && seen.contains("second") && seen.at("first").competes &&
             seen.at("first").held > 0;
    })) << rule;
    EXPECT_EQ(first.wait(), 0) << read_file("first");
    EXPECT_EQ(second.wait(), 0) << read_file("second");
    EXPECT_TRUE(is_well("first")) << read_file("first");
    EXPECT_TRUE(is_well("second")) << read_file("second");
    kill_service();
  }
}

TEST_F(ProgramsThatShareTime, TheTraceOfOneHasItsWaits) {
  start({"--time", "share"});
  const std::string cuvmm = std::string{CUVMM_BIN} + "/cuvmm";
  RunningProgram traced{busy("traced", {"--seconds", "6"}, {"--trace", file("trace")}),
                        with_service(), file("traced")};
  RunningProgram other{busy("other", {"--seconds", "6"}), with_service(), file("other")};
  EXPECT_EQ(traced.wait(), 0) << read_file("traced");
  EXPECT_EQ(other.wait(), 0) << read_file("other");
  RunningProgram stats{{cuvmm, "stats", "--json", file("trace")}, {}, file("stats")};
  EXPECT_EQ(stats.wait(), 0);
  const auto shown = nlohmann::json::parse(read_file("stats"));
  EXPECT_GT(shown.at("time_grant_waits"), 10);
  EXPECT_GT(shown.at("longest_time_grant_wait_us"), 1'000)
      << "the other's shortest quantum is 2 ms";
  EXPECT_LT(shown.at("time_grant_wait_us"), shown.at("duration_us"));
}

TEST_F(ProgramsThatShareTime, ABusyOneFinishesBesideOneThatIsStoppedOrKilled) {
  start({"--time", "share"});
  for (const int signal : {SIGSTOP, SIGKILL}) {
    RunningProgram other{busy("other", {"--seconds", "60"}), with_service(), file("other")};
    ASSERT_TRUE(comes_true([&] { return times().contains("other"); }));
    RunningProgram busy_one{busy("busy", {"--seconds", "6"}), with_service(), file("busy")};
    EXPECT_TRUE(comes_true([&] {
      const auto seen = times();
      return seen.contains("busy") && seen.at("busy").held > 0;
    }));
    stop_or_kill(other, signal);
    EXPECT_EQ(busy_one.wait(), 0) << read_file("busy");
  }
}

TEST_F(ProgramsThatShareTime, ABusyOneGetsTheDeviceWhileTheForegroundIsStopped) {
  start({"--time", "priority"});
  RunningProgram back{busy("back", {"--seconds", "60"}), with_service(), file("back")};
  RunningProgram front{busy("front", {"--seconds", "60"}, {"--priority", "5"}), with_service(),
                       file("front")};
  const auto held_by = [&](const char* name) {
    const auto seen = times();
    return seen.contains(name) ? seen.at(name).held : 0;
  };
  EXPECT_TRUE(comes_true([&] { return held_by("back") > 0 && held_by("front") > 0; }));
  stop(front);
  const auto before = held_by("back");
  // Beside a foreground that runs, it would take 500 seconds.
  EXPECT_TRUE(comes_true([&] { return held_by("back") > before + 1'000'000; }));
}

TEST_F(ProgramsThatShareTime, BusyOnesContinueWhenTheServiceIsStoppedOrKilled) {
  for (const int signal : {SIGSTOP, SIGKILL}) {
    start({"--time", "share"});
    std::vector<std::string> may_go_on{"VMM_NODE=auto", "VMM_NODE_SOCKET=" + socket()};
    RunningProgram first{busy("first", {"--seconds", "6"}), may_go_on, file("first")};
    RunningProgram second{busy("second", {"--seconds", "6"}), may_go_on, file("second")};
    EXPECT_TRUE(comes_true([&] {
      const auto seen = times();
      return seen.contains("first") && seen.at("first").competes && seen.at("first").held > 0;
    }));
    stop_or_kill(service(), signal);
    EXPECT_EQ(first.wait(), 0) << read_file("first");
    EXPECT_EQ(second.wait(), 0) << read_file("second");
    service().signal(SIGCONT);
    kill_service();
  }
}

TEST_F(ProgramsThatShareTime, ACappedOneWaitsEvenAlone) {
  start();
  RunningProgram capped{busy("capped", {"--seconds", "10"}, {"--cap", "20"}), with_service(),
                        file("capped")};
  EXPECT_TRUE(comes_true([&] {
    const auto seen = times();
    return seen.contains("capped") && seen.at("capped").cap == 20 && seen.at("capped").waited > 0;
  }));
  const std::string cuvmm = std::string{CUVMM_BIN} + "/cuvmm";
  RunningProgram set{
      {cuvmm, "set", "capped", "--cap", "90", "--weight", "2"}, with_service(), file("set")};
  EXPECT_EQ(set.wait(), 0) << read_file("set");
  EXPECT_EQ(times().at("capped").cap, 90u);
  RunningProgram top{{cuvmm, "top", "--json"}, with_service(), file("top")};
  EXPECT_EQ(top.wait(), 0);
  EXPECT_NE(read_file("top").find("\"cap_percent\": 90"), std::string::npos) << read_file("top");
  EXPECT_EQ(capped.wait(), 0) << read_file("capped");
}

}  // namespace
}  // namespace cuvmm::test
