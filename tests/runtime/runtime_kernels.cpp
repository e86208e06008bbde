// SPDX-License-Identifier: Apache-2.0
// Kernels as nvcc embeds them in a program: launched from their PTX, without a host function.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "runtime/fat_binaries.hpp"
#include "runtime/runtime_checks.hpp"

namespace cuvmm::test {
namespace {

class RuntimeKernels : public RuntimeTest {};

const std::string add_vectors_ptx = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry add_vectors(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [sum];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra $done;
  cvta.to.global.u64 %rd4, %rd1;
  mul.wide.s32 %rd5, %r5, 4;
  add.s64 %rd6, %rd4, %rd5;
  ld.global.u32 %r2, [%rd6];
  cvta.to.global.u64 %rd7, %rd2;
  add.s64 %rd8, %rd7, %rd5;
  ld.global.u32 %r3, [%rd8];
  add.s32 %r4, %r2, %r3;
  cvta.to.global.u64 %rd9, %rd3;
  add.s64 %rd10, %rd9, %rd5;
  st.global.u32 [%rd10], %r4;
$done:
  ret;
}
)";

const std::string unknown_ptx = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry copies_in_the_background()
{
  cp.async.wait_all;
  ret;
}
)";

// Adds `count` numbers to as many others with the kernel.
std::vector<std::uint32_t> added(const RegisteredKernels& kernels,
                                 const std::vector<std::uint32_t>& a,
                                 const std::vector<std::uint32_t>& b) {
  void* memory[3] = {};
  for (void*& one : memory) EXPECT_RUNTIME(cudaMalloc(&one, bytes_of(a)));
  EXPECT_RUNTIME(cudaMemcpy(memory[0], a.data(), bytes_of(a), cudaMemcpyHostToDevice));
  EXPECT_RUNTIME(cudaMemcpy(memory[1], b.data(), bytes_of(b), cudaMemcpyHostToDevice));
  auto count = static_cast<std::uint32_t>(a.size());
  void* parameters[] = {&memory[0], &memory[1], &memory[2], &count};
  EXPECT_RUNTIME(cudaLaunchKernel(kernels.kernel(0), dim3((count + 255) / 256, 1, 1),
                                  dim3(256, 1, 1), parameters, 0, nullptr));
  auto result = read_back(memory[2], a.size());
  for (void* one : memory) EXPECT_RUNTIME(cudaFree(one));
  return result;
}

// Registered once, as a program's own kernels are, and before the runtime starts: not all runtimes
// accept more after a reset.
const RegisteredKernels& vectors_from(Packing packing) {
  static const auto made = [](Packing as) {
    auto* binary = new FatBinaryWriter;
    binary->add(ImageKind::MachineCode, 90,
                "\x7f"
                "ELF and more",
                Packing::Plain);
    binary->add(ImageKind::Ptx, 52, add_vectors_ptx, as);
    binary->add(ImageKind::Ptx, 120, "not for this device", Packing::Plain);
    return new RegisteredKernels{*binary, {"add_vectors"}};
  };
  static const RegisteredKernels* const all[] = {made(Packing::Plain), made(Packing::Lz4),
                                                 made(Packing::Zstd)};
  return *all[static_cast<int>(packing)];
}
[[maybe_unused]] const RegisteredKernels& registered_at_start = vectors_from(Packing::Plain);

