// SPDX-License-Identifier: Apache-2.0
// Wraps a driver, simulated or real, and fails calls on demand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace cuvmm::test {

// Counts every driver call (except those for error names), records their names, and answers the
// chosen ones itself instead of forwarding them. Only one may exist at a time: driver functions
// carry no context that could tell two apart. Calls may come from any thread.
class FaultyDriver {
 public:
  explicit FaultyDriver(const Driver& inner);
  ~FaultyDriver();
  FaultyDriver(const FaultyDriver&) = delete;
  FaultyDriver& operator=(const FaultyDriver&) = delete;

  const Driver& driver() const { return table_; }
  operator const Driver&() const { return table_; }

  // Counts calls from 1, from now on. Each of these replaces the earlier choice.
  void fail_call(std::uint64_t number, CUresult answer);
  void fail_call(Call call, std::uint64_t number, CUresult answer);
  // Fails the number-th call and every later one. If `begin` is given, counts from its first call:
  // how often the device is queried before that depends on timing.
  void fail_from(std::uint64_t number, CUresult answer, std::optional<Call> begin = std::nullopt);
  // Fails the number-th such call and every later one.
  void fail_from(Call call, std::uint64_t number, CUresult answer);
  // With CUDA_ERROR_DEINITIALIZED as the answer the process is ending: the driver takes back
  // whatever is released.
  void stop_failing();

  // Since the last fail_*() or stop_failing().
  std::uint64_t calls() const;
  std::uint64_t faults() const;
  std::string last_failed() const;  // API name, "" if there was none
  // Chunks released that the driver had already taken back.
  std::uint64_t released_twice() const;

  // Since construction or forget_calls().
  std::vector<std::string> names() const;
  std::uint64_t count_of(const std::string& name) const;
  void forget_calls();

  // The answer to a call that is not forwarded. For the thunks.
  std::optional<CUresult> before(Call call);
  void took_back(Call call, CUresult inner_answer);
  const Driver& inner() const { return inner_; }

 private:
  const Driver inner_;
  Driver table_;
};

}  // namespace cuvmm::test
