// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/not_cancelled.hpp"
#include "sim/card/checkpoint.hpp"
#include "sim/cuda.hpp"
#include "sim/rows.hpp"

namespace cuvmm::sim {

// Runs before the body of every call: checks that the driver is started, waits while another
// process has locked this one, injects faults, charges the call's cost, and sets which stream 0
// means.
class Entry {
 public:
  Entry(Row row, Flavour flavour);
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  // CUDA_SUCCESS if the body should run, otherwise the error to return.
  CUresult answer() const { return answer_; }

 private:
  CUresult enter(Row row);

  const NotCancelled whole_;  // the driver's calls are no cancellation points
  std::optional<CallOnCard> inside_;
  bool is_last_ = false;  // the process dies as this call returns
  CUresult answer_;
  Flavour outer_;
};

// The flavour of the call that this thread is executing.
Flavour current_flavour();

// Returns CUDA_ERROR_NOT_SUPPORTED and logs this once per function, so that no call succeeds
// silently.
CUresult lacking(const char* symbol);
CUresult lacking(const char* symbol, const char* what);

// While it exists, this thread is running a host function or callback of the program, which must
// not call the driver.
class InHostFunction {
 public:
  InHostFunction();
  ~InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
};

}  // namespace cuvmm::sim
