// SPDX-License-Identifier: Apache-2.0
#include "view/picture.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/kept_text.hpp"
#include "trace/limits.hpp"
#include "trace/refusals.hpp"
#include "view/lanes.hpp"
#include "view/mapped_memory.hpp"
#include "view/occupancy.hpp"

namespace cuvmm::view {
namespace {

constexpr std::size_t most_refusals = 100;
constexpr std::size_t most_spans = 100'000;  // with more spans, only larger gaps are removed
constexpr std::uint64_t records_a_report = 65'536;

bool is_about_memory(const TraceRecord& record) {
  switch (record.event) {
    case TraceEvent::Allocate:
      return is_device_memory(record);
    case TraceEvent::Create:
      return (record.flags & trace_flag::on_host) == 0;
    case TraceEvent::Map:
    case TraceEvent::AllocateFailed:
      return true;
    default:
      return false;
  }
}

// The first pass: collects the addresses.
class AddressesSeen final : public MemorySink {
 public:
  void began(const LiveBlock& block) override {
    spans_.add({block.address, block.end()});
    ++(block.is_native() ? native_ : served_);
  }
  bool is_native() const { return native_ > 0 && served_ == 0; }
  void mapped(const Span& span, std::uint64_t, std::uint64_t) override { spans_.add(span); }

  CollapsedAddresses collapsed() const {
    const Size gap = spans_.count() > most_spans ? 64 * MiB : usual_granule;
    return CollapsedAddresses{spans_.all(), gap};
  }

 private:
  SpanSet spans_;
  std::size_t native_ = 0;
  std::size_t served_ = 0;
};

// The second pass: paints.
class Painter final : public MemorySink {
 public:
  Painter(Picture& picture, const CollapsedAddresses& addresses, const PictureRequest& request)
      : picture_(picture),
        addresses_(addresses),
        used_(picture.columns, picture.rows),
        mapped_(picture.columns, picture.rows),
        lanes_(request.samples),
        samples_(request.samples) {
    picture.requested.assign(picture.columns, 0);
    picture.mapped_bytes.assign(picture.columns, 0);
    picture.physical.assign(picture.columns, 0);
    picture.spilled.assign(picture.columns, 0);
  }

  void began(const LiveBlock& block) override {
    picture_.sizes.add(block.requested);
    if (block.is_native()) native_ += block.granted;
  }
  void ended(const LiveBlock& block, std::uint64_t time) override {
    picture_.lifetimes.add((time - std::min(time, block.began)) / 1000);
    if (block.is_native()) native_ -= block.granted;
    paint(block, time);
  }
  void mapped(const Span& span, std::uint64_t chunk, std::uint64_t time) override {
    memory_.map(span, chunk, time, [&](const MappedMemory::Piece& gone) { paint(gone, time); });
    count(time);
  }
  void unmapped(const Span& span, std::uint64_t time) override {
    memory_.unmap(span, [&](const MappedMemory::Piece& gone) { paint(gone, time); });
    count(time);
  }
  void counted(const MemorySums& sums, std::uint64_t time) override {
    sums_ = sums;
    count(time);
  }

  void before(const TraceRecord& record, const LiveBlocks& live) {
    while (next_sample_ < samples_ && record.time >= time_of_sample(next_sample_)) sample(live);
    if (record.device != picture_.device) return;
    lanes_.add(record, std::min(samples_ - 1, static_cast<std::size_t>(column_of(record.time) /
                                                                       columns_a_sample())));
  }
  void refused(const TraceRecord& record) {
    if (record.device != picture_.device) return;
    ++picture_.refusal_count;
    picture_.largest_refusal = std::max(picture_.largest_refusal, record.size);
    if (picture_.refusals.size() < most_refusals) {
      picture_.refusals.push_back({record.time, record.size});
    }
  }

  void finish(const LiveBlocks& live) {
    while (next_sample_ < samples_) sample(live);
    if (picture_.fragmentation.size() < samples_) picture_.fragmentation.clear();
    live.for_each([&](const LiveBlock& block) {
      picture_.lasting_sizes.add(block.requested);
      paint(block, picture_.end);
    });
    memory_.for_each([&](const MappedMemory::Piece& piece) { paint(piece, picture_.end); });
    count(picture_.end);
    picture_.used = used_.cover();
    picture_.mapped = mapped_.cover();
    picture_.lanes = lanes_.take(picture_.header, picture_.lanes_are_clients);
  }

