// SPDX-License-Identifier: Apache-2.0
// What every benchmark program stands on: a driver with a current context, and medians.
#pragma once

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace cuvmm::bench {

// The simulated driver, or with CUVMM_TEST_DRIVER=libcuda.so.1 the machine's own; device 0's
// primary context is current. Ends the program with one line where there is none.
const Driver& driver();
bool simulated();
// Found from where the program lies, since a build is carried to where the cards are.
const char* simulated_driver_path();

// A driver whose mapping calls do nothing and succeed: what remains is our own time.
const Driver& silent_driver();

// Ends the program where a benchmark cannot go on.
void need(bool holds, const char* what);
template <class Outcome>
auto need_ok(Outcome outcome, const char* what) {
  if (!outcome.ok()) need(false, (std::string(what) + ": " + outcome.error().text()).c_str());
  return std::move(outcome).value();
}
inline void need_ok(Result<void> outcome, const char* what) {
  if (!outcome.ok()) need(false, (std::string(what) + ": " + outcome.error().text()).c_str());
}
inline void need_success(CUresult answer, const char* what) {
  need(answer == CUDA_SUCCESS, what);
}

// Wall is what a program waits; Thread counts only what this thread computes, whatever else the
// machine does.
enum class Clock { Wall, Thread };

// Times of the same work, of which the middle one counts: one interruption changes nothing.
class Times {
 public:
  explicit Times(Clock clock = Clock::Wall) : clock_(clock) {}

  template <class Work>
  double measure(Work work) {
    const double begin = now();
    work();
    const double seconds = now() - begin;
    seconds_.push_back(seconds);
    return seconds;
  }
  double median_microseconds() const;

 private:
  double now() const;
  Clock clock_;
  std::vector<double> seconds_;
};

int run(int argc, char** argv);

}  // namespace cuvmm::bench
