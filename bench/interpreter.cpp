// SPDX-License-Identifier: Apache-2.0
// Measures how fast the simulated driver runs kernels from their PTX. Goals: 50 million simple
// instructions per second on one processor; a vector add of a million elements in a second.
// CUVMM_TEST_DRIVER shows how much faster a card is.
#include <cstdint>

#include "bench/bench_driver.hpp"

namespace cuvmm::bench {
namespace {

constexpr char kernels_ptx[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry calculate(.param .u64 results, .param .u32 rounds)
{
  .reg .pred %p;
  .reg .b32 %a, %b, %c, %n;
  .reg .b64 %at, %offset;
  ld.param.u64 %at, [results];
  ld.param.u32 %n, [rounds];
  mov.u32 %a, %tid.x;
  mov.u32 %b, 12345;
$again:
  mad.lo.u32 %a, %a, 1664525, %b;
  shr.u32 %c, %a, 7;
  xor.b32 %b, %b, %c;
  add.u32 %n, %n, -1;
  setp.ne.u32 %p, %n, 0;
  @%p bra $again;
  mov.u32 %c, %tid.x;
  mul.wide.u32 %offset, %c, 4;
  add.u64 %at, %at, %offset;
  st.global.u32 [%at], %b;
  ret;
}
.visible .entry add_vectors(.param .u64 first, .param .u64 second, .param .u64 sum, .param .u32 count)
{
  .reg .pred %p;
  .reg .b32 %i, %n, %block, %size;
  .reg .b64 %a, %b, %c, %offset;
  .reg .f32 %x, %y;
  ld.param.u64 %a, [first];
  ld.param.u64 %b, [second];
  ld.param.u64 %c, [sum];
  ld.param.u32 %n, [count];
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %i, %tid.x;
  mad.lo.u32 %i, %block, %size, %i;
  setp.ge.u32 %p, %i, %n;
  @%p exit;
  mul.wide.u32 %offset, %i, 4;
  add.u64 %a, %a, %offset;
  add.u64 %b, %b, %offset;
  add.u64 %c, %c, %offset;
  ld.global.f32 %x, [%a];
  ld.global.f32 %y, [%b];
  add.f32 %x, %x, %y;
  st.global.f32 [%c], %x;
  ret;
}
)";

CUfunction kernel(const char* name) {
  static const CUmodule module = [] {
    CUmodule loaded = nullptr;
    need_success(driver().cuModuleLoadData(&loaded, kernels_ptx), "cuModuleLoadData");
    return loaded;
  }();
  CUfunction function = nullptr;
  need_success(driver().cuModuleGetFunction(&function, module, name), name);
  return function;
}

CUdeviceptr memory_of(std::size_t size) {
  CUdeviceptr address = 0;
  need_success(driver().cuMemAlloc(&address, size), "cuMemAlloc");
  need_success(driver().cuMemsetD8(address, 0, size), "cuMemsetD8");
  return address;
}

void run(CUfunction function, unsigned blocks, unsigned threads, void** parameters) {
  need_success(driver().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, nullptr,
                                       parameters, nullptr),
               "cuLaunchKernel");
  need_success(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

// One block, which runs on one processor.
void SimpleInstructions(benchmark::State& state) {
  constexpr unsigned threads = 256;
  constexpr unsigned instructions_a_round = 6;
  std::uint32_t rounds = 20'000;
  const CUfunction function = kernel("calculate");
  CUdeviceptr results = memory_of(threads * 4);
  void* parameters[] = {&results, &rounds};
  for ([[maybe_unused]] auto _ : state) run(function, 1, threads, parameters);
  state.SetItemsProcessed(state.iterations() * threads * instructions_a_round * rounds);
  need_success(driver().cuMemFree(results), "cuMemFree");
}
BENCHMARK(SimpleInstructions)->Unit(benchmark::kMillisecond)->UseRealTime();

void AddVectorsOfAMillion(benchmark::State& state) {
  std::uint32_t count = 1'000'000;
  const CUfunction function = kernel("add_vectors");
  CUdeviceptr vectors[3];
  for (CUdeviceptr& vector : vectors) vector = memory_of(std::size_t{count} * 4);
  void* parameters[] = {&vectors[0], &vectors[1], &vectors[2], &count};
  for ([[maybe_unused]] auto _ : state) run(function, (count + 255) / 256, 256, parameters);
  for (const CUdeviceptr vector : vectors) need_success(driver().cuMemFree(vector), "cuMemFree");
}
BENCHMARK(AddVectorsOfAMillion)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace cuvmm::bench

BENCHMARK_MAIN();
