// SPDX-License-Identifier: Apache-2.0
#include "pool/pool_copies.hpp"

#include "driver/current_context.hpp"
#include "stream/captures.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {
constexpr const char* preparing = "prepare to copy";
}

Result<std::shared_ptr<PoolCopies>> PoolCopies::create(const Driver& driver, int device) {
  std::shared_ptr<PoolCopies> made{new PoolCopies{driver, device}};
  CUcontext context = nullptr;
  TRY(driver.check(driver.cuDevicePrimaryCtxRetain(&context, device), preparing));
  made->context_ = KnownContext::of(driver, context);
  const InContext in_context{driver, made->context_};
  if (!in_context.ok()) {
    return Error{.kind = ErrorKind::DriverFailed,
                 .driver_code = CUDA_ERROR_UNKNOWN,
                 .doing = preparing,
                 .subject = "the primary context cannot be used"};
  }
  TRY(driver.check(driver.cuStreamCreate(&made->stream_, CU_STREAM_NON_BLOCKING), preparing));
  return made;
}

PoolCopies::~PoolCopies() {
  if (context_.handle == nullptr) return;
  {
    const InContext in_context{driver_, context_};
    // A reset has ended the stream and all references to the context. By now the same handles may
    // be the program's.
    if (in_context.answer() == CUDA_ERROR_CONTEXT_IS_DESTROYED) return;
    if (in_context.ok() && stream_ != nullptr) {
      release_or_defer(Deferred::Handle,
                       [of = &driver_, stream = stream_] { return of->cuStreamDestroy(stream); });
    }
  }
  release_or_defer(Deferred::Handle, [of = &driver_, device = device_] {
    return of->cuDevicePrimaryCtxRelease(device);
  });
}

bool PoolCopies::has_ended() const {
  return InContext{driver_, context_}.answer() == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

Result<void> PoolCopies::copy(const Add& add, std::shared_ptr<void> held) {
  const InContext in_context{driver_, context_};
  if (!in_context.ok()) {
    return Error{.kind = ErrorKind::DriverFailed,
                 .driver_code = CUDA_ERROR_CONTEXT_IS_DESTROYED,
                 .doing = "copy contents",
                 .subject = "the primary context has ended"};
  }
  const RelaxedCapture relaxed{driver_};
  CopyBytes copying{driver_, stream_};
  Result<void> done = add(copying);
  if (done.ok()) done = copying.finish();
  if (done.ok() || copying.is_over()) return done;
  // The copy may still be writing.
  defer_release(Deferred::Copy, [self = shared_from_this(), kept = std::move(held)] {
    return self->driver_.cuStreamSynchronize(self->stream_);
  });
  Error error = done.error();
  error.subject = "and the copy may still run";
  return error;
}

}  // namespace cuvmm
