// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "trace/event_log.hpp"
#include "view/log_lines.hpp"
#include "view/recorded.hpp"

namespace cuvmm::test {
namespace {

std::string line_of(const TraceRecord& record) {
  return "cuvmm[42] INFO " + std::to_string(record.time / 1000) + " " +
         describe(record, nullptr).text;
}

constexpr TraceEvent all_events[] = {
#define CUVMM_TRACE_EVENT(name, ...) TraceEvent::name,
#include "trace/events.def"
#undef CUVMM_TRACE_EVENT
};

TEST(LogLine, OfEveryEventRoundTrips) {
  const view::LogLines lines;
  for (const TraceEvent event : all_events) {
    if (event == TraceEvent::Note) continue;  // a note for the reader
    const TraceRecord record{.time = 7000,
                             .event = event,
                             .flags = 3,
                             .device = 1,
                             .result = 2,
                             .context = 4,
                             .detail = 500,
                             .address = 600,
                             .size = 700,
                             .stream = 800,
                             .other = 900};
    const auto read = lines.read(line_of(record));
    ASSERT_TRUE(read && read->event) << line_of(record);
    EXPECT_EQ(read->process, 42U);
    // Fields that the line omits are 0.
    EXPECT_EQ(line_of(*read->event), line_of(record));
  }
}

TEST(LogLine, SaysWhyACopyRanInAWord) {
  TraceRecord record{.time = 7000, .event = TraceEvent::CopyRun, .size = 64};
  record.detail = 2;
  EXPECT_NE(line_of(record).find(" why=costs_more"), std::string::npos) << line_of(record);
  const auto read = view::LogLines{}.read(line_of(record));
  ASSERT_TRUE(read && read->event);
  EXPECT_EQ(read->event->detail, 2U);
  record.detail = 99;  // from a later version
  EXPECT_NE(line_of(record).find(" why=99"), std::string::npos) << line_of(record);
}

TEST(LogLine, OfAnotherKindIsSkipped) {
  const view::LogLines lines;
  for (const char* line :
       {"", "cuvmm", "cuvmm[x] INFO 1 map", "cuvmm[1] LOUD 1 map", "cuvmm[1] INFO soon map",
        "hello world", "cuvmm[99999999999999999999] I"}) {
    EXPECT_FALSE(lines.read(line).has_value()) << line;
  }
  EXPECT_FALSE(lines.read("cuvmm[1] INFO 5 trace file=/tmp/x")->event.has_value());
}

TEST(Log, IsReadAsARecording) {
  const OwnFile file;
  std::ofstream{file.path()} << "cuvmm[42] INFO 100 map address=0x10 size=32 chunk=0x7 chunks=1\n"
                             << "nonsense\n"
                             << std::string(100'000, 'x') << "\n"
                             << "cuvmm[43] INFO 120 free address=0x10 size=0\n"
                             << "cuvmm[42] INFO 150 free address=0x10 size=8 marks=0x2\n";
  auto recording = opened(file.path());
  const TraceRecord* first = recording.next();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->event, TraceEvent::Map);
  EXPECT_EQ(first->other, 7U);
  const TraceRecord* second = recording.next();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->time, 50'000U);
  EXPECT_EQ(second->flags, trace_flag::native);
  EXPECT_EQ(recording.next(), nullptr);
  EXPECT_NE(recording.note(), "");
}

TEST(Log, WithoutEventsSaysWhatToDo) {
  const OwnFile file;
  std::ofstream{file.path()} << "cuvmm[42] ERROR 100 something went wrong\n";
  const auto recording = view::Recording::open(file.path());
  ASSERT_FALSE(recording.ok());
  EXPECT_NE(recording.error().text().find("VMM_LOG_LEVEL"), std::string::npos);
}

}  // namespace
}  // namespace cuvmm::test
