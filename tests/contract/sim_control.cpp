// SPDX-License-Identifier: Apache-2.0
// The simulated driver's own interface (cuvmm/sim.h).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "streams_support.hpp"
#include "support/child.hpp"

namespace cuvmm::test {
namespace {

class SimControl : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    if (!simulated()) GTEST_SKIP() << "a card has no such interface";
  }
  void TearDown() override {
    if (simulated()) sim()->set_faults(nullptr);
    DriverContract::TearDown();
  }
};

cuvmm_sim_counters counters() {
  cuvmm_sim_counters read{};
  EXPECT_EQ(sim()->read_counters(0, &read), 0);
  return read;
}

std::string leaks() {
  std::string text(std::size_t{64} << 10, '\0');
  sim()->leaks(text.data(), text.size());
  text.resize(text.find('\0'));
  return text;
}

TEST_F(SimControl, TheNthCallFailsAndNoOther) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  ASSERT_EQ(sim()->set_faults("cuMemAlloc:2=CUDA_ERROR_OUT_OF_MEMORY"), 0);
  const GivenBlocking first{1 * MiB};
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, driver().cuMemAlloc(&address, 1 * MiB));
  const GivenBlocking third{1 * MiB};
  EXPECT_EQ(address, 0u);
}

TEST_F(SimControl, EachFaultCountsItsOwnCalls) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  ASSERT_EQ(
      sim()->set_faults("cuMemGetInfo:1=CUDA_ERROR_UNKNOWN, cuMemAlloc:1=CUDA_ERROR_NOT_PERMITTED"),
      0);
  CUdeviceptr address = 0;
  size_t free = 0;
  size_t total = 0;
  EXPECT_ANSWER(CUDA_ERROR_NOT_PERMITTED, driver().cuMemAlloc(&address, 1 * MiB));
  EXPECT_ANSWER(CUDA_ERROR_UNKNOWN, driver().cuMemGetInfo(&free, &total));
  EXPECT_CUDA(driver().cuMemGetInfo(&free, &total));
}

TEST_F(SimControl, NewFaultsReplaceTheOld) {
  ASSERT_EQ(sim()->set_faults("cuMemGetInfo:1=CUDA_ERROR_UNKNOWN"), 0);
  ASSERT_EQ(sim()->set_faults(""), 0);
  EXPECT_GT(memory_info().total, 0u);
}

TEST_F(SimControl, FaultsThatDoNotParseChangeNothing) {
  ASSERT_EQ(sim()->set_faults("cuMemGetInfo:1=CUDA_ERROR_UNKNOWN"), 0);
  for (const char* bad :
       {"cuMemGetInfo", "cuMemGetInfo:1", "cuMemGetInfo=CUDA_ERROR_UNKNOWN",
        "cuMemGetInfo:0=CUDA_ERROR_UNKNOWN", "cuMemGetInfo:x=CUDA_ERROR_UNKNOWN",
        "cuMemGetInfo:1=CUDA_SUCCESS", "cuMemGetInfo:1=CUDA_ERROR_NO_SUCH",
        "cuNoSuch:1=CUDA_ERROR_UNKNOWN", "cuMemGetInfo:1=CUDA_ERROR_UNKNOWN,", ","}) {
    EXPECT_EQ(sim()->set_faults(bad), -1) << bad;
  }
  size_t free = 0;
  EXPECT_ANSWER(CUDA_ERROR_UNKNOWN, driver().cuMemGetInfo(&free, nullptr));
}

TEST_F(SimControl, CallsAreCountedByName) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const uint64_t before = sim()->calls("cuMemGetInfo");
  const uint64_t all_before = sim()->calls(nullptr);
  (void)memory_info();
  EXPECT_EQ(sim()->calls("cuMemGetInfo"), before + 1);
  EXPECT_EQ(sim()->calls(nullptr), all_before + 1);
  EXPECT_EQ(sim()->calls("cuNoSuch"), 0u);
}

TEST_F(SimControl, ModelledTimeIsThatOfTheMeasuredCalls) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const double before = sim()->modelled_microseconds();
  { const GivenBlocking given{2 * MiB}; }
  EXPECT_NEAR(sim()->modelled_microseconds() - before, 57, 1);
}

// Waits for the work of the calls, since a card's time passes when work runs.
template <class Calls>
double modelled(const Calls& calls) {
  const double before = sim()->modelled_microseconds();
  calls();
  EXPECT_CUDA(driver().cuCtxSynchronize_v2000());
  return sim()->modelled_microseconds() - before;
}

