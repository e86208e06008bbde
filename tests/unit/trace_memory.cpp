// SPDX-License-Identifier: Apache-2.0
// What the parts that hold memory write to a trace.
#include "trace/writer.hpp"
#include "unit/trace_world.hpp"
#include "unit/vmm_world.hpp"

namespace cuvmm::test {
namespace {

class TraceOfMemory : public VmmTest {};

TEST_F(TraceOfMemory, RecordsWhatTheStoreReleasedAndKept) {
  const OwnFolder folder;
  const std::string path = folder.in("t");
  Size granule = 0;
  {
    auto writer = TraceWriter::start({.file = path});
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    VmmWorld world{driver()};
    granule = world.granule;
    for (ChunkRef& chunk : world.chunks({1, 2, 1})) world.store.give(std::move(chunk));
    EXPECT_EQ(world.store.trim(world.here, granule), 3 * granule);
    EXPECT_EQ(world.store.trim(world.here, granule), 0u);
  }
  std::vector<TraceRecord> trims;
  for (const TraceRecord& record : records_of(path)) {
    if (record.event == TraceEvent::Trim) trims.push_back(record);
  }
  ASSERT_EQ(trims.size(), 1u) << "nothing is said of what gave nothing back";
  EXPECT_EQ(trims[0].device, 0);
  EXPECT_EQ(trims[0].size, 3 * granule);
  EXPECT_EQ(trims[0].other, granule);
  EXPECT_EQ(trims[0].detail, 2u);
}

}  // namespace
}  // namespace cuvmm::test
