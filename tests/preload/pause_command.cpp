// SPDX-License-Identifier: Apache-2.0
// cuvmm pause and cuvmm resume: stopping programs and continuing them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "preload/run_program.hpp"
#include "share/control.hpp"

namespace cuvmm::test {
namespace {

// Runs a shell while the program runs under cuvmm in the background, as $program.
Finished run_beside(const std::string& script,
                    const std::string& arguments = "--memory 25 --steps 100 --rest 40",
                    const std::string& how = "",
                    const std::string& program = example("take_turns")) {
  const std::string place = own_folder();
  const std::string start = how + " " + cli() + " run --sim=memory=256M --control -- " + program +
                            " " + arguments + " & runner=$!\n" +
                            "for i in $(seq 1000); do\n"
                            "  program=$(ls " +
                            place +
                            "/cuvmm 2>/dev/null | "
                            "sed -n 's/^control-\\([0-9]*\\)-[0-9]*$/\\1/p')\n"
                            "  [ -n \"$program\" ] && break; sleep 0.05\n"
                            "done\n";
  return run_program({"sh", "-c", start + script + "\nwait $runner"}, {{"XDG_RUNTIME_DIR", place}});
}

bool comes_to_pass(const std::function<bool()>& what) {
  constexpr int most_tries = 20'000;
  for (int tries = 0; tries < most_tries && !what(); ++tries) ::usleep(1000);
  return what();
}

// Empty if there is none that takes connections.
std::string control_socket_in(const std::string& place) {
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator{place + "/cuvmm", none}) {
    const std::string name = file.path().filename().string();
    if (name.starts_with("control-") && !name.ends_with(share::being_made)) return file.path();
  }
  return {};
}

TEST(PauseCommand, AProgramFindsItsMemoryAgain) {
  const Finished finished =
      run_beside("for i in 1 2 3; do " + cli() + " pause $program; sleep 0.1; " + cli() +
                 " resume $program; done");
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("paused"), std::string::npos) << finished.err;
  EXPECT_NE(finished.out.find("resumed"), std::string::npos);
  EXPECT_NE(finished.out.find("all 100 steps read back what they wrote"), std::string::npos);
}

TEST(PauseCommand, TheLauncherStandsForItsProgram) {
  const Finished finished =
      run_beside(cli() + " pause $runner; " + cli() + " pause $program; " + cli() +
                 " resume $runner; " + cli() + " resume $$ && echo also the shell");
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find(": paused: "), std::string::npos) << finished.err;
  EXPECT_NE(finished.out.find(": resumed: "), std::string::npos) << finished.err;
  EXPECT_NE(finished.out.find("all 100 steps read back what they wrote"), std::string::npos);
  EXPECT_EQ(finished.out.find("also the shell"), std::string::npos);
}

TEST(PauseCommand, QueuedCallsAreIssuedFirst) {
  const Finished finished =
      run_beside("for i in 1 2 3; do " + cli() + " pause $program; sleep 0.1; " + cli() +
                     " resume $program; done",
                 "--memory 25 --steps 300 --rest 10",
                 "VMM_SCHEDULE=fifo VMM_CLIENT=program VMM_PAUSE_AHEAD=32M");
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("resumed"), std::string::npos) << finished.err;
  EXPECT_NE(finished.out.find("all 300 steps read back what they wrote"), std::string::npos);
}

// The work that it does at exit waits, and it is resumed as usual.
TEST(PauseCommand, AnEndingProgramCanBeResumed) {
  const Finished finished = run_beside(
      "exec 3>told; " + cli() + " pause $program && echo >&3 && sleep 0.5 && kill -0 $program && " +
          cli() + " resume $program && wait $runner && ls cuvmm; exit",
      "end-when-told < told", "cd " + own_folder() + "; mkfifo told; exec 4<>told;",
      program("life"));
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("freed at exit"), std::string::npos) << finished.out << finished.err;
  EXPECT_EQ(finished.out.find("control-"), std::string::npos) << finished.out;
}

// Its other threads may go on opening files: a server's, whose connections pile up meanwhile.
TEST(PauseCommand, AProgramThatHasUsedUpItsDescriptorsCanBeResumed) {
  const std::string sockets = "$(ls -l /proc/$program/fd | grep -c socket:)";
  const std::string wait_for_visitor =
      "until [ " + sockets + " = $sockets ]; do sleep 0.01; done";  // to have gone
  const std::string are_used_up = "[ $(ls /proc/$program/fd | wc -l) = 256 ]";
  const Finished finished = run_beside(
      "exec 3>told; until [ -e begun ]; do sleep 0.01; done; sockets=" + sockets + "; " + cli() +
          " pause $program && " + wait_for_visitor + " && echo >&3 && until " + are_used_up +
          "; do sleep 0.05; done; timeout 20 " + cli() + " resume $program && " + cli() +
          " pause $program && " + cli() +
          " resume $program && echo >&3 && wait $runner && exit; kill -9 $program; exit 1",
      "use-up-files-when-told < told",
      "cd " + own_folder() + "; ulimit -n 256; mkfifo told; exec 4<>told;", program("life"));
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, ": resumed: "), 2u) << finished.out << finished.err;
}

