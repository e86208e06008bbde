// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "share/borrower.hpp"
#include "share/lender.hpp"

namespace cuvmm {

// cuIpcGetMemHandle and its counterparts for blocking memory that we serve and for memory that the
// program manages itself: 64-byte handles, which other processes under cuvmm can open. Handles to
// the driver's own memory are left to the driver.
class LegacyIpc {
 public:
  // `as_ours` runs the body of the answering thread as internal code.
  LegacyIpc(const Driver& driver, Memory& memory, ProgramChunks& chunks, share::AsOurs as_ours,
            Duration patience = std::chrono::seconds{5})
      : driver_(driver),
        lender_(memory, chunks, std::move(as_ours)),
        borrower_(driver, memory, patience) {}

  Answer handle_of(CUdeviceptr address, CUipcMemHandle* handle);
  Answer open(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags);
  Answer close(CUdeviceptr address);

  void context_ended(CUcontext context) { borrower_.context_ended(context); }
  // Peer access of the context has changed.
  Result<void> access_changed(CUcontext context) { return borrower_.access_changed(context); }

  // The answer to a request for a handle that cannot be made. Logs why.
  static CUresult refuse_handle(const Error& why);

  // Whether a process under cuvmm made the handle.
  static bool is_ours(const CUipcMemHandle& handle) {
    return share::IpcHandle::read(handle).is_ours();
  }

 private:
  const Driver& driver_;
  share::Lender lender_;
  share::Borrower borrower_;
};

}  // namespace cuvmm
