// SPDX-License-Identifier: Apache-2.0
// Programs that know nothing of cuvmm, under cuvmm and a service: their results are right whatever
// happens to the service or to the other programs.
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <regex>

#include "base/clock.hpp"
#include "daemon/service_world.hpp"

namespace cuvmm::test {
namespace {

std::size_t client_count(const std::string& socket) {
  return look_at_all<node::ClientState>(socket).size();
}

class ProgramsOfANode : public NodeService {};

TEST_F(ProgramsOfANode, ThreeProgramsThatEachNeedMostOfACardAllFinish) {
  start();
  std::deque<RunningProgram> programs;
  for (const char* name : {"a", "b", "c"}) {
    programs.emplace_back(program(name, 160, 8), required(), file(name));
  }
  for (RunningProgram& one : programs) EXPECT_EQ(one.wait(), 0);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_NE(read_file(name).find("all 8 steps"), std::string::npos) << read_file(name);
  }
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
}

TEST_F(ProgramsOfANode, NativelyOnlyOneOfThemFinishes) {
  RunningProgram first{program("a", 160, 30'000), {"VMM_NODE=off"}, file("a")};
  ASSERT_TRUE(comes_true([&] { return !read_file("a").empty(); }));
  RunningProgram second{program("b", 160, 5), {"VMM_NODE=off", "VMM_WAIT=0"}, file("b")};
  EXPECT_EQ(second.wait(), 2) << read_file("b");
}

TEST_F(ProgramsOfANode, WhatAProgramHoldsIsLeased) {
  start();
  RunningProgram one{program("one", 128, 30'000), required(), file("one")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 128 * MiB; }));
  EXPECT_EQ(look_at_device(socket()).foreign, 0u);
  one.signal(SIGKILL);
  one.wait();
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
}

TEST_F(ProgramsOfANode, OthersMayUseWhatTheCapacityLeaves) {
  start({"--capacity", "0=64M"});
  const std::vector<std::string> alone{"VMM_NODE=off"};
  RunningProgram other{program("other", 192, 30'000), alone, file("other")};
  ASSERT_TRUE(comes_true([&] { return !read_file("other").empty(); }));
  ::usleep(600'000);  // until the service has looked at the device
  EXPECT_EQ(look_at_device(socket()).foreign, 0u);
  RunningProgram greedy{program("greedy", 32, 30'000), alone, file("greedy")};
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).foreign == 32 * MiB; }));
  RawClient client = RawClient::at(*this, "client");
  EXPECT_FALSE(client.lease(33 * MiB));
  EXPECT_TRUE(client.lease(32 * MiB));
}

TEST_F(ProgramsOfANode, ProgramsRunOnWhenTheServiceIsKilledAndReportWhenItIsBack) {
  start();
  std::vector<std::string> command = program("one", 128, 250);  // long enough
  command.insert(command.end(), {"--cold", "96"});
  RunningProgram one{command, automatic(), file("one")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 128 * MiB; }));
  kill_service();
  ::usleep(200'000);
  start();
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 128 * MiB; }))
      << "it says what it holds";
  EXPECT_EQ(one.wait(), 0) << read_file("one");
}

TEST_F(ProgramsOfANode, AResumeByCommandWaitsForOthersToMakeRoom) {
  start();
  std::vector<std::string> environment = required();
  environment.emplace_back("VMM_CONTROL=on");
  RunningProgram paused{program("paused", 96, 30'000), environment, file("paused")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 96 * MiB; }));
  const std::string number = std::to_string(paused.pid());
  RunningProgram pause{{CUVMM_BIN "/cuvmm", "pause", number}, {}, file("pause")};
  ASSERT_EQ(pause.wait(), 0) << read_file("pause");
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased <= 16 * MiB; }));
  RawClient other = RawClient::at(*this, "other");
  ASSERT_TRUE(other.lease(memory - 16 * MiB));
  other.say(node::UseReport{.place = other.device(), .cache = memory - 16 * MiB});
  RunningProgram resume{{CUVMM_BIN "/cuvmm", "resume", number}, {}, file("resume")};
  const auto demand = other.hear<node::ReclaimDemand>();
  ASSERT_TRUE(demand) << read_file("resume");
  other.say(node::ReclaimAnswer{demand->revision, other.device(), node::ReclaimOutcome::Applied,
                                demand->bytes});
  EXPECT_EQ(resume.wait(), 0) << read_file("resume");
}

TEST_F(ProgramsOfANode, AResumeThatIsInterruptedNoLongerWaitsForRoom) {
  start();
  std::vector<std::string> environment = required();
  environment.emplace_back("VMM_CONTROL=on");
  RunningProgram paused{program("paused", 96, 30'000), environment, file("paused")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 96 * MiB; }));
  const std::string cuvmm = CUVMM_BIN "/cuvmm";
  const std::string number = std::to_string(paused.pid());
  const auto pause = [&](const std::string& name) {
    RunningProgram command{{cuvmm, "pause", "--timeout", "20s", number}, {}, file(name)};
    return command.wait();
  };
  ASSERT_EQ(pause("pause"), 0) << read_file("pause");
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased <= 16 * MiB; }));
  RawClient other = RawClient::at(*this, "other");
  ASSERT_TRUE(other.lease(memory - 16 * MiB));
  other.say(node::UseReport{.place = other.device(), .cache = memory - 16 * MiB});
  RunningProgram resume{{cuvmm, "resume", "--timeout", "40s", number}, {}, file("resume")};
  ASSERT_TRUE(other.hear<node::ReclaimDemand>()) << read_file("resume");
  RunningProgram second{{cuvmm, "resume", number}, {}, file("second")};
  EXPECT_NE(second.wait(), 0);
  EXPECT_NE(read_file("second").find("under way"), std::string::npos) << read_file("second");
  EXPECT_NE(pause("meanwhile"), 0);
  EXPECT_NE(read_file("meanwhile").find("under way"), std::string::npos) << read_file("meanwhile");
  resume.signal(SIGINT);
  resume.wait();
  EXPECT_TRUE(comes_true([&] { return pause("again") == 0; })) << read_file("again");
}

