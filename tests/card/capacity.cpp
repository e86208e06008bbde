// SPDX-License-Identifier: Apache-2.0
// Which process holds how much of a shared card.
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "card_world.hpp"
#include "support/memory.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

TEST_F(SharedCards, MemoryHeldByOneProcessIsUnavailableToAnother) {
  Member first = member();
  Member second = member();
  ASSERT_EQ(first.allocate(40 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(second.look().free, memory - 40 * MiB);
  EXPECT_EQ(second.look().total, memory);
  EXPECT_EQ(second.allocate(40 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(second.look().card.held_bytes, 0u);
  ASSERT_EQ(first.free(), CUDA_SUCCESS);
  EXPECT_EQ(second.allocate(40 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(first.look().free, memory - 40 * MiB);
}

TEST_F(SharedCards, ExactlyTheWholeCardCanBeAllocated) {
  Member first = member();
  Member second = member();
  ASSERT_EQ(first.allocate(32 * MiB), CUDA_SUCCESS);
  ASSERT_EQ(second.allocate(32 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(first.look().free, 0u);
  EXPECT_EQ(first.allocate(2 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(second.allocate(2 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(SharedCards, AKilledProcessFreesItsMemory) {
  Member survivor = member();
  Member killed = member();
  ASSERT_EQ(killed.allocate(60 * MiB), CUDA_SUCCESS);
  ASSERT_EQ(survivor.allocate(60 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
  killed.kill();
  EXPECT_EQ(survivor.allocate(60 * MiB), CUDA_SUCCESS);
  const CardLook look = survivor.look();
  EXPECT_EQ(look.card.held_by_all, 60 * MiB);
  EXPECT_EQ(look.card.processes, 1u);
}

TEST_F(SharedCards, AnEndedProcessFreesItsMemory) {
  Member survivor = member();
  Member leaving = member();
  ASSERT_EQ(leaving.allocate(60 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(leaving.leave(), 0);
  EXPECT_EQ(survivor.look().free, memory);
}

TEST_F(SharedCards, CardsOfDifferentNamesAreDifferentCards) {
  Member here = member();
  Member elsewhere{environment({"VMM_SIM_CARD=" + name() + "-other"})};
  ASSERT_EQ(here.allocate(60 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(elsewhere.allocate(60 * MiB), CUDA_SUCCESS);
  EXPECT_NE(here.look().uuid, elsewhere.look().uuid);
  ::unlink((file() + "-other").c_str());
}

TEST_F(SharedCards, AllProcessesSeeTheSameDevice) {
  Member first = member();
  Member second = member();
  EXPECT_EQ(first.look().uuid, second.look().uuid);
}

TEST_F(SharedCards, TheFirstProcessDefinesTheCard) {
  std::optional<Member> first{std::in_place, environment()};
  const auto larger = environment({"VMM_SIM_MEMORY=1G", "VMM_SIM_DEVICES=2"});
  Member second{larger};
  EXPECT_EQ(second.look().total, memory);
  EXPECT_EQ(second.look().devices, 1);
}

TEST_F(SharedCards, AnUnusedCardIsCreatedAgain) {
  { EXPECT_EQ(member().leave(), 0); }
  Member later{environment({"VMM_SIM_MEMORY=1G", "VMM_SIM_DEVICES=2"})};
  EXPECT_EQ(later.look().total, 1 * GiB);
  EXPECT_EQ(later.look().devices, 2);
}

// The child writes a byte once it runs. Until then the system has not yet closed the descriptors
// that it must not inherit.
pid_t once_it_runs(int reads_from, pid_t started) {
  char byte = 0;
  return ::read(reads_from, &byte, 1) == 1 ? started : -1;
}
pid_t fork_that_waits() {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t forked = ::fork();
  if (forked != 0) return once_it_runs(ends[0], forked);
  (void)!::write(ends[1], "f", 1);
  for (;;) ::pause();
}
pid_t program_that_waits() {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const char* const words[] = {"/bin/sh", "-c", "echo; exec sleep 600", nullptr};
  pid_t started = -1;
  ::posix_spawn(&started, words[0], &actions, nullptr, const_cast<char**>(words), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return once_it_runs(ends[0], started);
}

void hold_memory_and_start(Link& link, pid_t (*start)()) {
  PrimaryContext context;
  const GivenBlocking held{60 * MiB};
  link.send(start());
  link.wait_for_signal();
}
CHILD_ROLE(holds_memory_and_forks) {
  GIVEN(driver().cuInit(0));
  hold_memory_and_start(link, &fork_that_waits);
}
CHILD_ROLE(holds_memory_and_starts_a_program) {
  GIVEN(driver().cuInit(0));
  hold_memory_and_start(link, &program_that_waits);
}

// The children outlive the process, but its memory is freed with it.
void expect_memory_to_go_with(const std::string& role, Member& survivor,
                              const std::vector<std::string>& environment) {
  Child holder{role, {}, environment};
  const auto started = holder.link().receive<pid_t>();
  ASSERT_GT(started, 0);
  EXPECT_EQ(survivor.look().free, SharedCards::memory - 60 * MiB);
  ::kill(holder.pid(), SIGKILL);
  EXPECT_EQ(holder.wait(), 128 + SIGKILL);
  EXPECT_EQ(survivor.look().free, SharedCards::memory);
  EXPECT_EQ(::kill(started, 0), 0) << "it was to live on";
  ::kill(started, SIGKILL);
}

TEST_F(SharedCards, AForkedChildDoesNotKeepItsParentsMemory) {
  Member survivor = member();
  expect_memory_to_go_with("holds_memory_and_forks", survivor, environment());
}

TEST_F(SharedCards, AStartedProgramDoesNotKeepItsParentsMemory) {
  Member survivor = member();
  expect_memory_to_go_with("holds_memory_and_starts_a_program", survivor, environment());
}

TEST_F(SharedCards, TheEndOfAForkedChildFreesNothing) {
  Member survivor = member();
  Child holder{"holds_memory_and_forks", {}, environment()};
  const auto forked = holder.link().receive<pid_t>();
  const OwnedFd watched{static_cast<int>(::syscall(SYS_pidfd_open, forked, 0))};
  ::kill(forked, SIGKILL);
  pollfd ended{.fd = watched.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&ended, 1, 60'000), 1);
  EXPECT_EQ(survivor.look().free, memory - 60 * MiB);
}

// Takes more than half of the card each time, so that no two processes can hold it at once. On a
// busy machine, another process may hold it through thousands of tries.
CHILD_ROLE(takes_most_of_it_often) {
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  link.signal();
  link.wait_for_signal();
  Size had = 0;
  constexpr int most_tries = 10'000'000;
  for (int i = 0; i < 4000 || (had == 0 && i < most_tries); ++i) {
    CUdeviceptr address = 0;
    if (driver().cuMemAlloc(&address, 40 * MiB) != CUDA_SUCCESS) continue;
    cuvmm_sim_card card{};
    sim()->read_card(0, &card);
    EXPECT_LE(card.held_by_all, SharedCards::memory);
    GIVEN(driver().cuMemFree(address));
    ++had;
  }
  EXPECT_GT(had, 0u);
}

TEST_F(SharedCards, TheLastMemoryGoesToExactlyOneProcess) {
  std::vector<std::unique_ptr<Child>> takers;
  const auto quickly = environment({"VMM_SIM_BACKING=none"});
  for (int i = 0; i < 3; ++i) {
    takers.push_back(std::make_unique<Child>("takes_most_of_it_often", ChildArguments{}, quickly));
    takers.back()->link().wait_for_signal();
  }
  for (const auto& taker : takers) taker->link().signal();
  for (const auto& taker : takers) EXPECT_EQ(taker->wait(), 0);
}

// Allocates and frees at random until stopped, then reports what it holds.
CHILD_ROLE(churns) {
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  std::mt19937_64 chance{std::stoull(arguments.at(0))};
  std::vector<std::pair<CUdeviceptr, Size>> held;
  link.signal();
  pollfd told{.fd = link.fd(), .events = POLLIN, .revents = 0};
  while (::poll(&told, 1, 0) == 0) {
    const Size bytes = (1 + chance() % 8) * 2 * MiB;
    CUdeviceptr address = 0;
    if (chance() % 2 == 0 && driver().cuMemAlloc(&address, bytes) == CUDA_SUCCESS) {
      held.emplace_back(address, bytes);
    } else if (!held.empty()) {
      std::swap(held[chance() % held.size()], held.back());
      GIVEN(driver().cuMemFree(held.back().first));
      held.pop_back();
    }
  }
  link.wait_for_signal();
  Size sum = 0;
  for (const auto& [address, bytes] : held) sum += bytes;
  link.send(sum);
  link.wait_for_signal();
}

TEST_F(SharedCards, BooksAreExactAfterRandomKills) {
  PRINT_SEED_ON_FAILURE();
  std::mt19937_64 chance{seed()};
  Member observer = member();
  const auto start = [&] {
    auto child = std::make_unique<Child>(
        "churns", std::vector<std::string>{std::to_string(chance())}, environment());
    child->link().wait_for_signal();
    return child;
  };
  std::vector<std::unique_ptr<Child>> churning;
  for (int i = 0; i < 4; ++i) churning.push_back(start());
  for (std::uint64_t kills = 0; kills < scaled(40); ++kills) {
    auto& chosen = churning[chance() % churning.size()];
    ::kill(chosen->pid(), SIGKILL);
    EXPECT_EQ(chosen->wait(), 128 + SIGKILL);
    chosen = start();
    EXPECT_LE(observer.look().card.held_by_all, memory);
  }
  Size sum = 0;
  for (const auto& child : churning) {
    child->link().signal();
    sum += child->link().receive<Size>();
  }
  const CardLook look = observer.look();
  EXPECT_EQ(look.card.held_by_all, sum);
  EXPECT_EQ(look.free, memory - sum);
  EXPECT_EQ(look.card.processes, 5u);
  for (const auto& child : churning) {
    child->link().signal();
    EXPECT_EQ(child->wait(), 0);
  }
  EXPECT_EQ(observer.look().free, memory);
}

}  // namespace
}  // namespace cuvmm::test
