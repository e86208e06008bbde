// SPDX-License-Identifier: Apache-2.0
// PTX functions that call themselves or are called through pointers, variables initialized with
// addresses, and memory that kernels allocate with malloc.
#include <functional>

#include "ptx_programs.hpp"

namespace cuvmm::test {
namespace {

class PtxCalls : public DriverContract {};

void expect_called(const PtxLines& lines,
                   const std::function<std::uint64_t(std::uint64_t)>& expected) {
  constexpr std::size_t count = 200;
  std::vector<PtxOperands> operands;
  for (std::size_t i = 0; i < count; ++i) operands.push_back({i, i % 9, 0});
  const auto found = run_ptx(lines, operands);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(found[i], expected(i)) << "thread " << i;
}

const std::string call_of_b = R"(
    {
      .param .b32 argument;
      .param .b32 result;
      st.param.b32 [argument], %b;
      call.uni (result), function, (argument);
      ld.param.b32 %d, [result];
    })";

TEST_F(PtxCalls, AFunctionCallsItself) {
  expect_called({.operand_type = "u32", .result_type = "u32", .lines = call_of_b, .module_text = R"(
.func (.param .b32 out) function(.param .b32 in)
{
  .reg .pred %again;
  .reg .b32 %n, %less, %value;
  ld.param.u32 %n, [in];
  mov.u32 %value, 1;
  setp.gt.u32 %again, %n, 1;
  @!%again bra $done;
  sub.u32 %less, %n, 1;
  {
    .param .b32 argument;
    .param .b32 result;
    st.param.b32 [argument], %less;
    call (result), function, (argument);
    ld.param.b32 %value, [result];
  }
  mul.lo.u32 %value, %value, %n;
$done:
  st.param.b32 [out], %value;
  ret;
}
)"},
                [](std::uint64_t i) {
                  std::uint64_t product = 1;
                  for (std::uint64_t n = i % 9; n > 1; --n) product *= n;
                  return product;
                });
}

TEST_F(PtxCalls, FunctionsCallEachOther) {
  expect_called({.operand_type = "u32", .result_type = "u32", .lines = call_of_b, .module_text = R"(
.func (.param .b32 out) other(.param .b32 in);
.func (.param .b32 out) function(.param .b32 in)
{
  .reg .pred %ends;
  .reg .b32 %n, %value;
  ld.param.u32 %n, [in];
  mov.u32 %value, 0;
  setp.eq.u32 %ends, %n, 0;
  @%ends bra $done;
  sub.u32 %value, %n, 1;
  {
    .param .b32 argument;
    .param .b32 result;
    st.param.b32 [argument], %value;
    call (result), other, (argument);
    ld.param.b32 %value, [result];
  }
  mad.lo.u32 %value, %value, 3, %n;
$done:
  st.param.b32 [out], %value;
  ret;
}
.func (.param .b32 out) other(.param .b32 in)
{
  .reg .b32 %n, %value;
  ld.param.u32 %n, [in];
  shr.u32 %value, %n, 1;
  {
    .param .b32 argument;
    .param .b32 result;
    st.param.b32 [argument], %value;
    call (result), function, (argument);
    ld.param.b32 %value, [result];
  }
  add.u32 %value, %value, %n;
  st.param.b32 [out], %value;
  ret;
}
)"},
                [](std::uint64_t i) {
                  std::function<std::uint64_t(std::uint64_t)> function;
                  const auto other = [&](std::uint64_t n) { return function(n / 2) + n; };
                  function = [&](std::uint64_t n) {
                    return n == 0 ? std::uint64_t{0} : other(n - 1) * 3 + n;
                  };
                  return function(i % 9);
                });
}

TEST_F(PtxCalls, EachLaneCallsTheTargetOfItsPointer) {
  expect_called({.operand_type = "u32",
                 .result_type = "u32",
                 .lines = R"(
    and.b32 %x, %a, 1;
    mul.wide.u32 %w, %x, 8;
    mov.u64 %pointer, pointers;
    add.u64 %pointer, %pointer, %w;
    ld.global.u64 %pointer, [%pointer];
    setp.lt.u32 %p, %a, 150;
    mov.u32 %d, 7;
    @!%p bra others;
    {
      .param .b32 argument;
      .param .b32 result;
      prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
      st.param.b32 [argument], %b;
      call (result), %pointer, (argument), prototype;
      ld.param.b32 %d, [result];
    }
    others:)",
                 .declarations = ".reg .b64 %pointer;\n",
                 .module_text = R"(
.func (.param .b32 out) doubled(.param .b32 in)
{
  .reg .b32 %v;
  ld.param.u32 %v, [in];
  shl.b32 %v, %v, 1;
  st.param.b32 [out], %v;
  ret;
}
.func (.param .b32 out) increased(.param .b32 in)
{
  .reg .b32 %v;
  ld.param.u32 %v, [in];
  add.u32 %v, %v, 100;
  st.param.b32 [out], %v;
  ret;
}
.global .align 8 .u64 pointers[2] = {doubled, increased};
)"},
                [](std::uint64_t i) {
                  if (i >= 150) return std::uint64_t{7};
                  return i % 2 == 0 ? i % 9 * 2 : i % 9 + 100;
                });
}

