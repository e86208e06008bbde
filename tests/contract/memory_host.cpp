// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory: allocated by the driver, or registered by the program.
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

class HostMemory : public DriverContract {};

constexpr Size host_size = 1 * MiB;
constexpr auto words = static_cast<std::uint32_t>(host_size / 4);

class GivenHost {
 public:
  explicit GivenHost(unsigned flags) { GIVEN(driver().cuMemHostAlloc(&bytes_, host_size, flags)); }
  ~GivenHost() {
    if (bytes_ != nullptr) {
      EXPECT_CUDA(free());
    }
  }
  GivenHost(const GivenHost&) = delete;
  GivenHost& operator=(const GivenHost&) = delete;
  void* get() const { return bytes_; }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(bytes_); }
  CUresult free() { return driver().cuMemFreeHost(std::exchange(bytes_, nullptr)); }

 private:
  void* bytes_ = nullptr;
};

// Ordinary memory that the program allocated itself.
class OwnMemory {
 public:
  OwnMemory()
      : bytes_(::mmap(nullptr, host_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0)) {}
  ~OwnMemory() { ::munmap(bytes_, host_size); }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  void* get() const { return bytes_; }

 private:
  void* bytes_;
};

CUresult register_host(void* bytes, Size length, unsigned flags = 0) {
  return driver().cuMemHostRegister(bytes, length, flags);
}

TEST_F(HostMemory, HasTheSameAddressOnTheDevice) {
  GivenHost host{CU_MEMHOSTALLOC_DEVICEMAP};
  CUdeviceptr found = 0;
  ASSERT_CUDA(driver().cuMemHostGetDevicePointer(&found, host.get(), 0));
  EXPECT_EQ(found, host.address());
}

TEST_F(HostMemory, InTheMiddleHasTheSameAddressToo) {
  GivenHost host{CU_MEMHOSTALLOC_DEVICEMAP};
  CUdeviceptr found = 0;
  ASSERT_CUDA(driver().cuMemHostGetDevicePointer(&found, static_cast<char*>(host.get()) + 4096, 0));
  EXPECT_EQ(found, host.address() + 4096);
}

TEST_F(HostMemory, IsMemoryToKernels) {
  GivenHost host{CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP};
  fill_host_pattern(host.get(), host_size, 71);
  auto block = given_blocking(host_size);
  ASSERT_CUDA(launch(kernels().copy_words, nullptr, block.address(), host.address(), words));
  ASSERT_CUDA(launch(kernels().fill, nullptr, host.address(), std::uint32_t{9}, words));
  ASSERT_CUDA(synchronize());
  expect_pattern(block.address(), host_size, 71);
  std::uint32_t last = 0;
  std::memcpy(&last, static_cast<char*>(host.get()) + host_size - 4, sizeof last);
  EXPECT_EQ(last, 9u);
}

TEST_F(HostMemory, OfTheOlderCallIsMemoryToKernelsToo) {
  void* bytes = nullptr;
  ASSERT_CUDA(driver().cuMemAllocHost(&bytes, host_size));
  ASSERT_CUDA(launch(kernels().fill, nullptr, reinterpret_cast<CUdeviceptr>(bytes),
                     std::uint32_t{4}, words));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(static_cast<std::uint32_t*>(bytes)[words - 1], 4u);
  EXPECT_CUDA(driver().cuMemFreeHost(bytes));
}

TEST_F(HostMemory, RemembersItsFlags) {
  GivenHost host{CU_MEMHOSTALLOC_PORTABLE};
  unsigned flags = 0;
  ASSERT_CUDA(driver().cuMemHostGetFlags(&flags, host.get()));
  EXPECT_EQ(flags & CU_MEMHOSTALLOC_PORTABLE, unsigned{CU_MEMHOSTALLOC_PORTABLE});
}

TEST_F(HostMemory, HasNoFlagsIfItIsNotPinned) {
  OwnMemory own;
  unsigned flags = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemHostGetFlags(&flags, own.get()));
}

TEST_F(HostMemory, WithUnknownFlagsIsRefused) {
  void* bytes = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemHostAlloc(&bytes, host_size, 0x80));
}

TEST_F(HostMemory, WithoutAnOutputIsRefused) {
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemHostAlloc(nullptr, host_size, 0));
}

