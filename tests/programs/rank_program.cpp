// SPDX-License-Identifier: Apache-2.0
// One rank of a job of two, each on its own device: in every round a kernel of each rank spins
// until the other's runs, as NCCL's do, and then the rank checks what it had written to its memory.
//
//   rank RANK FILE MIB ROUNDS [together [KERNELS [memory|event|none [MILLISECONDS]]]]
//
// RANK is also the device; FILE is where the two meet. With `together` no kernel is launched until
// both have their memory. Each round launches KERNELS kernels, one by default: rank 0 at once,
// so that they spin for those of rank 1, which launches one every 10 ms. Such rounds are 50 ms
// apart, or else a service that is slow to answer finds the next one begun whenever it looks. With
// `memory` or `event`, rank 1 opens such a thing of rank 0's. Each kernel runs for MILLISECONDS
// once both have begun. Exit status 0 if every word was right.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuvmm/sim.h"

namespace {

const char* const ptx =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry meet(.param .u64 where)\n{\nret;\n}\n";
constexpr std::size_t block_size = std::size_t{32} << 20;

struct Meeting {
  std::atomic<std::uint64_t> rounds[2];
  std::atomic<int> ready;
  std::atomic<int> shared;  // 1: rank 0 has written a handle, 2: rank 1 has opened it
  CUipcMemHandle memory;
  CUipcEventHandle event;
};
Meeting* meeting = nullptr;
int rank = 0;
int kernel_ms = 0;

void check(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  std::fprintf(stderr, "rank %d: %s answers %d\n", rank, what, static_cast<int>(answer));
  std::exit(2);
}

template <class Function, class... Arguments>
void call(const char* name, Arguments... arguments) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  check(reinterpret_cast<Function*>(dlsym(library, name))(arguments...), name);
}

void export_one(const std::string& what) {
  if (what == "event") {
    CUevent event = nullptr;
    call<CUresult(CUevent*, unsigned)>("cuEventCreate", &event,
                                       unsigned{CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING});
    call<CUresult(CUipcEventHandle*, CUevent)>("cuIpcGetEventHandle", &meeting->event, event);
  } else {
    CUdeviceptr small = 0;
    call<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2", &small, std::size_t{2} << 20);
    call<CUresult(CUipcMemHandle*, CUdeviceptr)>("cuIpcGetMemHandle", &meeting->memory, small);
  }
}

void open_one(const std::string& what) {
  if (what == "event") {
    CUevent event = nullptr;
    call<CUresult(CUevent*, CUipcEventHandle)>("cuIpcOpenEventHandle", &event, meeting->event);
  } else {
    CUdeviceptr opened = 0;
    call<CUresult(CUdeviceptr*, CUipcMemHandle, unsigned)>(
        "cuIpcOpenMemHandle_v2", &opened, meeting->memory,
        unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS});
  }
}

// Returns once rank 1 has opened what rank 0 has exported.
void share(const std::string& what) {
  if (rank == 0) {
    export_one(what);
    meeting->shared.store(1);
  }
  // Rank 0 waits for 2, rank 1 for 1.
  while (meeting->shared.load() < 2 - rank) ::usleep(1000);
  if (rank == 1) {
    open_one(what);
    meeting->shared.store(2);
  }
}

}  // namespace

CUVMM_SIM_KERNEL(meet) {
  static_cast<void>(launch);
  const std::uint64_t mine = meeting->rounds[rank].fetch_add(1) + 1;
  while (meeting->rounds[1 - rank].load() < mine) ::usleep(100);
  ::usleep(static_cast<useconds_t>(kernel_ms) * 1000);
}

int main(int count, char** words) {
  if (count < 5) return 2;
  rank = std::atoi(words[1]);
  const int file = open(words[2], O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Meeting)) != 0) return 2;
  void* const shared = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared == MAP_FAILED) return 2;
  meeting = static_cast<Meeting*>(shared);

  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  call<CUresult(unsigned)>("cuInit", 0U);
  call<CUresult(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain", &context, rank);
  call<CUresult(CUcontext)>("cuCtxSetCurrent", context);
  call<CUresult(CUmodule*, const void*)>("cuModuleLoadData", &module, ptx);
  call<CUresult(CUfunction*, CUmodule, const char*)>("cuModuleGetFunction", &kernel, module,
                                                     "meet");
  std::vector<CUdeviceptr> blocks;
  const std::size_t bytes = static_cast<std::size_t>(std::atoi(words[3])) << 20;
  for (std::size_t taken = 0; taken + block_size <= bytes; taken += block_size) {
    CUdeviceptr block = 0;
    call<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2", &block, block_size);
    blocks.push_back(block);
  }
  if (count > 7 && words[7] != std::string{"none"}) share(words[7]);
  if (count > 8) kernel_ms = std::atoi(words[8]);
  const int kernels = count > 6 ? std::atoi(words[6]) : 1;
  meeting->ready.fetch_add(1);
  while (count > 5 && meeting->ready.load() < 2) ::usleep(1000);
  for (int round = 0; round < std::atoi(words[4]); ++round) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      call<CUresult(CUdeviceptr, unsigned, std::size_t)>(
          "cuMemsetD32_v2", blocks[i], static_cast<unsigned>(round * 100 + static_cast<int>(i)),
          block_size / 4);
    }
    CUdeviceptr where = blocks.front();
    void* parameters[] = {&where};
    for (int i = 0; i < kernels; ++i) {
      call<CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                    unsigned, CUstream, void**, void**)>("cuLaunchKernel", kernel, 1U, 1U, 1U, 1U,
                                                         1U, 1U, 0U, CUstream{}, parameters,
                                                         static_cast<void**>(nullptr));
      if (kernels > 1 && rank == 1) ::usleep(10'000);
    }
    call<CUresult()>("cuCtxSynchronize");
    if (kernels > 1) ::usleep(50'000);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      unsigned word = 0;
      call<CUresult(void*, CUdeviceptr, std::size_t)>(
          "cuMemcpyDtoH_v2", &word, blocks[i] + block_size - sizeof word, sizeof word);
      if (word == static_cast<unsigned>(round * 100 + static_cast<int>(i))) continue;
      std::fprintf(stderr, "rank %d: block %zu holds %u in round %d\n", rank, i, word, round);
      return 1;
    }
  }
  for (const CUdeviceptr block : blocks) call<CUresult(CUdeviceptr)>("cuMemFree_v2", block);
  std::printf("rank %d: all rounds right\n", rank);
  return 0;
}
