// SPDX-License-Identifier: Apache-2.0
#include "resize/order.hpp"

namespace cuvmm {
namespace {

bool is_blocking(const StreamState& state) {
  return state.kind == StreamKind::Blocking || state.kind == StreamKind::PerThread;
}

// The legacy stream waits for blocking ones, and they for it.
bool waits_for(const StreamState& later, const StreamState& earlier) {
  return (later.kind == StreamKind::Legacy && is_blocking(earlier)) ||
         (earlier.kind == StreamKind::Legacy && is_blocking(later));
}

bool is_idle(const Driver& driver, CUstream stream) {
  return driver.cuStreamQuery(stream) == CUDA_SUCCESS;
}

// The default streams, which need not be among those that we know.
bool default_streams_are_ordered(const Driver& driver, const PerThreadUse& per_thread,
                                 const StreamState& stream) {
  if (stream.kind == StreamKind::Legacy) return true;
  if (!per_thread.is_by_this_thread_at_most()) return false;
  // Another thread may have to run the copy, and can do so on the legacy stream alone.
  if (!is_idle(driver, CU_STREAM_PER_THREAD)) return false;
  return is_blocking(stream) || is_idle(driver, CU_STREAM_LEGACY);
}

}  // namespace

bool is_ordered_after_everything(const Driver& driver, StreamTable& table,
                                 const PerThreadUse& per_thread, const StreamState& stream) {
  const StreamTable::Staying staying{table};
  for (const StreamState* other : table.of_context(stream.context)) {
    if (other == &stream || other->kind == StreamKind::Everything) continue;
    if (waits_for(stream, *other)) continue;
    if (other->kind == StreamKind::PerThread || other->kind == StreamKind::Legacy) continue;
    if (!is_idle(driver, other->handle)) return false;
  }
  return default_streams_are_ordered(driver, per_thread, stream);
}

}  // namespace cuvmm
