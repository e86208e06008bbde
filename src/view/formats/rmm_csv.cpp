// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "trace/refusals.hpp"
#include "view/formats/formats.hpp"
#include "view/memory_walk.hpp"

namespace cuvmm::view {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t day_ns = 24 * 60 * 60 * second_ns;

class RmmLog final : public MemorySink {
 public:
  RmmLog(const TraceHeader& header, OutputFile& out) : wall_ns_(header.wall_ns), out_(out) {
    out_.write("Thread,Time,Action,Pointer,Size,Stream\n");
  }

  void began(const LiveBlock& block) override { line(block, block.began, "allocate"); }
  void ended(const LiveBlock& block, std::uint64_t time) override { line(block, time, "free"); }
  void refused(const TraceRecord& record) {
    line({.requested = record.size, .stream = record.stream, .thread = record.thread}, record.time,
         "allocate failure");
  }

 private:
  void line(const LiveBlock& block, std::uint64_t time, const char* action) {
    const std::uint64_t of_day = (wall_ns_ % day_ns + time % day_ns) % day_ns;
    const std::uint64_t seconds = of_day / second_ns;
    out_.write(fmt::format("{},{:02}:{:02}:{:02}:{:06},{},{:#x},{},{:#x}\n", block.thread,
                           seconds / 3600, seconds / 60 % 60, seconds % 60,
                           of_day % second_ns / 1000, action, block.address, block.requested,
                           block.stream));
  }

  std::uint64_t wall_ns_;
  OutputFile& out_;
};

}  // namespace

// RMM's log has one device: the first that memory was allocated on.
Result<void> write_rmm_csv(Recording& recording, OutputFile& out) {
  std::int16_t device = no_device;
  while (const TraceRecord* record = recording.next()) {
    if (record->event != TraceEvent::Allocate || !is_device_memory(*record)) continue;
    device = record->device;
    break;
  }
  TRY(recording.status());
  recording.rewind();

  RmmLog log{recording.header(), out};
  MemoryWalk walk{log, device};
  while (const TraceRecord* record = recording.next()) {
    if (out.has_failed()) break;
    walk.add(*record);
    if (record->device == device && is_refused_memory(*record)) log.refused(*record);
  }
  return recording.status();
}

}  // namespace cuvmm::view
