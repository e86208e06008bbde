// SPDX-License-Identifier: Apache-2.0
// The file behind a shared card, and the obstacles to opening it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "card_world.hpp"
#include "support/lowered_limit.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

void write_file(const std::string& path, const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
  ::chmod(path.c_str(), S_IRUSR | S_IWUSR);
}

TEST_F(SharedCards, StaleFileContentsAreIgnored) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{1} << 20}) {
    write_file(file(), std::string(size, 'x'));
    Member user = member();
    EXPECT_EQ(user.look().total, memory) << size;
    EXPECT_EQ(user.look().free, memory) << size;
    EXPECT_EQ(user.look().card.processes, 1u) << size;
    EXPECT_EQ(user.allocate(memory), CUDA_SUCCESS) << size;
    EXPECT_EQ(user.leave(), 0);
  }
}

TEST_F(SharedCards, AFileThatOthersMayWriteIsRefused) {
  write_file(file(), "");
  ::chmod(file().c_str(), 0666);
  EXPECT_EQ(start_answer(environment()), CUDA_ERROR_OPERATING_SYSTEM);
  ::chmod(file().c_str(), 0600);
  EXPECT_EQ(start_answer(environment()), CUDA_SUCCESS);
}

TEST_F(SharedCards, AnotherUsersFileIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  write_file(file(), "theirs");
  ASSERT_EQ(::chown(file().c_str(), 12345, 12345), 0);
  EXPECT_EQ(start_answer(environment()), CUDA_ERROR_OPERATING_SYSTEM);
  std::string text;
  std::ifstream{file()} >> text;
  EXPECT_EQ(text, "theirs");
}

TEST_F(SharedCards, ALinkIsNotFollowed) {
  const std::string target = file() + "-target";
  write_file(target, "kept");
  ASSERT_EQ(::symlink(target.c_str(), file().c_str()), 0);
  EXPECT_EQ(start_answer(environment()), CUDA_ERROR_OPERATING_SYSTEM);
  std::string text;
  std::ifstream{target} >> text;
  EXPECT_EQ(text, "kept");
  ::unlink(target.c_str());
}

TEST_F(SharedCards, APipeInPlaceOfTheFileIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_EQ(start_answer(environment()), CUDA_ERROR_OPERATING_SYSTEM);
}

TEST_F(SharedCards, AProcessOfAnotherVersionIsLeftAlone) {
  Member user = member();
  const OwnedFd books{::open(file().c_str(), O_RDWR)};
  std::uint64_t mark = 0;
  ASSERT_EQ(::pread(books.get(), &mark, sizeof mark, 0), ssize_t{sizeof mark});
  const std::uint64_t other = mark + 1;
  ASSERT_EQ(::pwrite(books.get(), &other, sizeof other, 0), ssize_t{sizeof other});
  EXPECT_EQ(start_answer(environment()), CUDA_ERROR_OPERATING_SYSTEM);
  ASSERT_EQ(::pwrite(books.get(), &mark, sizeof mark, 0), ssize_t{sizeof mark});
  EXPECT_EQ(start_answer(environment()), CUDA_SUCCESS);
}

// Locks every other place, as live processes would.
TEST_F(SharedCards, ACardHasAMaximumNumberOfProcesses) {
  Member user = member();
  const OwnedFd books{::open(file().c_str(), O_RDWR)};
  struct flock others {};
  others.l_type = F_WRLCK;
  others.l_start = 2;  // after the books' own byte and the first place
  others.l_len = 127;
  ASSERT_EQ(::fcntl(books.get(), F_OFD_SETLK, &others), 0);
  EXPECT_EQ(start_answer(environment()), CUDA_ERROR_OPERATING_SYSTEM);
  others.l_len = 126;
  others.l_type = F_UNLCK;
  ASSERT_EQ(::fcntl(books.get(), F_OFD_SETLK, &others), 0);
  EXPECT_EQ(start_answer(environment()), CUDA_SUCCESS);
}

// The answer while no file can be created or opened, and the answer afterwards.
struct TwoAnswers {
  CUresult without = CUDA_SUCCESS;
  CUresult with = CUDA_SUCCESS;
};

void send_answers(Link& link, int resource, rlim_t least) {
  (void)driver();  // loading the driver takes descriptors of its own
  TwoAnswers answers;
  {
    const LoweredLimit lowered{resource, least};
    answers.without = driver().cuInit(0);
  }
  answers.with = driver().cuInit(0);
  link.send(answers);
}

CHILD_ROLE(starts_without_room) {
  std::signal(SIGXFSZ, SIG_IGN);
  send_answers(link, RLIMIT_FSIZE, 0);
}
CHILD_ROLE(starts_without_descriptors) {
  send_answers(link, RLIMIT_NOFILE, 0);
}

TEST_F(SharedCards, AFullFileSystemIsReportedAsAnError) {
  Child child{"starts_without_room", {}, environment()};
  const auto answers = child.link().receive<TwoAnswers>();
  EXPECT_EQ(answers.without, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(answers.with, CUDA_SUCCESS);
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(SharedCards, StartWithoutDescriptorsFailsAndMayBeRetried) {
  Child child{"starts_without_descriptors", {}, environment()};
  const auto answers = child.link().receive<TwoAnswers>();
  EXPECT_EQ(answers.without, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(answers.with, CUDA_SUCCESS);
  EXPECT_EQ(child.wait(), 0);
}

// As programs do when they become daemons.
CHILD_ROLE(closes_what_is_open) {
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  CUdeviceptr first = 0;
  GIVEN(driver().cuMemAlloc(&first, 8 * MiB));
  for (int number = 3; number < 1024; ++number) {
    if (number != link.fd()) ::close(number);
  }
  if (!arguments.empty()) ::unlink(arguments.front().c_str());
  CUdeviceptr second = 0;
  link.send(driver().cuMemAlloc(&second, 4 * MiB));
  link.wait_for_signal();
  link.send(driver().cuMemFree(first));
  link.wait_for_signal();
}

TEST_F(SharedCards, AProcessThatClosesAllFilesKeepsWorking) {
  Member other = member();
  Child child{"closes_what_is_open", {}, environment({"VMM_SIM_BACKING=none"})};
  EXPECT_EQ(child.link().receive<CUresult>(), CUDA_SUCCESS);
  EXPECT_EQ(other.look().card.held_by_all, 12 * MiB);
  EXPECT_EQ(other.look().card.processes, 2u);
  child.link().signal();
  EXPECT_EQ(child.link().receive<CUresult>(), CUDA_SUCCESS);
  EXPECT_EQ(other.look().card.held_by_all, 4 * MiB);
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(other.look().card.held_by_all, 0u);
}

TEST_F(SharedCards, AProcessThatCannotOpenTheFileAgainGetsNoMoreMemory) {
  Member other = member();
  Child child{"closes_what_is_open", {file()}, environment({"VMM_SIM_BACKING=none"})};
  EXPECT_EQ(child.link().receive<CUresult>(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(other.look().card.held_by_all, 8 * MiB);
  child.link().signal();
  EXPECT_EQ(child.link().receive<CUresult>(), CUDA_SUCCESS);
  EXPECT_EQ(other.look().card.held_by_all, 0u);
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace cuvmm::test
