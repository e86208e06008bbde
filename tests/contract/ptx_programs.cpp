// SPDX-License-Identifier: Apache-2.0
#include "ptx_programs.hpp"

#include <bit>
#include <limits>
#include <random>

namespace cuvmm::test {
namespace {

constexpr Size memory_bytes = 4 * KiB;

// Untyped, so that both integers and halves can be operands; a one-byte load needs a wider
// register.
std::string register_type(const std::string& type) {
  if (type.starts_with("f") && type != "f16") return type;
  const std::string bits = type.substr(type.starts_with("bf") ? 2 : 1);
  return "b" + (bits == "8" ? "16" : bits);
}

std::string text_of(const PtxLines& lines) {
  const std::string in = lines.operand_type;
  return ".version 7.8\n.target " + lines.target + "\n.address_size 64\n" + lines.module_text +
         ".visible .entry lines(.param .u64 operands, .param .u64 results, .param .u64 memory,\n"
         "  .param .u32 count)\n{\n"
         "  .reg ." +
         register_type(in) +
         " %a, %b, %c;\n"
         "  .reg ." +
         register_type(lines.result_type) +
         " %d;\n"
         "  .reg .pred %p, %q, %done;\n  .reg .b32 %t, %x, %y;\n  .reg .b32 %i<4>;\n"
         "  .reg .b64 %w, %memory, %at;\n  .reg .b64 %j<4>;\n" +
         lines.declarations +
         "  ld.param.u64 %at, [operands];\n  ld.param.u64 %j0, [results];\n"
         "  ld.param.u64 %memory, [memory];\n  ld.param.u32 %i0, [count];\n"
         "  mov.u32 %i1, %ctaid.x;\n  mov.u32 %i2, %ntid.x;\n  mov.u32 %i3, %tid.x;\n"
         "  mad.lo.u32 %t, %i1, %i2, %i3;\n  setp.ge.u32 %done, %t, %i0;\n  @%done exit;\n"
         "  mul.wide.u32 %j1, %t, 24;\n  add.u64 %at, %at, %j1;\n"
         "  ld.global." +
         in + " %a, [%at];\n  ld.global." + in +
         " %b, [%at+8];\n"
         "  ld.global." +
         in +
         " %c, [%at+16];\n"
         "  mul.wide.u32 %j2, %t, 8;\n  add.u64 %j0, %j0, %j2;\n" +
         lines.lines + "\n  st.global." + lines.result_type + " [%j0], %d;\n  ret;\n}\n";
}

}  // namespace

std::vector<std::uint64_t> run_ptx(const PtxLines& lines,
                                   const std::vector<PtxOperands>& operands) {
  const std::string text = text_of(lines);
  CUmodule module = nullptr;
  CUfunction entry = nullptr;
  const CUresult loaded = driver().cuModuleLoadData(&module, text.c_str());
  EXPECT_CUDA(loaded) << text;
  GIVEN(loaded);
  GIVEN(driver().cuModuleGetFunction(&entry, module, "lines"));
  const Size in_bytes = operands.size() * sizeof(PtxOperands);
  const Size out_bytes = operands.size() * 8;
  CUdeviceptr in = 0;
  CUdeviceptr out = 0;
  CUdeviceptr memory = 0;
  GIVEN(driver().cuMemAlloc(&in, in_bytes));
  GIVEN(driver().cuMemAlloc(&out, out_bytes));
  GIVEN(driver().cuMemAlloc(&memory, memory_bytes));
  GIVEN(driver().cuMemcpyHtoD(in, operands.data(), in_bytes));
  GIVEN(driver().cuMemsetD8(out, 0, out_bytes));
  GIVEN(driver().cuMemsetD8(memory, 0, memory_bytes));
  auto count = static_cast<std::uint32_t>(operands.size());
  void* parameters[] = {&in, &out, &memory, &count};
  const unsigned block = lines.threads_per_block;
  GIVEN(driver().cuLaunchKernel(entry, (count + block - 1) / block, 1, 1, block, 1, 1,
                                static_cast<unsigned>(lines.shared_bytes), nullptr, parameters,
                                nullptr));
  GIVEN(synchronize());
  std::vector<std::uint64_t> results(operands.size());
  GIVEN(driver().cuMemcpyDtoH(results.data(), out, out_bytes));
  for (const CUdeviceptr address : {in, out, memory}) GIVEN(driver().cuMemFree(address));
  GIVEN(driver().cuModuleUnload(module));
  return results;
}

namespace {

std::vector<PtxOperands> combined(const std::vector<std::uint64_t>& values, unsigned bits) {
  std::vector<PtxOperands> operands;
  std::mt19937_64 chance{7};
  for (const std::uint64_t a : values) {
    for (const std::uint64_t b : values)
      operands.push_back({a, b, values[chance() % values.size()]});
  }
  const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  for (int i = 0; i < 200; ++i)
    operands.push_back({chance() & mask, chance() & mask, chance() & mask});
  return operands;
}

}  // namespace

std::vector<PtxOperands> integer_operands(unsigned bits) {
  const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  const std::uint64_t top = std::uint64_t{1} << (bits - 1);
  return combined({0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 100, 0x5a5a5a5a5a5a5a5a & mask, top - 1, top,
                   top + 1, mask - 1, mask},
                  bits);
}

std::vector<PtxOperands> float_operands(unsigned bits) {
  std::vector<std::uint64_t> values;
  if (bits == 32) {
    for (const float value : {0.0F,
                              -0.0F,
                              1.0F,
                              -1.0F,
                              0.5F,
                              1.5F,
                              2.5F,
                              -2.5F,
                              3.14159F,
                              1e-3F,
                              1e10F,
                              -1e10F,
                              1e30F,
                              1e-40F,
                              -1e-45F,
                              1.17549435e-38F,
                              3.4028235e38F,
                              4.3e9F,
                              1.9e19F,
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
      values.push_back(std::bit_cast<std::uint32_t>(value));
    }
  } else {
    for (const double value : {0.0,
                               -0.0,
                               1.0,
                               -1.0,
                               0.5,
                               1.5,
                               2.5,
                               -2.5,
                               3.141592653589793,
                               1e-3,
                               1e10,
                               -1e10,
                               1e300,
                               1e-310,
                               -5e-324,
                               2.2250738585072014e-308,
                               1.7976931348623157e308,
                               4.3e9,
                               1.9e19,
                               1e38,
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()}) {
      values.push_back(std::bit_cast<std::uint64_t>(value));
    }
  }
  return combined(values, bits);
}

}  // namespace cuvmm::test
