// SPDX-License-Identifier: Apache-2.0
// IPC handles of blocking memory that cuvmm serves, as the hooks use them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "ipc_world.hpp"
#include "support/fault_sweep.hpp"
#include "support/named_connection.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr Size large = 5 * MiB;

class LegacyIpcTest : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    world = std::make_unique<IpcWorld>(driver());
  }
  void TearDown() override {
    if (world != nullptr) {
      EXPECT_EQ(world->memory.violation(), std::nullopt);
    }
    world.reset();
    EXPECT_EQ(retry_releases(), 0u);
    DriverContract::TearDown();
  }
  // Waits for this count, since a separate thread takes back what importers release.
  bool comes_to(std::size_t kept) const {
    const auto until = in_time();
    while (world->memory.lending().kept() != kept) {
      if (until.is_over()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
  }
  std::unique_ptr<IpcWorld> world;
};

CHILD_ROLE(borrows) {
  PrimaryContext context;
  IpcWorld world{driver()};
  const auto handle = link.receive<CUipcMemHandle>();
  const auto seeds = link.receive<std::array<std::uint32_t, 2>>();
  const auto size = link.receive<Size>();
  const CUdeviceptr first = world.open(handle);
  EXPECT_EQ(world.open(handle), first);
  const auto facts = world.memory.find(first + size - 1);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->address, first);
  EXPECT_EQ(facts->asked, size);
  EXPECT_EQ(world.memory.context_of(*facts), context.get());
  EXPECT_EQ(world.memory.free(first), Answer{CUDA_ERROR_INVALID_VALUE});
  expect_pattern(first, size, seeds[0]);
  EXPECT_EQ(world.ipc.close(first), Answer{CUDA_SUCCESS});
  fill_pattern(first, size, seeds[1]);
  GIVEN(synchronize());
  link.signal();
  link.wait_for_signal();
  EXPECT_EQ(world.ipc.close(first), Answer{CUDA_SUCCESS});
  EXPECT_EQ(world.ipc.close(first), std::nullopt);
  EXPECT_FALSE(world.memory.find(first).has_value());
}

