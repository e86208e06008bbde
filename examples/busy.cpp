// SPDX-License-Identifier: Apache-2.0
// Keeps its device busy and reports how much of the device's time it got, to show how programs
// share a card. Runs on a real card and on the simulated driver:
//
//   build/bin/busy --kernel 50us --seconds 5 [--graph] [--every 10ms --burst 20]
//                  [--warm-up 1s] [--wait] [--json]
//
// `device_seconds` is the number of kernels times the time of one kernel, which is measured
// beforehand, so that other programs' work does not count. `p50_us` and `p99_us` are percentiles of
// the time from a kernel's launch (with --every: from the first launch of a burst) until the
// program sees its end. With --wait, it prints "ready" once it has measured its kernel, and begins
// when it has read a line, so that programs to be compared begin together. With --warm-up, it works
// for that time before and after the time that counts: what it queued while it was alone then does
// not count as its share, nor what it does once another program has ended.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "driver_calls.hpp"
#include "must.hpp"
#include "one_device.hpp"

const char* const program = "busy";

namespace {

using Clock = std::chrono::steady_clock;

constexpr int most_ahead = 16;  // launches not yet waited for
constexpr int kernels_of_graph = 8;
constexpr int calibrations = 20;

#define CHECK(name, ...) must(CALL(name)(__VA_ARGS__), DRIVER_SYMBOL(name))

struct Settings {
  std::uint64_t kernel_ns = 50'000;
  double seconds = 5;
  double warm_up_s = 0;
  double every_s = 0;  // 0: always busy
  int burst = 20;
  bool graph = false;
  bool wait = false;
  bool json = false;
};

// "50us", "2ms" or "1s".
double read_seconds(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit{end};
  const double scale = unit == "us"                  ? 1e-6
                       : unit == "ms"                ? 1e-3
                       : unit == "s" || unit.empty() ? 1
                                                     : 0;
  must(end != text.c_str() && number > 0 && scale != 0,
       "a time is a number followed by us, ms or s");
  return number * scale;
}

Settings read_settings(int count, char** words) {
  Settings settings;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&]() -> std::string {
      must(i + 1 < count, "the last option needs a value");
      return words[++i];
    };
    if (word == "--kernel") {
      settings.kernel_ns = static_cast<std::uint64_t>(read_seconds(value()) * 1e9);
    } else if (word == "--seconds") {
      settings.seconds = read_seconds(value());
    } else if (word == "--warm-up") {
      settings.warm_up_s = read_seconds(value());
    } else if (word == "--every") {
      settings.every_s = read_seconds(value());
    } else if (word == "--burst") {
      settings.burst = std::max(1, std::atoi(value().c_str()));
    } else if (word == "--graph") {
      settings.graph = true;
    } else if (word == "--wait") {
      settings.wait = true;
    } else if (word == "--json") {
      settings.json = true;
    } else {
      must(false,
           "usage: busy [--kernel TIME] [--seconds N] [--graph] [--every TIME --burst N] "
           "[--warm-up TIME] [--wait] [--json]");
    }
  }
  return settings;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The work launched repeatedly: a kernel that fills the device, or a graph of several.
class Work {
 public:
  explicit Work(const Settings& settings) : kernel_ns_(settings.kernel_ns) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CHECK(cuInit, 0);
    CHECK(cuDeviceGet, &device, 0);
    CHECK(cuDevicePrimaryCtxRetain, &context, device);
    CHECK(cuCtxSetCurrent, context);
    CHECK(cuModuleLoadData, &module, one_device::ptx);
    CHECK(cuModuleGetFunction, &kernel_, module, "keep_busy");
    int processors = 1;
    CHECK(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    blocks_ = static_cast<unsigned>(processors);
    CHECK(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    // Programs have memory; from it, the node service learns which devices they use.
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc, &memory, 1 << 20);
    if (settings.graph) make_graph();
    for (CUevent& event : done_) CHECK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  }

  int kernels() const { return graph_ != nullptr ? kernels_of_graph : 1; }
  void launch() {
    if (graph_ != nullptr) {
      CHECK(cuGraphLaunch, graph_, stream_);
    } else {
      launch_kernel();
    }
  }
  void record(int which) { CHECK(cuEventRecord, done_[which], stream_); }
  void wait(int which) { CHECK(cuEventSynchronize, done_[which]); }
  bool has_ended(int which) const { return CALL(cuEventQuery)(done_[which]) == CUDA_SUCCESS; }
  void wait() { CHECK(cuStreamSynchronize, stream_); }

  // The time of one kernel when it has the device to itself: the shortest of several runs.
  double kernel_seconds() {
    double best = 1e9;
    for (int i = 0; i < calibrations; ++i) {
      CUevent ends[2] = {};
      for (CUevent& event : ends) CHECK(cuEventCreate, &event, CU_EVENT_DEFAULT);
      CHECK(cuEventRecord, ends[0], stream_);
      launch();
      CHECK(cuEventRecord, ends[1], stream_);
      wait();
      float milliseconds = 0;
      CHECK(cuEventElapsedTime, &milliseconds, ends[0], ends[1]);
      best = std::min(best, static_cast<double>(milliseconds) * 1e-3 / kernels());
      for (CUevent& event : ends) CHECK(cuEventDestroy, event);
    }
    return best;
  }

