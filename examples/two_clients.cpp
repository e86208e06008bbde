// SPDX-License-Identifier: Apache-2.0
// Two clients of one device: one wants an answer every 10 ms, the other all remaining time.
// Measures how long the first waits and how much the second gets: alone, side by side, with stream
// priorities, and under each policy of the scheduler. Then two clients that both want the whole
// device share it by weight. The same program runs on a card and on the simulated driver; the
// policies need cuvmm:
//
//   build/bin/cuvmm run --sim -- build/bin/two_clients [ANSWERS [MICROSECONDS]]
//
// MICROSECONDS: how long the kernels of the second client are.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "driver_calls.hpp"
#include "one_device.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto answer_every = 10ms;
constexpr int usual_answers = 150;
constexpr double longest_s = 2.5;  // for one line, however slow the device is
constexpr int kernels_of_an_answer = 20;
constexpr std::uint64_t short_kernel_ns = 50'000;
constexpr std::uint64_t middle_kernel_ns = 100'000;
constexpr std::uint64_t usual_long_kernel_ns = 200'000;
constexpr int most_ahead = 32;  // kernels that the second client has submitted but not waited for

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "two_clients: %s\n", why);
  std::exit(1);
}

[[noreturn]] void missing_driver(const char* symbol) {
  driver_calls::end_without_driver("two_clients", symbol, 1);
}

void check(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  give_up((std::string{what} + " returned " + driver_calls::error_text(answer)).c_str());
}
#define CHECK(name, ...)                               \
  do {                                                 \
    static auto* const function = CALL(name);          \
    check(function(__VA_ARGS__), DRIVER_SYMBOL(name)); \
  } while (false)

// A device and a kernel that fills it.
class Device {
 public:
  explicit Device(std::uint64_t of_long_kernel) : long_kernel_ns(of_long_kernel) {
    CHECK(cuInit, 0);
    CHECK(cuDeviceGet, &device_, 0);
    CHECK(cuDevicePrimaryCtxRetain, &context_, device_);
    make_current();
    CHECK(cuModuleLoadData, &module_, one_device::ptx);
    CHECK(cuModuleGetFunction, &kernel_, module_, "keep_busy");
    int processors = 1;
    int threads = 1024;
    CHECK(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
    CHECK(cuDeviceGetAttribute, &threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
          device_);
    blocks_ = static_cast<unsigned>(processors * std::max(1, threads / 1024));
    CHECK(cuCtxGetStreamPriorityRange, &least_, &greatest_);
  }
  const std::uint64_t long_kernel_ns;

  void make_current() const { CHECK(cuCtxSetCurrent, context_); }

  CUstream make_stream(bool urgent) const {
    CUstream stream = nullptr;
    CHECK(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, urgent ? greatest_ : least_);
    return stream;
  }
  void launch(CUstream stream, std::uint64_t ns, std::uint32_t urgent) const {
    void* parameters[] = {&ns, &urgent};
    CHECK(cuLaunchKernel, kernel_, blocks_, 1, 1, 1024, 1, 1, 0, stream, parameters, nullptr);
  }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  unsigned blocks_ = 1;
  int least_ = 0;
  int greatest_ = 0;
};

// The client of a scheduled thread, if any.
struct Claims {
  const char* name;
  int priority;
  int weight;
};
class MaybeClient {
 public:
  MaybeClient(bool wanted, const Claims& claims) {
    if (!wanted) return;
    auto made = cuvmm::Client::create(claims.name, claims.priority, claims.weight);
    if (!made.ok()) give_up(made.error().message());
    if (!made->bind().ok()) give_up("this thread cannot be bound to a client");
    client_.push_back(std::move(*made));
  }

 private:
  std::vector<cuvmm::Client> client_;
};

struct Setting {
  const char* name;
  bool first = true;
  bool second = true;
  bool stream_priorities = false;
  cuvmm::Policy policy = cuvmm::Policy::Off;
};

struct Outcome {
  std::vector<double> answer_us;
  double busy_share = 0;  // the second client's share of the device

