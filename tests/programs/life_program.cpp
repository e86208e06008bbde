// SPDX-License-Identifier: Apache-2.0
// Ends and forks in ways that programs do. What it does is its first word.
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "routes.hpp"

namespace {

Calls calls;
CUdeviceptr kept = 0;

void begin() {
  calls = calls_by_dlsym();
  CUcontext context = nullptr;
  if (calls.cuInit_(0) != CUDA_SUCCESS) std::exit(10);
  if (calls.cuDevicePrimaryCtxRetain_(&context, 0) != CUDA_SUCCESS) std::exit(11);
  calls.cuCtxSetCurrent_(context);
  if (calls.cuMemAlloc_(&kept, 4 << 20) != CUDA_SUCCESS) std::exit(12);
}

void free_at_exit() {
  if (calls.cuMemFree_(kept) != CUDA_SUCCESS) _exit(13);
  std::printf("freed at exit\n");
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Whatever a child of a process with a started driver is answered, it ends by itself.
int fork_after_start() {
  begin();
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr address = 0;
    const CUresult answer = calls.cuMemAlloc_(&address, 1 << 20);
    _exit(answer == CUDA_ERROR_NOT_INITIALIZED ? 0 : 20);
  }
  const int status = wait_for(child);
  return calls.cuMemFree_(kept) == CUDA_SUCCESS ? status : 21;
}

int fork_before_start() {
  const pid_t child = fork();
  begin();
  if (child == 0) _exit(0);
  return wait_for(child);
}

int fork_and_execute(char* self) {
  begin();
  const pid_t child = fork();
  if (child == 0) {
    execl(self, self, "plain", nullptr);
    _exit(22);
  }
  return wait_for(child);
}

int vfork_and_execute(char* self) {
  begin();
  const pid_t child = vfork();
  if (child == 0) {
    execl(self, self, "plain", nullptr);
    _exit(22);
  }
  return wait_for(child);
}

int become_daemon() {
  begin();
  if (daemon(1, 1) != 0) return 23;
  begin();  // not reached natively either: the driver answers a forked child nothing
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "plain";
  if (what == "plain") {
    begin();
    return calls.cuMemFree_(kept) == CUDA_SUCCESS ? 0 : 14;
  }
  if (what == "no-cuda") return 0;
  if (what == "keep") {
    begin();
    return 0;
  }
  if (what == "atexit") {
    std::atexit(&free_at_exit);
    begin();
    return 0;
  }
  if (what == "exit-in-thread") {
    begin();
    std::thread{[] { std::exit(0); }}.join();
  }
  if (what == "fork") return fork_after_start();
  if (what == "fork-first") return fork_before_start();
  if (what == "fork-exec") return fork_and_execute(words[0]);
  if (what == "vfork-exec") return vfork_and_execute(words[0]);
  if (what == "daemon") return become_daemon();
  if (what == "crash") {
    begin();
    std::abort();
  }
  return 2;
}