 private:
  void launch_kernel() {
    std::uint32_t urgent = 0;
    void* parameters[] = {&kernel_ns_, &urgent};
    CHECK(cuLaunchKernel, kernel_, blocks_, 1, 1, 1024, 1, 1, 0, stream_, parameters, nullptr);
  }
  void make_graph() {
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture, stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int i = 0; i < kernels_of_graph; ++i) launch_kernel();
    CHECK(cuStreamEndCapture, stream_, &graph);
    CHECK(cuGraphInstantiateWithFlags, &graph_, graph, 0);
  }

  std::uint64_t kernel_ns_;
  unsigned blocks_ = 1;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  CUgraphExec graph_ = nullptr;
  CUevent done_[most_ahead] = {};
};

// What the program did, and how long it took that from its launch until it was seen to end.
class Outcome {
 public:
  explicit Outcome(const Settings& settings)
      : warm_up_s_(settings.warm_up_s), seconds_(settings.seconds) {}

  double seconds() const { return seconds_since(began_); }
  bool goes_on() const { return seconds() < seconds_ + 2 * warm_up_s_; }

  void has_ended(Clock::time_point launched, int launches) {
    const bool counts =
        warm_up_s_ == 0 || (seconds() >= warm_up_s_ && seconds() < warm_up_s_ + seconds_);
    if (!counts) return;
    launches_ += static_cast<std::uint64_t>(launches);
    const auto second = static_cast<std::size_t>(seconds() - warm_up_s_);
    if (second >= by_second_.size()) by_second_.resize(second + 1);
    by_second_[second] += static_cast<std::uint64_t>(launches);
    latencies_us_.push_back(seconds_since(launched) * 1e6);
  }
  std::uint64_t launches() const { return launches_; }
  // Of the whole seconds.
  std::vector<std::uint64_t> launches_by_second() const {
    std::vector<std::uint64_t> all = by_second_;
    all.resize(static_cast<std::size_t>(seconds_));
    return all;
  }
  double percentile(double share) {
    if (latencies_us_.empty()) return 0;
    std::sort(latencies_us_.begin(), latencies_us_.end());
    return latencies_us_[static_cast<std::size_t>(share *
                                                  static_cast<double>(latencies_us_.size() - 1))];
  }

 private:
  double warm_up_s_;
  double seconds_;
  Clock::time_point began_ = Clock::now();
  std::uint64_t launches_ = 0;
  std::vector<std::uint64_t> by_second_;
  std::vector<double> latencies_us_;
};

void keep_busy(Work& work, Outcome& outcome) {
  Clock::time_point launched[most_ahead] = {};
  std::uint64_t next = 0;
  std::uint64_t ended = 0;
  const auto oldest = [&] { return static_cast<int>(ended % most_ahead); };
  const auto oldest_has_ended = [&] {
    outcome.has_ended(launched[oldest()], 1);
    ++ended;
  };
  while (outcome.goes_on()) {
    if (next - ended == most_ahead) work.wait(oldest());
    while (ended < next && work.has_ended(oldest())) oldest_has_ended();
    const int which = static_cast<int>(next++ % most_ahead);
    launched[which] = Clock::now();
    work.launch();
    work.record(which);
  }
  while (ended < next) {
    work.wait(oldest());
    oldest_has_ended();
  }
}

void ask_now_and_then(Work& work, const Settings& settings, Outcome& outcome) {
  const auto began = Clock::now();
  for (int i = 0; outcome.goes_on(); ++i) {
    std::this_thread::sleep_until(began + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(i * settings.every_s)));
    const auto asked = Clock::now();
    for (int n = 0; n < settings.burst; ++n) work.launch();
    work.wait();
    outcome.has_ended(asked, settings.burst);
  }
}

}  // namespace

int main(int count, char** words) {
  const Settings settings = read_settings(count, words);
  Work work{settings};
  work.launch();
  work.wait();
  const double kernel_seconds = work.kernel_seconds();
  if (settings.wait) {
    std::puts("ready");
    std::fflush(stdout);
    must(std::getchar() != EOF, "the input ended before a line was read");
  }
  Outcome outcome{settings};
  if (settings.every_s > 0) {
    ask_now_and_then(work, settings, outcome);
  } else {
    keep_busy(work, outcome);
  }
  const double seconds = settings.warm_up_s > 0 ? settings.seconds : outcome.seconds();
  const auto kernels_of = [&](std::uint64_t launches) {
    return launches * static_cast<std::uint64_t>(work.kernels());
  };
  const std::uint64_t kernels = kernels_of(outcome.launches());
  const double device_seconds = static_cast<double>(kernels) * kernel_seconds;
  std::string by_second;
  for (const std::uint64_t launches : outcome.launches_by_second()) {
    if (!by_second.empty()) by_second += ", ";
    by_second += std::to_string(static_cast<double>(kernels_of(launches)) * kernel_seconds);
  }
  const char* const form =
      settings.json ? "{\"kernels\": %llu, \"kernel_us\": %.1f, \"seconds\": %.3f, "
                      "\"device_seconds\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
                      "\"by_second\": [%s]}\n"
                    : "%llu kernels of %.1f us in %.3f s: device_seconds %.3f, p50 %.1f us, p99 "
                      "%.1f us\n";
  std::printf(form, static_cast<unsigned long long>(kernels), kernel_seconds * 1e6, seconds,
              device_seconds, outcome.percentile(0.5), outcome.percentile(0.99), by_second.c_str());
  return 0;
}
