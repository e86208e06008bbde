// SPDX-License-Identifier: Apache-2.0
#include "share/legacy_ipc.hpp"

#include "base/log.hpp"
#include "base/not_cancelled.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {
namespace {

// Matches the driver's answers for its own memory (measured): NotMapped is memory since freed; the
// next two, an exporter that has ended.
CUresult answer_to(const Error& error) {
  switch (error.kind) {
    case ErrorKind::NotMapped:
      return CUDA_ERROR_NOT_PERMITTED;
    case ErrorKind::NotFound:
    case ErrorKind::NotAvailable:
      return CUDA_ERROR_INVALID_HANDLE;
    case ErrorKind::TimedOut:
      return CUDA_ERROR_TIMEOUT;
    case ErrorKind::SystemFailed:
      return share::says_gone(error) ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OPERATING_SYSTEM;
    default:
      return to_cuda(error);
  }
}

}  // namespace

Answer LegacyIpc::handle_of(CUdeviceptr address, CUipcMemHandle* handle) {
  if (handle == nullptr || !lender_.holds(address)) return std::nullopt;
  const NotCancelled whole;
  const RelaxedCapture relaxed{driver_};
  const auto lent = lender_.lend(address);
  if (lent.ok()) {
    lent->write(handle);
    return CUDA_SUCCESS;
  }
  return refuse_handle(lent.error());
}

CUresult LegacyIpc::refuse_handle(const Error& why) {
  // The driver has no IPC handles for stream-ordered memory either.
  if (why.kind != ErrorKind::InvalidArgument) {
    const std::string text = why.text();
    if (why.kind == ErrorKind::NotSupported) {
      CUVMM_LOG_ONCE(Warning, "cannot make an IPC handle: %s", text.c_str());
    } else {
      CUVMM_LOG(Warning, "cannot make an IPC handle: %s", text.c_str());
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

Answer LegacyIpc::open(CUdeviceptr* address, const CUipcMemHandle& bytes, unsigned flags) {
  const auto handle = share::IpcHandle::read(bytes);
  if (!handle.is_ours()) return std::nullopt;
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (handle.instance == lender_.instance()) return CUDA_ERROR_INVALID_CONTEXT;  // measured
  const CUcontext context = current_context(driver_);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const NotCancelled whole;
  const RelaxedCapture relaxed{driver_};
  const auto opened = borrower_.open(handle, context);
  if (opened.ok()) {
    *address = *opened;
    return CUDA_SUCCESS;
  }
  CUVMM_LOG(Warning, "cannot open memory of process %u: %s", handle.process,
            opened.error().text().c_str());
  return answer_to(opened.error());
}

Answer LegacyIpc::close(CUdeviceptr address) {
  const NotCancelled whole;
  const auto closed = borrower_.close(address);
  if (closed.ok()) return CUDA_SUCCESS;
  if (closed.error().kind == ErrorKind::NotFound) return std::nullopt;
  return answer_to(closed.error());
}

}  // namespace cuvmm
