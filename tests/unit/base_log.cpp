// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/log_rarely.hpp"

namespace cuvmm::test {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file{path};
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text{contents(path)};
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

mode_t mode_of(const std::string& path) {
  struct stat facts {};
  EXPECT_EQ(::stat(path.c_str(), &facts), 0) << path;
  return facts.st_mode & 07777;
}

// A line's parts, as docs/internals/log_format.md names them.
struct Record {
  std::string speaker;
  int pid = 0;
  std::string severity;
  unsigned long long time_us = 0;
  std::string text;
};

Record parsed(const std::string& line) {
  Record record;
  char speaker[32] = "";
  char severity[32] = "";
  int text_at = -1;
  const int fields = std::sscanf(line.c_str(), "%31[^[][%d] %31s %llu %n", speaker, &record.pid,
                                 severity, &record.time_us, &text_at);
  EXPECT_EQ(fields, 4) << line;
  record.speaker = speaker;
  record.severity = severity;
  if (text_at > 0) record.text = line.substr(static_cast<std::size_t>(text_at));
  return record;
}

class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/cuvmm_log_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    folder_ = pattern;
    standard_error_before_ = Fd{::dup(STDERR_FILENO)};
    const Fd captured{::open(standard_error().c_str(), O_RDWR | O_CREAT | O_APPEND, 0600)};
    ASSERT_GE(::dup2(captured.number(), STDERR_FILENO), 0);
    detail::look_at_standard_error();
  }
  void TearDown() override {
    EXPECT_TRUE(set_up_log({}));
    ::dup2(standard_error_before_.number(), STDERR_FILENO);
    detail::look_at_standard_error();
    std::filesystem::remove_all(folder_);
  }

  std::string in_folder(const char* name) const { return folder_ + "/" + name; }
  std::string standard_error() const { return in_folder("stderr"); }

  std::string folder_;
  Fd standard_error_before_;
};

TEST_F(Log, LineSaysWhoWhenAndWhat) {
  const auto before = now_us();
  CUVMM_LOG(Error, "map address=0x%x size=%d", 0x200000, 4096);
  const auto lines = lines_of(standard_error());
  ASSERT_EQ(lines.size(), 1u);
  const Record record = parsed(lines[0]);
  EXPECT_EQ(record.speaker, "cuvmm");
  EXPECT_EQ(record.pid, ::getpid());
  EXPECT_EQ(record.severity, "ERROR");
  EXPECT_GE(record.time_us, before);
  EXPECT_LE(record.time_us, now_us());
  EXPECT_EQ(record.text, "map address=0x200000 size=4096");
}