TEST_F(PtxCalls, VariablesMayBeInitializedWithAddresses) {
  expect_called({.operand_type = "u32",
                 .result_type = "u32",
                 .lines = R"(
    mov.u64 %w, pointers;
    ld.global.u64 %pointer, [%w+8];
    ld.u32 %x, [%pointer];
    ld.global.u64 %pointer, [%w];
    ld.global.u32 %y, [%pointer];
    mad.lo.u32 %d, %x, 1000, %y;)",
                 .declarations = ".reg .b64 %pointer;\n",
                 .module_text = ".global .align 4 .u32 numbers[3] = {5, 6, 7};\n"
                                ".global .align 8 .u64 pointers[2] = {numbers, "
                                "generic(numbers)+8};\n"},
                [](std::uint64_t) { return 7005; });
}

TEST_F(PtxCalls, KernelsAllocateAndFreeMemory) {
  expect_called({.operand_type = "u32",
                 .result_type = "u32",
                 .lines = R"(
    {
      .param .b64 size;
      .param .b64 place;
      st.param.b64 [size], 64;
      call.uni (place), malloc, (size);
      ld.param.b64 %w, [place];
    }
    st.u32 [%w+60], %a;
    ld.u32 %d, [%w+60];
    {
      .param .b64 place;
      st.param.b64 [place], %w;
      call.uni free, (place);
    })",
                 .module_text = ".extern .func (.param .b64 place) malloc(.param .b64 size);\n"
                                ".extern .func free(.param .b64 place);\n"},
                [](std::uint64_t i) { return i; });
}

TEST_F(PtxCalls, NumbersOf64BitsAreSwappedAndReadPastTheCache) {
  expect_called({.operand_type = "u32",
                 .result_type = "u32",
                 .lines = R"(
    mov.u64 %first, 0;
    cvt.u64.u32 %second, %t;
    add.u64 %second, %second, 0x100000000;
    atom.global.cas.b64 %w, [%memory], %first, %second;
    membar.gl;
    setp.eq.u64 %p, %w, 0;
    selp.u32 %d, 1, 0, %p;
    red.global.add.u32 [%memory+16], %d;
    membar.sys;
    bar.sync 0;
    ld.volatile.global.u32 %d, [%memory+16];
    ld.global.nc.u32 %x, [%at];
    sub.u32 %x, %x, %a;
    add.u32 %d, %d, %x;)",
                 .declarations = ".reg .b64 %first, %second;\n",
                 .threads_per_block = 256},
                [](std::uint64_t) { return 1; });
}

TEST_F(PtxCalls, HostAndKernelsShareAManagedVariable) {
  const char* const text = R"(
.version 7.8
.target sm_80
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 common[2] = {5, 7};
.visible .entry increase()
{
  .reg .b32 %v;
  ld.global.u32 %v, [common+4];
  add.u32 %v, %v, 100;
  st.global.u32 [common+4], %v;
  ret;
}
)";
  CUmodule module = nullptr;
  CUfunction entry = nullptr;
  CUdeviceptr address = 0;
  std::size_t size = 0;
  GIVEN(driver().cuModuleLoadData(&module, text));
  GIVEN(driver().cuModuleGetFunction(&entry, module, "increase"));
  GIVEN(driver().cuModuleGetGlobal(&address, &size, module, "common"));
  EXPECT_EQ(size, 8u);
  unsigned is_managed = 0;
  EXPECT_CUDA(
      driver().cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  EXPECT_EQ(is_managed, 1u);
  auto* const common = reinterpret_cast<volatile std::uint32_t*>(address);
  EXPECT_EQ(common[0], 5u);
  common[1] = 8;
  GIVEN(driver().cuLaunchKernel(entry, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  GIVEN(synchronize());
  EXPECT_EQ(common[1], 108u);
  GIVEN(driver().cuModuleUnload(module));
}

}  // namespace
}  // namespace cuvmm::test
