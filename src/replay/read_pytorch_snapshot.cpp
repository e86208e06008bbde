// SPDX-License-Identifier: Apache-2.0
// torch.cuda.memory._snapshot(), as pickled by _dump_snapshot(): "segments" is the memory that
// PyTorch held at the end, and "device_traces" is the history, one list per device.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "replay/pickle.hpp"
#include "replay/pytorch_actions.hpp"
#include "replay/read_trace.hpp"

namespace cuvmm::replay {
namespace {

using Events = std::vector<PickleValue>;
using pytorch::Meaning;

constexpr Size most_snapshot_bytes = 4 * GiB;
// What values may take of memory, for each byte of the file. Compressed snapshots of long trainings
// take about 100.
constexpr Size most_bytes_a_byte = 1024;
constexpr Size always_allowed = 256 * MiB;
constexpr const char* how_to_record =
    "it has no history: call torch.cuda.memory._record_memory_history() before what is to be "
    "recorded";

struct SnapshotEvent {
  Meaning meaning = Meaning::Nothing;
  std::uint64_t time_us = 0;
  std::uint64_t address = 0;
  Size size = 0;
  std::uint64_t stream = 0;
  std::optional<Size> device_free;
};

class Snapshot {
 public:
  Snapshot(const Pickle& pickle, std::size_t bytes) : pickle_(pickle), most_events_(bytes) {}

  Result<ReplayTrace> read() {
    const Events* const events = TRY(find_events());
    // Lists may be referenced repeatedly, but no honest file has more events than bytes.
    if (events->size() > most_events_) return unreadable("more events than bytes");
    TRY(read_events(*events));
    note_settings();
    note_end();
    begin_with_what_was_live();
    for (const SnapshotEvent& event : events_) TRY(tell(event));
    builder_.reserved_at_end(reserved_at_end_);
    return builder_.finish(Source::PytorchSnapshot);
  }

 private:
  // The history of the only device that has one.
  Result<const Events*> find_events() {
    const auto traces = pickle_.get(pickle_.root(), "device_traces");
    if (!pickle_.is_dict(pickle_.root()) || !pickle_.get(pickle_.root(), "segments")) {
      return unreadable("a pickle, but not a memory snapshot of PyTorch's");
    }
    const Events* const devices = traces ? pickle_.items(*traces) : nullptr;
    if (devices == nullptr) return unreadable(how_to_record);
    const Events* found = nullptr;
    for (std::size_t i = 0; i < devices->size(); ++i) {
      const Events* const events = pickle_.items((*devices)[i]);
      if (events == nullptr) return unreadable("device_traces holds something else than lists");
      if (events->empty()) continue;
      if (found != nullptr) return unreadable("it covers several devices");
      found = events;
      device_ = static_cast<std::int64_t>(i);
    }
    if (found == nullptr) return unreadable(how_to_record);
    return found;
  }

  Result<void> read_events(const Events& list) {
    events_.reserve(list.size());
    for (const PickleValue value : list) {
      SnapshotEvent event = TRY(read_event(value));
      // Older versions record no time; then only the order is known.
      const auto time = pickle_.get(value, "time_us");
      const auto known = time ? pickle_.number(*time) : std::nullopt;
      event.time_us = known && *known >= 0 ? static_cast<std::uint64_t>(*known) : events_.size();
      events_.push_back(event);
    }
    std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
    for (const SnapshotEvent& event : events_) first = std::min(first, event.time_us);
    for (SnapshotEvent& event : events_) event.time_us -= first;
    return {};
  }

  Result<SnapshotEvent> read_event(PickleValue value) {
    const auto action = pickle_.get(value, "action");
    const auto name = action ? pickle_.text(*action) : std::nullopt;
    if (!name) return event_error("no action");
    if (*name == "segment_map" || *name == "segment_unmap") builder_.is_expandable();
    SnapshotEvent event{.meaning = pytorch::meaning_of(*name)};
    if (event.meaning == Meaning::Unknown) {
      return event_error("no action is called '" + std::string{name->substr(0, 80)} + "'");
    }
    if (event.meaning == Meaning::Nothing) return event;
    event.size = TRY(field(value, "size"));
    event.stream = TRY(field(value, "stream"));
    if (event.meaning != Meaning::Refused) {
      event.address = TRY(field(value, "addr"));
    } else if (pickle_.get(value, "device_free")) {
      event.device_free = TRY(field(value, "device_free"));
    }
    return event;
  }
  Result<std::uint64_t> field(PickleValue event, const char* name) {
    const auto value = pickle_.get(event, name);
    const auto number = value ? pickle_.number(*value) : std::nullopt;
    if (!number) return event_error(std::string{name} + " is not a number");
    // Sums of sizes must not overflow.
    if (*number < 0 || static_cast<Size>(*number) > most_recorded_bytes) {
      return event_error(std::string{name} + " is out of range");
    }
    return static_cast<std::uint64_t>(*number);
  }
  Error event_error(const std::string& why) const {
    return unreadable("event " + std::to_string(events_.size() + 1) + ": " + why);
  }

  // The history may have forgotten the events that tell.
  void note_settings() {
    const auto settings = pickle_.get(pickle_.root(), "allocator_settings");
    if (settings && number_or(*settings, "expandable_segments", 0) != 0) builder_.is_expandable();
  }