// As for the driver's own memory: calls that a capture of another thread allows, and calls that
// break it.
CHILD_ROLE(closes_beside_captures) {
  PrimaryContext context;
  IpcWorld world{driver()};
  const auto handle = link.receive<CUipcMemHandle>();
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                          CU_STREAM_CAPTURE_MODE_RELAXED}) {
    SCOPED_TRACE(mode);
    const bool is_allowed = mode != CU_STREAM_CAPTURE_MODE_GLOBAL;
    const CUdeviceptr opened = world.open(handle);
    CUstream stream = nullptr;
    GIVEN(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GIVEN(driver().cuStreamBeginCapture(stream, mode));
    world.captures.began();
    Answer closed;
    std::thread{[&] {
      GIVEN(driver().cuCtxSetCurrent(context.get()));
      closed = world.ipc.close(opened);
    }}.join();
    CUgraph graph = nullptr;
    EXPECT_EQ(driver().cuStreamEndCapture(stream, &graph),
              is_allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    world.captures.ended();
    EXPECT_EQ(closed, Answer{is_allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED});
    if (!is_allowed) {
      EXPECT_EQ(world.ipc.close(opened), Answer{CUDA_SUCCESS});
    }
    if (graph != nullptr) {
      EXPECT_CUDA(driver().cuGraphDestroy(graph));
    }
    EXPECT_CUDA(driver().cuStreamDestroy(stream));
  }
}

TEST_F(LegacyIpcTest, IsClosedBesideACaptureIfTheDriverWouldDoSo) {
  const CUdeviceptr address = world->allocate(large);
  Child child{"closes_beside_captures"};
  child.link().send(world->handle_of(address));
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(world->memory.free(address), Answer{CUDA_SUCCESS});
}

TEST_F(LegacyIpcTest, IsTheSameMemoryAtOneAddressAndCounted) {
  for (const Size size : {Size{4096}, 64 * KiB, 100 * KiB, 2 * MiB, large, 40 * MiB}) {
    SCOPED_TRACE(size);
    const CUdeviceptr neighbour = world->allocate(size);
    const CUdeviceptr address = world->allocate(size);
    fill_pattern(neighbour, size, 7);
    Child child{"borrows"};
    lend_to(child, *world, address, size, 21);
    child.link().wait_for_signal();
    expect_pattern(address, size, 22);
    expect_pattern(neighbour, size, 7);
    child.link().signal();
    EXPECT_EQ(child.wait(), 0);
    EXPECT_EQ(world->memory.free(address), Answer{CUDA_SUCCESS});
    EXPECT_EQ(world->memory.free(neighbour), Answer{CUDA_SUCCESS});
  }
}

TEST_F(LegacyIpcTest, HandlesAreTheSameEachTimeAndForEveryAddressWithin) {
  const CUdeviceptr address = world->allocate(large);
  const CUipcMemHandle first = world->handle_of(address);
  const CUipcMemHandle inner = world->handle_of(address + MiB);
  EXPECT_EQ(std::memcmp(&first, &inner, sizeof first), 0);
  const CUdeviceptr other = world->allocate(large);
  const CUipcMemHandle second = world->handle_of(other);
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
}

TEST_F(LegacyIpcTest, MemoryFreedWhileOpenCountsUntilItIsClosed) {
  for (const Size size : {4 * KiB, 100 * KiB, 8 * MiB}) {
    SCOPED_TRACE(size);
    world = std::make_unique<IpcWorld>(driver(),
                                       MemorySettings{.limit = SizeLimit::of_bytes(16 * MiB)});
    const CUdeviceptr address = world->allocate(size);
    Child child{"borrows"};
    lend_to(child, *world, address, size, 31);
    child.link().wait_for_signal();
    EXPECT_EQ(world->memory.free(address), Answer{CUDA_SUCCESS});
    EXPECT_FALSE(world->memory.find(address).has_value());
    EXPECT_EQ(world->memory.lending().kept(), 1u);
    CUdeviceptr all = 0;
    EXPECT_EQ(world->memory.allocate(&all, 16 * MiB), Answer{CUDA_ERROR_OUT_OF_MEMORY});
    const CUdeviceptr next = world->allocate(size);
    EXPECT_NE(next, address) << "its place is used again";
    EXPECT_EQ(world->memory.free(next), Answer{CUDA_SUCCESS});
    child.link().signal();
    EXPECT_EQ(child.wait(), 0);
    ASSERT_TRUE(comes_to(0));
    all = world->allocate(16 * MiB);
    EXPECT_EQ(world->memory.free(all), Answer{CUDA_SUCCESS});
  }
}

CHILD_ROLE(borrows_and_dies) {
  left_behind<PrimaryContext>();
  auto& world = left_behind<IpcWorld>(driver());
  const CUdeviceptr address = world.open(link.receive<CUipcMemHandle>());
  write_word(address, 77);
  GIVEN(synchronize());
  link.signal();
  link.wait_for_signal();
  ::raise(SIGKILL);
}

TEST_F(LegacyIpcTest, MemoryOfADeadImporterIsTakenBack) {
  const CUdeviceptr address = world->allocate(large);
  Child child{"borrows_and_dies"};
  child.link().send(world->handle_of(address));
  child.link().wait_for_signal();
  EXPECT_EQ(read_word(address), 77u);
  EXPECT_EQ(world->memory.free(address), Answer{CUDA_SUCCESS});
  EXPECT_EQ(world->memory.lending().kept(), 1u);
  child.link().signal();
  EXPECT_EQ(child.wait(), 128 + SIGKILL);
  EXPECT_TRUE(comes_to(0));
}

TEST_F(LegacyIpcTest, MemoryOfAnImporterThatHasEndedCanBeAllocatedAtOnce) {
  world =
      std::make_unique<IpcWorld>(driver(), MemorySettings{.limit = SizeLimit::of_bytes(16 * MiB)});
  for (int round = 0; round < 5 && !HasFailure(); ++round) {
    const CUdeviceptr address = world->allocate(10 * MiB);
    Child child{"borrows_and_dies"};
    child.link().send(world->handle_of(address));
    child.link().wait_for_signal();
    EXPECT_EQ(world->memory.free(address), Answer{CUDA_SUCCESS});
    child.link().signal();
    EXPECT_EQ(child.wait(), 128 + SIGKILL);
    EXPECT_EQ(world->memory.free(world->allocate(16 * MiB)), Answer{CUDA_SUCCESS});
  }
}

CHILD_ROLE(opens_and_closes) {
  PrimaryContext context;
  IpcWorld world{driver()};
  for (auto rounds = link.receive<int>(); rounds > 0; --rounds) {
    const CUdeviceptr opened = world.open(link.receive<CUipcMemHandle>());
    link.signal();
    link.wait_for_signal();
    EXPECT_EQ(world.ipc.close(opened), Answer{CUDA_SUCCESS});
    link.signal();
  }
}

TEST_F(LegacyIpcTest, MemoryThatItsImporterHasClosedCanBeAllocatedAtOnce) {
  world =
      std::make_unique<IpcWorld>(driver(), MemorySettings{.limit = SizeLimit::of_bytes(16 * MiB)});
  Child child{"opens_and_closes"};
  const int rounds = 30;
  child.link().send(rounds);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const CUdeviceptr address = world->allocate(10 * MiB);
    child.link().send(world->handle_of(address));
    child.link().wait_for_signal();
    EXPECT_EQ(world->memory.free(address), Answer{CUDA_SUCCESS});
    child.link().signal();
    child.link().wait_for_signal();
    EXPECT_EQ(world->memory.free(world->allocate(16 * MiB)), Answer{CUDA_SUCCESS});
  }
  EXPECT_EQ(child.wait(), 0);
}

