// SPDX-License-Identifier: Apache-2.0
// Plain linear copies. The driver refuses a copy that names another device's mapped memory, as
// cuvmm's is, if the copying device cannot be granted access (hook/named_copy.hpp). Such a copy is
// made through the contexts instead.
#include "hook/serve.hpp"

namespace cuvmm::hook {
namespace {

struct PlainCopy {
  CUdeviceptr to;
  CUdeviceptr from;
  size_t size;
  StreamName stream;
  bool is_asynchronous;
};

struct Side {
  CUcontext context = nullptr;  // nullptr: it belongs to none
  bool is_blocking = false;     // of ours
};

// The context of the copy's stream.
CUcontext submitting_context(Serving& serving, const Driver& driver, StreamName stream) {
  const StreamState* const known = serving.clock.table().find(stream);
  return known != nullptr ? known->context : current_context(driver);
}

// Memory of a pool, or memory that the program maps itself, belongs to no context. The submitting
// one stands for it on its device.
Side side(Serving& serving, const Driver& driver, CUdeviceptr address, CUcontext submitting) {
  std::optional<CUdevice> device;
  if (const auto held = serving.memory.find(address)) {
    if (const ContextMemory* const owner = held->context_memory()) {
      return {.context = owner->context(), .is_blocking = true};
    }
    device = held->device;
  } else {
    const auto ask = [&](auto& answer, CUpointer_attribute what) {
      return driver.cuPointerGetAttribute(&answer, what, address) == CUDA_SUCCESS;
    };
    CUcontext context = nullptr;
    if (ask(context, CU_POINTER_ATTRIBUTE_CONTEXT) && context != nullptr) {
      return {.context = context};
    }
    unsigned kind = 0;
    int ordinal = 0;
    const bool is_on_a_device =
        ask(kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) && kind == CU_MEMORYTYPE_DEVICE;
    if (is_on_a_device && ask(ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)) device = ordinal;
  }
  const bool is_here = device.has_value() && device_of(driver, submitting) == *device;
  return {.context = is_here ? submitting : nullptr};
}

// A copy made in the owner's context, but ordered as if it were on the caller's stream: after that
// stream's earlier work and before its later work.
class Detour {
 public:
  Detour(const Driver& driver, CUcontext owner) : driver_(driver), owner_(owner) {}
  ~Detour() {
    for (CUevent event : {before_, after_}) {
      if (event != nullptr) driver_.cuEventDestroy(event);
    }
    const InContext in_owner{driver_, owner_};
    if (stream_ != nullptr && in_owner.ok()) driver_.cuStreamDestroy(stream_);
  }
  Detour(const Detour&) = delete;
  Detour& operator=(const Detour&) = delete;

  CUresult submit(const PlainCopy& copy) {
    const CUstream stream = copy.stream.explicit_handle();
    CUresult done = driver_.cuEventCreate(&before_, CU_EVENT_DISABLE_TIMING);
    if (done == CUDA_SUCCESS) done = driver_.cuEventRecord(before_, stream);
    if (done == CUDA_SUCCESS) done = submit_there(copy);
    if (done == CUDA_SUCCESS) done = driver_.cuStreamWaitEvent(stream, after_, 0);
    // A copy that nothing waits for must not outlive the call that failed.
    if (done != CUDA_SUCCESS && stream_ != nullptr) driver_.cuStreamSynchronize(stream_);
    return done;
  }
  CUresult wait() const { return driver_.cuEventSynchronize(after_); }

 private:
  CUresult submit_there(const PlainCopy& copy) {
    const InContext in_owner{driver_, owner_};
    if (!in_owner.ok()) return in_owner.answer();
    CUresult done = driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    if (done == CUDA_SUCCESS) done = driver_.cuEventCreate(&after_, CU_EVENT_DISABLE_TIMING);
    if (done == CUDA_SUCCESS) done = driver_.cuStreamWaitEvent(stream_, before_, 0);
    if (done == CUDA_SUCCESS) {
      done = driver_.cuMemcpyAsync(copy.to, copy.from, copy.size, stream_);
    }
    return done == CUDA_SUCCESS ? driver_.cuEventRecord(after_, stream_) : done;
  }

