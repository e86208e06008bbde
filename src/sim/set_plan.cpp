// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "sim/address_layout.hpp"
#include "sim/bulk_access.hpp"
#include "sim/context.hpp"
#include "sim/copy_plan.hpp"
#include "sim/device.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

bool is_element_size(unsigned size) {
  return size == 1 || size == 2 || size == 4;
}

// The number of bytes from the first to the last byte set; 0 if it overflows.
Size span_of(const CUDA_MEMSET_NODE_PARAMS& asked, Size pitch) {
  Size row = 0;
  Size others = 0;
  Size span = 0;
  if (__builtin_mul_overflow(asked.width, Size{asked.elementSize}, &row)) return 0;
  if (__builtin_mul_overflow(asked.height - 1, pitch, &others)) return 0;
  if (__builtin_add_overflow(row, others, &span)) return 0;
  return span > ~asked.dst ? 0 : span;
}

template <class Element>
void fill(std::byte* row, unsigned value, Size count) {
  // Fills most of the row by copying, which is faster than a loop, especially under a sanitizer.
  constexpr Size at_once = 4 * KiB / sizeof(Element);
  auto* const first = reinterpret_cast<Element*>(row);
  std::fill_n(first, std::min(count, at_once), static_cast<Element>(value));
  for (Size done = at_once; done < count; done += at_once) {
    std::memcpy(first + done, first, std::min(count - done, at_once) * sizeof(Element));
  }
}

}  // namespace

CUresult SetPlan::make(const CUDA_MEMSET_NODE_PARAMS& asked, int device, SetPlan* plan) {
  if (asked.width == 0 || asked.height == 0) return CUDA_SUCCESS;
  if (!is_element_size(asked.elementSize)) return CUDA_ERROR_INVALID_VALUE;
  const bool has_rows = asked.height > 1;
  if (!is_multiple(asked.dst, asked.elementSize)) return CUDA_ERROR_INVALID_VALUE;
  if (has_rows && !is_multiple(asked.pitch, asked.elementSize)) return CUDA_ERROR_INVALID_VALUE;
  if (has_rows && asked.pitch / asked.elementSize < asked.width) return CUDA_ERROR_INVALID_VALUE;
  const Size span = span_of(asked, asked.pitch);
  // The card accepts some spans that overflow and faults later; here they are refused.
  if (span == 0) return CUDA_ERROR_INVALID_VALUE;
  NamedMemory target;
  const CUresult answer = name_memory(asked.dst, span, device, Use::SetTarget, &target);
  if (answer != CUDA_SUCCESS) return answer;
  if (target.place == MemoryPlace::Pageable) return CUDA_ERROR_INVALID_VALUE;
  plan->asked_ = asked;
  plan->device_ = device;
  plan->target_ = target;
  return CUDA_SUCCESS;
}

void SetPlan::run() const {
  cost_of(Activity::Set, asked_.width * asked_.elementSize * asked_.height);
  if (!has_backing() && is_device_address(asked_.dst)) return;
  std::byte* row = Views::at(Process::get().space().viewer_of(asked_.dst, device_), asked_.dst);
  for (Size y = 0; y < asked_.height; ++y, row += asked_.pitch) {
    const BulkAccess access{row, nullptr, asked_.width * asked_.elementSize};
    if (asked_.elementSize == 1) std::memset(row, static_cast<int>(asked_.value), asked_.width);
    if (asked_.elementSize == 2) fill<std::uint16_t>(row, asked_.value, asked_.width);
    if (asked_.elementSize == 4) fill<std::uint32_t>(row, asked_.value, asked_.width);
  }
}

Operation SetPlan::operation() const {
  const bool is_short = asked_.width * asked_.elementSize * asked_.height <= 1 * MiB;
  return {.type = CU_GRAPH_NODE_TYPE_MEMSET,
          .run = [plan = *this](Context&) { plan.run(); },
          .duration = is_short ? Duration::Short : Duration::Long,
          .parameters = asked_};
}

CUresult check_set(const CUDA_MEMSET_NODE_PARAMS& asked, const Context& context) {
  SetPlan plan;
  return SetPlan::make(asked, context.device().ordinal(), &plan);
}

Operation set_operation(const CUDA_MEMSET_NODE_PARAMS& asked, const Context& context) {
  SetPlan plan;
  SetPlan::make(asked, context.device().ordinal(), &plan);
  Operation operation = plan.operation();
  operation.parameters = asked;  // even an empty set reports them
  return operation;
}

}  // namespace cuvmm::sim