CHILD_ROLE(lends) {
  left_behind<PrimaryContext>();
  auto& world = left_behind<IpcWorld>(driver());
  const CUdeviceptr address = world.allocate(large);
  fill_pattern(address, large, 41);
  GIVEN(synchronize());
  link.send(world.handle_of(address));
  while (link.receive<char>() != 'f') {
  }
  EXPECT_EQ(world.memory.free(address), Answer{CUDA_SUCCESS});
  link.signal();
  link.wait_for_signal();
}

// The last one's may stay until there is another.
TEST_F(LegacyIpcTest, ConnectionsToOwnersThatHaveEndedAreClosed) {
  const auto open_and_close = [&] {
    Child owner{"lends"};
    const CUdeviceptr opened = world->open(owner.link().receive<CUipcMemHandle>());
    EXPECT_EQ(world->ipc.close(opened), Answer{CUDA_SUCCESS});
    owner.link().send('f');
    owner.link().wait_for_signal();
    owner.link().signal();
    EXPECT_EQ(owner.wait(), 0);
  };
  open_and_close();
  const int after_one = open_descriptors();
  for (int i = 0; i < 5; ++i) open_and_close();
  EXPECT_LE(open_descriptors(), after_one + 1);
}

TEST_F(LegacyIpcTest, IsOpenedAfterTheProgramHasClosedTheConnectionToItsOwner) {
  Child owner{"lends"};
  const auto handle = owner.link().receive<CUipcMemHandle>();
  EXPECT_EQ(world->ipc.close(world->open(handle)), Answer{CUDA_SUCCESS});
  const int connection = named_connection([](const std::string&) { return true; });
  ASSERT_GE(connection, 0);
  ::close(connection);
  EXPECT_EQ(world->ipc.close(world->open(handle)), Answer{CUDA_SUCCESS});
  owner.link().send('f');
  owner.link().wait_for_signal();
  owner.link().signal();
  EXPECT_EQ(owner.wait(), 0);
}

TEST_F(LegacyIpcTest, OutlivesItsOwnerOnlyWhereItIsOpen) {
  CUipcMemHandle handle{};
  CUdeviceptr opened = 0;
  {
    Child owner{"lends"};
    handle = owner.link().receive<CUipcMemHandle>();
    opened = world->open(handle);
    expect_pattern(opened, large, 41);
  }  // killed
  expect_pattern(opened, large, 41);
  EXPECT_EQ(world->open(handle), opened) << "open already";
  EXPECT_EQ(world->ipc.close(opened), Answer{CUDA_SUCCESS});
  EXPECT_EQ(world->ipc.close(opened), Answer{CUDA_SUCCESS});
  CUdeviceptr again = 0;
  EXPECT_EQ(world->ipc.open(&again, handle, lazily), Answer{CUDA_ERROR_INVALID_HANDLE});
  EXPECT_EQ(again, 0u);
}

TEST_F(LegacyIpcTest, OpeningFreedMemoryIsNotPermitted) {
  Child owner{"lends"};
  const auto handle = owner.link().receive<CUipcMemHandle>();
  owner.link().send('f');
  owner.link().wait_for_signal();
  CUdeviceptr opened = 0;
  EXPECT_EQ(world->ipc.open(&opened, handle, lazily), Answer{CUDA_ERROR_NOT_PERMITTED});
  owner.link().signal();
  EXPECT_EQ(owner.wait(), 0);
}