 private:
  double column_of(std::uint64_t time) const {
    const double whole = static_cast<double>(picture_.end - picture_.begin);
    if (time <= picture_.begin || whole <= 0) return 0;
    const double part = static_cast<double>(time - picture_.begin) / whole;
    return std::min(part, 1.0) * static_cast<double>(picture_.columns);
  }
  double columns_a_sample() const {
    return static_cast<double>(picture_.columns) / static_cast<double>(samples_);
  }
  std::uint64_t time_of_sample(std::size_t number) const {
    const double share = (static_cast<double>(number) + 0.5) / static_cast<double>(samples_);
    return picture_.begin +
           static_cast<std::uint64_t>(share * static_cast<double>(picture_.end - picture_.begin));
  }

  void paint(Raster& raster, const Span& span, std::uint64_t from, std::uint64_t to) {
    const double left = column_of(from);
    const double right = column_of(to);
    const double scale =
        static_cast<double>(picture_.rows) / static_cast<double>(addresses_.size());
    addresses_.for_each_piece(span, [&](Size bottom, Size top) {
      raster.add(left, right, static_cast<double>(bottom) * scale,
                 static_cast<double>(top) * scale);
    });
  }
  void paint(const LiveBlock& block, std::uint64_t to) {
    paint(used_, {block.address, block.end()}, block.began, to);
    if (block.is_native()) paint(mapped_, {block.address, block.end()}, block.began, to);
  }
  void paint(const MappedMemory::Piece& piece, std::uint64_t to) {
    paint(mapped_, piece.span, piece.since, to);
  }

  // Columns without events repeat the values before them.
  void count(std::uint64_t time) {
    const auto column = std::min(static_cast<std::size_t>(column_of(time)), picture_.columns - 1);
    const Size mapped_bytes = memory_.bytes() + native_;
    while (last_column_ < column) {
      ++last_column_;
      picture_.requested[last_column_] = last_.requested;
      picture_.physical[last_column_] = last_.physical;
      picture_.spilled[last_column_] = last_.spilled;
      picture_.mapped_bytes[last_column_] = last_mapped_;
    }
    const auto raise = [column](std::vector<Size>& of, Size to) {
      of[column] = std::max(of[column], to);
    };
    raise(picture_.requested, sums_.requested);
    raise(picture_.physical, sums_.physical);
    raise(picture_.spilled, sums_.spilled);
    raise(picture_.mapped_bytes, mapped_bytes);
    picture_.requested_peak = std::max(picture_.requested_peak, sums_.requested);
    picture_.physical_peak = std::max(picture_.physical_peak, sums_.physical);
    picture_.spilled_peak = std::max(picture_.spilled_peak, sums_.spilled);
    last_ = sums_;
    last_mapped_ = mapped_bytes;
  }

  // 0: not known.
  Size memory_at(std::uint64_t time) const {
    const auto later = std::find_if(picture_.limits.begin(), picture_.limits.end(),
                                    [&](const PictureLimit& limit) { return limit.time > time; });
    const auto limit = later == picture_.limits.begin() ? std::nullopt : std::prev(later)->bytes;
    if (!limit) return picture_.device_bytes;
    return picture_.device_bytes == 0 ? *limit : std::min(picture_.device_bytes, *limit);
  }

  void sample(const LiveBlocks& live) {
    const Size memory = memory_at(time_of_sample(next_sample_));
    picture_.sample_times.push_back((static_cast<double>(next_sample_) + 0.5) * columns_a_sample());
    ++next_sample_;
    if (memory != 0) {
      picture_.fragmentation.push_back(occupancy_.count(live, memory_, memory).fragmentation());
    }
    const auto granted = static_cast<double>(sums_.granted);
    picture_.rounding_waste.push_back(
        granted > 0 ? 1 - static_cast<double>(sums_.requested) / granted : 0);
  }

  Picture& picture_;
  const CollapsedAddresses& addresses_;
  Raster used_;
  Raster mapped_;
  Lanes lanes_;
  MappedMemory memory_;
  OccupancyCounter occupancy_;
  MemorySums sums_;
  MemorySums last_;
  Size last_mapped_ = 0;
  Size native_ = 0;
  std::size_t last_column_ = 0;
  std::size_t samples_;
  std::size_t next_sample_ = 0;
};

class Progress {
 public:
  Progress(void (*tell)(double), std::uint64_t records) : tell_(tell), records_(records) {}
  void step() {
    if (tell_ == nullptr || ++done_ % records_a_report != 0) return;
    tell_(std::min(1.0, static_cast<double>(done_) / static_cast<double>(2 * records_)));
  }
  void finish() const {
    if (tell_ != nullptr) tell_(1);
  }

