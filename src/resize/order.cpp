// SPDX-License-Identifier: Apache-2.0
#include "resize/order.hpp"

namespace cuvmm {
namespace {

bool is_idle(const Driver& driver, CUstream stream) {
  return driver.cuStreamQuery(stream) == CUDA_SUCCESS;
}

// Checks the default streams, which the stream table may not contain.
bool default_streams_are_ordered(const Driver& driver, const PerThreadUse& per_thread,
                                 const StreamState& stream) {
  if (stream.kind == StreamKind::Legacy) return true;
  if (!per_thread.is_by_this_thread_at_most()) return false;
  // Another thread may have to run the copy, and can use only the legacy stream for it.
  if (!is_idle(driver, CU_STREAM_PER_THREAD)) return false;
  return stream.is_blocking() || is_idle(driver, CU_STREAM_LEGACY);
}

}  // namespace

bool is_ordered_after_everything(const Driver& driver, StreamClock& clock,
                                 const PerThreadUse& per_thread, const StreamState& stream) {
  const StreamTable::Staying staying{clock.table()};
  for (const StreamState* other : clock.table().of_context(stream.context)) {
    if (other == &stream || other->kind == StreamKind::Everything) continue;
    if (waits_for(stream, *other)) continue;
    if (other->kind == StreamKind::PerThread || other->kind == StreamKind::Legacy) continue;
    if (!is_idle(driver, other->handle)) return false;
  }
  return !clock.ended_streams_run(stream.context) &&
         default_streams_are_ordered(driver, per_thread, stream);
}

}  // namespace cuvmm
