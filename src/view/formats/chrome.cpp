// SPDX-License-Identifier: Apache-2.0
// Blocks become async events, which may overlap; calls with a duration become complete events of
// their thread; totals become counters.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "view/formats/formats.hpp"
#include "view/memory_walk.hpp"

namespace cuvmm::view {
namespace {

class ChromeEvents final : public MemorySink {
 public:
  ChromeEvents(const TraceHeader& header, OutputFile& out) : header_(header), out_(out) {
    out_.write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    std::string name = header.command.empty() ? "cuvmm" : header.command.front();
    event(fmt::format(R"("ph":"M","name":"process_name","args":{{"name":{}}})",
                      quoted_for_json(name)));
  }

  void began(const LiveBlock& block) override {
    const std::uint64_t id = ++last_id_;
    ids_[block.address] = id;
    event(fmt::format(
        R"("ph":"b","cat":"memory","name":"{}","id":{},"tid":{},"ts":{},)"
        R"("args":{{"address":"{:#x}","requested":{},"granted":{},"device":{},"stream":"{:#x}"}})",
        print_size(block.requested), id, block.thread, in_microseconds(block.began), block.address,
        block.requested, block.granted, block.device, block.stream));
  }
  void ended(const LiveBlock& block, std::uint64_t time) override { end(block, time); }
  void counted(const MemorySums& sums, std::uint64_t time) override {
    event(fmt::format(R"("ph":"C","name":"device memory","ts":{},)"
                      R"("args":{{"requested":{},"physical":{},"spilled":{}}})",
                      in_microseconds(time), sums.requested, sums.physical, sums.spilled));
  }

  void other(const TraceRecord& record) {
    switch (record.event) {
      case TraceEvent::Call:
      case TraceEvent::Launch:
      case TraceEvent::GraphLaunch:
      case TraceEvent::Wait:
        return complete(record, record.other, name_of_call(record));
      case TraceEvent::TimeGrantWait:  // inside the call that waited
        return complete(record, record.other, "wait for a time grant");
      case TraceEvent::Copy:
      case TraceEvent::Set:
      case TraceEvent::Prefetch:
        return complete(record, record.detail, name_of_call(record));
      case TraceEvent::AllocateFailed:
      case TraceEvent::OutOfMemory:
      case TraceEvent::Move:
      case TraceEvent::Compact:
      case TraceEvent::Trim:
      case TraceEvent::CopyElided:
        return instant(record);
      case TraceEvent::Thread:
        return name_thread(record);
      case TraceEvent::ClientCreate:
        return name_client(record);
      case TraceEvent::Completed:
        return on_device(record);
      default:
        return;
    }
  }

  void finish(const LiveBlocks& live, std::uint64_t last_time) {
    live.for_each([&](const LiveBlock& block) { end(block, last_time); });
    out_.write("\n]}\n");
  }

 private:
  void event(const std::string& fields) {
    out_.write(is_first_ ? "" : ",\n");
    is_first_ = false;
    out_.write(fmt::format("{{\"pid\":{},{}}}", header_.process, fields));
  }
  void end(const LiveBlock& block, std::uint64_t time) {
    const auto id = ids_.find(block.address);
    if (id == ids_.end()) return;
    event(fmt::format(R"("ph":"e","cat":"memory","name":"{}","id":{},"tid":{},"ts":{})",
                      print_size(block.requested), id->second, block.thread,
                      in_microseconds(time)));
    ids_.erase(id);
  }
  std::string name_of_call(const TraceRecord& record) const {
    const std::string_view call = header_.call(record.call);
    return std::string{call.empty() ? name_of(record.event) : call};
  }
  void complete(const TraceRecord& record, std::uint64_t took, const std::string& name) {
    event(fmt::format(R"("ph":"X","cat":"call","name":{},"tid":{},"ts":{},"dur":{},)"
                      R"("args":{{"bytes":{},"stream":"{:#x}","result":{}}})",
                      quoted_for_json(name), record.thread, in_microseconds(record.time),
                      in_microseconds(took), record.size, record.stream, record.result));
  }
  void instant(const TraceRecord& record) {
    event(fmt::format(R"("ph":"i","s":"t","cat":"memory","name":"{}","tid":{},"ts":{},)"
                      R"("args":{{"address":"{:#x}","bytes":{}}})",
                      name_of(record.event), record.thread, in_microseconds(record.time),
                      record.address, record.size));
  }
  void name_thread(const TraceRecord& record) {
    event(fmt::format(R"("ph":"M","name":"thread_name","tid":{},"args":{{"name":{}}})",
                      record.thread,
                      quoted_for_json(fmt::format("{} ({})", thread_of(record), record.other))));
  }

  // Each scheduler client has a track showing the device's work for it.
  static std::uint64_t track_of(const TraceRecord& record) {
    return first_client_track + record.client;
  }
  void name_client(const TraceRecord& record) {
    std::string name = fmt::format("client {}", record.client);
    for (const TraceName& known : header_.facts.names) {
      if (known.subject == TraceSubject::Client && known.number == record.client) {
        name = fmt::format("client {} ({})", known.text, record.client);
      }
    }
    event(fmt::format(R"("ph":"M","name":"thread_name","tid":{},"args":{{"name":{}}})",
                      track_of(record), quoted_for_json(name)));
  }
  void on_device(const TraceRecord& record) {
    const std::uint64_t began = record.time - std::min(record.time, record.other);
    event(fmt::format(R"("ph":"X","cat":"client","name":"{} operations","tid":{},"ts":{},"dur":{},)"
                      R"("args":{{"stream":"{:#x}","last":{}}})",
                      record.detail, track_of(record), in_microseconds(began),
                      in_microseconds(record.other), record.stream, record.address));
  }

  static constexpr std::uint64_t first_client_track = std::uint64_t{1} << 32;

  const TraceHeader& header_;
  OutputFile& out_;
  std::map<std::uint64_t, std::uint64_t> ids_;  // of live blocks, by address
  std::uint64_t last_id_ = 0;
  bool is_first_ = true;
};

}  // namespace

Result<void> write_chrome(Recording& recording, OutputFile& out) {
  ChromeEvents events{recording.header(), out};
  MemoryWalk walk{events};
  while (const TraceRecord* record = recording.next()) {
    if (out.has_failed()) break;
    walk.add(*record);
    events.other(*record);
  }
  events.finish(walk.live(), recording.last_time());
  return recording.status();
}

}  // namespace cuvmm::view