// Its work ends only once it has begun to exit.
TEST(PauseCommand, AProgramThatEndsDuringThePauseIsNotPaused) {
  const std::string pause = cli() + " pause --timeout ";
  const Finished finished = run_beside(
      "exec 3>told; until [ -e begun ]; do sleep 0.01; done\n"
      "{ while " +
          pause +
          "60s $program 2>why; grep -q 'under way' why; do :; done; } & pauser=$!\n"
          "until " +
          pause +
          "1ms $program 2>&1 | grep -q 'under way'; do sleep 0.05; done\n"
          "echo >&3; wait $runner; status=$?; wait $pauser; cat why; ls cuvmm; exit $status",
      "end-with-work-when-told < told", "cd " + own_folder() + "; mkfifo told; exec 4<>told;",
      program("life"));
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("freed at exit"), std::string::npos) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("the process is about to end"), std::string::npos) << finished.out;
  EXPECT_EQ(finished.out.find("control-"), std::string::npos) << finished.out;
}

// By then its socket is gone, so that it could not be resumed.
TEST(PauseCommand, AnEndingProgramRefusesAnEarlierVisitor) {
  const std::string place = own_folder();
  const std::string fifo = place + "/told";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Fd told{::open(fifo.c_str(), O_RDWR | O_CLOEXEC)};
  const auto tell_program = [&] { ASSERT_EQ(::write(told.number(), "\n", 1), 1); };
  Finished finished;
  std::thread runs{[&] {
    const std::string command = "exec " + cli() + " run --sim=memory=256M --control -- " +
                                program("life") + " end-when-told-twice < " + fifo;
    finished = run_program({"sh", "-c", command}, {{"XDG_RUNTIME_DIR", place}});
  }};

  EXPECT_TRUE(comes_to_pass([&] { return !control_socket_in(place).empty(); }));
  const auto until = share::Deadline::after(Duration{20'000'000});
  auto visitor = share::connect_to(control_socket_in(place), until);
  tell_program();
  // Reconnects each time, since the program drops a visitor that says nothing for 2 s.
  EXPECT_TRUE(comes_to_pass([&] {
    const std::string socket = control_socket_in(place);
    if (socket.empty()) return true;
    if (auto again = share::connect_to(socket, until); again.ok()) visitor = std::move(again);
    return false;
  }));
  ASSERT_TRUE(visitor.ok()) << visitor.error().text();
  const auto paused = share::tell(*visitor, {.what = share::ControlWhat::Pause}, until);
  tell_program();
  runs.join();

  ASSERT_TRUE(paused.ok()) << paused.error().text();
  EXPECT_EQ(paused->outcome, share::ControlOutcome::Refused);
  EXPECT_EQ(paused->is_paused, 0u);
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("freed at exit"), std::string::npos) << finished.out << finished.err;
}

TEST(PauseCommand, ChildrenOfAProcessThatWasInsideCallsArePausedToo) {
  const Finished finished = run_beside(
      "exec 3>told; until [ $(ls cuvmm | grep -c '^control-[0-9]*-[0-9]*$') = 6 ]; "
      "do sleep 0.05; done\n" +
          cli() + " pause --all --timeout 20s && " + cli() +
          " resume --all && echo all resumed\n"
          "echo >&3; wait $runner; exit",
      "fork-while-calling < told",
      "cd " + own_folder() + "; mkfifo told; exec 4<>told; VMM_SIM_DELAY=cuMemsetD32=5ms",
      program("life"));
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, ": paused: "), 6u) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("all resumed"), std::string::npos) << finished.out << finished.err;
}