void expect_sum(Packing packing) {
  const auto a = numbers(100'003, 1);
  const auto b = numbers(100'003, 2);
  std::vector<std::uint32_t> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  EXPECT_EQ(added(vectors_from(packing), a, b), sum);
}

// Beside machine code, and PTX for newer devices.
TEST_F(RuntimeKernels, RunFromPlainText) {
  expect_sum(Packing::Plain);
}

TEST_F(RuntimeKernels, RunFromTextCompressedByLz4) {
  expect_sum(Packing::Lz4);
}

TEST_F(RuntimeKernels, RunFromTextCompressedByZstd) {
  expect_sum(Packing::Zstd);
}

TEST_F(RuntimeKernels, RunInAGraphAsOftenAsItIsLaunched) {
  const RegisteredKernels& kernels = vectors_from(Packing::Plain);
  std::uint32_t count = 1000;
  void* memory = nullptr;
  ASSERT_RUNTIME(cudaMalloc(&memory, count * 4));
  std::vector<std::uint32_t> ones(count, 1);
  EXPECT_RUNTIME(cudaMemcpy(memory, ones.data(), bytes_of(ones), cudaMemcpyDefault));
  cudaStream_t stream = nullptr;
  ASSERT_RUNTIME(cudaStreamCreate(&stream));
  ASSERT_RUNTIME(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  void* parameters[] = {&memory, &memory, &memory, &count};
  EXPECT_RUNTIME(
      cudaLaunchKernel(kernels.kernel(0), dim3(4, 1, 1), dim3(256, 1, 1), parameters, 0, stream));
  cudaGraph_t graph = nullptr;
  ASSERT_RUNTIME(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t runnable = nullptr;
  ASSERT_RUNTIME(cudaGraphInstantiateWithFlags(&runnable, graph, 0));
  for (int i = 0; i < 3; ++i) EXPECT_RUNTIME(cudaGraphLaunch(runnable, stream));
  EXPECT_RUNTIME(cudaStreamSynchronize(stream));
  EXPECT_EQ(read_back(memory, count), std::vector<std::uint32_t>(count, 8));
  EXPECT_RUNTIME(cudaGraphExecDestroy(runnable));
  EXPECT_RUNTIME(cudaGraphDestroy(graph));
  EXPECT_RUNTIME(cudaStreamDestroy(stream));
  EXPECT_RUNTIME(cudaFree(memory));
}

TEST_F(RuntimeKernels, OccupancyAndAttributesAreAnswered) {
  const RegisteredKernels& kernels = vectors_from(Packing::Plain);
  cudaFuncAttributes attributes{};
  EXPECT_RUNTIME(cudaFuncGetAttributes(&attributes, kernels.kernel(0)));
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  int blocks = 0;
  EXPECT_RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernels.kernel(0), 256, 0));
  EXPECT_EQ(blocks, 8);
}

// Error 98 from older runtimes, 400 from that of CUDA 13, which takes it for a driver handle.
TEST_F(RuntimeKernels, OneThatWasNeverRegisteredIsRefused) {
  static const char nothing = 0;
  const cudaError_t answer =
      cudaLaunchKernel(&nothing, dim3(1, 1, 1), dim3(1, 1, 1), nullptr, 0, nullptr);
  EXPECT_TRUE(answer == cudaErrorInvalidDeviceFunction || answer == cudaErrorInvalidResourceHandle)
      << answer;
  EXPECT_EQ(cudaGetLastError(), answer);
}

// Each in its own process, where the driver logs a missing feature once.
int answer_to_launch(FatBinaryWriter& binary, const char* name) {
  const RegisteredKernels kernels{binary, {name}};
  const cudaError_t answer =
      cudaLaunchKernel(kernels.kernel(0), dim3(1, 1, 1), dim3(32, 1, 1), nullptr, 0, nullptr);
  return answer == cudaErrorNotSupported ? 0 : 1;
}

TEST(RuntimeKernelsDeathTest, MachineCodeAloneIsRefusedWithAdvice) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  FatBinaryWriter binary;
  binary.add(ImageKind::MachineCode, 90,
             "\x7f"
             "ELF and more",
             Packing::Plain);
  EXPECT_EXIT(std::_Exit(answer_to_launch(binary, "add_vectors")), ::testing::ExitedWithCode(0),
              "without PTX beside it: build with -arch=compute_90");
}

TEST(RuntimeKernelsDeathTest, AnUnknownInstructionIsRefusedByName) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  FatBinaryWriter binary;
  binary.add(ImageKind::Ptx, 80, unknown_ptx, Packing::Plain);
  EXPECT_EXIT(std::_Exit(answer_to_launch(binary, "copies_in_the_background")),
              ::testing::ExitedWithCode(0), "does not know the instruction cp.async.wait_all");
}

TEST(RuntimeKernelsDeathTest, AnAddressWithoutMemoryIsReportedWithItsThread) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto launch = [] {
    FatBinaryWriter binary;
    binary.add(ImageKind::Ptx, 52, add_vectors_ptx, Packing::Plain);
    const RegisteredKernels kernels{binary, {"add_vectors"}};
    std::uint64_t nowhere = 0x1000;
    std::uint32_t count = 100;
    void* parameters[] = {&nowhere, &nowhere, &nowhere, &count};
    cudaLaunchKernel(kernels.kernel(0), dim3(2, 1, 1), dim3(64, 1, 1), parameters, 0, nullptr);
    std::_Exit(cudaDeviceSynchronize() == cudaErrorIllegalAddress ? 0 : 1);
  };
  EXPECT_EXIT(launch(), ::testing::ExitedWithCode(0),
              "kernel add_vectors, block \\([01], 0, 0\\), thread \\(0, 0, 0\\): "
              "'ld.global.u32 %r2, \\[%rd6\\]' at 0x1[0-9]00");
}

