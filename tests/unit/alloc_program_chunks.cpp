// SPDX-License-Identifier: Apache-2.0
// The books of the chunks that the program manages itself.
#include <gtest/gtest.h>

#include "alloc/program_chunks.hpp"
#include "alloc_memory_world.hpp"
#include "trace/writer.hpp"
#include "unit/trace_world.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm::test {
namespace {

using Handle = ProgramChunks::Handle;

constexpr Size chunk_size = 2 * MiB;
constexpr CUdeviceptr somewhere = 64 * GiB;

class ProgramChunksTest : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    begin({.limit = SizeLimit::of_bytes(64 * MiB)});
    chunks_.emplace(driver());
  }
  void TearDown() override {
    chunks_.reset();
    MemoryTest::TearDown();
  }
  ProgramChunks& chunks() { return *chunks_; }
  Size counted() { return memory().counters(0).native; }

  static CUmemAllocationProp on_device() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    return properties;
  }
  Handle created(Handle handle) {
    auto charge = NativeCharge::within_limit(memory().devices().serve(0)->bound(), chunk_size);
    EXPECT_TRUE(charge.ok());
    return chunks().created(handle, chunk_size, on_device(), std::move(charge).value());
  }

 private:
  std::optional<ProgramChunks> chunks_;
};

TEST_F(ProgramChunksTest, AChunkCountsUntilItIsNeitherReferredToNorMapped) {
  const Handle chunk = created(7);
  EXPECT_EQ(counted(), chunk_size);
  chunks().mapped(somewhere, chunk_size, chunk);
  EXPECT_EQ(chunks().retained(7, somewhere + 5), chunk);
  chunks().release(chunk);
  chunks().release(chunk);
  EXPECT_EQ(counted(), chunk_size) << "it is still mapped";
  chunks().unmap(somewhere, chunk_size);
  EXPECT_EQ(counted(), 0U);
  EXPECT_TRUE(chunks().is_empty());
}

TEST_F(ProgramChunksTest, WhatTheDriverRefusesChangesNothing) {
  const Handle chunk = created(7);
  chunks().mapped(somewhere, chunk_size, chunk);
  {
    const auto released = chunks().release(chunk);
    auto unmapped = chunks().unmap(somewhere, chunk_size);
    EXPECT_FALSE(chunks().contains(somewhere));
    chunks().restore(std::move(unmapped));
    chunks().restore(released);
  }
  EXPECT_TRUE(chunks().contains(somewhere + chunk_size - 1));
  EXPECT_FALSE(chunks().contains(somewhere + chunk_size));
  EXPECT_EQ(counted(), chunk_size);
  chunks().unmap(somewhere, chunk_size);
  EXPECT_EQ(counted(), chunk_size) << "the reference is still there";
  chunks().release(chunk);
  EXPECT_EQ(counted(), 0U);
}

TEST_F(ProgramChunksTest, UnmappingARangeEndsTheMappingsInItAndNoOther) {
  const Handle chunk = created(7);
  for (const Size at : {0u, 1u, 2u})
    chunks().mapped(somewhere + at * chunk_size, chunk_size, chunk);
  EXPECT_EQ(chunks().unmap(somewhere + chunk_size, 2 * chunk_size).size(), 2U);
  EXPECT_TRUE(chunks().contains(somewhere));
  EXPECT_FALSE(chunks().contains(somewhere + chunk_size));
}

