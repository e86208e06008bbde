// SPDX-License-Identifier: Apache-2.0
// Events as log lines.
#include "trace/event_log.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace cuvmm::test {
namespace {

const char* name_of_call(std::uint16_t call) {
  return call == 3 ? "cuMemMap" : nullptr;
}

std::string line_of(const TraceRecord& event) {
  return describe(event, &name_of_call).text;
}

TEST(EventLine, HasTheEventsOwnPairsThenThoseOfEveryEvent) {
  EXPECT_EQ(line_of({.event = TraceEvent::Map,
                     .device = 1,
                     .call = 3,
                     .context = 2,
                     .detail = 4,
                     .address = 0x7f2000000000,
                     .size = 2097152,
                     .other = 0xabc}),
            "map address=0x7f2000000000 size=2097152 chunk=0xabc chunks=4 device=1 context=2 "
            "call=cuMemMap");
}

TEST(EventLine, NamesEventsInSmallLetters) {
  EXPECT_EQ(line_of({.event = TraceEvent::CopyElided, .address = 1, .size = 2}),
            "copy_elided to=0x1 size=2");
}

TEST(EventLine, SaysTimesInMicroseconds) {
  EXPECT_EQ(line_of({.event = TraceEvent::Wait, .stream = 1, .other = 1'234'056}),
            "wait event=0x0 stream=0x1 took_us=1234.056");
}

TEST(EventLine, HasTheErrorOfARefusedCall) {
  EXPECT_EQ(line_of({.event = TraceEvent::AllocateFailed, .result = 2, .size = 64}),
            "allocate_failed size=64 result=2");
}

TEST(EventLine, SaysWhatIsMarked) {
  EXPECT_EQ(line_of({.event = TraceEvent::Free,
                     .flags = trace_flag::native | trace_flag::stream_ordered,
                     .address = 16}),
            "free address=0x10 size=0 marks=0x3");
}

TEST(EventLine, ShowsTheWordsOfANote) {
  EXPECT_EQ(line_of(trace_note("exactly thirty-two bytes of text")),
            "note exactly thirty-two bytes of text");
}

TEST(EventLine, OfAnUnknownEventSaysItsNumber) {
  EXPECT_EQ(line_of({.event = static_cast<TraceEvent>(999)}), "event number=999");
}

TEST(EventLine, IsShownAtInfoOnlyForMemoryChanges) {
  for (const TraceEvent event : {TraceEvent::Allocate, TraceEvent::Free, TraceEvent::Map,
                                 TraceEvent::Unmap, TraceEvent::Import, TraceEvent::CopyElided}) {
    EXPECT_EQ(severity_of(event), Severity::Info) << name_of(event);
  }
  for (const TraceEvent event : {TraceEvent::Launch, TraceEvent::Copy, TraceEvent::ArenaCounters,
                                 TraceEvent::StreamCreate, TraceEvent::Call}) {
    EXPECT_EQ(severity_of(event), Severity::Debug) << name_of(event);
  }
}

TEST(EventLine, StandsInTheDocs) {
  std::ifstream file{std::string(CUVMM_SOURCE_DIR) + "/docs/internals/log_format.md"};
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(describe_event_lines()), std::string::npos)
      << "docs/internals/log_format.md should hold:\n\n"
      << describe_event_lines();
}

}  // namespace
}  // namespace cuvmm::test