  const Driver& driver_;
  const CUcontext owner_;
  CUstream stream_ = nullptr;
  CUevent before_ = nullptr;
  CUevent after_ = nullptr;
};

// Between two contexts, the driver has a dedicated copy call, which uses the caller's stream.
CUresult copy_between(Engine& engine, const PlainCopy& copy, const Side& to, const Side& from) {
  const Gate::Pass pass{engine.gate()};
  return engine.driver().cuMemcpyPeerAsync(copy.to, to.context, copy.from, from.context, copy.size,
                                           copy.stream.explicit_handle());
}

// The stream's own context is not the one that is current for the program.
CUresult copy_there(Engine& engine, const PlainCopy& copy) {
  const Gate::Pass pass{engine.gate()};
  return engine.driver().cuMemcpyAsync(copy.to, copy.from, copy.size,
                                       copy.stream.explicit_handle());
}

CUresult copy_by_detour(Engine& engine, const PlainCopy& copy, CUcontext owner) {
  Detour detour{engine.driver(), owner};
  {
    const Gate::Pass pass{engine.gate()};
    const CUresult submitted = detour.submit(copy);
    if (submitted != CUDA_SUCCESS) return submitted;
  }
  return copy.is_asynchronous ? CUDA_SUCCESS : detour.wait();
}

// Only for copies that the driver refuses in the current context.
[[gnu::cold, gnu::noinline]] CUresult copy_by_contexts(Engine& engine, const PlainCopy& copy) {
  constexpr CUresult refused = CUDA_ERROR_INVALID_VALUE;
  Serving* serving = engine.serving();
  if (serving == nullptr || serving->memory.work().is_capturing(copy.stream)) return refused;
  const Driver& driver = engine.driver();
  const CUcontext submitting = submitting_context(*serving, driver, copy.stream);
  const Side target = side(*serving, driver, copy.to, submitting);
  const Side source = side(*serving, driver, copy.from, submitting);
  if (!target.is_blocking && !source.is_blocking) return refused;
  const CUcontext only = target.context == nullptr          ? source.context
                         : source.context == nullptr        ? target.context
                         : source.context == target.context ? target.context
                                                            : nullptr;
  const bool was_tried = only == current_context(driver) && only == submitting;
  const InContext in_submitting{driver, submitting};
  if (was_tried || !in_submitting.ok()) return refused;
  // These copies bypass `forward`, so legacy streams are joined and SYNC_MEMOPS is obeyed here.
  LegacyJoin join{engine};
  for (const Side& one : {target, source}) {
    const bool is_other = one.is_blocking && one.context != submitting;
    if (is_other && copy.stream.is_legacy()) join.add(one.context);
  }
  if (const CUresult joined = join.begin(); joined != CUDA_SUCCESS) return joined;
  std::optional<SynchronousCopy> synchronous;
  if (!copy.is_asynchronous &&
      (is_synchronous(serving->memory, copy.to) || is_synchronous(serving->memory, copy.from))) {
    synchronous.emplace(engine, copy.stream);
  }
  CUresult copied = only == nullptr      ? copy_between(engine, copy, target, source)
                    : only == submitting ? copy_there(engine, copy)
                                         : copy_by_detour(engine, copy, only);
  if (synchronous) copied = synchronous->finish(copied);
  copied = join.finish(copied);
  engine.submission_epoch().leave();
  engine.legacy_barrier().anything_submitted();
  return copied;
}

template <Call call, class... Arguments>
CUresult copy_on(const Forward<call>& forward, CUdeviceptr to, CUdeviceptr from, size_t size,
                 CUstream stream, Arguments... arguments) {
  if (const Answer answer = try_defer_copy(forward, to, from, size, stream)) return *answer;
  const CUresult answer = forward(arguments...);
  if (answer != CUDA_ERROR_INVALID_VALUE) [[likely]]
    return answer;
  return copy_by_contexts(forward.engine(), {.to = to,
                                             .from = from,
                                             .size = size,
                                             .stream = stream_name(forward, stream),
                                             .is_asynchronous = is_asynchronous(info(call).name)});
}

template <Call call, class... Arguments>
CUresult copy(const Forward<call>& forward, CUdeviceptr to, CUdeviceptr from, size_t size,
              Arguments... arguments) {
  return copy_on(forward, to, from, size, nullptr, arguments...);
}

template <Call call, class... Arguments>
CUresult copy_ordered(const Forward<call>& forward, CUdeviceptr to, CUdeviceptr from, size_t size,
                      CUstream stream, Arguments... arguments) {
  return copy_on(forward, to, from, size, stream, arguments..., stream);
}

CUdeviceptr number(const void* host) {
  return reinterpret_cast<CUdeviceptr>(host);
}

}  // namespace

CUVMM_HOOK(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(forward, to, from, size, to, from, size);
}
CUVMM_HOOK(cuMemcpyDtoD_v2, CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(forward, to, from, size, to, from, size);
}
CUVMM_HOOK(cuMemcpyHtoD_v2, CUdeviceptr to, const void* from, size_t size) {
  return copy(forward, to, number(from), size, to, from, size);
}
CUVMM_HOOK(cuMemcpyDtoH_v2, void* to, CUdeviceptr from, size_t size) {
  return copy(forward, number(to), from, size, to, from, size);
}
CUVMM_HOOK(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, from, size, stream, to, from, size);
}
CUVMM_HOOK(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, from, size, stream, to, from, size);
}
CUVMM_HOOK(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void* from, size_t size, CUstream stream) {
  return copy_ordered(forward, to, number(from), size, stream, to, from, size);
}
CUVMM_HOOK(cuMemcpyDtoHAsync_v2, void* to, CUdeviceptr from, size_t size, CUstream stream) {
  return copy_ordered(forward, number(to), from, size, stream, to, from, size);
}

}  // namespace cuvmm::hook
