// SPDX-License-Identifier: Apache-2.0
#include "trace/reader.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace cuvmm {
namespace {

using namespace trace_format;

constexpr std::uint64_t never = ~std::uint64_t{0};
constexpr Size most_loaded = 256 * MiB;

std::span<const TraceRecord> records_in(std::span<const std::byte> payload) {
  return {reinterpret_cast<const TraceRecord*>(payload.data()),
          payload.size() / sizeof(TraceRecord)};
}

// Whether the records match the block's header. A truncated block holds only the first of them.
bool keeps_promise(const BlockHeader& block, std::span<const TraceRecord> records) {
  if (records.front().time != block.first_time || records.back().time > block.last_time) {
    return false;
  }
  std::uint64_t before = 0;
  for (const TraceRecord& record : records) {
    if (record.time < before) return false;
    if (block.thread != many_threads && record.thread != block.thread) return false;
    before = record.time;
  }
  return true;
}

std::string counted(std::uint64_t number, const char* one, const char* many) {
  return std::to_string(number) + " " + (number == 1 ? one : many);
}

}  // namespace

struct TraceReader::Later {
  bool operator()(const Run& a, const Run& b) const {
    return a.at->time != b.at->time ? a.at->time > b.at->time : a.place > b.place;
  }
};

Result<TraceReader> TraceReader::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not hang.
  Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
  if (!file.is_open()) {
    return Error{.kind = ErrorKind::SystemFailed, .system_code = errno, .doing = "open trace"};
  }
  return open(std::move(file));
}

Result<TraceReader> TraceReader::open(Fd fd) {
  auto file = TRY(TraceBytes::of(std::move(fd)));
  std::array<std::byte, unit> start;
  const std::size_t size = TRY(header_size(TRY(file.read(0, start))));
  std::vector<std::byte> bytes(std::min<Size>(size, file.size()));
  auto header = TRY(decode_header(TRY(file.read(0, bytes))));
  auto scan = TRY(scan_trace(file, size, header));
  return TraceReader{std::move(file), std::move(header), std::move(scan)};
}

TraceReader::TraceReader(TraceBytes file, TraceHeader header, TraceScan scan)
    : file_(std::move(file)), header_(std::move(header)), scan_(std::move(scan)) {
  std::stable_sort(scan_.stretches.begin(), scan_.stretches.end(),
                   [](const auto& a, const auto& b) { return a.first_time < b.first_time; });
}

void TraceReader::rewind() {
  next_stretch_ = 0;
  loaded_.clear();
  free_places_.clear();
  loaded_bytes_ = 0;
  runs_.clear();
  now_ = {};
  others_begin_ = 0;
  damaged_ = 0;
  status_ = {};
}

std::uint64_t TraceReader::next_stretch_time() const {
  return next_stretch_ < scan_.stretches.size() ? scan_.stretches[next_stretch_].first_time : never;
}

const TraceRecord* TraceReader::next_of_all() {
  if (now_.at == now_.end && !take_next_run()) return nullptr;
  if (!load_stretches_up_to(now_.at->time)) return nullptr;
  if (!runs_.empty() && Later{}(now_, runs_.front())) {
    exchange_with_earliest(now_);
  }
  others_begin_ = std::min(next_stretch_time(), runs_.empty() ? never : runs_.front().at->time);
  return now_.at++;
}

// Sifts down once, where pop and push would do it twice: threads that record concurrently alternate
// with every record.
void TraceReader::exchange_with_earliest(Run& run) {
  const Run down = std::exchange(run, runs_.front());
  std::size_t hole = 0;
  for (std::size_t child = 1; child < runs_.size(); child = 2 * hole + 1) {
    if (child + 1 < runs_.size() && Later{}(runs_[child], runs_[child + 1])) ++child;
    if (!Later{}(down, runs_[child])) break;
    runs_[hole] = runs_[child];
    hole = child;
  }
  runs_[hole] = down;
}

// Makes the run with the earliest record the current one. False if none is left.
bool TraceReader::take_next_run() {
  if (now_.at != nullptr) done_with(now_.loaded);
  now_ = {};
  others_begin_ = 0;
  while (runs_.empty()) {
    if (next_stretch_ == scan_.stretches.size()) return false;
    if (!load(scan_.stretches[next_stretch_++])) return false;
  }
  std::pop_heap(runs_.begin(), runs_.end(), Later{});
  now_ = runs_.back();
  runs_.pop_back();
  return true;
}

bool TraceReader::load_stretches_up_to(std::uint64_t time) {
  while (next_stretch_ < scan_.stretches.size() && next_stretch_time() <= time) {
    if (!load(scan_.stretches[next_stretch_++])) return false;
  }
  return true;
}

bool TraceReader::load(const TraceStretch& stretch) {
  const Size size = stretch.end - stretch.begin;
  if (loaded_bytes_ + size > most_loaded) {
    status_ = Error::invalid("read trace", "its records are too far out of order");
    return false;
  }
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(size);
  auto read = file_.read(stretch.begin, {bytes.get(), size});
  if (!read) {
    status_ = read.error();
    return false;
  }

  std::size_t place = loaded_.size();
  if (free_places_.empty()) {
    loaded_.emplace_back();
  } else {
    place = free_places_.back();
    free_places_.pop_back();
  }
  loaded_bytes_ += size;
  loaded_[place] = {.bytes = std::move(bytes), .size = size, .runs = 1};  // held by this function
  add_runs(*read, stretch.begin, place);
  done_with(place);
  return true;
}

void TraceReader::add_runs(std::span<const std::byte> bytes, Size place, std::size_t loaded) {
  while (!bytes.empty()) {
    const auto block = block_at(bytes);
    if (!block || block->type != BlockType::Records) {
      ++damaged_;  // the file has changed since the scan
      return;
    }
    bytes = bytes.subspan(sizeof *block);
    const bool is_cut = block->payload_size > bytes.size();
    const auto payload = bytes.first(std::min<Size>(block->payload_size, bytes.size()));
    bytes = bytes.subspan(payload.size());
    const auto records = records_in(payload);
    if (!records.empty() && (is_cut || payload_is_whole(*block, payload)) &&
        keeps_promise(*block, records)) {
      add_run({.at = records.data(),
               .end = records.data() + records.size(),
               .place = place,
               .loaded = loaded});
    } else {
      ++damaged_;
    }
    place += sizeof *block + block->payload_size;
  }
}

void TraceReader::add_run(Run run) {
  ++loaded_[run.loaded].runs;
  runs_.push_back(run);
  std::push_heap(runs_.begin(), runs_.end(), Later{});
}

void TraceReader::done_with(std::size_t place) {
  Loaded& stretch = loaded_[place];
  if (--stretch.runs > 0) return;
  loaded_bytes_ -= stretch.size;
  stretch = {};
  free_places_.push_back(place);
}

TraceHealth TraceReader::health() const {
  TraceHealth health = scan_.health;
  health.damaged += damaged_;
  return health;
}

std::string TraceReader::note() const {
  const TraceHealth all = health();
  std::string text;
  const auto say = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (!all.is_finished) say("its end is missing (the program was killed, or still runs)");
  if (all.cut_bytes > 0) say("read to the last whole record");
  if (all.reached_size_cap) say("it ends where it reached its largest size");
  if (all.ran_out_of_space) say("it ends where it could not be written");
  if (all.damaged > 0)
    say(counted(all.damaged, "damaged part was", "damaged parts were") + " left out");
  if (all.dropped > 0)
    say(counted(all.dropped, "event was", "events were") + " lost while it was taken");
  return text;
}

}  // namespace cuvmm