TEST_F(ProgramsOfANode, WithoutTheServiceOnlyProgramsThatDoNotRequireItRun) {
  RunningProgram any{program("any", 64, 3), automatic(), file("any")};
  EXPECT_EQ(any.wait(), 0) << read_file("any");
  RunningProgram strict{program("strict", 64, 3), required(), file("strict")};
  EXPECT_EQ(strict.wait(), 2);
  EXPECT_NE(read_file("strict").find("VMM_NODE=require"), std::string::npos) << read_file("strict");
}

TEST_F(ProgramsOfANode, AStoppedServiceOnlyDelaysAProgram) {
  start();
  stop(service());
  RunningProgram one{program("one", 96, 10), automatic(), file("one")};
  EXPECT_EQ(one.wait(), 0) << read_file("one");
  service().signal(SIGCONT);
  RunningProgram later{program("later", 96, 10), required(), file("later")};
  EXPECT_EQ(later.wait(), 0) << read_file("later");
}

TEST_F(ProgramsOfANode, AStoppedProgramDoesNotKeepOthersFromTheRest) {
  start();
  RunningProgram stopped{program("stopped", 128, 30'000), required(), file("stopped")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 128 * MiB; }));
  ::usleep(200'000);
  stop(stopped);
  RunningProgram small{program("small", 96, 10), required(), file("small")};
  EXPECT_EQ(small.wait(), 0) << read_file("small");
}

TEST_F(ProgramsOfANode, AnIdleProgramGivesWayAndComesBack) {
  start();
  std::vector<std::string> idle = program("idle", 160, 3);
  idle.back() = "2500";  // the pause between steps
  RunningProgram sleeps{idle, required(), file("idle")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 160 * MiB; }));
  ::usleep(500'000);
  RunningProgram busy{program("busy", 160, 10), required(), file("busy")};
  EXPECT_EQ(busy.wait(), 0) << read_file("busy");
  EXPECT_EQ(sleeps.wait(), 0) << read_file("idle");
}

TEST_F(ProgramsOfANode, ProgramsKilledAtRandomLeaveExactBooks) {
  start();
  std::deque<RunningProgram> programs;
  for (int i = 0; i < 4; ++i) {
    programs.emplace_back(program(std::to_string(i), 128, 30'000), required(), file("any"));
  }
  ASSERT_TRUE(comes_true([&] { return client_count(socket()) == 4; }));
  for (int i = 0; i < 3; ++i) {
    ::usleep(400'000);
    programs.front().signal(SIGKILL);
    programs.pop_front();
  }
  EXPECT_LE(look_at_device(socket()).leased, memory);
  programs.clear();
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
}

TEST_F(ProgramsOfANode, ALimitIsWhatAProgramSeesAsItsDevice) {
  write_file("c.toml", "[[client]]\nname = \"half\"\nlimit = \"128M\"\n");
  start({"--config", file("c.toml")});
  // The program takes 75% of the memory that it is told there is: three blocks of 32 MiB.
  std::vector<std::string> command = program("half", 0, 2);
  *std::find(command.begin(), command.end(), "--mib") = "--memory";
  *(std::find(command.begin(), command.end(), "--memory") + 1) = "75";
  RunningProgram half{command, required(), file("half")};
  EXPECT_EQ(half.wait(), 0);
  EXPECT_NE(read_file("half").find("3 blocks, 96 MiB"), std::string::npos) << read_file("half");
}

// The program runs on: no part of it is paused, and every number that it reads is right.
TEST_F(ProgramsOfANode, ColdMemoryGoesToTheHostWhileItsProgramRuns) {
  start();
  std::vector<std::string> holder = program("holder", 160, 600);  // long enough
  holder.insert(holder.end(), {"--cold", "128"});
  std::vector<std::string> spills = required();
  spills.push_back("VMM_SPILL=host");
  RunningProgram runs{holder, spills, file("holder")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 160 * MiB; }));
  ::usleep(12'000'000);  // until the memory counts as cold, on a busy machine too
  RunningProgram other{program("other", 192, 5), required(), file("other")};
  EXPECT_EQ(other.wait(), 0) << read_file("other");
  EXPECT_EQ(runs.wait(), 0) << read_file("holder");
  const std::string log = read_file("service.log");
  EXPECT_NE(log.find("holder gave"), std::string::npos) << log;
  EXPECT_NE(log.find("cold memory"), std::string::npos) << log;
}

TEST_F(ProgramsOfANode, NoMoreHostMemoryIsPinnedThanTheServiceHas) {
  write_file("c.toml", "[capacity]\nhost = \"64M\"\n");
  start({"--config", file("c.toml")});
  std::vector<std::string> idle = program("idle", 160, 2);
  idle.back() = "6000";
  RunningProgram sleeps{idle, required(), file("idle")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 160 * MiB; }));
  std::vector<std::string> wants = program("wants", 160, 2);
  std::vector<std::string> hurries = required();
  hurries.push_back("VMM_NODE_WAIT=1500ms");
  RunningProgram refused{wants, hurries, file("wants")};
  EXPECT_EQ(refused.wait(), 2) << "the idle one cannot be moved: " << read_file("wants");
  EXPECT_EQ(sleeps.wait(), 0) << read_file("idle");
}

TEST_F(ProgramsOfANode, AProgramThatExecutesAnotherLeavesItsLeaseAndTheOtherHasItsOwn) {
  start();
  const std::string itself = CUVMM_TEST_PROGRAMS "/cuvmm_program_exec";
  RunningProgram one{test_program("exec", {"160", itself, "192"}), required(), file("one")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 160 * MiB; }));
  EXPECT_EQ(one.wait(), 0) << read_file("one");
  EXPECT_NE(read_file("one").find("holds 192 MiB"), std::string::npos) << read_file("one");
  EXPECT_TRUE(comes_true([&] { return look_at_device(socket()).leased == 0; }));
}