// A program that answers requests in this way.
class ProgramThatAnswers {
 public:
  ProgramThatAnswers(const std::string& place, const share::ControlAnswer& answer) {
    ::setenv("XDG_RUNTIME_DIR", place.c_str(), 1);
    auto opened = share::ControlSocket::open();
    ::unsetenv("XDG_RUNTIME_DIR");
    EXPECT_TRUE(opened.ok());
    if (!opened.ok()) return;
    thread_ = std::thread{[this, answer, socket = std::move(*opened)]() mutable {
      while (!ends_) {
        socket.serve([&](const auto&, const auto&, auto*) { return answer; },
                     share::Deadline::after(Duration{10'000}));
      }
    }};
  }
  ~ProgramThatAnswers() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

TEST(PauseCommand, SaysIfAProgramThatCouldNotBePausedIsPausedAllTheSame) {
  share::ControlAnswer answer;
  answer.is_paused = 1;
  answer.say("pause: timed out (it was cancelled)");
  const std::string place = own_folder();
  const ProgramThatAnswers program{place, answer};
  const Finished finished =
      run_program({cli(), "pause", std::to_string(::getpid())}, {{"XDG_RUNTIME_DIR", place}});
  EXPECT_EQ(finished.status, 1);
  EXPECT_NE(finished.err.find("it was cancelled); it is still paused; `cuvmm resume`"),
            std::string::npos)
      << finished.err;
}

TEST(PauseCommand, KilledWhilePausedLeavesNothingBehind) {
  const Finished finished =
      run_beside(cli() + " pause $program && kill -9 $program; wait $runner; exit 0");
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.out.find("paused"), std::string::npos) << finished.err;
  // The next command that looks in the folder removes what the killed program left.
  const Finished all = run_program({cli(), "pause", "--all"}, {{"XDG_RUNTIME_DIR", own_folder()}});
  EXPECT_EQ(all.status, 0) << all.out << all.err;
}

// The program has the same number in each of the two namespaces. From outside the two numbers
// differ.
TEST(PauseCommand, TheSameNumberInTwoNamespacesIsTwoProcesses) {
  const std::string apart = "unshare --pid --fork --kill-child ";
  if (run_program({"sh", "-c", apart + "true"}).status != 0)
    GTEST_SKIP() << "needs rights to unshare";
  const std::string place = own_folder();
  const std::string script =
      "for i in 1 2; do " + apart + cli() + " run --quiet --sim=memory=256M --control -- " +
      example("take_turns") + " --memory 25 --steps 150 --rest 40 & done\n" +
      "for i in $(seq 1000); do [ $(ls " + place +
      "/cuvmm | grep -c '^control-[0-9]*-[0-9]*$') = 2 ]" + " && break; sleep 0.05; done\n" +
      cli() + " pause --all --json; " + cli() + " resume --all; wait; ls " + place + "/cuvmm";
  const Finished finished = run_program({"sh", "-c", script}, {{"XDG_RUNTIME_DIR", place}});
  EXPECT_EQ(lines_with(finished.out, "\"paused\": true"), 2u) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, ": resumed: "), 2u) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, "read back what they wrote"), 2u) << finished.out;
  EXPECT_EQ(finished.out.find("\ncontrol-"), std::string::npos) << finished.out;
}

// Runs a script beside two ranks of a job, $one and $two. In each round, three kernels of each spin
// for the other's. Paused one after the other, the second would find its own spinning for ever.
Finished run_beside_ranks(const std::string& script) {
  const std::string meeting = own_folder() + "/meeting";
  const std::string rank =
      cli() + " run --quiet --sim=devices=2,memory=256M --control -- " + program("rank") + " ";
  const std::string rest = " " + meeting + " 64 100 together 3 & ";
  const std::string start = rank + "0" + rest + "one=$!\n" + rank + "1" + rest + "two=$!\n" +
                            "until [ $(" + cli() +
                            " pause --list | wc -l) = 2 ]; do sleep 0.05; "
                            "done\n";
  return run_program({"sh", "-c", start + script + "\nwait $one && wait $two"},
                     {{"XDG_RUNTIME_DIR", own_folder()}});
}

TEST(PauseCommand, RanksThatWaitForEachOtherArePausedTogether) {
  const Finished finished = run_beside_ranks(
      "for named in \"$one $two\" --all \"$two $one\"; do\n"
      "  sleep 0.2; " +
      cli() + " pause --timeout 20s $named && echo together; " + cli() + " resume --all\ndone");
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, "together"), 3u) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, ": paused: 64.0 MiB"), 6u) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, "all rounds right"), 2u) << finished.out << finished.err;
}

TEST(PauseCommand, AProcessThatCannotBePausedKeepsNoOtherFromIt) {
  const Finished finished = run_beside_ranks(
      cli() + " pause --timeout 20s $one $$ $two; echo status $?; " + cli() + " resume --all");
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("status 1\n"), std::string::npos) << finished.out;
  EXPECT_NE(finished.err.find("has no control socket"), std::string::npos) << finished.err;
  EXPECT_EQ(lines_with(finished.out, ": paused: 64.0 MiB"), 2u) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, "all rounds right"), 2u) << finished.out << finished.err;
}