TEST_F(HostMemory, TakesNoDeviceMemory) {
  const Size free_before = memory_info().free;
  GivenHost host{0};
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(HostMemory, FreedTwiceIsRefused) {
  GivenHost host{0};
  void* bytes = host.get();
  ASSERT_CUDA(host.free());
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFreeHost(bytes));
}

TEST_F(HostMemory, ThatNeverWasCannotBeFreed) {
  OwnMemory own;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFreeHost(own.get()));
}

TEST_F(HostMemory, AsksForItsDevicePointerWithoutFlags) {
  GivenHost host{CU_MEMHOSTALLOC_DEVICEMAP};
  CUdeviceptr found = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemHostGetDevicePointer(&found, host.get(), 1));
}

TEST_F(HostMemory, ThatIsNotPinnedHasNoDevicePointer) {
  OwnMemory own;
  CUdeviceptr found = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemHostGetDevicePointer(&found, own.get(), 0));
}

TEST_F(HostMemory, RegisteredIsMemoryToKernels) {
  OwnMemory own;
  std::memset(own.get(), 0, host_size);
  ASSERT_CUDA(register_host(own.get(), host_size, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr address = 0;
  ASSERT_CUDA(driver().cuMemHostGetDevicePointer(&address, own.get(), 0));
  ASSERT_CUDA(launch(kernels().fill, nullptr, address, std::uint32_t{13}, words));
  ASSERT_CUDA(synchronize());
  EXPECT_EQ(static_cast<std::uint32_t*>(own.get())[words - 1], 13u);
  EXPECT_CUDA(driver().cuMemHostUnregister(own.get()));
}

TEST_F(HostMemory, RegisteredTwiceIsRefused) {
  OwnMemory own;
  ASSERT_CUDA(register_host(own.get(), host_size));
  EXPECT_ANSWER(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, register_host(own.get(), host_size));
  EXPECT_CUDA(driver().cuMemHostUnregister(own.get()));
}

TEST_F(HostMemory, RegisteredInPartTwiceIsRefused) {
  OwnMemory own;
  ASSERT_CUDA(register_host(own.get(), host_size / 2));
  EXPECT_ANSWER(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, register_host(own.get(), host_size));
  EXPECT_CUDA(driver().cuMemHostUnregister(own.get()));
}

TEST_F(HostMemory, CanBeRegisteredAgainAfterUnregistering) {
  OwnMemory own;
  ASSERT_CUDA(register_host(own.get(), host_size));
  ASSERT_CUDA(driver().cuMemHostUnregister(own.get()));
  ASSERT_CUDA(register_host(own.get(), host_size));
  EXPECT_CUDA(driver().cuMemHostUnregister(own.get()));
}

TEST_F(HostMemory, ThatIsNotRegisteredCannotBeUnregistered) {
  OwnMemory own;
  EXPECT_ANSWER(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, driver().cuMemHostUnregister(own.get()));
}

TEST_F(HostMemory, RegisteredOfNothingIsRefused) {
  OwnMemory own;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, register_host(own.get(), 0));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, register_host(nullptr, host_size));
}

TEST_F(HostMemory, RegisteredCannotBeFreedByTheDriver) {
  OwnMemory own;
  ASSERT_CUDA(register_host(own.get(), host_size));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFreeHost(own.get()));
  EXPECT_CUDA(driver().cuMemHostUnregister(own.get()));
}

class ManagedMemory : public DriverContract {};

TEST_F(ManagedMemory, IsMemoryToHostAndDevice) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  CUdeviceptr address = 0;
  ASSERT_CUDA(driver().cuMemAllocManaged(&address, host_size, CU_MEM_ATTACH_GLOBAL));
  auto* on_host = reinterpret_cast<std::uint32_t*>(address);
  fill_host_pattern(on_host, host_size, 72);
  auto block = given_blocking(host_size);
  ASSERT_CUDA(launch(kernels().copy_words, nullptr, block.address(), address, words));
  ASSERT_CUDA(launch(kernels().fill, nullptr, address, std::uint32_t{15}, words));
  ASSERT_CUDA(synchronize());
  expect_pattern(block.address(), host_size, 72);
  EXPECT_EQ(on_host[words - 1], 15u);
  EXPECT_CUDA(driver().cuMemFree(address));
}

TEST_F(ManagedMemory, OfNothingIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL));
}

TEST_F(ManagedMemory, AttachedToNothingIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemAllocManaged(&address, host_size, 0));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemAllocManaged(&address, host_size, CU_MEM_ATTACH_SINGLE));
}

}  // namespace
}  // namespace cuvmm::test
