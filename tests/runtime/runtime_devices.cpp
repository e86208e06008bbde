// SPDX-License-Identifier: Apache-2.0
// Starting, devices, errors and reset, through the CUDA runtime.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "runtime/runtime_checks.hpp"

namespace cuvmm::test {
namespace {

class RuntimeDevices : public RuntimeTest {};

TEST_F(RuntimeDevices, VersionsAreKnown) {
  int driver = 0;
  int runtime = 0;
  EXPECT_RUNTIME(cudaDriverGetVersion(&driver));
  EXPECT_RUNTIME(cudaRuntimeGetVersion(&runtime));
  EXPECT_GE(driver / 1000, runtime / 1000);
}

TEST_F(RuntimeDevices, PropertiesAreThoseOfTheDriversDevice) {
  cudaDeviceProp properties{};
  ASSERT_RUNTIME(cudaGetDeviceProperties(&properties, 0));
  EXPECT_STREQ(properties.name, "cuvmm simulated device");
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.warpSize, 32);
  EXPECT_EQ(properties.multiProcessorCount, 132);
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_RUNTIME(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(properties.totalGlobalMem, total);
  int value = 0;
  EXPECT_RUNTIME(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerBlock, 0));
  EXPECT_EQ(value, properties.maxThreadsPerBlock);
}

TEST_F(RuntimeDevices, AMissingOneIsRefused) {
  const int count = device_count();
  EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(RuntimeDevices, EachThreadHasItsOwn) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  EXPECT_RUNTIME(cudaSetDevice(1));
  int elsewhere = -1;
  std::thread{[&] { EXPECT_RUNTIME(cudaGetDevice(&elsewhere)); }}.join();
  EXPECT_EQ(elsewhere, 0);
  int here = -1;
  EXPECT_RUNTIME(cudaGetDevice(&here));
  EXPECT_EQ(here, 1);
}

TEST_F(RuntimeDevices, MemoryIsCopiedFromOneToAnother) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  const auto values = numbers(1 << 16, 1);
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_RUNTIME(cudaMalloc(&first, bytes_of(values)));
  EXPECT_RUNTIME(cudaMemcpy(first, values.data(), bytes_of(values), cudaMemcpyHostToDevice));
  EXPECT_RUNTIME(cudaSetDevice(1));
  ASSERT_RUNTIME(cudaMalloc(&second, bytes_of(values)));
  EXPECT_RUNTIME(cudaMemcpyPeer(second, 1, first, 0, bytes_of(values)));
  EXPECT_EQ(read_back(second, values.size()), values);
  int can = 0;
  EXPECT_RUNTIME(cudaDeviceCanAccessPeer(&can, 1, 0));
  if (can != 0) {
    EXPECT_RUNTIME(cudaDeviceEnablePeerAccess(0, 0));
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    EXPECT_RUNTIME(cudaDeviceDisablePeerAccess(0));
  }
  cudaGetLastError();
  cudaPointerAttributes attributes{};
  EXPECT_RUNTIME(cudaPointerGetAttributes(&attributes, second));
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
}

TEST_F(RuntimeDevices, AResetFreesMemoryAndTheNextCallStartsAgain) {
  void* memory = nullptr;
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  EXPECT_RUNTIME(cudaMemGetInfo(&before, &total));
  ASSERT_RUNTIME(cudaMalloc(&memory, 64 << 20));
  EXPECT_RUNTIME(cudaDeviceReset());
  EXPECT_RUNTIME(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  cudaGetLastError();
  ASSERT_RUNTIME(cudaMalloc(&memory, 1 << 20));
  EXPECT_RUNTIME(cudaFree(memory));
}

TEST_F(RuntimeDevices, FlagsAndLimitsAreKept) {
  EXPECT_RUNTIME(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
  std::size_t value = 0;
  EXPECT_RUNTIME(cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize));
  EXPECT_EQ(value, std::size_t{16} << 20);
  int least = 1;
  int greatest = 1;
  EXPECT_RUNTIME(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_LT(greatest, least);
}

// Runs in its own process, which has not yet called the runtime.
[[noreturn]] void start_without_a_table() {
  ::setenv("VMM_SIM_FAULT", "cuGetExportTable:3=CUDA_ERROR_NOT_FOUND", 1);
  int count = 0;
  std::_Exit(cudaGetDeviceCount(&count) == cudaSuccess ? 1 : 0);
}

TEST(RuntimeStartDeathTest, ADriverWithoutThePrivateTablesIsRefused) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(start_without_a_table(), ::testing::ExitedWithCode(0), "");
}

using Entry = int (*)();

const void* table_of(const char (&id)[17]) {
  using Ask = int (*)(const void**, const void*);
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  const auto ask = reinterpret_cast<Ask>(::dlsym(driver, "cuGetExportTable"));
  const void* table = nullptr;
  ask(&table, id);
  return table;
}

// The log says so once, however often the table is requested.
TEST(RuntimeTablesDeathTest, AMissingOneIsNamed) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const std::string name = "private table 6E6F626F-6479-206B-6E6F-7773206D6521";
  const auto ask = [&] {
    char path[] = "/tmp/cuvmm-runtime-tables-XXXXXX";
    const int file = ::mkstemp(path);
    ::unlink(path);
    ::dup2(file, STDERR_FILENO);
    for (int i = 0; i < 3; ++i) {
      if (table_of("nobody knows me!") != nullptr) std::_Exit(1);
    }
    std::string said(10'000, '\0');
    const ssize_t length = ::pread(file, said.data(), said.size(), 0);
    said.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
    const std::size_t first = said.find(name);
    if (first == std::string::npos) std::_Exit(2);
    std::_Exit(said.find(name, first + 1) == std::string::npos ? 0 : 3);
  };
  EXPECT_EXIT(ask(), ::testing::ExitedWithCode(0), "");
}

TEST(RuntimeTablesDeathTest, AnEntryThatIsNotSimulatedRefusesByName) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto call = [] {
    const auto* table = static_cast<Entry const*>(
        table_of("\x6B\xD5\xFB\x6C\x5B\xF4\xE7\x4A\x89\x87\xD9\x39\x12\xFD\x9D\xF9"));
    constexpr int not_supported = 801;
    std::_Exit(table[3]() == not_supported ? 0 : 1);
  };
  EXPECT_EXIT(call(), ::testing::ExitedWithCode(0),
              "entry 3 of the private table CUDART_INTERFACE");
}

}  // namespace
}  // namespace cuvmm::test
