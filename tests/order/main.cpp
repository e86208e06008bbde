// SPDX-License-Identifier: Apache-2.0
// Random legal programs, compared with a reference model of the order of streams.
//
//   cuvmm_order_tests [--programs N] [--seed S] [--operations K] [--memory MIB] [--contexts C]
//                     [--only SEED] [--end-idle-only] [--another-holder] [--ignore KIND]...
//                     [--verbose]
//
// --contexts: the number of contexts, spread round-robin over the devices. With 3 on two devices,
// device 0 has two.
//
// --another-holder: meanwhile a thread retains and releases the first device's primary context
// again and again, never as the last.
//
// --ignore continues after that kind of violation, to find others behind it: "ready too early",
// "returned too early", "granted too early" or "wrong contents".
//
// Runs over whichever libcuda.so.1 it finds: the simulated driver, cuvmm, or a card. Exits with 1
// at the first violation. program.hpp and model.hpp say what it cannot see.
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "order/program.hpp"
#include "order/report.hpp"

namespace {

struct Options {
  std::uint64_t programs = 1000;
  std::uint64_t seed = 1;
  std::uint64_t contexts = 1;
  bool has_another_holder = false;
  cuvmm::order::ProgramSettings program;
};

[[noreturn]] void refuse(const char* argument) {
  std::fprintf(stderr, "cuvmm_order_tests: %s?\n", argument);
  std::exit(2);
}

Options read(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const char* const name = arguments[i];
    if (std::strcmp(name, "--verbose") == 0) {
      options.program.is_verbose = true;
      continue;
    }
    if (std::strcmp(name, "--end-idle-only") == 0) {
      options.program.ends_idle_streams_only = true;
      continue;
    }
    if (std::strcmp(name, "--another-holder") == 0) {
      options.has_another_holder = true;
      continue;
    }
    if (i + 1 == count) refuse(name);
    if (std::strcmp(name, "--ignore") == 0) {
      cuvmm::order::ignore(arguments[++i]);
      continue;
    }
    const std::uint64_t value = std::strtoull(arguments[++i], nullptr, 0);
    if (std::strcmp(name, "--programs") == 0) {
      options.programs = value;
    } else if (std::strcmp(name, "--seed") == 0) {
      options.seed = value;
    } else if (std::strcmp(name, "--operations") == 0) {
      options.program.operations = value;
    } else if (std::strcmp(name, "--memory") == 0) {
      options.program.most_bytes = value << 20;
    } else if (std::strcmp(name, "--contexts") == 0 && value != 0) {
      options.contexts = value;
    } else if (std::strcmp(name, "--only") == 0) {
      options.seed = value;
      options.programs = 1;
    } else {
      refuse(name);
    }
  }
  return options;
}

void hold_now_and_then(const std::stop_token& ends) {
  while (!ends.stop_requested()) {
    CUcontext context = nullptr;
    if (cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS) cuDevicePrimaryCtxRelease(0);
  }
}

}  // namespace

int main(int count, char** arguments) {
  using namespace cuvmm::order;
  const Options options = read(count, arguments);
  // With fewer connections than streams, streams of a card may wait for each other.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  Counts counts;
  const auto began = std::chrono::steady_clock::now();
  {
    World world{options.contexts};
    std::jthread another_holder;
    if (options.has_another_holder) another_holder = std::jthread{&hold_now_and_then};
    for (std::uint64_t i = 0; i < options.programs; ++i) {
      Program{world, options.seed + i, options.program, counts}.run();
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("programs %" PRIu64 "\noperations %" PRIu64 "\nallocations %" PRIu64
              "\nreused %" PRIu64 "\nreused_while_blocked %" PRIu64 "\nrefused %" PRIu64
              "\nwaits %" PRIu64 "\ncompared_words %" PRIu64 "\nprograms_per_second %.0f\n",
              options.programs, counts.operations, counts.granted, counts.reused,
              counts.reused_while_blocked, counts.refused, counts.waits, counts.compared_words,
              static_cast<double>(options.programs) / took.count());
}