// Launches the text's only kernel and expects this error, at once or from the wait for it.
[[noreturn]] void launch_and_expect(const std::string& body, const std::string& functions,
                                    cudaError_t expected) {
  FatBinaryWriter binary;
  binary.add(ImageKind::Ptx, 80,
             ".version 7.8\n.target sm_80\n.address_size 64\n" + functions +
                 ".visible .entry kernel()\n{\n  .reg .b32 %r<4>;\n  .reg .b64 %rd<4>;\n" + body +
                 "  ret;\n}\n",
             Packing::Plain);
  const RegisteredKernels kernels{binary, {"kernel"}};
  cudaError_t answer =
      cudaLaunchKernel(kernels.kernel(0), dim3(1, 1, 1), dim3(32, 1, 1), nullptr, 0, nullptr);
  if (answer == cudaSuccess) answer = cudaDeviceSynchronize();
  std::_Exit(answer == expected ? 0 : 1);
}

TEST(RuntimeKernelsDeathTest, AnUndefinedVariableIsNamed) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      launch_and_expect("ld.global.u32 %r1, [elsewhere];\n",
                        ".extern .global .align 4 .u32 elsewhere;\n", cudaErrorNotSupported),
      ::testing::ExitedWithCode(0), "a variable of another module \\(elsewhere\\)");
}

TEST(RuntimeKernelsDeathTest, AnUndefinedAddressIsNamed) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(launch_and_expect("", ".global .align 8 .u64 pointer[2] = {0, elsewhere};\n",
                                cudaErrorNotSupported),
              ::testing::ExitedWithCode(0), "cannot find elsewhere, whose address pointer begins");
}

TEST(RuntimeKernelsDeathTest, ManagedVariablesLargerThanTheHostAreRefused) {
  constexpr std::uint64_t bytes = std::uint64_t{512} << 30;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page >= bytes) {
    GTEST_SKIP() << "this host has the memory";
  }
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      launch_and_expect("", ".global .attribute(.managed) .align 32 .v4 .b64 huge[17179869184];\n",
                        cudaErrorMemoryAllocation),
      ::testing::ExitedWithCode(0), "");
}

constexpr char call_through_pointer[] = R"(
  {
    .param .b32 argument;
    prototype: .callprototype _ (.param .b32 _);
    st.param.b32 [argument], %r1;
    call %rd1, (argument), prototype;
  }
)";

TEST(RuntimeKernelsDeathTest, ACallOfNoFunctionIsReportedWithItsThread) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      launch_and_expect(std::string{"mov.u64 %rd1, 4096;\n"} + call_through_pointer, "",
                        cudaErrorIllegalInstruction),
      ::testing::ExitedWithCode(0),
      "kernel kernel, block \\(0, 0, 0\\), thread \\(0, 0, 0\\): .* at 0x1000: a call through");
}

TEST(RuntimeKernelsDeathTest, ARecursiveFunctionWithLocalVariablesIsRefusedByName) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const std::string function = R"(
.func endless()
{
  .local .align 4 .b8 place[4];
  .reg .b64 %rd1;
  mov.u64 %rd1, place;
  call endless;
  ret;
}
)";
  EXPECT_EXIT(launch_and_expect("call endless;\n", function, cudaErrorNotSupported),
              ::testing::ExitedWithCode(0), "takes the address of a local variable \\(endless\\)");
}

TEST(RuntimeKernelsDeathTest, CallsThatNeverEndAreStopped) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      launch_and_expect("call endless;\n", ".func endless()\n{\n  call endless;\n  ret;\n}\n",
                        cudaErrorLaunchFailure),
      ::testing::ExitedWithCode(0), "calls are nested too deeply");
}

constexpr char heap_functions[] =
    ".extern .func (.param .b64 place) malloc(.param .b64 size);\n"
    ".extern .func free(.param .b64 place);\n";

TEST(RuntimeKernelsDeathTest, FreeOfWhatMallocDidNotReturnIsReported) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(launch_and_expect(R"(
  {
    .param .b64 place;
    mov.u64 %rd1, 12288;
    st.param.b64 [place], %rd1;
    call free, (place);
  }
)",
                                heap_functions, cudaErrorIllegalAddress),
              ::testing::ExitedWithCode(0), "at 0x3000: free of memory that malloc did not return");
}

// Each of 32 threads requests one MiB of 8: some get none, and trap.
TEST(RuntimeKernelsDeathTest, AFullHeapGivesNullPointers) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(launch_and_expect(R"(
  {
    .param .b64 size;
    .param .b64 place;
    .reg .pred %none;
    st.param.b64 [size], 1048576;
    call (place), malloc, (size);
    ld.param.b64 %rd1, [place];
    setp.eq.u64 %none, %rd1, 0;
    @%none trap;
  }
)",
                                heap_functions, cudaErrorLaunchFailure),
              ::testing::ExitedWithCode(0), "thread \\(8, 0, 0\\): .* the kernel executed trap");
}

}  // namespace
}  // namespace cuvmm::test