// Two jobs of two ranks on two cards, started so that each job holds one card when it asks for the
// other. Once both ranks of a job have their memory, a kernel of each spins until the other's runs.
// If a rank is stopped while the other's kernel spins for it, turns end for a while.
TEST_F(ProgramsOfANode, JobsWhoseRanksWaitForEachOtherTakeTurnsOnBothCards) {
  start_on(",devices=2");
  std::deque<RunningProgram> ranks;
  const auto begin = [&](const std::string& job, const std::string& rank) {
    ranks.emplace_back(test_program("rank", {rank, file(job + ".meeting"), "160", "2", "together"},
                                    {"--name", job + rank, "--group", job, "--node-wait", "80s"}),
                       required(), file(job));
  };
  begin("a", "0");
  begin("b", "1");
  ::usleep(300'000);
  begin("a", "1");
  begin("b", "0");
  for (RunningProgram& rank : ranks) EXPECT_EQ(rank.wait(), 0) << read_file("a") << read_file("b");
}

// A job with guarantees takes the memory of one that is in the midst of its collectives: often a
// kernel of its rank 0 spins for one of rank 1. Both are stopped, in whatever order they are asked.
// On a busy machine they may not be within a turn, so it is tried several times, each with a
// service of its own.
TEST_F(ProgramsOfANode, AJobIsStoppedBetweenItsCollectivesOnBothCards) {
  std::string number;
  std::deque<RunningProgram> ranks;
  const auto begin = [&](const std::string& job, const std::string& rank,
                         const std::vector<std::string>& work, const std::string& guarantee) {
    std::vector<std::string> arguments{rank, file(job + number + ".meeting"), "160"};
    arguments.insert(arguments.end(), work.begin(), work.end());
    ranks.emplace_back(test_program("rank", arguments,
                                    {"--name", job + rank, "--group", job, "--node-wait", "80s",
                                     "--guarantee", guarantee}),
                       required(), file(job));
  };
  const auto leased = [&] {
    Size sum = 0;
    for (const node::PlaceState& place : look_at_all<node::PlaceState>(socket())) {
      if (place.kind == node::PlaceKind::Device) sum += place.leased;
    }
    return sum;
  };
  const auto are_stopped = [&](const std::string& log) {
    return log.find("outlasted") == std::string::npos &&
           log.find("a0 gave 160") != std::string::npos &&
           log.find("a1 gave 160") != std::string::npos;
  };
  std::string log;
  for (int tries = 0; tries < 5 && !are_stopped(log); ++tries) {
    number = std::to_string(tries);
    if (tries > 0) kill_service();
    const std::size_t logged = read_file("service.log").size();
    start_on(",devices=2");
    begin("a", "0", {"30", "together", "4"}, "0");
    begin("a", "1", {"30", "together", "4"}, "0");
    ASSERT_TRUE(comes_true([&] { return leased() >= 320 * MiB; }));
    begin("b", "1", {"3", "together"}, "224M");
    begin("b", "0", {"3", "together"}, "224M");
    for (RunningProgram& rank : ranks)
      ASSERT_EQ(rank.wait(), 0) << read_file("a") << read_file("b");
    ranks.clear();
    log = read_file("service.log").substr(logged);
  }
  EXPECT_TRUE(are_stopped(log)) << log;
}

// Two jobs as above; each kernel of the first runs for a second once both ranks have met in it. The
// first cannot give way in a turn's time: then all run as without the service.
TEST_F(ProgramsOfANode, WorkOfASecondHoldsNobodyForLongerThanATurn) {
  start_on(",devices=2");
  std::deque<RunningProgram> ranks;
  const auto begin = [&](const std::string& job, const std::string& rank, const std::string& ms) {
    ranks.emplace_back(
        test_program("rank",
                     {rank, file(job + ".meeting"), "160", "3", "together", "1", "none", ms},
                     {"--name", job + rank, "--group", job, "--node-wait", "80s"}),
        required(), file(job));
  };
  begin("a", "0", "1000");
  begin("a", "1", "1000");
  const auto kernels_begun = [&] {
    std::array<std::uint64_t, 2> of_rank{};
    const std::string meeting = read_file("a.meeting");
    if (meeting.size() < sizeof of_rank) return std::uint64_t{0};
    std::memcpy(of_rank.data(), meeting.data(), sizeof of_rank);
    return std::min(of_rank[0], of_rank[1]);
  };
  RawClient other = RawClient::at(*this, "other");
  ASSERT_TRUE(other.hear<node::Accepted>());
  ASSERT_TRUE(comes_true([&] { return kernels_begun() >= 1; }));
  const std::uint64_t asked_at = now_us();
  other.say(node::LeaseAsk{.request = 1, .place = other.device(), .bytes = 200 * MiB});
  ASSERT_TRUE(other.hear<node::TurnsOff>());
  const std::uint64_t held = now_us() - asked_at;
  EXPECT_GE(held, 100'000u);
  EXPECT_LT(held, 1'000'000u);
  const std::string log = read_file("service.log");
  // 2 x 160 MiB at 20 GiB/s, 25 times.
  EXPECT_TRUE(std::regex_search(log, std::regex{"work of a[01] outlasted its turn: in flight for "
                                                "[0-9]+ ms, at most 391 ms are allowed; no turns"}))
      << log;
  other.close();
  begin("b", "1", "0");
  begin("b", "0", "0");
  for (RunningProgram& rank : ranks) EXPECT_EQ(rank.wait(), 0) << read_file("a") << read_file("b");
}

// A rank whose peer has not started yet has a kernel that cannot be stopped: a program that needs
// its memory is refused as it would be without the service, and neither is harmed.
TEST_F(ProgramsOfANode, WorkThatOutlastsATurnEndsTurnsAndIsLogged) {
  start_on(",devices=2");
  RunningProgram spins{
      test_program("rank", {"0", file("meeting"), "160", "1"}, {"--name", "spins"}), required(),
      file("spins")};
  ASSERT_TRUE(comes_true([&] { return look_at_device(socket()).leased >= 160 * MiB; }));
  ASSERT_TRUE(comes_true([&] {  // its kernel has begun, and waits for the other rank
    std::uint64_t begun = 0;
    const std::string meeting = read_file("meeting");
    if (meeting.size() >= sizeof begun) std::memcpy(&begun, meeting.data(), sizeof begun);
    return begun >= 1;
  }));
  std::vector<std::string> hurries = required();
  hurries.push_back("VMM_NODE_WAIT=1500ms");
  RunningProgram wants{program("wants", 160, 2), hurries, file("wants")};
  EXPECT_EQ(wants.wait(), 2) << read_file("wants");
  EXPECT_TRUE(comes_true([&] {
    return read_file("service.log").find("work of spins outlasted its turn") != std::string::npos;
  })) << read_file("service.log");
  RunningProgram other{test_program("rank", {"1", file("meeting"), "160", "1"}), required(),
                       file("other")};
  EXPECT_EQ(other.wait(), 0) << read_file("other");
  EXPECT_EQ(spins.wait(), 0) << read_file("spins");
}

TEST_F(ProgramsOfANode, NvmlAndTheDriverTellAProgramItsLimitThroughEveryDoor) {
  for (const char* way : {"--limit", "--name"}) {
    const bool by_service = std::string{way} == "--name";
    if (by_service) {
      write_file("c.toml", "[[client]]\nname = \"128M\"\nlimit = \"128M\"\n");
      start({"--config", file("c.toml")});
    }
    const std::string output = std::string{"nvml"} + way;
    RunningProgram asks{test_program("nvml", {"64"}, {way, "128M"}),
                        by_service ? required() : std::vector<std::string>{"VMM_NODE=off"},
                        file(output)};
    EXPECT_EQ(asks.wait(), 0);
    const std::string said = read_file(output);
    for (const char* door : {"linked", "path", "default", "driver"}) {
      EXPECT_NE(said.find(std::string{door} + " 128 64 64\n"), std::string::npos) << said;
    }
    for (const char* door : {"linked", "path", "default"}) {
      EXPECT_NE(said.find(std::string{door} + " lists 64 64 64\n"), std::string::npos)
          << "this process' cache does not count: " << said;
    }
    EXPECT_EQ(said.find("has this one"), std::string::npos) << said;
    if (!by_service) {
      EXPECT_NE(said.find("path 128 128 0\n"), std::string::npos) << "before cuInit: " << said;
    }
    EXPECT_EQ(said.find("otherwise"), std::string::npos) << said;
  }
}

TEST_F(ProgramsOfANode, NvmlTellsAllThereIsWhereThereIsNoLimit) {
  RunningProgram asks{test_program("nvml", {"64"}), {"VMM_NODE=off"}, file("nvml")};
  EXPECT_EQ(asks.wait(), 0);
  EXPECT_NE(read_file("nvml").find("path 256 192 64\n"), std::string::npos) << read_file("nvml");
  EXPECT_NE(read_file("nvml").find("path lists 96 96 96\n"), std::string::npos)
      << "as NVML reports it: " << read_file("nvml");
}

// How many blocks of 32 MiB a program takes when it takes 75% of the memory that it is told there
// is.
TEST_F(ProgramsOfANode, HamisVariablesAreLimitsUnlessOursAreSet) {
  std::vector<std::string> command = program("any", 0, 1);
  *std::find(command.begin(), command.end(), "--mib") = "--memory";
  *(std::find(command.begin(), command.end(), "--memory") + 1) = "75";
  const auto blocks = [&](std::vector<std::string> variables) {
    static int count = 0;
    const std::string output = "blocks" + std::to_string(++count);
    variables.push_back("VMM_NODE=off");
    RunningProgram one{command, variables, file(output)};
    EXPECT_EQ(one.wait(), 0) << read_file(output);
    return read_file(output).substr(0, 1);
  };
  EXPECT_EQ(blocks({}), "6");
  EXPECT_EQ(blocks({"CUDA_DEVICE_MEMORY_LIMIT=128m"}), "3");
  EXPECT_EQ(blocks({"CUDA_DEVICE_MEMORY_LIMIT_0=64M", "CUDA_DEVICE_MEMORY_LIMIT=128m"}), "1");
  EXPECT_EQ(blocks({"CUDA_DEVICE_MEMORY_LIMIT_1=64M"}), "6") << "another device's";
  EXPECT_EQ(blocks({"CUDA_DEVICE_MEMORY_LIMIT=0"}), "6");
  EXPECT_EQ(blocks({"CUDA_DEVICE_MEMORY_LIMIT_0=64M", "VMM_LIMIT=192M"}), "4");
}

}  // namespace
}  // namespace cuvmm::test
