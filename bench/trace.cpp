// SPDX-License-Identifier: Apache-2.0
// Measures what a trace costs the traced program, and how fast it can be read. Goals: an event
// takes at most 60 ns including its clock, and one load without a trace; 10 million records are
// read in at most 2 s.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "trace/reader.hpp"
#include "trace/sink.hpp"
#include "trace/writer.hpp"

namespace cuvmm::bench {
namespace {

template <class T>
T need(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "cuvmm_bench_trace: %s\n", result.error().text().c_str());
    std::exit(1);
  }
  return std::move(*result);
}

// A folder that its last user removes.
class Folder {
 public:
  Folder() {
    if (::mkdtemp(path_) == nullptr) std::exit(1);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return std::string(path_) + "/" + name; }

 private:
  char path_[32] = "/tmp/cuvmm_bench_XXXXXX";
};

void record(std::uint64_t number) {
  CUVMM_TRACE(.event = TraceEvent::Allocate, .device = 0, .address = number, .size = 4096);
}

void Clock(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(now_ns());
}
BENCHMARK(Clock);

void EventWithoutTrace(benchmark::State& state) {
  std::uint64_t number = 0;
  for ([[maybe_unused]] auto _ : state) {
    record(number++);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(EventWithoutTrace);

// Bursts that fit into a ring buffer, which is flushed between them outside the measured time: the
// cost of an event in a program that does other things too.
constexpr std::uint64_t burst = 2048;
std::unique_ptr<Folder> folder;
std::unique_ptr<TraceWriter> writer;

void start_trace(const benchmark::State&) {
  folder = std::make_unique<Folder>();
  writer = need(TraceWriter::start({.file = folder->file("t"), .size_cap = unlimited}));
}
void finish_trace(const benchmark::State&) {
  writer->finish(std::chrono::seconds{60});
  writer.reset();
  folder.reset();
}

void EventInBursts(benchmark::State& state) {
  std::uint64_t spent = 0;
  for ([[maybe_unused]] auto _ : state) {
    const std::uint64_t start = now_ns();
    for (std::uint64_t number = 0; number < burst; ++number) record(number);
    const std::uint64_t time = now_ns() - start;
    state.SetIterationTime(static_cast<double>(time) * 1e-9);
    spent += time;
    writer->flush(std::chrono::seconds{10});
  }
  const auto events = static_cast<double>(state.iterations()) * static_cast<double>(burst);
  state.counters["ns_an_event"] =
      benchmark::Counter(static_cast<double>(spent) / events, benchmark::Counter::kAvgThreads);
  if (state.thread_index() == 0) {
    state.counters["lost"] = static_cast<double>(writer->totals().dropped);
  }
}
BENCHMARK(EventInBursts)
    ->Setup(start_trace)
    ->Teardown(finish_trace)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(500)
    ->Threads(1)
    ->Threads(2)
    ->Threads(8);

// Without pauses, which is more than any program needs. Events are lost if the writer cannot keep
// up.
void EventWithoutPause(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) {
    for (std::uint64_t number = 0; number < burst; ++number) record(number);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(burst));
  if (state.thread_index() == 0) {
    writer->flush(std::chrono::seconds{60});
    const TraceTotals totals = writer->totals();
    state.counters["lost_share"] =
        static_cast<double>(totals.dropped) / static_cast<double>(totals.dropped + totals.records);
  }
}
BENCHMARK(EventWithoutPause)
    ->Setup(start_trace)
    ->Teardown(finish_trace)
    ->Iterations(500)
    ->Unit(benchmark::kMicrosecond)
    ->Threads(1)
    ->Threads(2);

// Writes a trace of `records` records by `threads` threads, in rounds like the writer's.
void write_trace(const std::string& path, std::uint64_t records, std::uint32_t threads) {
  auto sink = need(TraceSink::create(path, {}, unlimited));
  std::vector<TraceRecord> block(trace_format::records_in_a_block);
  for (std::uint64_t written = 0; written < records; written += threads * block.size()) {
    for (std::uint32_t thread = 0; thread < threads; ++thread) {
      std::uint64_t time = 100 * written + thread;
      for (TraceRecord& record : block) {
        record = {.time = time, .event = TraceEvent::Allocate, .thread = thread, .size = 4096};
        time += 100 * threads;
      }
      sink.add(block, thread, 0);
    }
  }
  sink.finish(0, 100 * records, threads);
}

void ReadTenMillion(benchmark::State& state) {
  const Folder here;
  write_trace(here.file("t"), 10'000'000, static_cast<std::uint32_t>(state.range(0)));
  std::uint64_t count = 0;
  for ([[maybe_unused]] auto _ : state) {
    auto trace = need(TraceReader::open(here.file("t")));
    std::uint64_t bytes = 0;
    while (const TraceRecord* record = trace.next()) {
      bytes += record->size;
      ++count;
    }
    benchmark::DoNotOptimize(bytes);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(count));
}
BENCHMARK(ReadTenMillion)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(4)
    ->Arg(64)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cuvmm::bench

BENCHMARK_MAIN();
