// SPDX-License-Identifier: Apache-2.0
// A driver that writes down the calls that change what backs an address, or copy contents.
#pragma once

#include <string>

#include "driver/driver.hpp"

namespace cuvmm::test {

// Each call becomes one line that is the same in every run: reservations and chunks are numbered in
// the order of their creation, and addresses are offsets in their reservation. Calls go on to
// `inner`, whose answer is part of the line unless it is CUDA_SUCCESS. Only one may exist at a
// time, and only one thread may call.
class RecordedDriver {
 public:
  explicit RecordedDriver(const Driver& inner);
  ~RecordedDriver();
  RecordedDriver(const RecordedDriver&) = delete;
  RecordedDriver& operator=(const RecordedDriver&) = delete;

  operator const Driver&() const { return table_; }

  // The lines since the last call of take_lines(), each ending in a newline.
  std::string take_lines();

 private:
  Driver table_;
};

}  // namespace cuvmm::test