TEST(LogRarely, LogsOneLinePerIntervalWithTheNumberSuppressed) {
  Rarely rarely;
  EXPECT_TRUE(rarely.may_say(1'000));
  EXPECT_EQ(rarely.left_out(), 0U);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(rarely.may_say(1'001 + i));
  EXPECT_TRUE(rarely.may_say(1'000 + Rarely::between_us));
  EXPECT_EQ(rarely.left_out(), 5U);
  EXPECT_EQ(rarely.left_out(), 0U);
}

TEST_F(Log, LevelDecidesWhatIsLogged) {
  const std::pair<LogLevel, const char*> table[] = {
      {LogLevel::Error, "ERROR "},
      {LogLevel::Warning, "ERROR WARNING "},
      {LogLevel::Info, "ERROR WARNING INFO "},
      {LogLevel::Debug, "ERROR WARNING INFO DEBUG "},
  };
  for (const auto& [level, expected] : table) {
    ASSERT_EQ(::truncate(standard_error().c_str(), 0), 0);
    ASSERT_TRUE(set_up_log({.level = level}));
    CUVMM_LOG(Error, "e");
    CUVMM_LOG(Warning, "w");
    CUVMM_LOG(Info, "i");
    CUVMM_LOG(Debug, "d");
    std::string seen;
    for (const auto& line : lines_of(standard_error())) seen += parsed(line).severity + " ";
    EXPECT_EQ(seen, expected);
  }
}

TEST_F(Log, ArgumentsOfSuppressedLinesAreNotEvaluated) {
  int asked = 0;
  const auto ask = [&] { return ++asked; };
  CUVMM_LOG(Info, "answer=%d", ask());
  EXPECT_EQ(asked, 0);
}

TEST_F(Log, SpeakerIsNamed) {
  ASSERT_TRUE(set_up_log({.name = "cuvmm-sim"}));
  CUVMM_LOG(Warning, "text");
  EXPECT_EQ(parsed(lines_of(standard_error()).at(0)).speaker, "cuvmm-sim");
}

TEST_F(Log, OneRecordIsOneLine) {
  CUVMM_LOG(Error, "first\nsecond\r\nthird %s", "a\nb");
  const auto lines = lines_of(standard_error());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(parsed(lines[0]).text, "first second  third a b");
}

TEST_F(Log, LongTextIsCutAndSaysSo) {
  const std::string text(5000, 'x');
  CUVMM_LOG(Error, "%s", text.c_str());
  CUVMM_LOG(Error, "next");
  const auto lines = lines_of(standard_error());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_LT(lines[0].size(), 1024u);
  EXPECT_GT(lines[0].size(), 1000u);
  EXPECT_EQ(lines[0].substr(lines[0].size() - 4), "x...");
  EXPECT_EQ(parsed(lines[1]).text, "next");
}

TEST_F(Log, OnceLogsOncePerPlace) {
  for (int i = 0; i < 3; ++i) CUVMM_LOG_ONCE(Warning, "here %d", i);
  CUVMM_LOG_ONCE(Warning, "there");
  EXPECT_EQ(lines_of(standard_error()).size(), 2u);
}

TEST_F(Log, ASuppressedLineDoesNotUseUpOnce) {
  for (const LogLevel level : {LogLevel::Error, LogLevel::Info}) {
    ASSERT_TRUE(set_up_log({.level = level}));
    CUVMM_LOG_ONCE(Info, "text");
  }
  EXPECT_EQ(lines_of(standard_error()).size(), 1u);
}

TEST_F(Log, KeepsErrno) {
  errno = ENOTDIR;
  CUVMM_LOG(Error, "text");
  EXPECT_EQ(errno, ENOTDIR);
}

TEST_F(Log, FileIsPrivateToItsOwner) {
  const std::string path = in_folder("log");
  const mode_t mask = ::umask(0);
  const auto set_up = set_up_log({.file = path});
  ::umask(mask);
  ASSERT_TRUE(set_up);
  CUVMM_LOG(Error, "text");
  EXPECT_EQ(mode_of(path), 0600u);
  EXPECT_EQ(lines_of(path).size(), 1u);
  EXPECT_EQ(contents(standard_error()), "");
}

TEST_F(Log, FileIsAppendedTo) {
  const std::string path = in_folder("log");
  std::ofstream{path} << "somebody's line\n";
  ASSERT_TRUE(set_up_log({.file = path}));
  CUVMM_LOG(Error, "text");
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "somebody's line");
}

TEST_F(Log, FileNameHoldsProcessAndHost) {
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  const std::string pid = std::to_string(::getpid());
  EXPECT_EQ(expand_file_name("a.%p.b"), "a." + pid + ".b");
  EXPECT_EQ(expand_file_name("%h/%p"), std::string(host) + "/" + pid);
  EXPECT_EQ(expand_file_name("100%%p %x %"), "100%p %x %");
  ASSERT_TRUE(set_up_log({.file = in_folder("log.%p")}));
  CUVMM_LOG(Error, "text");
  EXPECT_EQ(lines_of(in_folder("log.") + pid).size(), 1u);
}

// Each refusal returns an Error and logs one warning; lines then go to standard error.
class LogRefuses : public Log {
 protected:
  void expect_refused(const std::string& path) {
    EXPECT_FALSE(set_up_log({.file = path})) << path;
    CUVMM_LOG(Error, "after");
    const auto lines = lines_of(standard_error());
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(parsed(lines[0]).severity, "WARNING");
    EXPECT_NE(lines[0].find(path), std::string::npos) << lines[0];
    EXPECT_EQ(parsed(lines[1]).text, "after");
  }
};

TEST_F(LogRefuses, ASymbolicLink) {
  const std::string target = in_folder("target");
  std::ofstream{target} << "precious";
  const std::string link = in_folder("link");
  ASSERT_EQ(::symlink(target.c_str(), link.c_str()), 0);
  expect_refused(link);
  EXPECT_EQ(contents(target), "precious");
}

TEST_F(LogRefuses, AMissingFolder) {
  expect_refused(in_folder("none/log"));
}

TEST_F(LogRefuses, AFolder) {
  expect_refused(folder_);
}

TEST_F(LogRefuses, APipeAndDoesNotHang) {
  const std::string pipe = in_folder("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(pipe);
}

TEST_F(LogRefuses, AFileOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make such a file";
  const std::string path = in_folder("theirs");
  std::ofstream{path} << "theirs";
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  expect_refused(path);
  EXPECT_EQ(contents(path), "theirs");
}

TEST_F(Log, AFullDiskEndsTheFileWithOneWarning) {
  ASSERT_TRUE(set_up_log({.file = "/dev/full"}));
  CUVMM_LOG(Error, "first");
  CUVMM_LOG(Error, "second");
  const auto lines = lines_of(standard_error());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(parsed(lines[0]).severity, "WARNING");
  EXPECT_EQ(parsed(lines[1]).text, "first");
  EXPECT_EQ(parsed(lines[2]).text, "second");
}

// The descriptor number of the file at `path` in this process.
int number_of(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) == path) {
      return std::stoi(entry.path().filename());
    }
  }
  return -1;
}

TEST_F(Log, AProgramsOwnFileUnderOurOldNumberGetsNoLine) {
  ASSERT_TRUE(set_up_log({.file = in_folder("log")}));
  const int ours = number_of(in_folder("log"));
  ASSERT_GE(ours, 0);
  const Fd theirs{::open(in_folder("theirs").c_str(), O_WRONLY | O_CREAT, 0600)};
  ASSERT_EQ(::dup2(theirs.number(), ours), ours);  // as after a daemon()
  CUVMM_LOG(Error, "text");
  EXPECT_EQ(contents(in_folder("theirs")), "");
  EXPECT_EQ(parsed(lines_of(standard_error()).at(1)).text, "text");
  ASSERT_TRUE(set_up_log({}));
  EXPECT_EQ(::write(ours, "mine", 4), 4);  // the program's file was not closed
  ::close(ours);
}

TEST_F(Log, FileIsNotPassedOnToOtherPrograms) {
  ASSERT_TRUE(set_up_log({.file = in_folder("log")}));
  const int ours = number_of(in_folder("log"));
  ASSERT_GE(ours, 0);
  EXPECT_NE(::fcntl(ours, F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(Log, AClosedPipeDoesNotEndTheProgram) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  ::dup2(ends[1], STDERR_FILENO);
  ::close(ends[1]);
  detail::look_at_standard_error();
  CUVMM_LOG(Error, "nobody reads this");  // SIGPIPE would end the test
  sigset_t blocked;
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
  EXPECT_EQ(::sigismember(&blocked, SIGPIPE), 0);
}

// Runs the work in a child, since a signal would end this process.
int status_of_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST_F(Log, ALimitOnTheSizeOfFilesDoesNotEndTheProgram) {
  const auto write_too_much = [&](const std::string& file) {
    const rlimit small{256, 256};
    ::setrlimit(RLIMIT_FSIZE, &small);
    (void)set_up_log({.file = file}).ok();
    for (int i = 0; i < 20; ++i) CUVMM_LOG(Error, "a line that is followed by many others");
  };
  EXPECT_EQ(status_of_child([&] { write_too_much(in_folder("log")); }), 0);
  EXPECT_EQ(status_of_child([&] { write_too_much(""); }), 0);
  EXPECT_EQ(std::filesystem::file_size(standard_error()), 256u);
}

TEST_F(Log, AProgramsOwnFileUnderTheNumberOfStandardErrorGetsNoLine) {
  ::close(STDERR_FILENO);
  const Fd theirs{::open(in_folder("theirs").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  ASSERT_EQ(theirs.number(), STDERR_FILENO);
  CUVMM_LOG(Error, "text");
  EXPECT_EQ(contents(in_folder("theirs")), "");
}

TEST_F(Log, RedirectedStandardErrorGetsLines) {
  const Fd output_before{::dup(STDOUT_FILENO)};
  const Fd both{::open(in_folder("both").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
  ::dup2(both.number(), STDOUT_FILENO);
  ::dup2(both.number(), STDERR_FILENO);
  CUVMM_LOG(Error, "text");
  ::dup2(output_before.number(), STDOUT_FILENO);
  EXPECT_EQ(lines_of(in_folder("both")).size(), 1u);
}

TEST_F(Log, LinesOfManyThreadsAndProcessesNeverMix) {
  constexpr int processes = 2, threads = 4, lines_each = 500;
  const std::string path = in_folder("log");
  ASSERT_TRUE(set_up_log({.level = LogLevel::Info, .file = path}));
  const auto write_lines = [&](int who) {
    const std::string tail(static_cast<std::size_t>(40 + who * 90), static_cast<char>('a' + who));
    for (int i = 0; i < lines_each; ++i) CUVMM_LOG(Info, "%d %d %s.", who, i, tail.c_str());
  };
  const auto run = [&] {
    std::vector<std::thread> writers;
    for (int who = 0; who < threads; ++who) writers.emplace_back(write_lines, who);
    for (auto& writer : writers) writer.join();
  };
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  run();
  if (child == 0) ::_exit(0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);

  std::vector<std::vector<int>> next(processes, std::vector<int>(threads, 0));
  const auto lines = lines_of(path);
  EXPECT_EQ(lines.size(), std::size_t{processes * threads * lines_each});
  for (const auto& line : lines) {
    const Record record = parsed(line);
    int who = -1, i = -1, at = 0;
    ASSERT_EQ(std::sscanf(record.text.c_str(), "%d %d %n", &who, &i, &at), 2) << line;
    ASSERT_TRUE(who >= 0 && who < threads) << line;
    const std::string tail(static_cast<std::size_t>(40 + who * 90), static_cast<char>('a' + who));
    ASSERT_EQ(record.text.substr(static_cast<std::size_t>(at)), tail + ".");
    ASSERT_EQ(i, next[record.pid == child ? 1 : 0][static_cast<std::size_t>(who)]++) << line;
  }
}

}  // namespace
}  // namespace cuvmm::test
