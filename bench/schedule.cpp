// SPDX-License-Identifier: Apache-2.0
// Measures what scheduling adds to a call, over the simulated driver's fastest kernel (which does
// nothing, with VMM_SIM_BACKING=none). Goals: a submission returns in 0.5 us, an operation takes at
// most 1 us more than without scheduling, and one scheduler issues a million operations per second.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <vector>

#include "bench/bench_driver.hpp"
#include "hook/door.hpp"

namespace cuvmm::bench {
namespace {

constexpr const char* ptx = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry nothing(.param .u64 one, .param .u32 two) { ret; }
)";

constexpr int in_a_turn = 400;  // fits into a lane

struct World {
  World() {
    ::setenv("VMM_SIM_BACKING", "none", 1);
    driver_source().path.store(simulated_driver_path());
    const Driver& driver = Engine::get()->driver();
    driver.cuInit(0);
    driver.cuDevicePrimaryCtxRetain(&context, 0);
    driver.cuCtxSetCurrent(context);
    driver.cuModuleLoadData(&module, ptx);
    driver.cuModuleGetFunction(&kernel, module, "nothing");
    driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  }
  static World& get() {
    static auto* world = new World;
    return *world;
  }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
};

template <Call call>
typename hook::Row<call>::Function door() {
  return reinterpret_cast<typename hook::Row<call>::Function>(
      hook::all_doors()[static_cast<std::size_t>(call)].legacy);
}

template <class Launch>
void launch(Launch* function) {
  World& world = World::get();
  std::uint64_t one = 1;
  std::uint32_t two = 2;
  void* parameters[] = {&one, &two};
  function(world.kernel, 1, 1, 1, 1, 1, 1, 0, world.stream, parameters, nullptr);
}

// The median turn's time of a launch until it returns, and until everything is done.
template <class Launch, class Wait>
void measure(benchmark::State& state, Launch* function, Wait* wait) {
  World& world = World::get();
  std::vector<double> returned;
  std::vector<double> done;
  for ([[maybe_unused]] auto _ : state) {
    const std::uint64_t begin = now_ns();
    for (int i = 0; i < in_a_turn; ++i) launch(function);
    const std::uint64_t submitted = now_ns();
    wait(world.stream);
    const std::uint64_t end = now_ns();
    returned.push_back(static_cast<double>(submitted - begin) / in_a_turn);
    done.push_back(static_cast<double>(end - begin) / in_a_turn);
  }
  const auto middle = [](std::vector<double>& all) {
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                     all.end());
    return all[all.size() / 2];
  };
  state.counters["ns_until_it_returns"] = middle(returned);
  state.counters["ns_until_it_is_done"] = middle(done);
}

void natively(benchmark::State& state) {
  World::get();
  const Driver& driver = Engine::get()->driver();
  measure(state, driver.cuLaunchKernel, driver.cuStreamSynchronize);
}

void through_doors(benchmark::State& state) {
  World::get();
  measure(state, door<Call::cuLaunchKernel>(), door<Call::cuStreamSynchronize>());
}

void scheduled(benchmark::State& state, Schedule policy) {
  World::get();
  Scheduling& scheduling = Engine::get()->scheduling();
  scheduling.set_policy(policy);
  Scheduler& scheduler = scheduling.parts()->scheduler;
  Client& client = scheduler.create_client("bench", 0, 1);
  scheduler.bind_this_thread(&client);
  measure(state, door<Call::cuLaunchKernel>(), door<Call::cuStreamSynchronize>());
  scheduler.end_client(client);
  scheduling.set_policy(Schedule::Off);
}

BENCHMARK(natively)->UseRealTime();
BENCHMARK(through_doors)->UseRealTime();
BENCHMARK_CAPTURE(scheduled, fifo, Schedule::Fifo)->UseRealTime();
BENCHMARK_CAPTURE(scheduled, round_robin, Schedule::RoundRobin)->UseRealTime();
BENCHMARK_CAPTURE(scheduled, priority, Schedule::Priority)->UseRealTime();
BENCHMARK_CAPTURE(scheduled, fair, Schedule::Fair)->UseRealTime();

// Measures the scheduler itself: lanes, order and issuing thread, with operations that do nothing
// and a device that finishes at once.
class NoDevice final : public DriverSide {
 public:
  void thread_begins() override {}
  void make_current(CUcontext) override {}
  bool mark_begin(Batch&) override { return true; }
  bool mark_end(Batch&) override { return true; }
  std::optional<std::uint64_t> device_time(Batch&) override { return 1000; }
};

void issues(benchmark::State& state) {
  NoDevice device;
  Scheduler scheduler{device, {.policy = Schedule::Fifo}};
  StreamState stream;
  stream.id = 1;
  Client& client = scheduler.create_client("bench", 0, 1);
  const Request request{.call = Call::cuLaunchKernel, .stream = &stream, .kind = 1};
  for ([[maybe_unused]] auto _ : state) {
    scheduler.submit(client, request, [] { return CUDA_SUCCESS; });
  }
  scheduler.settle_all();
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(issues)->UseRealTime();

}  // namespace
}  // namespace cuvmm::bench

BENCHMARK_MAIN();