TEST_F(SimControl, ModelledTimeOfWorkGrowsWithItsSize) {
  const GivenBlocking given{128 * MiB};
  const CUdeviceptr memory = given.address();
  const CUdeviceptr upper = memory + 64 * MiB;
  std::vector<std::byte> host(32 * MiB);
  EXPECT_NEAR(modelled([&] { driver().cuMemcpyDtoD(upper, memory, 1 * MiB); }), 10, 0.1);
  EXPECT_NEAR(modelled([&] { driver().cuMemcpyDtoD(upper, memory, 64 * MiB); }), 42, 0.1);
  EXPECT_NEAR(modelled([&] { driver().cuMemcpyHtoD(memory, host.data(), 32 * MiB); }), 2722, 0.1);
  EXPECT_NEAR(modelled([&] { driver().cuMemsetD8(memory, 0, 2 * MiB); }), 10, 0.1);
  EXPECT_GT(modelled([&] { driver().cuMemsetD8(memory, 0, 128 * MiB); }), 30);
}

TEST_F(SimControl, ModelledTimeDoesNotDependOnTheCallThatAskedForTheWork) {
  const GivenBlocking given{128 * MiB};
  const CUdeviceptr memory = given.address();
  const CUdeviceptr upper = memory + 64 * MiB;
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = memory;
  rows.dstDevice = upper;
  rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 1 * MiB;
  rows.Height = 64;
  EXPECT_NEAR(modelled([&] { driver().cuMemcpy2D(&rows); }), 42, 0.1);
  EXPECT_NEAR(modelled([&] { driver().cuMemcpy(upper, memory, 64 * MiB); }), 42, 0.1);
}

TEST_F(SimControl, ModelledTimeOfAPoolIsThatOfGrowingItOnce) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const GivenStream stream;
  const GivenPool pool;
  const auto take_and_give = [&] {
    GIVEN(driver().cuMemFreeAsync(given_from(pool, 1 * MiB, stream), stream));
  };
  EXPECT_GT(modelled(take_and_give), 30);
  const CUdeviceptr kept = given_from(pool, 1 * MiB, stream);  // else the wait shrinks the pool
  EXPECT_NEAR(modelled(take_and_give), 1.2, 0.1);
  GIVEN(driver().cuMemFreeAsync(kept, stream));
}

TEST_F(SimControl, CountersFollowBlockingMemory) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const cuvmm_sim_counters before = counters();
  GivenBlocking memory{64 * MiB};
  EXPECT_EQ(counters().physical_bytes, before.physical_bytes + 64 * MiB);
  EXPECT_EQ(counters().blocking_allocations, before.blocking_allocations + 1);
  EXPECT_GE(counters().physical_peak_bytes, before.physical_bytes + 64 * MiB);
  GIVEN(memory.free());
  EXPECT_EQ(counters().physical_bytes, before.physical_bytes);
}

TEST_F(SimControl, AReusedBlockIsEmpty) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  constexpr Size size = 2 * MiB;
  CUdeviceptr freed = 0;
  {
    const GivenBlocking memory{size};
    freed = memory.address();
    GIVEN(driver().cuMemsetD8(freed, 0xAB, size));
  }
  const GivenBlocking again{size};
  EXPECT_EQ(again.address(), freed);  // otherwise the test shows nothing
  std::vector<std::byte> bytes(size, std::byte{0xCD});
  GIVEN(driver().cuMemcpyDtoH(bytes.data(), again.address(), size));
  EXPECT_EQ(bytes, std::vector<std::byte>(size));
}

TEST_F(SimControl, MoreFreedBlocksThanAreKeptCountNoMemory) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const cuvmm_sim_counters before = counters();
  for (int round = 0; round < 2; ++round) {
    std::vector<GivenBlocking> blocks;
    for (int i = 0; i < 50; ++i) blocks.emplace_back(2 * MiB);
    EXPECT_EQ(counters().physical_bytes, before.physical_bytes + 100 * MiB);
  }
  EXPECT_EQ(counters().physical_bytes, before.physical_bytes);
}

TEST_F(SimControl, CountersFollowVirtualMemory) {
  const Size granule = granularity();
  const cuvmm_sim_counters before = counters();
  {
    const GivenMapped mapped = given_mapped(2, granule);
    EXPECT_EQ(counters().chunks, before.chunks + 2);
    EXPECT_EQ(counters().mapped_bytes, before.mapped_bytes + 2 * granule);
    EXPECT_GE(counters().reserved_bytes, before.reserved_bytes + 2 * granule);
  }
  EXPECT_EQ(counters().chunks, before.chunks);
  EXPECT_EQ(counters().mapped_bytes, before.mapped_bytes);
  EXPECT_EQ(counters().reserved_bytes, before.reserved_bytes);
}

TEST_F(SimControl, AnInvalidDeviceHasNoCounters) {
  cuvmm_sim_counters read{};
  EXPECT_EQ(sim()->read_counters(device_count(), &read), -1);
  EXPECT_EQ(sim()->read_counters(-1, &read), -1);
  EXPECT_EQ(sim()->read_counters(0, nullptr), -1);
}

