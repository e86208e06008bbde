// SPDX-License-Identifier: Apache-2.0
// Chunks shared by file descriptor, within a process and between two.
#include <fcntl.h>

#include "support/child.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

constexpr Size chunk_size = 4 * MiB;
constexpr auto fd_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp exportable() {
  return chunk_properties(device_location(), Exportable::Fd);
}

OwnedFd exported(const GivenChunk& chunk) {
  int fd = -1;
  GIVEN(driver().cuMemExportToShareableHandle(&fd, chunk.handle(), fd_type, 0));
  return OwnedFd{fd};
}

CUresult import(CUmemGenericAllocationHandle* handle, int fd) {
  return driver().cuMemImportFromShareableHandle(
      handle, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)), fd_type);
}

GivenChunk imported(const OwnedFd& fd) {
  CUmemGenericAllocationHandle handle = 0;
  GIVEN(import(&handle, fd.get()));
  return GivenChunk{handle, chunk_size};
}

class SharedChunk : public DriverContract {};

TEST_F(SharedChunk, ImportedIntoTheSameProcessIsTheSameMemory) {
  auto ours = given_mapped(1, chunk_size, exportable());
  fill_pattern(ours.address(), chunk_size, 31);
  auto theirs = imported(exported(ours.chunk(0)));
  auto reserved = given_reservation(chunk_size);
  auto mapping = given_mapping(reserved.address(), theirs);
  ASSERT_CUDA(set_access(mapping.address(), chunk_size));
  expect_pattern(mapping.address(), chunk_size, 31);
  CUdeviceptr begin = 0;
  size_t size = 0;
  ASSERT_CUDA(driver().cuMemGetAddressRange(&begin, &size, mapping.address() + 4));
  EXPECT_EQ(begin, mapping.address());
  EXPECT_EQ(size, chunk_size);
  write_word(mapping.address(), 1234);
  EXPECT_EQ(read_word(ours.address()), 1234u);
}

TEST_F(SharedChunk, TakesItsMemoryOnlyOnce) {
  auto ours = given_chunk(chunk_size, exportable());
  const Size free_before = memory_info().free;
  auto theirs = imported(exported(ours));
  EXPECT_EQ(memory_info().free, free_before);
}

TEST_F(SharedChunk, HasAHandleForEachImport) {
  auto ours = given_chunk(chunk_size, exportable());
  const auto fd = exported(ours);
  auto first = imported(fd);
  auto second = imported(fd);
  EXPECT_NE(first.handle(), ours.handle());
  EXPECT_NE(second.handle(), ours.handle());
  EXPECT_NE(first.handle(), second.handle());

  auto reserved = given_reservation(chunk_size);
  auto mapping = given_mapping(reserved.address(), second);
  CUmemGenericAllocationHandle retained = 0;
  ASSERT_CUDA(
      driver().cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(mapping.address())));
  EXPECT_EQ(retained, second.handle());
  EXPECT_CUDA(driver().cuMemRelease(retained));

  const Size free_before = memory_info().free;
  EXPECT_CUDA(ours.release());
  EXPECT_EQ(memory_info().free, free_before) << "the imports hold the memory";
}

TEST_F(SharedChunk, HasTheContentsItHadBeforeItsFirstExport) {
  auto ours = given_mapped(2, chunk_size, exportable());
  fill_pattern(ours.address(), ours.size(), 32);
  auto fd = exported(ours.chunk(1));
  expect_pattern(ours.address(), ours.size(), 32);
}

TEST_F(SharedChunk, CanBeExportedAgain) {
  auto ours = given_mapped(1, chunk_size, exportable());
  auto first = exported(ours.chunk(0));
  auto second = exported(ours.chunk(0));
  EXPECT_NE(first.get(), second.get());
  fill_pattern(ours.address(), chunk_size, 33);
  auto theirs = imported(second);
  auto reserved = given_reservation(chunk_size);
  auto mapping = given_mapping(reserved.address(), theirs);
  ASSERT_CUDA(set_access(mapping.address(), chunk_size));
  expect_pattern(mapping.address(), chunk_size, 33);
}

TEST_F(SharedChunk, RemembersItsPropertiesWhereItIsImported) {
  auto ours = given_chunk(chunk_size, exportable());
  auto theirs = imported(exported(ours));
  CUmemAllocationProp found{};
  ASSERT_CUDA(driver().cuMemGetAllocationPropertiesFromHandle(&found, theirs.handle()));
  EXPECT_EQ(found.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(found.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(found.location.id, 0);
}

TEST_F(SharedChunk, CannotBeExportedUnlessCreatedForExport) {
  auto chunk = given_chunk(chunk_size);
  int fd = -1;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemExportToShareableHandle(&fd, chunk.handle(), fd_type, 0));
}

TEST_F(SharedChunk, CannotBeExportedWithFlags) {
  auto chunk = given_chunk(chunk_size, exportable());
  int fd = -1;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                driver().cuMemExportToShareableHandle(&fd, chunk.handle(), fd_type, 1));
}

