// SPDX-License-Identifier: Apache-2.0
// The basis of all benchmark programs: a driver with a current context, and medians.
#pragma once

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace cuvmm::bench {

// The simulated driver, or with CUVMM_TEST_DRIVER=libcuda.so.1 the machine's own. Device 0's
// primary context is current. Ends the program with one line if there is no driver.
const Driver& driver();
bool simulated();
// Relative to the program, since builds are copied to machines with cards.
const char* simulated_driver_path();

// A driver whose mapping calls succeed and do nothing, so that only our own time remains.
const Driver& silent_driver();

// Ends the program if the condition does not hold.
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

// Wall is elapsed time. Thread is this thread's CPU time, unaffected by other load.
enum class Clock { Wall, Thread };

// Times of the same work. The median counts, so that one interruption does not matter.
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
