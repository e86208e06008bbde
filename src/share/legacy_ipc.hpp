// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "share/borrower.hpp"
#include "share/lender.hpp"

namespace cuvmm {

// cuIpcGetMemHandle and what goes with it, for blocking memory that we serve: handles of 64 bytes,
// opened by processes that serve memory themselves. Handles of the driver's own memory are left to
// the driver.
class LegacyIpc {
 public:
  // `as_ours` runs what the answering thread does, as code of ours.
  LegacyIpc(const Driver& driver, Memory& memory, share::AsOurs as_ours,
            Duration patience = std::chrono::seconds{5})
      : driver_(driver),
        memory_(memory),
        lender_(memory, std::move(as_ours)),
        borrower_(driver, memory, patience) {}

  Answer handle_of(CUdeviceptr address, CUipcMemHandle* handle);
  Answer open(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags);
  Answer close(CUdeviceptr address);

  void context_ended(CUcontext context) { borrower_.context_ended(context); }
  // Peers of the context have come or gone.
  Result<void> access_changed(CUcontext context) { return borrower_.access_changed(context); }

  // Whether a process that serves memory has made it.
  static bool is_ours(const CUipcMemHandle& handle) {
    return share::IpcHandle::read(handle).is_ours();
  }

 private:
  const Driver& driver_;
  Memory& memory_;
  share::Lender lender_;
  share::Borrower borrower_;
};

}  // namespace cuvmm