TEST_F(SharedChunk, CannotBeImportedFromAnInvalidDescriptor) {
  OwnedFd file{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_ANSWER(CUDA_ERROR_UNKNOWN, import(&handle, file.get()));
}

TEST_F(SharedChunk, CannotBeImportedFromNoFile) {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_ANSWER(CUDA_ERROR_UNKNOWN, import(&handle, -1));
}

TEST_F(SharedChunk, OutlivesItsCreatorsRelease) {
  OwnedFd fd;
  {
    auto ours = given_mapped(1, chunk_size, exportable());
    fill_pattern(ours.address(), chunk_size, 34);
    fd = exported(ours.chunk(0));
  }
  auto theirs = imported(fd);
  auto reserved = given_reservation(chunk_size);
  auto mapping = given_mapping(reserved.address(), theirs);
  ASSERT_CUDA(set_access(mapping.address(), chunk_size));
  expect_pattern(mapping.address(), chunk_size, 34);
}

CHILD_ROLE(writes_into_a_shared_chunk) {
  PrimaryContext context;
  auto theirs = imported(link.receive_fd());
  auto reserved = given_reservation(chunk_size);
  auto mapping = given_mapping(reserved.address(), theirs);
  ASSERT_CUDA(set_access(mapping.address(), chunk_size));
  expect_pattern(mapping.address(), chunk_size, 35);  // what the parent wrote
  fill_pattern(mapping.address(), chunk_size, 36);    // what the parent is to see
  link.signal();
  link.wait_for_signal();
  EXPECT_EQ(read_word(mapping.address() + 64), 4321u);  // written while both have it mapped
}

TEST_F(SharedChunk, InASecondProcessIsTheSameMemory) {
  auto ours = given_mapped(1, chunk_size, exportable());
  fill_pattern(ours.address(), chunk_size, 35);
  Child child{"writes_into_a_shared_chunk"};
  child.link().send_fd(exported(ours.chunk(0)).get());
  child.link().wait_for_signal();
  expect_pattern(ours.address(), chunk_size, 36);
  write_word(ours.address() + 64, 4321);
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
}

CHILD_ROLE(uses_a_shared_chunk_alone) {
  PrimaryContext context;
  auto theirs = imported(link.receive_fd());
  link.signal();
  link.wait_for_signal();  // by now the parent has released the memory
  auto reserved = given_reservation(chunk_size);
  auto mapping = given_mapping(reserved.address(), theirs);
  ASSERT_CUDA(set_access(mapping.address(), chunk_size));
  expect_pattern(mapping.address(), chunk_size, 37);
}

TEST_F(SharedChunk, InASecondProcessOutlivesItsCreatorsRelease) {
  Child child{"uses_a_shared_chunk_alone"};
  {
    auto ours = given_mapped(1, chunk_size, exportable());
    fill_pattern(ours.address(), chunk_size, 37);
    child.link().send_fd(exported(ours.chunk(0)).get());
    child.link().wait_for_signal();
  }
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
}

CHILD_ROLE(maps_a_shared_chunk_and_ends) {
  left_behind<PrimaryContext>();  // ends without cleaning up, like a crash
  auto& theirs = left_behind<GivenChunk>(imported(link.receive_fd()));
  auto& reserved = left_behind<GivenReservation>(chunk_size);
  auto& mapping = left_behind<GivenMapping>(reserved.address(), theirs);
  GIVEN(set_access(mapping.address(), chunk_size));
  write_word(mapping.address(), 99);
}

TEST_F(SharedChunk, SurvivesTheEndOfTheProcessThatImportedIt) {
  auto ours = given_mapped(1, chunk_size, exportable());
  Child child{"maps_a_shared_chunk_and_ends"};
  child.link().send_fd(exported(ours.chunk(0)).get());
  ASSERT_EQ(child.wait(), 0);
  EXPECT_EQ(read_word(ours.address()), 99u);
}

CHILD_ROLE(makes_a_chunk_and_ends) {
  left_behind<PrimaryContext>();
  auto& ours = left_behind<GivenMapped>(1, chunk_size, exportable());
  fill_pattern(ours.address(), chunk_size, 38);
  GIVEN(synchronize());
  link.send_fd(exported(ours.chunk(0)).get());
  link.wait_for_signal();
}

CHILD_ROLE(makes_a_chunk_on_the_second_device) {
  left_behind<PrimaryContext>(1);
  const auto properties = chunk_properties(device_location(1), Exportable::Fd);
  auto& ours = left_behind<GivenMapped>(1, chunk_size, properties);
  link.send_fd(exported(ours.chunk(0)).get());
  link.wait_for_signal();
}

TEST_F(SharedChunk, OfASecondProcessRemembersItsDevice) {
  NEEDS_DEVICES(2);
  Child child{"makes_a_chunk_on_the_second_device"};
  auto theirs = imported(child.link().receive_fd());
  CUmemAllocationProp found{};
  EXPECT_CUDA(driver().cuMemGetAllocationPropertiesFromHandle(&found, theirs.handle()));
  EXPECT_EQ(found.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(found.location.id, 1);
  child.link().signal();
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(SharedChunk, SurvivesTheEndOfTheProcessThatMadeIt) {
  Child child{"makes_a_chunk_and_ends"};
  auto theirs = imported(child.link().receive_fd());
  child.link().signal();
  ASSERT_EQ(child.wait(), 0);
  auto reserved = given_reservation(chunk_size);
  auto mapping = given_mapping(reserved.address(), theirs);
  ASSERT_CUDA(set_access(mapping.address(), chunk_size));
  expect_pattern(mapping.address(), chunk_size, 38);
}

}  // namespace
}  // namespace cuvmm::test
