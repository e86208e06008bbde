// SPDX-License-Identifier: Apache-2.0
// Allocates small blocks by cuMemAllocAsync, reads all of them in a kernel, frees them and does so
// again. Prints the time of an allocation, of the first blocks and of those that reuse memory, and
// the kernel's speed. A plain program over the driver: run it natively, or by `cuvmm run` with
// VMM_COMPACT=off and all (tools/gpu_parts/small_blocks.sh).
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "bench/must_work.hpp"

namespace cuvmm::bench {
namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

// Its blocks of threads share out the program's blocks, and each thread reads 16 bytes at a time.
// It writes a result only if the bytes are not all zero.
constexpr const char* reader = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry read_all(.param .u64 blocks, .param .u32 count, .param .u32 size,
                         .param .u64 result) {
  .reg .pred %p<4>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [blocks];
  ld.param.u32 %r1, [count];
  ld.param.u32 %r2, [size];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %nctaid.x;
  mov.u32 %r5, %ntid.x;
  mov.u32 %r6, %tid.x;
  shl.b32 %r5, %r5, 4;
  shl.b32 %r6, %r6, 4;
  mov.u32 %r7, 0;
next_block:
  setp.ge.u32 %p1, %r3, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd2, %r3, 8;
  add.u64 %rd2, %rd1, %rd2;
  ld.global.u64 %rd3, [%rd2];
  mov.u32 %r8, %r6;
next_bytes:
  setp.ge.u32 %p2, %r8, %r2;
  @%p2 bra block_done;
  cvt.u64.u32 %rd4, %r8;
  add.u64 %rd4, %rd3, %rd4;
  ld.global.v4.u32 {%r9, %r10, %r11, %r12}, [%rd4];
  or.b32 %r9, %r9, %r10;
  or.b32 %r11, %r11, %r12;
  or.b32 %r9, %r9, %r11;
  or.b32 %r7, %r7, %r9;
  add.u32 %r8, %r8, %r5;
  bra next_bytes;
block_done:
  add.u32 %r3, %r3, %r4;
  bra next_block;
done:
  setp.eq.u32 %p3, %r7, 0;
  @%p3 bra end;
  ld.param.u64 %rd5, [result];
  st.global.u32 [%rd5], %r7;
end:
  ret;
}
)";

class SmallBlocks {
 public:
  SmallBlocks(std::size_t memory, std::size_t size) : size_(size), blocks_(memory / size) {
    MUST_WORK(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    MUST_WORK(cuModuleLoadData, &module_, reader);
    MUST_WORK(cuModuleGetFunction, &kernel_, module_, "read_all");
    MUST_WORK(cuMemAlloc, &list_, blocks_.size() * sizeof(CUdeviceptr));
    MUST_WORK(cuMemAlloc, &result_, sizeof(unsigned));
    MUST_WORK(cuMemsetD8, result_, 0, sizeof(unsigned));
    CUmemoryPool pool = nullptr;
    MUST_WORK(cuDeviceGetDefaultMemPool, &pool, 0);
    std::uint64_t all = UINT64_MAX;
    MUST_WORK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
  }
  ~SmallBlocks() {
    MUST_WORK(cuMemFree, list_);
    MUST_WORK(cuMemFree, result_);
    MUST_WORK(cuModuleUnload, module_);
    MUST_WORK(cuStreamDestroy_v2, stream_);
    CUmemoryPool pool = nullptr;
    MUST_WORK(cuDeviceGetDefaultMemPool, &pool, 0);
    MUST_WORK(cuMemPoolTrimTo, pool, 0);
  }

  double microseconds_an_allocation() {
    const double seconds = seconds_of([&] {
      for (CUdeviceptr& block : blocks_) MUST_WORK(cuMemAllocAsync, &block, size_, stream_);
    });
    return seconds * 1e6 / static_cast<double>(blocks_.size());
  }

  // The best of several runs, in GB/s.
  double reading_speed() {
    for (const CUdeviceptr block : blocks_) MUST_WORK(cuMemsetD8Async, block, 0, size_, stream_);
    MUST_WORK(cuMemcpyHtoD, list_, blocks_.data(), blocks_.size() * sizeof(CUdeviceptr));
    auto count = static_cast<unsigned>(blocks_.size());
    auto size = static_cast<unsigned>(size_);
    std::array<void*, 4> arguments{&list_, &count, &size, &result_};
    double fastest = 1e9;
    for (int i = 0; i < 12; ++i) {
      fastest = std::min(fastest, seconds_of([&] {
                           MUST_WORK(cuLaunchKernel, kernel_, 1056, 1, 1, 256, 1, 1, 0, stream_,
                                     arguments.data(), nullptr);
                         }));
    }
    unsigned is_wrong = 1;
    MUST_WORK(cuMemcpyDtoH, &is_wrong, result_, sizeof(is_wrong));
    if (is_wrong != 0) std::exit(1);
    return static_cast<double>(blocks_.size() * size_) / fastest / 1e9;
  }

  void free() {
    for (const CUdeviceptr block : blocks_) MUST_WORK(cuMemFreeAsync, block, stream_);
    MUST_WORK(cuStreamSynchronize, stream_);
  }

 private:
  template <class Work>
  double seconds_of(const Work& work) const {
    MUST_WORK(cuStreamSynchronize, stream_);
    const auto began = std::chrono::steady_clock::now();
    work();
    MUST_WORK(cuStreamSynchronize, stream_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

  const std::size_t size_;
  std::vector<CUdeviceptr> blocks_;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUdeviceptr list_ = 0;
  CUdeviceptr result_ = 0;
};

int main(std::size_t memory, const std::vector<std::size_t>& sizes) {
  use_device();
  for (const std::size_t size : sizes) {
    SmallBlocks blocks{memory, size * KiB};
    const double first = blocks.microseconds_an_allocation();
    const double speed = blocks.reading_speed();
    blocks.free();
    const double again = blocks.microseconds_an_allocation();
    blocks.free();
    std::printf("%5zu KiB: first %7.3f us, again %7.3f us, read %7.1f GB/s\n", size, first, again,
                speed);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace cuvmm::bench

// The memory to fill in MiB, and the sizes of the blocks in KiB.
int main(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "usage: %s MIB KIB...\n", words[0]);
    return 2;
  }
  std::vector<std::size_t> sizes;
  for (int i = 2; i < count; ++i) sizes.push_back(std::strtoull(words[i], nullptr, 10));
  return cuvmm::bench::main(std::strtoull(words[1], nullptr, 10) * cuvmm::bench::MiB, sizes);
}
