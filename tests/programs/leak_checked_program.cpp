// SPDX-License-Identifier: Apache-2.0
// Uses memory, forks, and exits with its child's status. Built with AddressSanitizer, which checks
// each process for leaks when it exits.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "routes.hpp"

namespace {

Calls calls;

bool use_memory() {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  return calls.cuInit_(0) == CUDA_SUCCESS &&
         calls.cuDevicePrimaryCtxRetain_(&context, 0) == CUDA_SUCCESS &&
         calls.cuCtxSetCurrent_(context) == CUDA_SUCCESS &&
         calls.cuMemAlloc_(&memory, 1 << 20) == CUDA_SUCCESS &&
         calls.cuMemFree_(memory) == CUDA_SUCCESS;
}

// Forks that many times, each process from the one before, and returns the last one's status. The
// driver refuses what the children ask of it.
int status_after(int forks) {
  if (forks == 0) return 5;
  const pid_t child = fork();
  if (child == 0) {
    (void)use_memory();
    std::exit(status_after(forks - 1));
  }
  int end = 0;
  if (waitpid(child, &end, 0) != child || !WIFEXITED(end)) return 99;
  return WEXITSTATUS(end);
}

}  // namespace

int main() {
  calls = calls_by_dlsym();
  if (!use_memory()) return 98;
  return status_after(2);
}
