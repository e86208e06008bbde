// SPDX-License-Identifier: Apache-2.0
#include "preload/run_program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "support/test_folder.hpp"

namespace cuvmm::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto patience = std::chrono::seconds{180};

// Reads both pipes until both are closed or the time is up.
bool read_to_the_end(int out, int err, Finished& finished) {
  const auto until = Clock::now() + patience;
  pollfd pipes[] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  std::string* texts[] = {&finished.out, &finished.err};
  int open_pipes = 2;
  while (open_pipes > 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    if (poll(pipes, 2, static_cast<int>(left.count())) < 0 && errno != EINTR) return false;
    for (int i = 0; i < 2; ++i) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t size = read(pipes[i].fd, buffer, sizeof buffer);
      if (size > 0) {
        texts[i]->append(buffer, static_cast<std::size_t>(size));
      } else {
        pipes[i].fd = -1;
        --open_pipes;
      }
    }
  }
  return true;
}

// The command that runs a program built for another processor. The preload library is named to it
// alone, since it runs on this one itself.
std::vector<std::string> emulator_of(const std::string& program) {
  std::vector<std::string> words;
  const char* const emulator = std::getenv("CUVMM_TEST_EMULATOR");
  if (emulator == nullptr || program.find('/') == std::string::npos) return words;
  std::istringstream text{emulator};
  for (std::string word; text >> word;) words.push_back(word);
  if (const char* const preloaded = std::getenv("LD_PRELOAD")) {
    words.insert(words.end(), {"-E", std::string{"LD_PRELOAD="} + preloaded});
    unsetenv("LD_PRELOAD");
  }
  return words;
}

[[noreturn]] void become(const std::vector<std::string>& command, const Variables& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> emulated = emulator_of(command.front());
  std::vector<char*> words;
  for (std::string& word : emulated) words.push_back(word.data());
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  _exit(127);
}

std::string build_folder() {
  return fs::read_symlink("/proc/self/exe").parent_path().parent_path().string();
}

}  // namespace

Finished run_program(const std::vector<std::string>& command, const Variables& variables) {
  Finished finished;
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) return finished;
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    become(command, variables);
  }
  close(out[1]);
  close(err[1]);
  const bool ended = read_to_the_end(out[0], err[0], finished);
  if (!ended) kill(child, SIGKILL);
  close(out[0]);
  close(err[0]);
  int status = 0;
  waitpid(child, &status, 0);
  finished.status = !ended                ? 124
                    : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                          : WEXITSTATUS(status);
  return finished;
}

std::string program(const std::string& name) {
  return build_folder() + "/tests/programs/cuvmm_program_" + name;
}
std::string example(const std::string& name) {
  return build_folder() + "/bin/" + name;
}
std::string cli() {
  return build_folder() + "/bin/cuvmm";
}
std::string preload_library() {
  return build_folder() + "/lib/libcuvmm_preload.so";
}
std::string stub_library() {
  return build_folder() + "/lib/libcuvmm_stub.so";
}
std::string sim_directory() {
  return build_folder() + "/lib/cuvmm/sim";
}

std::string library_of_programs(const std::string& name) {
  return build_folder() + "/tests/programs/libcuvmm_" + name + ".so";
}

std::size_t lines_with(const std::string& text, const std::string& words) {
  std::size_t lines = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    ++lines;
  }
  return lines;
}

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

Variables natively() {
  return {{"LD_LIBRARY_PATH", sim_directory()}};
}

Variables under_cuvmm(Variables more) {
  more.emplace("LD_LIBRARY_PATH", sim_directory());
  more.emplace("LD_PRELOAD", preload_library());
  return more;
}

std::string own_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string{test->test_suite_name()} + "." + test->name();
  for (char& letter : name) {
    if (letter == '/') letter = '_';
  }
  const fs::path folder = test_folder() / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder.string();
}

::testing::AssertionResult says(const Finished& finished, const std::string& text) {
  if (finished.out.find(text) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << text << "' is not said in:\n"
                                       << finished.out << finished.err;
}

}  // namespace cuvmm::test