TEST_F(LegacyIpcTest, CannotBeOpenedWithAWrongSecretOrToken) {
  Child owner{"lends"};
  const auto handle = owner.link().receive<CUipcMemHandle>();
  auto wrong = share::IpcHandle::read(handle);
  wrong.secret.bytes[3] ^= 1;
  CUipcMemHandle forged{};
  wrong.write(&forged);
  CUdeviceptr opened = 0;
  EXPECT_NE(world->ipc.open(&opened, forged, lazily), Answer{CUDA_SUCCESS});
  wrong = share::IpcHandle::read(handle);
  wrong.token.bytes[3] ^= 1;
  wrong.write(&forged);
  IpcWorld other{driver()};
  EXPECT_NE(other.ipc.open(&opened, forged, lazily), Answer{CUDA_SUCCESS});
  EXPECT_EQ(opened, 0u);
  EXPECT_EQ(world->ipc.close(world->open(handle)), Answer{CUDA_SUCCESS}) << "the right one works";
}

TEST_F(LegacyIpcTest, IsRefusedAsTheDriverDoes) {
  const CUdeviceptr address = world->allocate(large);
  const CUipcMemHandle handle = world->handle_of(address);
  CUdeviceptr opened = 0;
  EXPECT_EQ(world->ipc.open(&opened, handle, lazily), Answer{CUDA_ERROR_INVALID_CONTEXT});
  EXPECT_EQ(world->ipc.open(&opened, handle, 0), Answer{CUDA_ERROR_INVALID_VALUE});
  EXPECT_EQ(world->ipc.open(nullptr, handle, lazily), Answer{CUDA_ERROR_INVALID_VALUE});
  CUdeviceptr ordered = 0;
  ASSERT_EQ(world->memory.allocate_ordered(&ordered, large, StreamName{}), Answer{CUDA_SUCCESS});
  CUipcMemHandle none{};
  EXPECT_EQ(world->ipc.handle_of(ordered, &none), Answer{CUDA_ERROR_INVALID_VALUE});
  EXPECT_EQ(world->memory.free_ordered(ordered, StreamName{}), Answer{CUDA_SUCCESS});
}

TEST_F(LegacyIpcTest, OfTheDriversOwnMemoryIsLeftToTheDriver) {
  CUipcMemHandle handle{};
  CUdeviceptr opened = 0;
  EXPECT_EQ(world->ipc.handle_of(0x1234, &handle), std::nullopt);
  EXPECT_EQ(world->ipc.open(&opened, handle, lazily), std::nullopt);
  EXPECT_EQ(world->ipc.close(0x1234), std::nullopt);
}

// A stopped owner costs its own importers their timeout, and others nothing.
CHILD_ROLE(lends_and_stops) {
  left_behind<PrimaryContext>();
  auto& world = left_behind<IpcWorld>(driver());
  link.send(world.handle_of(world.allocate(large)));
  ::raise(SIGSTOP);
}

// Until then it might still answer.
void wait_until_stopped(const Child& child) {
  siginfo_t seen{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &seen, WSTOPPED | WEXITED | WNOWAIT),
            0);
  ASSERT_EQ(seen.si_code, CLD_STOPPED);
}

TEST_F(LegacyIpcTest, AnOpenFromASilentOwnerTimesOut) {
  world = std::make_unique<IpcWorld>(driver(), MemorySettings{}, std::chrono::seconds{2});
  Child stopped{"lends_and_stops"};
  const auto hopeless = stopped.link().receive<CUipcMemHandle>();
  wait_until_stopped(stopped);
  CUdeviceptr opened = 0;
  EXPECT_EQ(world->ipc.open(&opened, hopeless, lazily), Answer{CUDA_ERROR_TIMEOUT});
}

// The system lists a connected socket beside the listening one, under the same name.
bool is_connected_to(const CUipcMemHandle& handle) {
  std::ifstream sockets{"/proc/net/unix"};
  const std::string name = share::IpcHandle::read(handle).socket_name();
  int ends = 0;
  for (std::string line; std::getline(sockets, line);) {
    if (line.find(name) != std::string::npos) ++ends;
  }
  return ends > 1;
}

TEST_F(LegacyIpcTest, ASilentOwnerDelaysNoOtherImporters) {
  world = std::make_unique<IpcWorld>(driver(), MemorySettings{}, std::chrono::hours{1});
  auto stopped = std::make_unique<Child>("lends_and_stops");
  Child lives{"lends"};
  const auto hopeless = stopped->link().receive<CUipcMemHandle>();
  wait_until_stopped(*stopped);
  const auto handle = lives.link().receive<CUipcMemHandle>();
  std::atomic<bool> is_given_up{false};
  std::thread waits{[&] {
    GIVEN(driver().cuCtxSetCurrent(primary()));
    CUdeviceptr opened = 0;
    EXPECT_EQ(world->ipc.open(&opened, hopeless, lazily), Answer{CUDA_ERROR_INVALID_HANDLE});
    is_given_up = true;
  }};
  while (!is_connected_to(hopeless)) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  EXPECT_EQ(world->ipc.close(world->open(handle)), Answer{CUDA_SUCCESS});
  EXPECT_FALSE(is_given_up);
  stopped.reset();  // killed
  waits.join();
}

