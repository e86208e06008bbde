// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/cuda.hpp"
#include "sim/rows.hpp"

namespace cuvmm::sim {

// What every call goes through before its body: is the driver started, is a fault to be injected,
// what would it cost, which stream does 0 mean.
class Entry {
 public:
  Entry(Row row, Flavour flavour);
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  // CUDA_SUCCESS where the body is to run.
  CUresult answer() const { return answer_; }

 private:
  CUresult answer_;
  Flavour outer_;
};

// The flavour of the call that this thread is in.
Flavour current_flavour();

// Answers CUDA_ERROR_NOT_SUPPORTED and says so once a function in the log: never a silent success.
CUresult lacking(const char* symbol);
CUresult lacking(const char* symbol, const char* what);

// While it lives, this thread runs a host function or callback of the program, which may not call
// the driver.
class InHostFunction {
 public:
  InHostFunction();
  ~InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
};

}  // namespace cuvmm::sim