TEST_F(ProgramChunksTest, AccessIsThatOfEachMapping) {
  const Handle chunk = created(7);
  for (const Size at : {0u, 1u}) chunks().mapped(somewhere + at * chunk_size, chunk_size, chunk);
  const CUmemAccessDesc both[] = {
      {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
      {{CU_MEM_LOCATION_TYPE_DEVICE, {1}}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
  chunks().set_access(somewhere, 2 * chunk_size, both);
  const CUmemAccessDesc no_longer{{CU_MEM_LOCATION_TYPE_DEVICE, {1}},
                                  CU_MEM_ACCESS_FLAGS_PROT_NONE};
  chunks().set_access(somewhere + chunk_size, chunk_size, {&no_longer, 1});
  const auto places = chunks().unmap(somewhere, 2 * chunk_size);
  ASSERT_EQ(places.size(), 2U);
  EXPECT_EQ(places[0].access.print(), "0:rw 1:r");
  EXPECT_EQ(places[1].access.print(), "0:rw");
}

TEST_F(ProgramChunksTest, ANumberThatTheDriverReusesUnseenIsANewChunk) {
  created(7);
  created(7);
  EXPECT_EQ(counted(), chunk_size);
  chunks().release(7);
  EXPECT_EQ(counted(), 0U);
}

TEST_F(ProgramChunksTest, ImportingOnesOwnChunkRefersToIt) {
  const Handle chunk = created(7);
  EXPECT_EQ(chunks().imported(7), chunk);
  EXPECT_TRUE(chunks().release(chunk).is_for_driver);
  EXPECT_EQ(counted(), chunk_size);
  chunks().release(chunk);
  EXPECT_EQ(counted(), 0U);
  chunks().imported(8);
  EXPECT_EQ(counted(), 0U) << "it counts where it was created";
}

TEST_F(ProgramChunksTest, AMappingOfAPartEndsWhereThePartDoes) {
  const Handle chunk = created(7);
  chunks().mapped(somewhere, chunk_size / 2, chunk, chunk_size / 2);
  EXPECT_TRUE(chunks().contains(somewhere + chunk_size / 2 - 1));
  EXPECT_FALSE(chunks().contains(somewhere + chunk_size / 2));
  const Handle next = created(8);
  chunks().mapped(somewhere + chunk_size / 2, chunk_size, next);
  EXPECT_EQ(chunks().run_from(somewhere).size(), 2U);
  EXPECT_EQ(chunks().bytes_on_devices(), chunk_size) << "only whole chunks can leave";
  EXPECT_FALSE(chunks().is_exportable_from(somewhere).ok());
}

// The driver may know a chunk by several handles; each is one of the program's names for it.
TEST_F(ProgramChunksTest, AChunkThatHasLostOneOfItsHandlesIsStillListedOnce) {
  const Handle first = created(7);
  chunks().mapped(somewhere, chunk_size, first);
  const Handle second = chunks().retained(8, somewhere);
  EXPECT_NE(first, second);
  EXPECT_EQ(chunks().chunks_on(0).size(), 1U);
  chunks().release(second);
  EXPECT_EQ(chunks().chunks_on(0).size(), 1U);
  chunks().release(first);
  EXPECT_EQ(chunks().chunks_on(0).size(), 1U) << "the mapping keeps it";
}

// A real chunk, whose books are those of `chunks`.
Handle given_chunk(ProgramChunks& chunks, const CUmemAllocationProp& properties) {
  Handle handle = 0;
  EXPECT_CUDA(driver().cuMemCreate(&handle, chunk_size, &properties, 0));
  return chunks.created(handle, chunk_size, properties);
}

// A chunk that is mapped `somewhere`, and that may leave the device and come back.
struct TakenOver {
  Handle name;
  std::shared_ptr<ProgramChunk> chunk;
  ChunkRef taken;
};
TakenOver given_taken_over(ProgramChunks& chunks, const CUmemAllocationProp& properties) {
  const Handle name = given_chunk(chunks, properties);
  chunks.mapped(somewhere, chunk_size, name);
  auto chunk = chunks.chunks_on(0).front();
  ChunkRef taken = *chunks.take_over(*chunk, somewhere);
  return {name, std::move(chunk), std::move(taken)};
}

TEST_F(ProgramChunksTest, AReleaseThatTheDriverRefusesForNowCannotBeMadeASecondTime) {
  ProgramChunks own{faulty.driver()};
  const Handle chunk = given_chunk(own, on_device());
  own.mapped(somewhere, chunk_size, chunk);
  {
    const auto places = own.places_of(*own.chunks_on(0).front());
    ASSERT_TRUE(own.take_over(*places.front().chunk, somewhere).ok());
  }
  own.unmap(somewhere, chunk_size);
  faulty.fail_from(1, CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(own.release(chunk).is_for_driver);
  faulty.stop_failing();
  EXPECT_EQ(own.release(chunk).handle, 0U);
  EXPECT_EQ(own.handle_of(chunk), 0U);
  EXPECT_EQ(retry_releases(), 0U);
  EXPECT_EQ(own.handle_of(chunk), chunk) << "the number may be another chunk's by now";
}

TEST(DeferredReleases, LeaveTheReferenceToAChunkUntilOneSucceeds) {
  constexpr Handle chunk = 77;
  int calls = 0;
  bool was_ours = false;
  add_own_reference(chunk);
  release_chunk_or_defer(chunk, [&] {
    was_ours = has_own_reference(chunk);
    return ++calls < 3 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
  });
  EXPECT_TRUE(was_ours);
  EXPECT_TRUE(has_own_reference(chunk));
  EXPECT_EQ(retry_releases(), 0U);
  EXPECT_FALSE(has_own_reference(chunk));
}

TEST(OwnReferences, ToOneChunkAreCounted) {
  constexpr Handle chunk = 78;
  add_own_reference(chunk);
  add_own_reference(chunk);
  remove_own_reference(chunk);
  EXPECT_TRUE(has_own_reference(chunk));
  remove_own_reference(chunk);
  EXPECT_FALSE(has_own_reference(chunk));
}

// The driver refused to map all of what was to take its place, so it leaves a second time.
TEST_F(ProgramChunksTest, WhatHasNotComeBackIsRecordedAsReleasedOnce) {
  const OwnFolder folder;
  const std::string path = folder.in("t");
  {
    auto writer = TraceWriter::start({.file = path});
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    const auto [name, chunk, taken] = given_taken_over(chunks(), on_device());
    chunks().left(*chunk);
    chunks().left(*chunk);
    chunks().came_back(*chunk, taken);
    chunks().unmap(somewhere, chunk_size);
    chunks().release(name);
  }
  int released = 0;
  for (const TraceRecord& record : records_of(path)) {
    released += record.event == TraceEvent::Release;
    released -= record.event == TraceEvent::Create;
  }
  EXPECT_EQ(released, 0);
}

TEST_F(ProgramChunksTest, AChunkWithoutAHandleIsRecordedByWhereItIsMapped) {
  const OwnFolder folder;
  const std::string path = folder.in("t");
  {
    auto writer = TraceWriter::start({.file = path});
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    const auto [name, chunk, taken] = given_taken_over(chunks(), on_device());
    chunks().release(name);
    chunks().left(*chunk);
    chunks().came_back(*chunk, taken);
    chunks().unmap(somewhere, chunk_size);
  }
  std::vector<TraceEvent> events;
  for (const TraceRecord& record : records_of(path)) {
    if (record.size != chunk_size) continue;
    EXPECT_EQ(record.address, somewhere);
    EXPECT_EQ(record.other, 0U);
    events.push_back(record.event);
  }
  EXPECT_EQ(events, (std::vector{TraceEvent::Release, TraceEvent::Create}));
}

}  // namespace
}  // namespace cuvmm::test