// As daemons do. The files that the program opens then reuse cuvmm's descriptor numbers.
CHILD_ROLE(lends_and_closes_all) {
  auto world = std::make_unique<IpcWorld>(driver());
  {
    PrimaryContext context;
    world->handle_of(world->allocate(large));
    for (int number = 3; number < 1024; ++number) {
      if (number != link.fd()) ::close(number);
    }
    std::array<std::array<int, 2>, 200> pipes{};
    constexpr char content[] = "of the program";
    for (auto& pipe : pipes) {
      ASSERT_EQ(::pipe(pipe.data()), 0);
      ASSERT_EQ(::write(pipe[1], content, sizeof content), static_cast<ssize_t>(sizeof content));
    }
    link.signal();
    link.wait_for_signal();
    world.reset();
    for (const auto& pipe : pipes) {
      char text[64];
      EXPECT_EQ(::read(pipe[0], text, sizeof text), static_cast<ssize_t>(sizeof content));
      EXPECT_GE(::fcntl(pipe[1], F_GETFD), 0);
    }
  }
}

TEST_F(LegacyIpcTest, TouchesNoFilesOfAProgramThatClosedAll) {
  if (thread_sanitizer) GTEST_SKIP() << "to close what another thread uses is a race by its nature";
  Child lender{"lends_and_closes_all"};
  lender.link().wait_for_signal();
  lender.link().signal();
  EXPECT_EQ(lender.wait(), 0);
}

// Each driver call of an open fails in turn, until no failing call is left.
TEST_F(LegacyIpcTest, AFailedOpenLeavesNothingBehind) {
  world.reset();
  Child owner{"lends"};
  const auto handle = owner.link().receive<CUipcMemHandle>();
  const std::string held = held_by_the_process();
  std::uint64_t number = 0;
  for (bool untouched = false; !untouched;) {
    SCOPED_TRACE("driver call " + std::to_string(++number) + " fails");
    ASSERT_LT(number, most_calls_of_a_scenario);
    FaultyDriver faulty{driver()};
    {
      IpcWorld there{faulty.driver()};
      CUdeviceptr opened = 0;
      faulty.fail_call(number, CUDA_ERROR_OUT_OF_MEMORY);
      const Answer answer = there.ipc.open(&opened, handle, lazily);
      untouched = faulty.faults() == 0;
      const std::string failed = faulty.last_failed();
      faulty.stop_failing();
      if (answer != Answer{CUDA_SUCCESS}) {
        ASSERT_FALSE(untouched);
        ASSERT_TRUE(answer.has_value()) << failed << " made it the driver's business";
        EXPECT_EQ(opened, 0u);
        EXPECT_EQ(there.ipc.open(&opened, handle, lazily), Answer{CUDA_SUCCESS}) << "again";
      }
      expect_pattern(opened, large, 41);
      EXPECT_EQ(there.ipc.close(opened), Answer{CUDA_SUCCESS});
    }
    EXPECT_EQ(retry_releases(), 0u);
    EXPECT_EQ(held_by_the_process(), held);
    if (HasFailure()) return;
  }
  EXPECT_GT(number, 6u) << "reserve, import, ask, map and allow can all fail";
}

TEST_F(LegacyIpcTest, EndsWithTheContextThatItWasOpenedIn) {
  Child owner{"lends"};
  const auto handle = owner.link().receive<CUipcMemHandle>();
  OwnContext own;
  const CUcontext context = own.get();
  const CUdeviceptr opened = world->open(handle);
  own.leave();
  const CUdeviceptr elsewhere = world->open(handle);
  EXPECT_NE(opened, elsewhere);
  ASSERT_CUDA(own.destroy());
  world->memory.contexts().ended(context);
  world->ipc.context_ended(context);
  EXPECT_FALSE(world->memory.find(opened).has_value());
  expect_pattern(elsewhere, large, 41);
  EXPECT_EQ(world->ipc.close(elsewhere), Answer{CUDA_SUCCESS});
}

}  // namespace
}  // namespace cuvmm::test
