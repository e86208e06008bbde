// SPDX-License-Identifier: Apache-2.0
// Blocking memory in another process by legacy IPC: a handle of 64 bytes that any channel can
// carry.
#include "streams_support.hpp"
#include "support/child.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

constexpr Size shared_size = 4 * MiB;
constexpr unsigned lazily = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

CUipcMemHandle handle_of(CUdeviceptr address) {
  CUipcMemHandle handle{};
  GIVEN(driver().cuIpcGetMemHandle(&handle, address));
  return handle;
}

CUdeviceptr opened(const CUipcMemHandle& handle) {
  CUdeviceptr address = 0;
  GIVEN(driver().cuIpcOpenMemHandle(&address, handle, lazily));
  return address;
}

class IpcMemory : public DriverContract {};

CHILD_ROLE(opens_and_writes) {
  PrimaryContext context;
  const CUdeviceptr address = opened(link.receive<CUipcMemHandle>());
  expect_pattern(address, shared_size, 81);
  fill_pattern(address, shared_size, 82);
  EXPECT_CUDA(synchronize());
  EXPECT_CUDA(driver().cuIpcCloseMemHandle(address));
}

TEST_F(IpcMemory, IsTheSameMemoryInAnotherProcess) {
  auto block = given_blocking(shared_size);
  fill_pattern(block.address(), shared_size, 81);
  GIVEN(synchronize());
  Child child{"opens_and_writes"};
  child.link().send(handle_of(block.address()));
  ASSERT_EQ(child.wait(), 0);
  expect_pattern(block.address(), shared_size, 82);
}

TEST_F(IpcMemory, OfASmallBlockIsTheSameMemoryToo) {
  auto neighbour = given_blocking(64 * KiB);
  auto block = given_blocking(64 * KiB);
  write_word(block.address(), 7);
  GIVEN(synchronize());
  Child child{"reads_one_word"};
  child.link().send(handle_of(block.address()));
  EXPECT_EQ(child.link().receive<std::uint32_t>(), 7u);
  EXPECT_EQ(child.wait(), 0);
}

CHILD_ROLE(reads_one_word) {
  PrimaryContext context;
  const CUdeviceptr address = opened(link.receive<CUipcMemHandle>());
  link.send(read_word(address));
  EXPECT_CUDA(driver().cuIpcCloseMemHandle(address));
}

CHILD_ROLE(opens_twice) {
  PrimaryContext context;
  const auto handle = link.receive<CUipcMemHandle>();
  const CUdeviceptr first = opened(handle);
  const CUdeviceptr second = opened(handle);
  EXPECT_EQ(first, second);
  EXPECT_CUDA(driver().cuIpcCloseMemHandle(first));
  EXPECT_EQ(read_word(second), 5u);  // one open still has no matching close
  EXPECT_CUDA(driver().cuIpcCloseMemHandle(second));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuIpcCloseMemHandle(second));
}

TEST_F(IpcMemory, OpenedTwiceIsCountedAndHasOneAddress) {
  auto block = given_blocking(shared_size);
  write_word(block.address(), 5);
  GIVEN(synchronize());
  Child child{"opens_twice"};
  child.link().send(handle_of(block.address()));
  EXPECT_EQ(child.wait(), 0);
}

CHILD_ROLE(asks_about_opened_memory) {
  PrimaryContext context;
  const CUdeviceptr address = opened(link.receive<CUipcMemHandle>());
  CUdeviceptr begin = 0;
  size_t length = 0;
  EXPECT_CUDA(driver().cuMemGetAddressRange(&begin, &length, address + 1 * MiB));
  EXPECT_EQ(begin, address);
  EXPECT_EQ(length, shared_size);
  unsigned type = 0;
  EXPECT_CUDA(driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemFree(address));
  EXPECT_CUDA(driver().cuIpcCloseMemHandle(address));
}

TEST_F(IpcMemory, OpenedIsReportedAsAnAllocation) {
  auto block = given_blocking(shared_size);
  Child child{"asks_about_opened_memory"};
  child.link().send(handle_of(block.address()));
  EXPECT_EQ(child.wait(), 0);
}

CHILD_ROLE(opens_and_ends) {
  left_behind<PrimaryContext>();  // ends without closing, like a crash
  write_word(opened(link.receive<CUipcMemHandle>()), 6);
  GIVEN(synchronize());
}

