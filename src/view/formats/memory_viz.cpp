// SPDX-License-Identifier: Apache-2.0
// A snapshot as torch.cuda.memory._snapshot() returns it. The viewer starts at the end and goes
// back through the events, and relies on every block lying in mapped memory at every moment. So the
// snapshot shows as mapped all memory that is mapped, and also the addresses of a live block while
// its chunks are being replaced.
#include <algorithm>
#include <map>
#include <set>

#include "trace/refusals.hpp"
#include "view/formats/formats.hpp"
#include "view/formats/pickle.hpp"
#include "view/memory_walk.hpp"
#include "view/spans.hpp"

namespace cuvmm::view {
namespace {

constexpr std::size_t usual_write = 64 * 1024;

class Snapshot final : public MemorySink {
 public:
  Snapshot(const TraceHeader& header, PickleWriter& pickle) : header_(header), pickle_(pickle) {}

  // Sets the record that the following events come from.
  void at(const TraceRecord& record) { record_ = &record; }

  void began(const LiveBlock& block) override {
    if (block.requested == 0) return;
    make_way_for({block.address, block.end()});
    show({block.address, block.end()});
    event("alloc", block.address, block.requested, block.stream);
    held_[block.address] = block;
  }
  void ended(const LiveBlock& block, std::uint64_t) override { release(block.address); }
  void mapped(const Span& span, std::uint64_t, std::uint64_t) override {
    mapped_.add(span);
    show(span);
  }
  void unmapped(const Span& span, std::uint64_t) override {
    mapped_.remove(span);
    hide(span);
  }
  void refused(const TraceRecord& record) {
    begin_event("oom", record.size, record.stream);
    field("device_free", record.other);  // PyTorch's reader fails without it
    pickle_.end_dict();
    pickle_.end_item();
  }

  void write_mapped(std::int16_t device) const {
    for (const Span& span : shown_.all()) {
      pickle_.begin_dict();
      field("device", static_cast<std::uint64_t>(device));
      field("address", span.begin);
      field("total_size", span.size());
      field("stream", 0);
      pickle_.key("segment_type");
      pickle_.text("large");
      write_blocks(span);
      pickle_.end_dict();
      pickle_.end_item();
    }
  }

 private:
  void field(std::string_view key, std::uint64_t number) const {
    pickle_.key(key);
    pickle_.number(number);
  }

  void begin_event(std::string_view action, Size size, std::uint64_t stream) {
    pickle_.begin_dict();
    pickle_.key("action");
    pickle_.text(action);
    field("size", size);
    field("stream", stream == 1 ? 0 : stream);
    field("time_us", (header_.wall_ns + record_->time) / 1000);
    pickle_.key("frames");
    pickle_.begin_list();
    const std::string_view call = header_.call(record_->call);
    pickle_.begin_dict();
    pickle_.key("name");
    pickle_.text(call.empty() ? "cuvmm" : call);
    pickle_.key("filename");
    pickle_.text("thread " + std::to_string(record_->thread));
    field("line", 0);
    pickle_.end_dict();
    pickle_.end_item();
    pickle_.end_list();
  }
  void event(std::string_view action, std::uint64_t address, Size size, std::uint64_t stream) {
    begin_event(action, size, stream);
    field("addr", address);
    pickle_.end_dict();
    pickle_.end_item();
  }

  // Ends blocks that overlap the span: records may be lost or wrong.
  void make_way_for(const Span& span) {
    auto at = held_.lower_bound(span.begin);
    if (at != held_.begin() && std::prev(at)->second.end() > span.begin) --at;
    while (at != held_.end() && at->first < span.end) {
      const std::uint64_t address = at->first;
      ++at;
      release(address);
    }
  }

  void release(std::uint64_t address) {
    const auto found = held_.find(address);
    if (found == held_.end()) return;
    const LiveBlock block = found->second;
    event("free_requested", block.address, block.requested, block.stream);
    event("free_completed", block.address, block.requested, block.stream);
    held_.erase(found);
    SpanSet not_mapped;
    not_mapped.add({block.address, block.end()});
    remove_common(not_mapped, mapped_, {block.address, block.end()});
    for (const Span& span : not_mapped.all()) hide(span);
  }