TEST_F(SimControl, LeaksAreNamed) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const uint64_t before = sim()->leaks(nullptr, 0);
  {
    const GivenStream stream;
    const GivenEvent event;
    const GivenPool pool;
    const GivenBlocking memory{3 * MiB};
    const CUdeviceptr ordered = given_from(pool, 5 * MiB, stream);
    const std::string named = leaks();
    EXPECT_EQ(sim()->leaks(nullptr, 0), before + 5);
    for (const char* what : {"stream 0x", "event 0x", "pool 0x", "cuMemAlloc memory at", "3.00 MiB",
                             "stream-ordered memory at", "5.00 MiB"}) {
      EXPECT_NE(named.find(what), std::string::npos) << what << " in\n" << named;
    }
    GIVEN(driver().cuMemFreeAsync(ordered, stream));
  }
  EXPECT_EQ(sim()->leaks(nullptr, 0), before);
}

TEST_F(SimControl, LeaksAreCutToTheRoomThereIs) {
  const GivenStream stream;
  char text[4] = {'x', 'x', 'x', 'x'};
  EXPECT_GT(sim()->leaks(text, 3), 0u);
  EXPECT_EQ(text[2], '\0');
  EXPECT_EQ(text[3], 'x');
}

TEST_F(SimControl, ErrorsHaveTheDriversNamesAndWords) {
  const char* text = nullptr;
  EXPECT_EQ(name_of(CUDA_ERROR_ILLEGAL_ADDRESS), "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  EXPECT_CUDA(driver().cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "an illegal memory access was encountered");
}

CHILD_ROLE(finds_the_first_allocation_failing) {
  const PrimaryContext context;
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_OUT_OF_MEMORY, driver().cuMemAlloc(&address, 1 * MiB));
  const GivenBlocking second{1 * MiB};
}

TEST_F(SimControl, FaultsAreSetByTheEnvironmentToo) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  EXPECT_EQ(run_child("finds_the_first_allocation_failing", {},
                      {"VMM_SIM_FAULT=cuMemAlloc:1=CUDA_ERROR_OUT_OF_MEMORY"}),
            0);
}

CHILD_ROLE(dies_after_copying_a_letter) {
  const PrimaryContext context;
  const GivenBlocking memory{1 * MiB};
  GIVEN(driver().cuMemsetD8(memory.address(), 'x', 1));
  const int file = ::open(arguments.at(0).c_str(), O_RDWR);
  void* const letter = ::mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(letter, MAP_FAILED);
  (void)driver().cuMemcpyDtoH(letter, memory.address(), 1);
  ADD_FAILURE() << "it outlived its last call";
}

TEST_F(SimControl, AProcessDiesAfterItsLastCallHasDoneItsWork) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  const std::string file = ::testing::TempDir() + "cuvmm-letter-" + std::to_string(::getpid());
  std::ofstream{file} << '-';
  EXPECT_EQ(
      run_child("dies_after_copying_a_letter", {file}, {"VMM_SIM_FAULT=cuMemcpyDtoH:1=SIGKILL"}),
      128 + SIGKILL);
  EXPECT_EQ(std::ifstream{file}.get(), 'x');
  std::remove(file.c_str());
}

CHILD_ROLE(finds_allocation_slow) {
  const PrimaryContext context;
  const auto begin = std::chrono::steady_clock::now();
  const GivenBlocking memory{1 * MiB};
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds{20});
}

TEST_F(SimControl, DelaysAreSetByTheEnvironment) {
  NEEDS_THE_DRIVERS_OWN_MEMORY();
  EXPECT_EQ(run_child("finds_allocation_slow", {}, {"VMM_SIM_DELAY=cuMemAlloc=20ms"}), 0);
}

CHILD_ROLE(leaves_a_stream) {
  ASSERT_NE(std::freopen(arguments.at(0).c_str(), "w", stderr), nullptr);
  left_behind<PrimaryContext>();  // its destruction would end the stream
  CUstream stream = nullptr;
  GIVEN(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

std::string report_of(const std::vector<std::string>& environment) {
  const std::string file =
      ::testing::TempDir() + "cuvmm-leaks-" + std::to_string(::getpid()) + ".txt";
  EXPECT_EQ(run_child("leaves_a_stream", {file}, environment), 0);
  std::ifstream report{file};
  const std::string text{std::istreambuf_iterator<char>{report}, {}};
  std::remove(file.c_str());
  return text;
}

TEST_F(SimControl, LeaksAreReportedAtExitOnRequest) {
  const std::string report = report_of({"VMM_SIM_LEAKS=report"});
  EXPECT_NE(report.find("leaked: stream 0x"), std::string::npos) << report;
  EXPECT_EQ(report_of({"VMM_SIM_LEAKS=off"}), "");
}

}  // namespace
}  // namespace cuvmm::test
