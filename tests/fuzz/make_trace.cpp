// SPDX-License-Identifier: Apache-2.0
// cuvmm_make_trace EVENTS FILE: writes a trace of any length to test the readers with: allocations
// and frees like those of a training loop (long-lived weights, short-lived activations of many
// sizes on several streams), and the launches and copies between them. The output is deterministic.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "trace/sink.hpp"

namespace cuvmm::test {
namespace {

constexpr std::size_t records_a_block = trace_format::records_in_a_block;
constexpr std::size_t most_live = 20'000;
constexpr std::uint64_t step_ns = 1'700;

class Program {
 public:
  explicit Program(TraceSink& sink) : sink_(sink) {}

  void record(std::uint64_t events) {
    while (number_ < events) {
      const std::uint64_t draw = next();
      if (draw % 4 == 0) {
        work();
      } else if (live_.size() < most_live / 2 || (draw % 2 == 0 && live_.size() < most_live)) {
        allocate();
      } else {
        free();
      }
    }
    hand_over();
    sink_.finish(0, time_, 1);
  }

 private:
  struct Held {
    std::uint64_t address;
    Size size;
  };

  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  void add(TraceRecord record) {
    record.time = time_ += step_ns;
    record.device = 0;
    record.context = 1;
    record.flags |= trace_flag::native | trace_flag::stream_ordered;
    records_.push_back(record);
    ++number_;
    if (records_.size() == records_a_block) hand_over();
  }
  void hand_over() {
    sink_.add(records_, 0, 0);
    records_.clear();
  }

  void allocate() {
    const unsigned bits = 9 + static_cast<unsigned>(next() % 13);
    const Size size = (Size{1} << bits) + next() % (Size{1} << bits) / 512 * 512;
    const std::size_t kind = std::min<std::size_t>(bits - 9, free_.size() - 1);
    std::uint64_t address = 0;
    if (!free_[kind].empty()) {
      address = free_[kind].back();
      free_[kind].pop_back();
    } else {
      address = top_;
      top_ += Size{1} << (bits + 1);
    }
    live_.push_back({address, size});
    kinds_.push_back(kind);
    add({.event = TraceEvent::Allocate,
         .address = address,
         .size = size,
         .stream = 16,
         .other = size});
  }
  void free() {
    const std::size_t which = next() % live_.size();
    add({.event = TraceEvent::Free, .address = live_[which].address, .stream = 16});
    free_[kinds_[which]].push_back(live_[which].address);
    live_[which] = live_.back();
    kinds_[which] = kinds_.back();
    live_.pop_back();
    kinds_.pop_back();
  }
  void work() {
    add({.event = next() % 3 == 0 ? TraceEvent::Copy : TraceEvent::Launch,
         .size = 4096,
         .stream = 16 * (1 + next() % 4)});
  }

  TraceSink& sink_;
  std::vector<TraceRecord> records_;
  std::vector<Held> live_;
  std::vector<std::size_t> kinds_;
  std::array<std::vector<std::uint64_t>, 13> free_;
  std::uint64_t top_ = 0x7f0000000000;
  std::uint64_t state_ = 1;
  std::uint64_t number_ = 0;
  std::uint64_t time_ = 0;
};

int make(std::uint64_t events, const char* path) {
  TraceHeader header = TraceHeader::of_this_process();
  header.mode = "MONITOR";
  header.library_version = "0.1.0";
  header.facts.devices.push_back({.ordinal = 0, .memory = 80 * GiB, .name = "made up"});
  auto sink = TraceSink::create(path, header, unlimited);
  if (!sink) {
    std::fprintf(stderr, "cuvmm_make_trace: %s\n", sink.error().text().c_str());
    return 1;
  }
  Program{*sink}.record(events);
  return 0;
}

}  // namespace
}  // namespace cuvmm::test

int main(int count, char** words) {
  if (count != 3) {
    std::fprintf(stderr, "usage: cuvmm_make_trace EVENTS FILE\n");
    return 2;
  }
  return cuvmm::test::make(std::strtoull(words[1], nullptr, 10), words[2]);
}