// A rank without its fellow, whose kernel spins for ever, and two programs that have work all the
// time. These run on until the timeout. With one of 8 s, they then have 2 s to pause without the
// rank, which is the most there is.
TEST(PauseCommand, AProgramWhoseWorkGoesOnKeepsNoOtherFromIt) {
  const std::string run = cli() + " run --quiet --sim=memory=256M --control -- ";
  const std::string turns = run + example("take_turns") + " --memory 25 --steps 1500 --rest 20 & ";
  const Finished finished =
      run_program({"sh", "-c",
                   run + program("rank") + " 0 " + own_folder() + "/meeting 32 1 & " + turns +
                       "one=$!\n" + turns + "two=$!\nuntil [ $(" + cli() +
                       " pause --list | wc -l) = 3 ]; do sleep 0.05; done\n"
                       "for i in 1 2; do\n  sleep 0.3; " +
                       cli() + " pause --timeout 8s --all; " + cli() +
                       " resume --all\ndone\n"
                       "kill -9 $(" +
                       cli() + " pause --list | grep meeting | cut -f1); wait $one && wait $two"},
                  {{"XDG_RUNTIME_DIR", own_folder()}});
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, ": paused: "), 4u) << finished.out << finished.err;
  EXPECT_EQ(lines_with(finished.out, "read back what they wrote"), 2u) << finished.out;
}

TEST(PauseCommand, AllMeansEveryProgramOfTheUser) {
  const Finished finished = run_beside(cli() + " pause --all && " + cli() + " resume --all");
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("resumed"), std::string::npos) << finished.err;
}

// Listens like a program that can be paused, and hangs up on every connection, like one that is
// ending.
class ProgramThatEnds {
 public:
  enum class Socket { Stays, GoesOnceListed };

  ProgramThatEnds(const std::string& folder, Socket socket) {
    ::mkdir(folder.c_str(), 0700);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    const std::string path = folder + "/control-" + std::to_string(::getpid()) + "-1";
    EXPECT_LT(path.size(), sizeof at.sun_path);
    path.copy(at.sun_path, sizeof at.sun_path - 1);
    ::unlink(path.c_str());
    socket_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
    thread_ = std::thread{[this, path, socket] {
      // A listing connects twice: to find stale sockets, and to find the processes of the rest.
      int visits = 0;
      for (int peer; (peer = ::accept(socket_, nullptr, nullptr)) >= 0; ::close(peer)) {
        if (socket == Socket::GoesOnceListed && ++visits == 2) ::unlink(path.c_str());
      }
    }};
  }
  ~ProgramThatEnds() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }

 private:
  int socket_ = -1;
  std::thread thread_;
};

// `--all` asks for every program, and this one has ended.
TEST(PauseCommand, AnEndingProgramIsAnErrorOnlyIfNamed) {
  const std::string place = own_folder();
  const auto pause = [&](const std::string& which) {
    return run_program({cli(), "pause", which}, {{"XDG_RUNTIME_DIR", place}});
  };
  using Socket = ProgramThatEnds::Socket;
  for (const Socket socket : {Socket::Stays, Socket::GoesOnceListed}) {
    const ProgramThatEnds ends{place + "/cuvmm", socket};
    const Finished all = pause("--all");
    EXPECT_EQ(all.status, 0) << all.out << all.err;
    EXPECT_EQ(all.err, "");
  }
  const ProgramThatEnds ends{place + "/cuvmm", Socket::Stays};
  const Finished named = pause(std::to_string(::getpid()));
  EXPECT_EQ(named.status, 1);
  EXPECT_NE(named.err.find("the other process has gone"), std::string::npos) << named.err;
}

TEST(PauseCommand, FailsWithoutAControlSocket) {
  const Finished finished = run_program({cli(), "pause", "1"}, {{"XDG_RUNTIME_DIR", own_folder()}});
  EXPECT_EQ(finished.status, 1);
  EXPECT_NE(finished.err.find("no control socket"), std::string::npos) << finished.err;
}

TEST(PauseCommand, TheSocketEndsWithTheProgram) {
  const Finished finished =
      run_beside("wait $runner && ls " + own_folder() + "/cuvmm; exit", "--memory 25 --steps 50");
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(finished.out.find("control-"), std::string::npos) << finished.out;
}

TEST(PauseCommand, RefusesWrongUsage) {
  EXPECT_EQ(run_program({cli(), "pause"}).status, 2);
  EXPECT_EQ(run_program({cli(), "pause", "--timeout", "soon", "1"}).status, 2);
}

}  // namespace
}  // namespace cuvmm::test