TEST_F(IpcMemory, SurvivesTheEndOfTheProcessThatOpenedIt) {
  auto block = given_blocking(shared_size);
  Child child{"opens_and_ends"};
  child.link().send(handle_of(block.address()));
  ASSERT_EQ(child.wait(), 0);
  EXPECT_EQ(read_word(block.address()), 6u);
}

TEST_F(IpcMemory, CannotBeOpenedInItsOwnProcess) {
  auto block = given_blocking(shared_size);
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT,
                driver().cuIpcOpenMemHandle(&address, handle_of(block.address()), lazily));
}

TEST_F(IpcMemory, MayHaveItsHandleQueriedTwice) {
  auto block = given_blocking(shared_size);
  EXPECT_CUDA(driver().cuMemsetD8(block.address(), 1, shared_size));
  (void)handle_of(block.address());
  (void)handle_of(block.address());
  EXPECT_EQ(read_word(block.address()), 0x01010101u);
}

CHILD_ROLE(gives_a_handle) {
  PrimaryContext context;
  auto block = given_blocking(shared_size);
  link.send(handle_of(block.address()));
  link.wait_for_signal();
  EXPECT_CUDA(block.free());
  link.signal();
  link.wait_for_signal();
}

TEST_F(IpcMemory, ThatItsOwnerFreedOrLeftCannotBeOpened) {
  CUipcMemHandle handle{};
  CUdeviceptr address = 0;
  {
    Child owner{"gives_a_handle"};
    handle = owner.link().receive<CUipcMemHandle>();
    owner.link().signal();
    owner.link().wait_for_signal();
    // Measured: NOT_PERMITTED on a machine with one card, INVALID_VALUE on one with two.
    const CUresult answer = driver().cuIpcOpenMemHandle(&address, handle, lazily);
    EXPECT_TRUE(answer == CUDA_ERROR_NOT_PERMITTED || answer == CUDA_ERROR_INVALID_VALUE) << answer;
    owner.link().signal();
    EXPECT_EQ(owner.wait(), 0);
  }
  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, driver().cuIpcOpenMemHandle(&address, handle, lazily));
}

CHILD_ROLE(opens_and_reads_the_first_word) {
  PrimaryContext context;
  const CUdeviceptr address = opened(link.receive<CUipcMemHandle>());
  EXPECT_EQ(read_word(address), 8u);
  EXPECT_CUDA(driver().cuIpcCloseMemHandle(address));
}

TEST_F(IpcMemory, ByAnInnerAddressIsTheWholeAllocation) {
  auto block = given_blocking(shared_size);
  write_word(block.address(), 8);
  GIVEN(synchronize());
  Child child{"opens_and_reads_the_first_word"};
  child.link().send(handle_of(block.address() + 1 * MiB));
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(IpcMemory, ThatIsStreamOrderedHasNoHandle) {
  CUdeviceptr address = 0;
  GIVEN(driver().cuMemAllocAsync(&address, shared_size, nullptr));
  CUipcMemHandle handle{};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuIpcGetMemHandle(&handle, address));
  EXPECT_CUDA(driver().cuMemFreeAsync(address, nullptr));
  GIVEN(synchronize());
}

TEST_F(IpcMemory, HasNoHandleWithoutACurrentContext) {
  auto memory = given_blocking(shared_size);
  CUipcMemHandle handle{};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_CONTEXT, without_a_context([&] {
                  return driver().cuIpcGetMemHandle(&handle, memory.address());
                }));
}

TEST_F(IpcMemory, ThatNeverWasHasNoHandle) {
  int on_the_stack = 0;
  CUipcMemHandle handle{};
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(&on_the_stack)));
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuIpcGetMemHandle(&handle, 0));
}

TEST_F(IpcMemory, IsOpenedWithThePeerFlagOnly) {
  CUipcMemHandle handle{};
  CUdeviceptr address = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuIpcOpenMemHandle(&address, handle, 0));
}

TEST_F(IpcMemory, ThatWasNotOpenedCannotBeClosed) {
  auto block = given_blocking(shared_size);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuIpcCloseMemHandle(block.address()));
  EXPECT_CUDA(driver().cuMemsetD8(block.address(), 1, shared_size));
}

}  // namespace
}  // namespace cuvmm::test
