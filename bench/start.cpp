// SPDX-License-Identifier: Apache-2.0
// Measures start-up: a program that never uses CUDA, alone, with the preload library, and under
// `cuvmm run`; and a program's first driver call. Goal: `cuvmm run -- true` takes at most 10 ms
// more than `true`.
#include <benchmark/benchmark.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace cuvmm::bench {
namespace {

double now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

std::string build_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string();
}

// The command's run time; -1 if it fails.
double ms_to_run(std::vector<std::string> command, std::vector<std::string> variables = {}) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  std::vector<char*> environment;
  for (std::string& one : variables) environment.push_back(one.data());
  for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
  environment.push_back(nullptr);
  const double begin = now_ms();
  pid_t child = 0;
  int status = 0;
  if (posix_spawnp(&child, words[0], nullptr, nullptr, words.data(), environment.data()) != 0 ||
      waitpid(child, &status, 0) != child || status != 0) {
    return -1;
  }
  return now_ms() - begin;
}

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void BeginAndEnd(benchmark::State& state) {
  const std::string build = build_folder();
  std::vector<double> alone;
  std::vector<double> preloaded;
  std::vector<double> under_run;
  for ([[maybe_unused]] auto _ : state) {
    alone.push_back(ms_to_run({"true"}));
    preloaded.push_back(ms_to_run({"true"}, {"LD_PRELOAD=" + build + "/lib/libcuvmm_preload.so"}));
    under_run.push_back(ms_to_run({build + "/bin/cuvmm", "run", "--sim", "--", "true"}));
    if (std::min({alone.back(), preloaded.back(), under_run.back()}) < 0) {
      state.SkipWithError("a program failed");
      return;
    }
  }
  state.counters["alone_ms"] = median(alone);
  state.counters["preload_over_ms"] = median(preloaded) - median(alone);
  state.counters["run_over_ms"] = median(under_run) - median(alone);
}
BENCHMARK(BeginAndEnd)->Iterations(200)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cuvmm::bench

BENCHMARK_MAIN();
