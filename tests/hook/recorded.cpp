// SPDX-License-Identifier: Apache-2.0
// Every call that has an effect leaves a record, even if the driver refuses it.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "hook/driver_behind.hpp"
#include "support/test_folder.hpp"
#include "trace/reader.hpp"
#include "trace/writer.hpp"

namespace cuvmm::test {
namespace {

using hook::Flavour;

std::string trace_of_this_test() {
  return test_folder() / ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

// Runs `work` while a trace is taken; returns its records in order of time.
template <class Work>
std::vector<TraceRecord> records_of(Work&& work) {
  engine_over_silent_driver();
  const std::string path = trace_of_this_test();
  std::filesystem::remove(path);
  auto writer = TraceWriter::start({.file = path});
  EXPECT_TRUE(writer.ok());
  work();
  EXPECT_TRUE((*writer)->finish(std::chrono::seconds{60}));
  std::vector<TraceRecord> records;
  auto trace = TraceReader::open(path);
  EXPECT_TRUE(trace.ok());
  EXPECT_TRUE(trace->for_each([&](const TraceRecord& one) { records.push_back(one); }).ok());
  std::filesystem::remove(path);
  return records;
}

void call_every_row(Flavour flavour) {
  for (std::size_t i = 0; i < call_count; ++i) {
    const auto& doors = hook::all_doors()[i];
    void* door = flavour == Flavour::Legacy ? doors.legacy : doors.per_thread;
    if (door != nullptr) call_with_zeros(static_cast<Call>(i), door);
  }
}

TEST(EveryRow, LeavesOneRecordIfItHasAnEffect) {
  std::map<std::uint16_t, int> left;
  for (const TraceRecord& record : records_of([] { call_every_row(Flavour::Legacy); })) {
    if (record.call != no_call) ++left[record.call];
  }
  for (std::uint16_t i = 0; i < call_count; ++i) {
    if (all_calls()[i].effect == Effect::Neutral) continue;
    EXPECT_EQ(left[i], 1) << all_calls()[i].symbol;
  }
}

TEST(EveryRow, RecordsTheDriversAnswer) {
  for (const TraceRecord& record : records_of([] { call_every_row(Flavour::Legacy); })) {
    if (record.call == no_call || record.call == static_cast<std::uint16_t>(Call::cuMemFree_v2)) {
      continue;  // the free of a null pointer succeeds without asking the driver
    }
    EXPECT_NE(record.result, CUDA_SUCCESS) << all_calls()[record.call].symbol;
  }
}

TEST(EveryRow, RecordsThePerThreadForm) {
  for (const TraceRecord& record : records_of([] { call_every_row(Flavour::PerThread); })) {
    if (record.call == no_call) continue;
    EXPECT_TRUE((record.flags & trace_flag::per_thread) != 0) << all_calls()[record.call].symbol;
    EXPECT_NE(record.stream, 1u) << all_calls()[record.call].symbol;
  }
}

TEST(EveryRow, LeavesNoRecordWithoutATrace) {
  const auto records = records_of([] {});
  call_every_row(Flavour::Legacy);
  EXPECT_TRUE(records.empty());
  EXPECT_FALSE(trace_is_on());
}

}  // namespace
}  // namespace cuvmm::test
