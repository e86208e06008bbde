// SPDX-License-Identifier: Apache-2.0
// Measures the cost of a call's door over a driver whose functions do nothing. Goals: at most 20 ns
// more than calling that function directly, with one thread and with 64; with a trace, at most 60
// ns per event.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "hook/door.hpp"
#include "trace/writer.hpp"

namespace cuvmm::bench {
namespace {

using hook::Row;

// The function for one row in the driver that does nothing.
template <Call call, class Function>
struct Nothing;
template <Call call, class... Arguments>
struct Nothing<call, CUresult (*)(Arguments...)> {
  static CUresult answer(Arguments...) { return CUDA_SUCCESS; }
};

CUresult answer_version(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

void* find_symbol(void*, const char* symbol) {
  static const std::unordered_map<std::string, void*> functions = [] {
    std::unordered_map<std::string, void*> all;
    const auto add = [&](const char* name, auto* function) {
      if (name != nullptr) all[name] = reinterpret_cast<void*>(function);
    };
#define CUVMM_API(name, symbol, since, until, flavours, effect, need)        \
  add(#symbol, &Nothing<Call::symbol, Row<Call::symbol>::Function>::answer); \
  add(info(Call::symbol).per_thread_symbol,                                  \
      &Nothing<Call::symbol, Row<Call::symbol>::Function>::answer);
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
    all["cuDriverGetVersion"] = reinterpret_cast<void*>(&answer_version);
    all.erase("cuGetProcAddress");
    all.erase("cuGetProcAddress_v2");
    return all;
  }();
  const auto found = functions.find(symbol);
  return found != functions.end() ? found->second : nullptr;
}

Engine& engine() {
  driver_source().doors = {
      .open = [](const char*) { return reinterpret_cast<void*>(&answer_version); },
      .symbol = &find_symbol};
  return *Engine::get();
}

template <Call call>
typename Row<call>::Function door() {
  return reinterpret_cast<typename Row<call>::Function>(
      hook::all_doors()[static_cast<std::size_t>(call)].legacy);
}
template <Call call>
typename Row<call>::Function direct() {
  return engine().driver().*Row<call>::legacy;
}

// This thread's CPU time, however many threads share a processor.
double thread_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

constexpr int calls_in_a_turn = 2048;  // fits into a trace's ring buffer

template <class Work>
double ns_of_a_call(Work&& work) {
  const double begin = thread_ns();
  for (int i = 0; i < calls_in_a_turn; ++i) {
    work();
    benchmark::ClobberMemory();
  }
  return (thread_ns() - begin) / calls_in_a_turn;
}

// Takes the median of all turns, so that interruptions do not matter.
class Turns {
 public:
  void add(double ns) { ns_.push_back(ns); }
  double median() {
    const auto middle = ns_.begin() + static_cast<std::ptrdiff_t>(ns_.size() / 2);
    std::nth_element(ns_.begin(), middle, ns_.end());
    return *middle;
  }

 private:
  std::vector<double> ns_;
};

void report(benchmark::State& state, const char* name, double value) {
  state.counters[name] = benchmark::Counter(value, benchmark::Counter::kAvgThreads);
}

// Calls directly and through the door, in turns.
template <class Direct, class Door>
void compare(benchmark::State& state, Direct&& straight, Door&& hooked) {
  Turns without;
  Turns with;
  for ([[maybe_unused]] auto _ : state) {
    without.add(ns_of_a_call(straight));
    with.add(ns_of_a_call(hooked));
  }
  report(state, "direct_ns", without.median());
  report(state, "door_ns", with.median());
  report(state, "over_ns", with.median() - without.median());
}

template <Call call, class... Arguments>
void compare_row(benchmark::State& state, Arguments... arguments) {
  const auto straight = direct<call>();
  const auto hooked = door<call>();
  compare(
      state, [&] { benchmark::DoNotOptimize(straight(arguments...)); },
      [&] { benchmark::DoNotOptimize(hooked(arguments...)); });
}

void ForwardedQuestion(benchmark::State& state) {
  CUcontext context = nullptr;
  compare_row<Call::cuCtxGetCurrent>(state, &context);
}
void ForwardedLaunch(benchmark::State& state) {
  compare_row<Call::cuLaunchKernel>(state, nullptr, 1u, 1u, 1u, 1u, 1u, 1u, 0u, nullptr, nullptr,
                                    nullptr);
}
void ForwardedCopy(benchmark::State& state) {
  compare_row<Call::cuMemcpyDtoDAsync_v2>(state, CUdeviceptr{1}, CUdeviceptr{2}, std::size_t{3},
                                          nullptr);
}
void ForwardedSet(benchmark::State& state) {
  compare_row<Call::cuMemsetD8Async>(state, CUdeviceptr{1}, static_cast<unsigned char>(2),
                                     std::size_t{3}, nullptr);
}
void ForwardedEventQuery(benchmark::State& state) {
  compare_row<Call::cuEventQuery>(state, nullptr);
}
// A stream that all threads share.
CUstream some_stream() {
  static int stream;
  return reinterpret_cast<CUstream>(&stream);
}
// One for each thread: threads that record the same event contend for it.
CUevent own_event() {
  static thread_local char event[64];
  return reinterpret_cast<CUevent>(&event);
}
void ForwardedEventRecord(benchmark::State& state) {
  compare_row<Call::cuEventRecord>(state, own_event(), some_stream());
}
void ForwardedStreamWait(benchmark::State& state) {
  compare_row<Call::cuStreamWaitEvent>(state, some_stream(), nullptr, 0u);
}
void ForwardedStreamQuery(benchmark::State& state) {
  compare_row<Call::cuStreamQuery>(state, some_stream());
}
BENCHMARK(ForwardedQuestion)->Iterations(2000)->Threads(1)->Threads(64);
BENCHMARK(ForwardedLaunch)->Iterations(2000)->Threads(1)->Threads(64);
BENCHMARK(ForwardedCopy)->Iterations(2000)->Threads(1)->Threads(64);
BENCHMARK(ForwardedSet)->Iterations(2000)->Threads(1)->Threads(64);
BENCHMARK(ForwardedEventQuery)->Iterations(2000)->Threads(1)->Threads(64);
BENCHMARK(ForwardedEventRecord)->Iterations(2000)->Threads(1)->Threads(64);
BENCHMARK(ForwardedStreamWait)->Iterations(2000)->Threads(1)->Threads(64);
BENCHMARK(ForwardedStreamQuery)->Iterations(2000)->Threads(1)->Threads(64);

std::unique_ptr<TraceWriter> writer;
std::string folder;

void start_trace(const benchmark::State&) {
  engine();
  char path[] = "/tmp/cuvmm_bench_XXXXXX";
  folder = ::mkdtemp(path);
  auto started = TraceWriter::start({.file = folder + "/t", .size_cap = unlimited});
  if (started.ok()) writer = std::move(*started);
}
void finish_trace(const benchmark::State&) {
  if (writer) writer->finish(std::chrono::seconds{60});
  writer.reset();
  std::filesystem::remove_all(folder);
}

// Bursts that fit into a ring buffer, which is flushed between them outside the measured time.
template <Call call, class... Arguments>
void traced_row(benchmark::State& state, Arguments... arguments) {
  const auto straight = direct<call>();
  const auto hooked = door<call>();
  Turns without;
  Turns with;
  for ([[maybe_unused]] auto _ : state) {
    without.add(ns_of_a_call([&] { benchmark::DoNotOptimize(straight(arguments...)); }));
    with.add(ns_of_a_call([&] { benchmark::DoNotOptimize(hooked(arguments...)); }));
    writer->flush(std::chrono::seconds{10});
  }
  report(state, "event_ns", with.median() - without.median());
  if (state.thread_index() == 0) {
    state.counters["lost"] = static_cast<double>(writer->totals().dropped);
  }
}

void TracedLaunch(benchmark::State& state) {
  traced_row<Call::cuLaunchKernel>(state, nullptr, 1u, 1u, 1u, 1u, 1u, 1u, 0u, nullptr, nullptr,
                                   nullptr);
}
void TracedCopy(benchmark::State& state) {
  traced_row<Call::cuMemcpyDtoDAsync_v2>(state, CUdeviceptr{1}, CUdeviceptr{2}, std::size_t{3},
                                         nullptr);
}
BENCHMARK(TracedLaunch)
    ->Setup(start_trace)
    ->Teardown(finish_trace)
    ->Iterations(300)
    ->Threads(1)
    ->Threads(8);
BENCHMARK(TracedCopy)
    ->Setup(start_trace)
    ->Teardown(finish_trace)
    ->Iterations(300)
    ->Threads(1)
    ->Threads(8);

}  // namespace
}  // namespace cuvmm::bench

int main(int argc, char** argv) {
  const char* mode = std::getenv("VMM_MODE");
  benchmark::AddCustomContext("VMM_MODE", mode != nullptr ? mode : "(default)");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
