// SPDX-License-Identifier: Apache-2.0
// A call in another thread that waits for work.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <optional>

#include "order/model.hpp"

namespace cuvmm::order {

class HostThread;

struct PendingWait {
  const char* what;
  HostThread* thread;
  Past began_with;                // the work that it surely waits for
  std::function<Past()> covered;  // the work that it possibly waits for, as of now
  std::function<void()> afterwards;
  std::shared_ptr<CUresult> answer;
  std::optional<std::size_t> event;  // the event that it waits for
  Past of_later_records;             // it may have waited for any of them
};

}  // namespace cuvmm::order
