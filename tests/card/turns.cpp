// SPDX-License-Identifier: Apache-2.0
// How processes share a card's time.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "card_world.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

TEST_F(SharedCards, AProcessAloneKeepsItsTurn) {
  Member alone = member();
  ASSERT_EQ(alone.allocate(2 * MiB), CUDA_SUCCESS);
  ASSERT_EQ(alone.compute(1000), CUDA_SUCCESS);
  EXPECT_EQ(alone.look().card.compute_turns, 1u);
}

TEST_F(SharedCards, WorkIsChargedByTheCostModel) {
  Member alone = member();
  ASSERT_EQ(alone.allocate(2 * MiB), CUDA_SUCCESS);
  ASSERT_EQ(alone.compute(100), CUDA_SUCCESS);
  EXPECT_EQ(alone.look().card.compute_ns, 100u * 10'000);
  EXPECT_EQ(alone.look().card.copy_ns, 0u);
  ASSERT_EQ(alone.copy(10), CUDA_SUCCESS);
  EXPECT_EQ(alone.look().card.compute_ns, 100u * 10'000);
  EXPECT_GT(alone.look().card.copy_ns, 0u);
}

TEST_F(SharedCards, ProcessesWithWorkTakeTurns) {
  Member first = member();
  Member second = member();
  ASSERT_EQ(first.allocate(2 * MiB), CUDA_SUCCESS);
  ASSERT_EQ(second.allocate(2 * MiB), CUDA_SUCCESS);
  const auto had_turns = [](Member& of) { return of.look().card.compute_turns; };
  constexpr Size pieces = 50'000;
  Size of_first = 0;
  Size of_second = 0;
  const auto turns_change_hands = [&] { return of_first > 4 && of_second > 4; };
  const auto turns_are_for_many_pieces = [&] { return 20 * of_first < pieces; };
  // On a busy machine, one of them may have all its turns before the other begins, or lose its turn
  // because it is held up between two pieces.
  for (int batch = 0; !turns_change_hands() || !turns_are_for_many_pieces(); ++batch) {
    ASSERT_LT(batch, 20) << of_first << " and " << of_second << " turns in the last batch";
    const Size first_before = had_turns(first);
    const Size second_before = had_turns(second);
    first.tell(Order::Compute, pieces);
    second.tell(Order::Compute, pieces);
    ASSERT_EQ(first.link().receive<CUresult>(), CUDA_SUCCESS);
    ASSERT_EQ(second.link().receive<CUresult>(), CUDA_SUCCESS);
    of_first = had_turns(first) - first_before;
    of_second = had_turns(second) - second_before;
  }
}

// A page shared between processes, which kernels of the simulated driver can use directly.
class SharedWords {
 public:
  explicit SharedWords(int file)
      : words_(static_cast<std::uint32_t*>(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0))) {
    if (words_ == MAP_FAILED) throw std::runtime_error("no shared words");
  }
  ~SharedWords() { ::munmap(words_, size); }
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;

  static OwnedFd file() {
    OwnedFd made{::memfd_create("cuvmm-test-words", MFD_CLOEXEC)};
    if (::ftruncate(made.get(), size) != 0) throw std::runtime_error("no shared words");
    return made;
  }
  // Two words: a flag, and whether a kernel gave up on it.
  std::uint64_t flag(int which) { return reinterpret_cast<std::uint64_t>(words_ + which * 2); }
  bool given_up_on(int which) { return __atomic_load_n(words_ + which * 2 + 1, __ATOMIC_ACQUIRE); }
  void set(int which) { __atomic_store_n(words_ + which * 2, 1U, __ATOMIC_RELEASE); }
  bool is_set(int which) { return __atomic_load_n(words_ + which * 2, __ATOMIC_ACQUIRE) != 0; }

 private:
  static constexpr std::size_t size = 4096;
  std::uint32_t* words_;
};

// Acts as a rank of a collective: its kernel announces itself, then runs until the other rank's
// does.
CHILD_ROLE(rank) {
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  const Kernels kernels;
  SharedWords words{link.receive_fd().get()};
  const int own = std::stoi(arguments.at(0));
  const int other = 1 - own;
  const GivenStream stream;
  for (int round = 0; round < 3; ++round) {
    GIVEN(launch(kernels.fill, stream, words.flag(round * 2 + own), 1U, 1U));
    GIVEN(launch(kernels.wait_for_flag, stream, words.flag(round * 2 + other)));
    GIVEN(driver().cuStreamSynchronize(stream));
    EXPECT_FALSE(words.given_up_on(round * 2 + other));
  }
}

TEST_F(SharedCards, KernelsThatWaitForEachOtherBothFinish) {
  const OwnedFd file = SharedWords::file();
  Child first{"rank", {"0"}, environment()};
  Child second{"rank", {"1"}, environment()};
  first.link().send_fd(file.get());
  second.link().send_fd(file.get());
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

// Announces that its kernel runs; the kernel runs until the test sets the second flag.
CHILD_ROLE(runs_a_long_kernel) {
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  const Kernels kernels;
  SharedWords words{link.receive_fd().get()};
  const GivenStream stream;
  GIVEN(launch(kernels.fill, stream, words.flag(0), 1U, 1U));
  GIVEN(driver().cuStreamSynchronize(stream));
  GIVEN(launch(kernels.wait_for_flag, stream, words.flag(1)));
  link.signal();
  GIVEN(driver().cuStreamSynchronize(stream));
  EXPECT_FALSE(words.given_up_on(1));
}

class LongKernel {
 public:
  explicit LongKernel(const std::vector<std::string>& environment)
      : child_("runs_a_long_kernel", {}, environment) {
    child_.link().send_fd(file_.get());
    child_.link().wait_for_signal();
  }
  void signal(int number) { ::kill(child_.pid(), number); }
  int end() {
    words_.set(1);
    return child_.wait();
  }

 private:
  OwnedFd file_ = SharedWords::file();
  SharedWords words_{file_.get()};
  Child child_;
};

TEST_F(SharedCards, ALongKernelLeavesTurnsToOthersAndEnds) {
  Member other = member();
  ASSERT_EQ(other.allocate(2 * MiB), CUDA_SUCCESS);
  LongKernel kernel{environment()};
  EXPECT_EQ(other.compute(100), CUDA_SUCCESS);
  EXPECT_EQ(kernel.end(), 0);
}

TEST_F(SharedCards, AStoppedProcessBlocksNoOthers) {
  Member other = member();
  ASSERT_EQ(other.allocate(2 * MiB), CUDA_SUCCESS);
  LongKernel kernel{environment()};
  kernel.signal(SIGSTOP);
  EXPECT_EQ(other.compute(100), CUDA_SUCCESS);
  EXPECT_EQ(other.look().card.processes, 2u);
  kernel.signal(SIGCONT);
  EXPECT_EQ(kernel.end(), 0);
}

TEST_F(SharedCards, AKilledProcessBlocksNoOthers) {
  Member other = member();
  ASSERT_EQ(other.allocate(2 * MiB), CUDA_SUCCESS);
  LongKernel kernel{environment()};
  kernel.signal(SIGKILL);
  EXPECT_EQ(kernel.end(), 128 + SIGKILL);
  EXPECT_EQ(other.compute(100), CUDA_SUCCESS);
  EXPECT_EQ(other.look().card.processes, 1u);
}

TEST_F(SharedCards, CopiesDoNotWaitForAComputeTurn) {
  Member other = member();
  ASSERT_EQ(other.allocate(2 * MiB), CUDA_SUCCESS);
  LongKernel kernel{environment()};
  EXPECT_EQ(other.copy(100), CUDA_SUCCESS);
  EXPECT_EQ(other.look().card.compute_turns, 0u);
  EXPECT_EQ(other.look().card.copy_turns, 1u);
  EXPECT_EQ(kernel.end(), 0);
}

}  // namespace
}  // namespace cuvmm::test