 private:
  void (*tell_)(double);
  std::uint64_t records_;
  std::uint64_t done_ = 0;
};

// How much memory the device has, and the limits on it until the picture ends.
class Limits {
 public:
  explicit Limits(Picture& picture) : picture_(picture), limits_(picture.header) {
    for (const TraceDevice& device : picture.header.facts.devices) {
      if (device.ordinal == picture.device) picture.device_bytes = device.memory;
    }
    note(picture.begin);
  }
  void add(const TraceRecord& record) {
    if (record.event != TraceEvent::Limit) return;
    limits_.add(record);
    note(std::max(record.time, picture_.begin));
  }

 private:
  void note(std::uint64_t time) {
    const auto now = limits_.of(picture_.device, picture_.device_bytes);
    auto& all = picture_.limits;
    if (now == (all.empty() ? std::nullopt : all.back().bytes)) return;
    if (!all.empty() && all.back().time == time) all.pop_back();
    all.push_back({time, now});
  }

  Picture& picture_;
  TraceLimits limits_;
};

// Finds the device to show, and the first memory event; without any, the first operation.
Result<void> find_beginning(Recording& recording, const PictureRequest& request, Picture& picture) {
  std::optional<TraceRecord> first;
  bool is_memory = false;
  std::set<std::int16_t> others;  // devices whose memory was taken
  while (const TraceRecord* record = recording.next()) {
    if (is_about_memory(*record) && record->device != no_device) others.insert(record->device);
    if (request.device && record->device != *request.device) continue;
    is_memory = is_about_memory(*record);
    if (is_memory || (!first && Lanes::has_place_for(*record))) first = *record;
    if (is_memory) break;
  }
  TRY(recording.status());
  recording.rewind();
  if (request.device && !is_memory && !others.empty()) {
    std::string text = "no memory was taken on device " + std::to_string(*request.device) +
                       "; the trace has " + (others.size() == 1 ? "device " : "devices ");
    for (const std::int16_t one : others) {
      text += (one == *others.begin() ? "" : ", ") + std::to_string(one);
    }
    return Error::invalid("draw trace", kept_error_text(std::move(text)));
  }
  if (!first || (request.device && !is_memory)) {
    return Error::invalid("draw trace", "no device memory was taken in it");
  }
  picture.device = first->device;
  picture.begin = first->time;
  return {};
}

}  // namespace

Result<Picture> take_picture(Recording& recording, const PictureRequest& request,
                             void (*tell)(double)) {
  Picture picture;
  picture.header = recording.header();
  picture.columns = request.columns;
  picture.rows = request.rows;
  TRY(find_beginning(recording, request, picture));
  Limits limits{picture};

  Progress progress{tell, std::max<std::uint64_t>(1, recording.record_count())};
  AddressesSeen seen;
  MemoryWalk first_walk{seen, picture.device};
  std::uint64_t last = picture.begin;
  std::set<std::int16_t> devices;
  StackUses stacks{picture.device};
  const bool has_stacks = !picture.header.facts.stacks.empty();
  while (const TraceRecord* record = recording.next()) {
    first_walk.add(*record);
    limits.add(*record);
    if (has_stacks) stacks.add(*record);
    if (is_about_memory(*record) || Lanes::has_place_for(*record)) devices.insert(record->device);
    last = std::max(last, record->time);
    progress.step();
  }
  TRY(recording.status());
  recording.rewind();
  picture.end = last + 1;
  devices.erase(no_device);
  picture.device_count = devices.size();
  StackNames names{picture.header};
  picture.flames = stacks.flames(names);
  picture.is_native = seen.is_native();
  const CollapsedAddresses addresses = seen.collapsed();
  picture.address_parts = addresses.parts();
  picture.address_bytes = addresses.size();

  Painter painter{picture, addresses, request};
  MemoryWalk walk{painter, picture.device};
  while (const TraceRecord* record = recording.next()) {
    painter.before(*record, walk.live());
    walk.add(*record);
    if (is_refused_memory(*record)) painter.refused(*record);
    ++picture.events;
    progress.step();
  }
  TRY(recording.status());
  painter.finish(walk.live());
  progress.finish();
  picture.note = recording.note();
  return picture;
}

}  // namespace cuvmm::view
