// SPDX-License-Identifier: Apache-2.0
// Two clients of one device: one wants an answer every 10 ms, the other all of the rest. How long
// the first waits and how much the second gets: alone, beside each other, with stream priorities,
// and under each policy of the scheduler. The same program runs on a card and on the simulated
// driver; the policies need cuvmm in front of it:
//
//   build/bin/cuvmm run --sim -- build/bin/two_clients
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "driver_calls.hpp"
#include "one_device.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto answer_every = 10ms;
constexpr int answers = 150;
constexpr int kernels_of_an_answer = 20;
constexpr std::uint64_t short_kernel_ns = 50'000;
constexpr std::uint64_t long_kernel_ns = 200'000;
constexpr int most_ahead = 32;  // kernels that the second client has submitted and not waited for

[[noreturn]] void give_up(const char* what, int answer) {
  std::fprintf(stderr, "two_clients: %s answers %d\n", what, answer);
  std::exit(1);
}

[[noreturn]] void missing_driver(const char* symbol) {
  std::fprintf(stderr, "two_clients: no driver with %s; `cuvmm run --sim` has a simulated one\n",
               symbol);
  std::exit(1);
}

void check(CUresult answer, const char* what) {
  if (answer != CUDA_SUCCESS) give_up(what, answer);
}
#define CHECK(name, ...)                               \
  do {                                                 \
    static auto* const function = CALL(name);          \
    check(function(__VA_ARGS__), DRIVER_SYMBOL(name)); \
  } while (false)

// The device, and a kernel that fills it.
class Device {
 public:
  Device() {
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

// A scheduled thread's client, or none.
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
    if (!made.ok()) give_up(made.error().message(), 0);
    if (!made->bind().ok()) give_up("bind", 0);
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
  double busy_share = 0;  // of the second client's kernels

  double percentile(double share) {
    if (answer_us.empty()) return 0;
    std::sort(answer_us.begin(), answer_us.end());
    return answer_us[static_cast<std::size_t>(share * static_cast<double>(answer_us.size() - 1))];
  }
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Asks at its times, whether the last answer is there or not.
void answer(const Device& device, const Setting& setting, Outcome& outcome) {
  device.make_current();
  const MaybeClient client{setting.policy != cuvmm::Policy::Off, {"answers", 10, 3}};
  CUstream stream = device.make_stream(setting.stream_priorities);
  auto next = Clock::now();
  for (int i = 0; i < answers; ++i) {
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

void work(const Device& device, const Setting& setting, const std::atomic<bool>& ends,
          Outcome& outcome) {
  device.make_current();
  const MaybeClient client{setting.policy != cuvmm::Policy::Off, {"work", 0, 1}};
  CUstream stream = device.make_stream(false);
  CUevent done[most_ahead] = {};
  for (CUevent& event : done) CHECK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  const auto begin = Clock::now();
  std::uint64_t kernels = 0;
  for (; !ends; ++kernels) {
    CUevent event = done[kernels % most_ahead];
    if (kernels >= most_ahead) CHECK(cuEventSynchronize, event);
    device.launch(stream, long_kernel_ns, 0);
    CHECK(cuEventRecord, event, stream);
  }
  CHECK(cuStreamSynchronize, stream);
  outcome.busy_share = static_cast<double>(kernels * long_kernel_ns) * 1e-9 / seconds_since(begin);
  for (CUevent event : done) CHECK(cuEventDestroy, event);
  CHECK(cuStreamDestroy, stream);
}

Outcome run(const Device& device, const Setting& setting) {
  if (setting.policy != cuvmm::Policy::Off && !cuvmm::set_policy(setting.policy).ok()) {
    give_up("set_policy", 0);
  }
  Outcome outcome;
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  if (setting.second) threads.emplace_back([&] { work(device, setting, ends, outcome); });
  if (setting.first) {
    answer(device, setting, outcome);
  } else {
    std::this_thread::sleep_for(answer_every * answers / 2);
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  if (setting.policy != cuvmm::Policy::Off)
    static_cast<void>(cuvmm::set_policy(cuvmm::Policy::Off).ok());
  return outcome;
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

int main() {
  const Device device;
  std::printf(
      "one client asks for %d kernels of %d us every 10 ms; the other always has work, in "
      "kernels of %d us\n",
      kernels_of_an_answer, static_cast<int>(short_kernel_ns / 1000),
      static_cast<int>(long_kernel_ns / 1000));
  std::printf("%-22s %12s %12s   %s\n", "", "answer p50", "p99", "device time of the other");
  std::vector<Setting> settings = {{.name = "the first alone", .second = false},
                                   {.name = "the other alone", .first = false},
                                   {.name = "together"},
                                   {.name = "stream priorities", .stream_priorities = true}};
  if (can_schedule()) {
    settings.push_back({.name = "policy fifo", .policy = cuvmm::Policy::Fifo});
    settings.push_back({.name = "policy round_robin", .policy = cuvmm::Policy::RoundRobin});
    settings.push_back({.name = "policy priority", .policy = cuvmm::Policy::Priority});
    settings.push_back({.name = "policy fair, 3:1", .policy = cuvmm::Policy::Fair});
  }
  for (const Setting& setting : settings) show(setting, run(device, setting));
  if (settings.size() == 4)
    std::printf("(the policies need `cuvmm run` in front of the program)\n");
  return 0;
}