  static void remove_common(SpanSet& from, const SpanSet& what, const Span& within) {
    for (const Span& span : what.within(within)) from.remove(span);
  }

  void show(const Span& span) {
    SpanSet missing;
    missing.add(span);
    remove_common(missing, shown_, span);
    for (const Span& one : missing.all()) {
      event("segment_map", one.begin, one.size(), 1);
      shown_.add(one);
    }
  }
  // Hides the parts of the span that no live block covers.
  void hide(const Span& span) {
    SpanSet going;
    for (const Span& one : shown_.within(span)) going.add(one);
    auto at = held_.lower_bound(span.begin);
    if (at != held_.begin() && std::prev(at)->second.end() > span.begin) --at;
    for (; at != held_.end() && at->first < span.end; ++at) {
      going.remove({at->first, at->second.end()});
    }
    for (const Span& one : going.all()) {
      event("segment_unmap", one.begin, one.size(), 1);
      shown_.remove(one);
    }
  }

  void write_blocks(const Span& span) const {
    pickle_.key("blocks");
    pickle_.begin_list();
    Size active = 0;
    std::uint64_t at = span.begin;
    for (auto held = held_.lower_bound(span.begin); held != held_.end() && held->first < span.end;
         ++held) {
      const LiveBlock& block = held->second;
      if (block.address > at) write_block("inactive", at, block.address - at, 0);
      write_block("active_allocated", block.address, block.granted, block.requested);
      active += block.granted;
      at = block.end();
    }
    if (at < span.end) write_block("inactive", at, span.end - at, 0);
    pickle_.end_list();
    field("allocated_size", active);
    field("active_size", active);
  }
  void write_block(std::string_view state, std::uint64_t address, Size size, Size requested) const {
    pickle_.begin_dict();
    field("address", address);
    field("size", size);
    field("requested_size", requested);
    pickle_.key("state");
    pickle_.text(state);
    pickle_.key("frames");
    pickle_.begin_list();
    pickle_.end_list();
    pickle_.end_dict();
    pickle_.end_item();
  }

  const TraceHeader& header_;
  PickleWriter& pickle_;
  const TraceRecord* record_ = nullptr;
  std::map<std::uint64_t, LiveBlock> held_;
  SpanSet mapped_;
  SpanSet shown_;
};

Result<std::set<std::int16_t>> devices_in(Recording& recording) {
  std::set<std::int16_t> devices;
  while (const TraceRecord* record = recording.next()) {
    const bool shows_memory = record->event == TraceEvent::Allocate ||
                              record->event == TraceEvent::Create || is_refused_memory(*record);
    if (shows_memory && is_device_memory(*record) && record->device >= 0 && record->device < 64) {
      devices.insert(record->device);
    }
  }
  TRY(recording.status());
  recording.rewind();
  return devices;
}

}  // namespace

Result<void> write_memory_viz(Recording& recording, OutputFile& out) {
  const auto devices = TRY(devices_in(recording));
  PickleWriter pickle;
  std::map<std::int16_t, Snapshot> snapshots;
  pickle.begin();
  pickle.begin_dict();
  pickle.key("device_traces");
  pickle.begin_list();
  const int count = devices.empty() ? 1 : *devices.rbegin() + 1;
  for (std::int16_t device = 0; device < count; ++device) {
    pickle.begin_list();
    if (devices.contains(device)) {
      Snapshot& snapshot = snapshots.try_emplace(device, recording.header(), pickle).first->second;
      MemoryWalk walk{snapshot, device};
      while (const TraceRecord* record = recording.next()) {
        if (out.has_failed()) return {};
        snapshot.at(*record);
        walk.add(*record);
        if (record->device == device && is_refused_memory(*record)) snapshot.refused(*record);
        if (pickle.size() >= usual_write) out.write(pickle.take());
      }
      TRY(recording.status());
      recording.rewind();
    }
    pickle.end_list();
    pickle.end_item();
  }
  pickle.end_list();
  pickle.key("segments");
  pickle.begin_list();
  for (const auto& [device, snapshot] : snapshots) snapshot.write_mapped(device);
  pickle.end_list();
  pickle.end_dict();
  pickle.finish();
  out.write(pickle.take());
  return {};
}

}  // namespace cuvmm::view
