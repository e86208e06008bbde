// SPDX-License-Identifier: Apache-2.0
#include "cli/work_summary.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/size.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::int16_t not_ready = 600;  // the normal answer to a query, not a failure

// An event's key, and the keys of its bytes, its time and its longest time if it has them.
struct Row {
  TraceEvent event;
  const char* words;
  const char* key;
  const char* bytes_key = nullptr;
  const char* time_key = nullptr;
  const char* longest_key = nullptr;
};

constexpr Row rows[] = {
    {TraceEvent::Launch, "launches", "launches"},
    {TraceEvent::GraphLaunch, "graph launches", "graph_launches"},
    {TraceEvent::Copy, "copies", "copies", "copied_bytes"},
    {TraceEvent::Set, "sets", "sets", "set_bytes"},
    {TraceEvent::Prefetch, "prefetches", "prefetches", "prefetched_bytes"},
    {TraceEvent::Wait, "waits", "waits", nullptr, "wait_us"},
    {TraceEvent::TimeGrantWait, "waits for device time", "time_grant_waits", nullptr,
     "time_grant_wait_us", "longest_time_grant_wait_us"},
    {TraceEvent::EventRecord, "events recorded", "event_records"},
    {TraceEvent::StreamWait, "streams that waited", "stream_waits"},
    {TraceEvent::ValueWait, "waits for values", "value_waits"},
    {TraceEvent::ValueWrite, "values written", "value_writes"},
    {TraceEvent::CaptureBegin, "captures", "captures"},
    {TraceEvent::ContextCreate, "contexts", "contexts"},
    {TraceEvent::StreamCreate, "streams", "streams"},
    {TraceEvent::EventCreate, "events created", "events_created"},
    {TraceEvent::PoolCreate, "pools", "pools"},
    {TraceEvent::PoolTrim, "trims of pools", "pool_trims"},
    {TraceEvent::Create, "chunks created", "chunks_created", "created_bytes"},
    {TraceEvent::Map, "maps", "maps", "mapped_bytes"},
    {TraceEvent::Unmap, "unmaps", "unmaps", "unmapped_bytes"},
    {TraceEvent::Move, "free chunks moved", "moves", "moved_bytes"},
    {TraceEvent::Compact, "live blocks moved", "compactions", "compacted_bytes"},
    {TraceEvent::CopyElided, "copies avoided", "copies_elided", "elided_bytes"},
    {TraceEvent::Resize, "resized in place", "resizes"},
    {TraceEvent::OutOfMemory, "out of memory", "out_of_memory"},
    {TraceEvent::Pause, "pauses", "pauses", "paused_bytes", "pause_us", "longest_pause_us"},
    {TraceEvent::Resume, "resumes", "resumes", "resumed_bytes", "resume_us", "longest_resume_us"},
    {TraceEvent::Export, "exports", "exports"},
    {TraceEvent::Import, "imports", "imports"},
    {TraceEvent::MemoryInfo, "queries of free memory", "memory_questions"},
    {TraceEvent::Call, "other calls", "other_calls"},
};

// Why copies that looked like a resize were not elided (src/base/why_run.def).
struct Reason {
  std::uint32_t number;
  const char* words;
  const char* key;
};
constexpr Reason reasons[] = {
#define CUVMM_WHY_RUN(name, number, key, words) {number, words, "run_copies_" key},
#include "base/why_run.def"
#undef CUVMM_WHY_RUN
};

std::uint64_t took_of(const TraceRecord& record) {
  switch (record.event) {
    case TraceEvent::Copy:
    case TraceEvent::Set:
    case TraceEvent::Prefetch:
    case TraceEvent::ValueWait:
    case TraceEvent::ValueWrite:
      return record.detail;
    case TraceEvent::Call:
    case TraceEvent::Launch:
    case TraceEvent::GraphLaunch:
    case TraceEvent::Wait:
    case TraceEvent::EventRecord:
    case TraceEvent::StreamWait:
    case TraceEvent::TimeGrantWait:
    case TraceEvent::Pause:
    case TraceEvent::Resume:
      return record.other;
    default:
      return 0;
  }
}

}  // namespace

void WorkSummary::add(const TraceRecord& record) {
  if (record.event == TraceEvent::OwnTime) {
    own_time_ = {.count = record.size, .bytes = 0, .took_ns = record.other};
    return;
  }
  // The call that waited for a time grant has a record of its own.
  if (record.call != no_call && record.event != TraceEvent::TimeGrantWait) ++calls_;
  const bool was_refused = record.result != 0 && record.result != not_ready;
  if (was_refused) ++refused_;
  if ((record.flags & trace_flag::captured) != 0) ++captured_;
  const auto number = static_cast<std::size_t>(record.event);
  if (number >= most_events || was_refused) return;
  Tally& tally = tallies_[number];
  ++tally.count;
  tally.bytes += record.size;
  tally.took_ns += took_of(record);
  tally.longest_ns = std::max(tally.longest_ns, took_of(record));
  if (record.event == TraceEvent::CopyRun && record.detail < most_reasons) ++run_[record.detail];
}

void WorkSummary::add_to(nlohmann::json& object) const {
  object["calls"] = calls_;
  object["refused_calls"] = refused_;
  object["captured_operations"] = captured_;
  for (const Row& row : rows) {
    const Tally& tally = of(row.event);
    object[row.key] = tally.count;
    if (row.bytes_key != nullptr) object[row.bytes_key] = tally.bytes;
    if (row.time_key != nullptr) object[row.time_key] = tally.took_ns / 1000;
    if (row.longest_key != nullptr) object[row.longest_key] = tally.longest_ns / 1000;
  }
  object["served_calls"] = own_time_.count;
  object["served_us"] = own_time_.took_ns / 1000;
  for (const Reason& reason : reasons) object[reason.key] = run_[reason.number];
}

void WorkSummary::print() const {
  const auto line = [](const char* words, std::uint64_t count, const std::string& more) {
    if (count > 0) fmt::print("{:<28} {:>14}{}\n", words, count, more);
  };
  for (const Row& row : rows) {
    const Tally& tally = of(row.event);
    std::string more;
    if (row.bytes_key != nullptr) more = "   " + print_size(tally.bytes);
    if (row.time_key != nullptr) {
      more += fmt::format("   {:.3f} s", static_cast<double>(tally.took_ns) / 1e9);
    }
    if (row.longest_key != nullptr) {
      more += fmt::format(", at most {:.3f} ms", static_cast<double>(tally.longest_ns) / 1e6);
    }
    line(row.words, tally.count, more);
  }
  for (const Reason& reason : reasons) {
    line("resizes that were copied", run_[reason.number], std::string("   ") + reason.words);
  }
  line("answered by cuvmm", own_time_.count,
       fmt::format("   {:.3f} s", static_cast<double>(own_time_.took_ns) / 1e9));
  line("of these captured", captured_, "");
  line("calls refused", refused_, "");
}

}  // namespace cuvmm::cli