  // Records the memory that PyTorch held at the end, and the blocks that the program held.
  void note_end() {
    const auto held = pickle_.get(pickle_.root(), "segments");
    const Events* const all = held ? pickle_.items(*held) : nullptr;
    if (all == nullptr) return;
    for (const PickleValue one : *all) {
      if (number_or(one, "device", 0) != device_) continue;
      if (number_or(one, "is_expandable", 0) != 0) builder_.is_expandable();
      reserved_at_end_ += static_cast<Size>(
          std::clamp<std::int64_t>(number_or(one, "total_size", 0), 0, most_held));
      const auto blocks = pickle_.get(one, "blocks");
      const Events* const list = blocks ? pickle_.items(*blocks) : nullptr;
      if (list == nullptr) continue;
      blocks_seen_ += list->size();  // segments may reference one list repeatedly
      if (blocks_seen_ > most_events_) return;
      note_blocks(*list, number_or(one, "address", 0), number_or(one, "stream", 0));
    }
  }
  void note_blocks(const Events& list, std::int64_t address, std::int64_t stream) {
    for (const PickleValue block : list) {
      const std::int64_t size = std::clamp<std::int64_t>(number_or(block, "size", 0), 0, most_held);
      const auto state = pickle_.get(block, "state");
      const auto name = state ? pickle_.text(*state) : std::nullopt;
      const std::int64_t at = number_or(block, "address", address);
      if (name && name->starts_with("active_")) {
        blocks_at_end_.push_back({.meaning = Meaning::Allocate,
                                  .address = static_cast<std::uint64_t>(at),
                                  .size = static_cast<Size>(requested_of(block, size)),
                                  .stream = static_cast<std::uint64_t>(stream)});
      }
      if (__builtin_add_overflow(at, size, &address)) return;
    }
  }
  // Older versions do not record it, and no request exceeds its block.
  std::int64_t requested_of(PickleValue block, std::int64_t size) const {
    const std::int64_t requested = number_or(block, "requested_size", size);
    return requested >= 0 && requested <= size ? requested : size;
  }
  std::int64_t number_or(PickleValue dict, const char* name, std::int64_t otherwise) const {
    const auto value = pickle_.get(dict, name);
    return (value ? pickle_.number(*value) : std::nullopt).value_or(otherwise);
  }

  // The history begins late. Blocks that are freed in it, or live at its end, without being
  // allocated in it were live at its start.
  void begin_with_what_was_live() {
    std::unordered_set<std::uint64_t> seen;
    const auto was_live = [&](const SnapshotEvent& event) {
      if (!seen.insert(event.address).second || event.size == 0) return;
      builder_.allocate(
          {.time_us = 0, .address = event.address, .size = event.size, .stream = event.stream});
    };
    for (const SnapshotEvent& event : events_) {
      if (event.meaning == Meaning::Allocate) seen.insert(event.address);
      if (event.meaning == Meaning::Free) was_live(event);
    }
    for (const SnapshotEvent& block : blocks_at_end_) was_live(block);
  }

  Result<void> tell(const SnapshotEvent& event) {
    const TraceBuilder::Request request{.time_us = event.time_us,
                                        .address = event.address,
                                        .size = event.size,
                                        .stream = event.stream};
    switch (event.meaning) {
      case Meaning::Allocate:
        // The free is missing if the history was switched off for a while.
        if (builder_.is_live(event.address)) builder_.free(event.time_us, event.address);
        builder_.allocate(request);
        break;
      case Meaning::Free:
        builder_.free(event.time_us, event.address);
        break;
      case Meaning::Refused:
        builder_.refuse(request, event.device_free);
        break;
      case Meaning::Take:
        builder_.reserve(static_cast<std::int64_t>(event.size));
        break;
      case Meaning::GiveBack:
        builder_.reserve(-static_cast<std::int64_t>(event.size));
        break;
      case Meaning::Nothing:
      case Meaning::Unknown:
        break;
    }
    return {};
  }

  static constexpr std::int64_t most_held = std::int64_t{1} << 50;  // so that sums cannot overflow

  const Pickle& pickle_;
  const std::size_t most_events_;
  std::int64_t device_ = 0;
  std::vector<SnapshotEvent> events_;
  std::vector<SnapshotEvent> blocks_at_end_;
  std::size_t blocks_seen_ = 0;
  Size reserved_at_end_ = 0;
  TraceBuilder builder_;
};

}  // namespace

Result<ReplayTrace> read_pytorch_snapshot(std::string_view bytes, Size most) {
  const Pickle pickle = TRY(Pickle::read(bytes, std::min(most, Size{Pickle::usual_most_bytes})));
  return Snapshot{pickle, bytes.size()}.read();
}

Result<ReplayTrace> read_pytorch_snapshot_file(const std::string& path) {
  std::error_code none;  // reading the file reports it
  const auto size = std::filesystem::file_size(path, none);
  const std::string bytes = TRY(read_whole(path, most_snapshot_bytes));
  return read_pytorch_snapshot(bytes,
                               none ? always_allowed : always_allowed + most_bytes_a_byte * size);
}

}  // namespace cuvmm::replay
