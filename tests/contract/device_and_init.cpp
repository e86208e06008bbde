// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string>

#include "support/child.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

class DriverStart : public DriverContract {};

TEST_F(DriverStart, MayHappenTwice) {
  EXPECT_CUDA(driver().cuInit(0));
}

TEST_F(DriverStart, WithFlagsIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuInit(1));
}

CHILD_ROLE(uses_the_driver_before_its_start) {
  int count = 0;
  CUdevice device = 0;
  CUdeviceptr address = 0;
  CUcontext context = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_NOT_INITIALIZED, driver().cuDeviceGetCount(&count));
  EXPECT_ANSWER(CUDA_ERROR_NOT_INITIALIZED, driver().cuDeviceGet(&device, 0));
  EXPECT_ANSWER(CUDA_ERROR_NOT_INITIALIZED, driver().cuMemAlloc(&address, 1024));
  EXPECT_ANSWER(CUDA_ERROR_NOT_INITIALIZED, driver().cuCtxGetCurrent(&context));
  EXPECT_ANSWER(CUDA_ERROR_NOT_INITIALIZED,
                driver().cuMemAddressReserve(&address, 2 * MiB, 0, 0, 0));
}

TEST_F(DriverStart, IsRequiredBeforeAnyCallThatUsesADevice) {
  EXPECT_EQ(run_child("uses_the_driver_before_its_start"), 0);
}

CHILD_ROLE(asks_for_version_and_names_before_the_start) {
  int version = 0;
  const char* name = nullptr;
  EXPECT_CUDA(driver().cuDriverGetVersion(&version));
  EXPECT_CUDA(driver().cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &name));
}

TEST_F(DriverStart, IsNotNeededForTheVersionAndTheNamesOfErrors) {
  EXPECT_EQ(run_child("asks_for_version_and_names_before_the_start"), 0);
}

TEST_F(DriverStart, DoesNotSurviveAFork) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(driver().cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

CHILD_ROLE(is_sent_a_signal) {
  EXPECT_CUDA(driver().cuInit(0));
  ::raise(std::stoi(arguments.front()));
}

// A sanitizer may turn the signal into an exit.
TEST_F(DriverStart, KeepsNoSignalFromEndingTheProgram) {
  for (const int signal : {SIGSEGV, SIGBUS}) {
    EXPECT_NE(run_child("is_sent_a_signal", {std::to_string(signal)}), 0);
  }
}

TEST_F(DriverStart, ReportsItsVersion) {
  int version = 0;
  ASSERT_CUDA(driver().cuDriverGetVersion(&version));
  EXPECT_EQ(version, driver().version);
  EXPECT_GE(version, 11000);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuDriverGetVersion(nullptr));
}

class ErrorText : public DriverContract {};

TEST_F(ErrorText, IsThereForKnownErrors) {
  const char* name = nullptr;
  const char* text = nullptr;
  ASSERT_CUDA(driver().cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
  ASSERT_CUDA(driver().cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_STREQ(text, "out of memory");
}

TEST_F(ErrorText, IsThereForSuccess) {
  const char* name = nullptr;
  const char* text = nullptr;
  ASSERT_CUDA(driver().cuGetErrorName(CUDA_SUCCESS, &name));
  ASSERT_CUDA(driver().cuGetErrorString(CUDA_SUCCESS, &text));
  EXPECT_STREQ(name, "CUDA_SUCCESS");
  EXPECT_STREQ(text, "no error");
}

TEST_F(ErrorText, IsNotThereForUnknownErrors) {
  const char* name = "before";
  const char* text = "before";
  const auto unknown = static_cast<CUresult>(12345);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuGetErrorName(unknown, &name));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuGetErrorString(unknown, &text));
  EXPECT_EQ(name, nullptr);
  EXPECT_EQ(text, nullptr);
}

class Devices : public DriverContract {};

TEST_F(Devices, AreCountedFromZero) {
  ASSERT_GE(device_count(), 1);
  CUdevice found = -1;
  EXPECT_CUDA(driver().cuDeviceGet(&found, 0));
  EXPECT_CUDA(driver().cuDeviceGet(&found, device_count() - 1));
}

TEST_F(Devices, BeyondTheCountAreRefused) {
  CUdevice found = -1;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_DEVICE, driver().cuDeviceGet(&found, device_count()));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_DEVICE, driver().cuDeviceGet(&found, -1));
}

TEST_F(Devices, InvalidOnesHaveNoAttributes) {
  int value = 0;
  EXPECT_ANSWER(
      CUDA_ERROR_INVALID_DEVICE,
      driver().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device_count() + 5));
}

TEST_F(Devices, AreRefusedWithoutAnOutput) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuDeviceGet(nullptr, 0));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuDeviceGetCount(nullptr));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device()));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuDeviceTotalMem(nullptr, device()));
}

TEST_F(Devices, HaveAName) {
  char name[256] = {};
  ASSERT_CUDA(driver().cuDeviceGetName(name, sizeof name, device()));
  EXPECT_GT(std::strlen(name), 0u);
}

TEST_F(Devices, HaveTheirNameTruncatedToTheBuffer) {
  char name[8];
  std::memset(name, 'x', sizeof name);
  ASSERT_CUDA(driver().cuDeviceGetName(name, 4, device()));
  EXPECT_EQ(std::strlen(name), 3u);
  EXPECT_EQ(name[4], 'x');
}

TEST_F(Devices, HaveUniqueUuids) {
  NEEDS_DEVICES(2);
  CUuuid first{};
  CUuuid second{};
  ASSERT_CUDA(driver().cuDeviceGetUuid(&first, device(0)));
  ASSERT_CUDA(driver().cuDeviceGetUuid(&second, device(1)));
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
}

TEST_F(Devices, HaveANonZeroUuid) {
  CUuuid found{};
  const CUuuid nothing{};
  ASSERT_CUDA(driver().cuDeviceGetUuid(&found, device()));
  EXPECT_NE(std::memcmp(&found, &nothing, sizeof found), 0);
}

TEST_F(Devices, AreFoundByPciBusId) {
  char place[64] = {};
  ASSERT_CUDA(driver().cuDeviceGetPCIBusId(place, sizeof place, device()));
  CUdevice found = -1;
  ASSERT_CUDA(driver().cuDeviceGetByPCIBusId(&found, place));
  EXPECT_EQ(found, device());
}

TEST_F(Devices, SupportVirtualMemory) {
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED), 1);
}

TEST_F(Devices, RefuseUnknownAttributes) {
  int value = 0;
  EXPECT_ANSWER(
      CUDA_ERROR_INVALID_VALUE,
      driver().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), device()));
}

TEST_F(Devices, AreNotTheirOwnPeers) {
  int can = -1;
  ASSERT_CUDA(driver().cuDeviceCanAccessPeer(&can, device(), device()));
  EXPECT_EQ(can, 0);
}

}  // namespace
}  // namespace cuvmm::test
