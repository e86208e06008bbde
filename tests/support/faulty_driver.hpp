// SPDX-License-Identifier: Apache-2.0
// A driver that fails when told to, around another one: the simulated or a real one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace cuvmm::test {

// Counts every call of the driver (the names of errors excepted), remembers their names, and
// answers the chosen ones itself instead of passing them on. One at a time: driver functions carry
// no context that could tell two apart. Calls may come from any thread.
class FaultyDriver {
 public:
  explicit FaultyDriver(const Driver& inner);
  ~FaultyDriver();
  FaultyDriver(const FaultyDriver&) = delete;
  FaultyDriver& operator=(const FaultyDriver&) = delete;

  const Driver& driver() const { return table_; }
  operator const Driver&() const { return table_; }

  // Calls are counted from 1, from now on. Each replaces what was chosen before.
  void fail_call(std::uint64_t number, CUresult answer);
  void fail_call(Call call, std::uint64_t number, CUresult answer);
  // That one and every later one. Counted from the first call of `begin` on where there is one: how
  // often the device is asked before how far it has come is a matter of time.
  void fail_from(std::uint64_t number, CUresult answer, std::optional<Call> begin = std::nullopt);
  // With CUDA_ERROR_DEINITIALIZED as the answer the process ends: what is given back is taken back.
  void stop_failing();

  // Since fail_*() or stop_failing().
  std::uint64_t calls() const;
  std::uint64_t faults() const;
  std::string last_failed() const;  // API name, "" where none was
  // Chunks given back to a driver that had them already.
  std::uint64_t released_twice() const;

  // Since the construction or forget_calls().
  std::vector<std::string> names() const;
  std::uint64_t count_of(const std::string& name) const;
  void forget_calls();

  // What a call is answered instead of being passed on. For the thunks.
  std::optional<CUresult> before(Call call);
  void took_back(Call call, CUresult inner_answer);
  const Driver& inner() const { return inner_; }

 private:
  const Driver inner_;
  Driver table_;
};

}  // namespace cuvmm::test
