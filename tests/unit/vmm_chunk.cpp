// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "support/faulty_driver.hpp"
#include "vmm/chunk_ref.hpp"
#include "vmm_world.hpp"

namespace cuvmm::test {
namespace {

const Location here = Location::device(0);

class ChunkTest : public VmmTest {};

TEST_F(ChunkTest, SaysWhatItIs) {
  const Chunk chunk = GIVEN_VALUE(Chunk::create(driver(), 2 * granularity(), here, Export::No));
  EXPECT_EQ(chunk.size(), 2 * granularity());
  EXPECT_EQ(chunk.location(), here);
  EXPECT_FALSE(chunk.exportable());
  EXPECT_FALSE(chunk.imported());
}

TEST_F(ChunkTest, ReleasesItsHandleOnceWhateverMovesItGoesThrough) {
  FaultyDriver watched{driver()};
  {
    Chunk first = GIVEN_VALUE(Chunk::create(watched, granularity(), here, Export::No));
    Chunk second = std::move(first);
    first = GIVEN_VALUE(Chunk::create(watched, granularity(), here, Export::No));
    second = std::move(first);
    EXPECT_EQ(watched.count_of("cuMemRelease"), 1u);
  }
  EXPECT_EQ(watched.count_of("cuMemRelease"), 2u);
}

TEST_F(ChunkTest, ReleasedTwiceIsAnError) {
  Chunk chunk = GIVEN_VALUE(Chunk::create(driver(), granularity(), here, Export::No));
  EXPECT_OK(chunk.release());
  EXPECT_EQ(outcome(chunk.release()), "invalid argument");
  EXPECT_EQ(outcome(chunk.export_fd()), "invalid argument");
}

TEST_F(ChunkTest, IsTakenBackByADriverThatHasEnded) {
  FaultyDriver ending{driver()};
  {
    Chunk chunk = GIVEN_VALUE(Chunk::create(ending, granularity(), here, Export::No));
    ending.fail_from(1, CUDA_ERROR_DEINITIALIZED);
    EXPECT_OK(chunk.release());
  }
  EXPECT_EQ(ending.count_of("cuMemRelease"), 1u);
}

struct BadSize {
  const char* what;
  Size size;
  const char* outcome;
};

class ChunkOfABadSize : public ChunkTest, public ::testing::WithParamInterface<BadSize> {};

TEST_P(ChunkOfABadSize, IsATypedError) {
  const auto chunk = Chunk::create(driver(), GetParam().size, here, Export::No);
  EXPECT_EQ(outcome(chunk), GetParam().outcome) << GetParam().what;
}

INSTANTIATE_TEST_SUITE_P(
    , ChunkOfABadSize,
    ::testing::Values(BadSize{"zero", 0, "invalid argument"}, BadSize{"one", 1, "invalid argument"},
                      BadSize{"unaligned", usual_granule + 512, "invalid argument"},
                      BadSize{"overflowing", unlimited, "invalid argument"},
                      BadSize{"beyond the card", 1024 * TiB, "out of memory"}),
    [](const auto& test) {
      std::string name = test.param.what;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

TEST_F(ChunkTest, OfAMissingDeviceIsAnError) {
  EXPECT_FALSE(Chunk::create(driver(), granularity(), Location::device(63), Export::No).ok());
}

TEST_F(ChunkTest, AsksForRdmaOnlyOfDevicesThatHaveIt) {
  FaultyDriver watched{driver()};
  (void)GIVEN_VALUE(Chunk::create(watched, granularity(), here, Export::No));
  EXPECT_EQ(watched.count_of("cuDeviceGetAttribute"), 1u);
  watched.forget_calls();
  (void)GIVEN_VALUE(Chunk::create(watched, granularity(), Location::host(0), Export::No));
  EXPECT_EQ(watched.count_of("cuDeviceGetAttribute"), 0u);
}

TEST_F(ChunkTest, ImportedIsTheSameMemory) {
  const Size size = granularity();
  VmmWorld world{driver()};
  const ChunkRef exporter =
      ChunkRef::adopt(GIVEN_VALUE(Chunk::create(driver(), size, here, Export::Yes)));
  const Fd fd = GIVEN_VALUE(exporter.export_fd());
  const ChunkRef importer = ChunkRef::adopt(GIVEN_VALUE(Chunk::import_fd(driver(), fd, size)));
  EXPECT_TRUE(importer->imported());
  EXPECT_EQ(importer->location(), here);
  MapPlan plan;
  plan.map(world.mapping, 0, exporter, read_write());
  plan.map(world.mapping, size, importer, read_write());
  ASSERT_OK(plan.commit());
  fill_pattern(world.address(0), size, 7);
  expect_pattern(world.address(1), size, 7);
}

TEST_F(ChunkTest, NotCreatedForExportCannotBeExported) {
  const Chunk chunk = GIVEN_VALUE(Chunk::create(driver(), granularity(), here, Export::No));
  EXPECT_EQ(outcome(chunk.export_fd()), "not supported");
}

TEST_F(ChunkTest, AForeignDescriptorIsAnError) {
  const Fd foreign{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  EXPECT_FALSE(Chunk::import_fd(driver(), foreign, granularity()).ok());
  EXPECT_EQ(outcome(Chunk::import_fd(driver(), Fd{}, granularity())), "invalid argument");
  EXPECT_EQ(outcome(Chunk::import_fd(driver(), foreign, 0)), "invalid argument");
}

TEST_F(ChunkTest, AWrongSizeOfAnImportIsRefusedWhenItIsMapped) {
  VmmWorld world{driver()};
  const Chunk exporter = GIVEN_VALUE(Chunk::create(driver(), granularity(), here, Export::Yes));
  const Fd fd = GIVEN_VALUE(exporter.export_fd());
  const ChunkRef larger =
      ChunkRef::adopt(GIVEN_VALUE(Chunk::import_fd(driver(), fd, 2 * granularity())));
  MapPlan plan;
  plan.map(world.mapping, 0, larger, read_write());
  EXPECT_FALSE(plan.commit().ok());
  expect_true(world.mapping);
}

TEST_F(ChunkTest, LivesUntilTheLastReferenceGoes) {
  FaultyDriver watched{driver()};
  ChunkRef first =
      ChunkRef::adopt(GIVEN_VALUE(Chunk::create(watched, granularity(), here, Export::No)));
  EXPECT_TRUE(first.is_sole());
  ChunkRef second = first;
  EXPECT_FALSE(first.is_sole());
  first = {};
  EXPECT_EQ(watched.count_of("cuMemRelease"), 0u);
  EXPECT_TRUE(second.is_sole());
  second = {};
  EXPECT_EQ(watched.count_of("cuMemRelease"), 1u);
}

TEST_F(ChunkTest, BookkeepingOfAMappedChunkStaysSmall) {
  constexpr Size tree_node = sizeof(MappedChunk) + sizeof(Size) + 32;
  EXPECT_LE(sizeof(StoredChunk) + tree_node + 2 * 16, 256u);
}

}  // namespace
}  // namespace cuvmm::test