  double percentile(double share) {
    if (answer_us.empty()) return 0;
    std::sort(answer_us.begin(), answer_us.end());
    return answer_us[static_cast<std::size_t>(share * static_cast<double>(answer_us.size() - 1))];
  }
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Asks at fixed times, whether or not the last answer has arrived.
void answer(const Device& device, const Setting& setting, int answers, Outcome& outcome) {
  device.make_current();
  const MaybeClient client{setting.policy != cuvmm::Policy::Off, {"answers", 10, 3}};
  CUstream stream = device.make_stream(setting.stream_priorities);
  const auto started = Clock::now();
  auto next = started;
  for (int i = 0; i < answers && seconds_since(started) < longest_s; ++i) {
    std::this_thread::sleep_until(next);
    const auto begin = Clock::now();
    for (int n = 0; n < kernels_of_an_answer; ++n) {
      device.launch(stream, short_kernel_ns, setting.stream_priorities ? 1 : 0);
    }
    CHECK(cuStreamSynchronize, stream);
    outcome.answer_us.push_back(seconds_since(begin) * 1e6);
    next += answer_every;
  }
  CHECK(cuStreamDestroy, stream);
}

// Keeps `most_ahead` kernels submitted ahead of the device until told to end. Counts finished ones.
class Worker {
 public:
  Worker(const Device& device, std::uint64_t kernel_ns) : device_(device), kernel_ns_(kernel_ns) {
    stream_ = device_.make_stream(false);
    for (CUevent& event : done_) CHECK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  }
  ~Worker() {
    CHECK(cuStreamSynchronize, stream_);
    for (CUevent event : done_) CHECK(cuEventDestroy, event);
    CHECK(cuStreamDestroy, stream_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void work_until(const std::atomic<bool>& ends, std::atomic<std::uint64_t>& finished) {
    for (std::uint64_t kernels = 0; !ends; ++kernels) {
      CUevent event = done_[kernels % most_ahead];
      if (kernels >= most_ahead) {
        CHECK(cuEventSynchronize, event);
        ++finished;
      }
      device_.launch(stream_, kernel_ns_, 0);
      CHECK(cuEventRecord, event, stream_);
    }
  }

 private:
  const Device& device_;
  const std::uint64_t kernel_ns_;
  CUstream stream_ = nullptr;
  CUevent done_[most_ahead] = {};
};

void work(const Device& device, const Setting& setting, const std::atomic<bool>& ends,
          Outcome& outcome) {
  device.make_current();
  const MaybeClient client{setting.policy != cuvmm::Policy::Off, {"work", 0, 1}};
  std::atomic<std::uint64_t> finished{0};
  Worker worker{device, device.long_kernel_ns};
  const auto begin = Clock::now();
  worker.work_until(ends, finished);
  outcome.busy_share =
      static_cast<double>(finished * device.long_kernel_ns) * 1e-9 / seconds_since(begin);
}

// Schedules by the policy until the end of the scope.
class Scheduled {
 public:
  explicit Scheduled(cuvmm::Policy policy) : policy_(policy) {
    if (policy_ != cuvmm::Policy::Off && !cuvmm::set_policy(policy_).ok())
      give_up("the policy cannot be set");
  }
  ~Scheduled() {
    if (policy_ != cuvmm::Policy::Off)
      static_cast<void>(cuvmm::set_policy(cuvmm::Policy::Off).ok());
  }
  Scheduled(const Scheduled&) = delete;
  Scheduled& operator=(const Scheduled&) = delete;

 private:
  const cuvmm::Policy policy_;
};

Outcome run(const Device& device, const Setting& setting, int answers) {
  const Scheduled scheduled{setting.policy};
  Outcome outcome;
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  if (setting.second) threads.emplace_back([&] { work(device, setting, ends, outcome); });
  if (setting.first) {
    answer(device, setting, answers, outcome);
  } else {
    std::this_thread::sleep_for(answer_every * answers / 2);
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

// Shows how two clients that always have work share the device, with kernels of two lengths.
void show_shares(const Device& device, const char* name, cuvmm::Policy policy, int answers) {
  const Scheduled scheduled{policy};
  std::atomic<bool> ends{false};
  std::atomic<std::uint64_t> finished[2] = {};
  const auto work_as = [&](const Claims& claims, std::uint64_t ns, int which) {
    device.make_current();
    const MaybeClient client{policy != cuvmm::Policy::Off, claims};
    Worker{device, ns}.work_until(ends, finished[which]);
  };
  std::thread heavy{[&] { work_as({"heavy", 0, 3}, middle_kernel_ns, 0); }};
  std::thread light{[&] { work_as({"light", 0, 1}, device.long_kernel_ns, 1); }};
  const auto device_time = [&](int which) {
    return static_cast<double>(finished[which] *
                               (which == 0 ? middle_kernel_ns : device.long_kernel_ns));
  };
  std::this_thread::sleep_for(answer_every * answers / 10);
  const double before[2] = {device_time(0), device_time(1)};
  std::this_thread::sleep_for(answer_every * answers);
  const double of_heavy = device_time(0) - before[0];
  const double of_light = device_time(1) - before[1];
  ends = true;
  heavy.join();
  light.join();
  const double percent = 100 / std::max(1.0, of_heavy + of_light);
  std::printf("%-22s %8.1f%% %8.1f%%\n", name, of_heavy * percent, of_light * percent);
  std::fflush(stdout);
}

void show(const Setting& setting, Outcome outcome) {
  char wait[64] = "           -            -";
  char rest[32] = "     -";
  if (setting.first) {
    std::snprintf(wait, sizeof wait, "%9.0f us %9.0f us", outcome.percentile(0.5),
                  outcome.percentile(0.99));
  }
  if (setting.second) std::snprintf(rest, sizeof rest, "%5.1f%%", outcome.busy_share * 100);
  std::printf("%-22s %s   %s\n", setting.name, wait, rest);
  std::fflush(stdout);
}

bool can_schedule() {
  const auto tried = cuvmm::set_policy(cuvmm::Policy::Fifo);
  if (!tried.ok()) return false;
  return cuvmm::set_policy(cuvmm::Policy::Off).ok();
}

}  // namespace

int main(int count, char** words) {
  const int answers = count > 1 ? std::max(1, std::atoi(words[1])) : usual_answers;
  const std::uint64_t long_kernel_ns =
      count > 2 ? std::max<std::uint64_t>(1, std::strtoull(words[2], nullptr, 10)) * 1000
                : usual_long_kernel_ns;
  const Device device{long_kernel_ns};
  std::printf(
      "one client asks for %d kernels of %d us every 10 ms; the other always has work, in "
      "kernels of %d us\n",
      kernels_of_an_answer, static_cast<int>(short_kernel_ns / 1000),
      static_cast<int>(device.long_kernel_ns / 1000));
  std::printf("%-22s %12s %12s   %s\n", "", "answer p50", "p99", "device time of the other");
  std::vector<Setting> settings = {{.name = "the first alone", .second = false},
                                   {.name = "the other alone", .first = false},
                                   {.name = "together"},
                                   {.name = "stream priorities", .stream_priorities = true}};
  const bool schedules = can_schedule();
  if (schedules) {
    settings.push_back({.name = "policy fifo", .policy = cuvmm::Policy::Fifo});
    settings.push_back({.name = "policy round_robin", .policy = cuvmm::Policy::RoundRobin});
    settings.push_back({.name = "policy priority", .policy = cuvmm::Policy::Priority});
    settings.push_back({.name = "policy fair, 3:1", .policy = cuvmm::Policy::Fair});
  }
  for (const Setting& setting : settings) show(setting, run(device, setting, answers));

  std::printf(
      "\nboth always have work, in kernels of %d us and of %d us: their shares of device time\n",
      static_cast<int>(middle_kernel_ns / 1000), static_cast<int>(device.long_kernel_ns / 1000));
  show_shares(device, "together", cuvmm::Policy::Off, answers);
  if (schedules) {
    show_shares(device, "policy fair, 3:1", cuvmm::Policy::Fair, answers);
  } else {
    std::printf("(the policies need `cuvmm run` in front of the program)\n");
  }
  return 0;
}
