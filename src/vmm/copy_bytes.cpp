// SPDX-License-Identifier: Apache-2.0
#include "vmm/copy_bytes.hpp"

#include "base/undo.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {

bool CopyBytes::is_over() {
  const auto waited = [&] { return driver_.cuStreamSynchronize(stream_) == CUDA_SUCCESS; };
  if (runs_ && (waited() || waited())) runs_ = false;
  return !runs_;
}

Result<void> CopyBytes::add(CUdeviceptr to, CUdeviceptr from, Size size, Location from_location,
                            Location to_location) {
  const Piece next{to, from, size, from_location, to_location};
  if (piece_.size != 0 && piece_.is_followed_by(next)) {
    piece_.size += size;
    return {};
  }
  TRY(submit());
  piece_ = next;
  return {};
}

Result<void> CopyBytes::submit() {
  if (piece_.size == 0) return {};
  TRY(driver_.check(driver_.cuMemcpyDtoDAsync(piece_.to, piece_.from, piece_.size, stream_),
                    "copy contents", piece_.size));
  runs_ = true;
  piece_.size = 0;
  return {};
}

Result<void> CopyBytes::finish() {
  TRY(submit());
  if (!runs_) return {};
  TRY(wait_by_event());
  runs_ = false;
  return {};
}

Result<void> CopyBytes::wait_by_event() {
  CUevent done = nullptr;
  TRY(driver_.check(driver_.cuEventCreate(&done, CU_EVENT_DISABLE_TIMING), "wait for a copy"));
  const Undo destroy{[driver = &driver_, done] {
    release_or_defer(Deferred::Handle, [driver, done] { return driver->cuEventDestroy(done); });
  }};
  TRY(driver_.check(driver_.cuEventRecord(done, stream_), "wait for a copy"));
  return driver_.check(driver_.cuEventSynchronize(done), "wait for a copy");
}

}  // namespace cuvmm
