// SPDX-License-Identifier: Apache-2.0
// Modules: PTX in, functions and variables out.
#include <algorithm>
#include <string>

#include "streams_support.hpp"

CUVMM_SIM_KERNEL(does_nothing) {
  (void)launch;
}

namespace cuvmm::test {
namespace {

class Modules : public DriverContract {};

// One variable with a value, one without, and two entries.
constexpr char small_ptx[] = R"(
.version 7.0
.target sm_50
.address_size 64

.visible .global .align 4 .u32 answer = 42;
.visible .global .align 8 .b8 room[256];

.visible .entry does_nothing()
{
  ret;
}

.visible .entry takes_one(.param .u32 number)
{
  ret;
}
)";

class GivenModule {
 public:
  explicit GivenModule(const char* ptx = small_ptx) {
    GIVEN(driver().cuModuleLoadData(&module_, ptx));
  }
  ~GivenModule() {
    if (module_ != nullptr) {
      EXPECT_CUDA(unload());
    }
  }
  GivenModule(const GivenModule&) = delete;
  GivenModule& operator=(const GivenModule&) = delete;
  operator CUmodule() const { return module_; }
  CUresult unload() { return driver().cuModuleUnload(std::exchange(module_, nullptr)); }

 private:
  CUmodule module_ = nullptr;
};

TEST_F(Modules, AFunctionIsFoundByItsName) {
  const GivenModule module;
  CUfunction function = nullptr;

  EXPECT_CUDA(driver().cuModuleGetFunction(&function, module, "does_nothing"));

  EXPECT_NE(function, nullptr);
}

TEST_F(Modules, AMissingFunctionIsNotFound) {
  const GivenModule module;
  CUfunction function = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_NOT_FOUND, driver().cuModuleGetFunction(&function, module, "absent"));
}

TEST_F(Modules, AFunctionKnowsItsNameAndItsModule) {
  NEEDS_CALL(cuFuncGetName);
  const GivenModule module;
  CUfunction function = nullptr;
  ASSERT_CUDA(driver().cuModuleGetFunction(&function, module, "takes_one"));
  const char* name = nullptr;
  CUmodule found = nullptr;

  EXPECT_CUDA(driver().cuFuncGetName(&name, function));
  EXPECT_CUDA(driver().cuFuncGetModule(&found, function));

  EXPECT_STREQ(name, "takes_one");
  EXPECT_EQ(found, static_cast<CUmodule>(module));
}

TEST_F(Modules, TheFunctionsAreCountedAndListed) {
  NEEDS_CALL(cuModuleEnumerateFunctions);
  const GivenModule module;
  unsigned count = 0;
  ASSERT_CUDA(driver().cuModuleGetFunctionCount(&count, module));
  ASSERT_EQ(count, 2u);
  CUfunction functions[2] = {};

  ASSERT_CUDA(driver().cuModuleEnumerateFunctions(functions, 2, module));

  std::vector<std::string> names;
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    ASSERT_CUDA(driver().cuFuncGetName(&name, function));
    names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"does_nothing", "takes_one"}));
}

TEST_F(Modules, AVariableHasAnAddressASizeAndItsValue) {
  const GivenModule module;
  CUdeviceptr answer = 0;
  size_t size = 0;

  ASSERT_CUDA(driver().cuModuleGetGlobal(&answer, &size, module, "answer"));

  EXPECT_EQ(size, 4u);
  EXPECT_EQ(read_word(answer), 42u);
}

TEST_F(Modules, AVariableMayBeWritten) {
  const GivenModule module;
  CUdeviceptr room = 0;
  size_t size = 0;
  ASSERT_CUDA(driver().cuModuleGetGlobal(&room, &size, module, "room"));
  EXPECT_EQ(size, 256u);

  fill_pattern(room, 256, 1);

  expect_pattern(room, 256, 1);
}

TEST_F(Modules, AddressAndSizeOfAVariableMayBeQueriedAlone) {
  const GivenModule module;
  CUdeviceptr answer = 0;
  size_t size = 0;
  EXPECT_CUDA(driver().cuModuleGetGlobal(&answer, nullptr, module, "answer"));
  EXPECT_CUDA(driver().cuModuleGetGlobal(nullptr, &size, module, "answer"));
  EXPECT_NE(answer, 0u);
  EXPECT_EQ(size, 4u);
}

TEST_F(Modules, AMissingVariableIsNotFound) {
  const GivenModule module;
  CUdeviceptr address = 0;
  size_t size = 0;
  EXPECT_ANSWER(CUDA_ERROR_NOT_FOUND,
                driver().cuModuleGetGlobal(&address, &size, module, "absent"));
}

TEST_F(Modules, EachModuleHasItsOwnVariables) {
  const GivenModule one;
  const GivenModule another;
  CUdeviceptr of_one = 0;
  CUdeviceptr of_another = 0;
  size_t size = 0;
  ASSERT_CUDA(driver().cuModuleGetGlobal(&of_one, &size, one, "answer"));
  ASSERT_CUDA(driver().cuModuleGetGlobal(&of_another, &size, another, "answer"));

  write_word(of_one, 7);

  EXPECT_NE(of_one, of_another);
  EXPECT_EQ(read_word(of_another), 42u);
}

TEST_F(Modules, OptionsMayBeGiven) {
  CUmodule module = nullptr;
  char log[512] = {};
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};

  ASSERT_CUDA(driver().cuModuleLoadDataEx(&module, small_ptx, 2, options, values));

  EXPECT_CUDA(driver().cuModuleUnload(module));
}

TEST_F(Modules, TextThatIsNoPtxIsRefused) {
  CUmodule module = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_IMAGE,
                driver().cuModuleLoadData(&module, "this is a sentence, not a program"));
}

TEST_F(Modules, BrokenPtxIsRefused) {
  CUmodule module = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_PTX,
                driver().cuModuleLoadData(
                    &module, ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry ("));
}

TEST_F(Modules, NoImageIsRefused) {
  CUmodule module = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuModuleLoadData(&module, nullptr));
}

TEST_F(Modules, AFunctionHasAttributes) {
  const GivenModule module;
  CUfunction function = nullptr;
  ASSERT_CUDA(driver().cuModuleGetFunction(&function, module, "takes_one"));
  int most_threads = 0;

  EXPECT_CUDA(driver().cuFuncGetAttribute(&most_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                          function));

  EXPECT_GE(most_threads, 32);
}

TEST_F(Modules, AModuleBelongsToItsContext) {
  const OwnContext other;
  const GivenModule module;
  CUfunction function = nullptr;
  ASSERT_CUDA(driver().cuModuleGetFunction(&function, module, "does_nothing"));
  CUcontext current = nullptr;
  ASSERT_CUDA(driver().cuCtxGetCurrent(&current));

  EXPECT_EQ(current, other.get());
  EXPECT_CUDA(launch(function, default_stream, Shape{1, 1}));
  EXPECT_CUDA(synchronize());
}

// A card may crash on an invalid handle, so only the simulated driver is asked.
TEST_F(Modules, AFunctionOfAnUnloadedModuleIsRefused) {
  NEEDS_SIMULATED_DRIVER();
  GivenModule module;
  CUfunction function = nullptr;
  ASSERT_CUDA(driver().cuModuleGetFunction(&function, module, "does_nothing"));
  ASSERT_CUDA(module.unload());

  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE, launch(function, default_stream, Shape{1, 1}));
}

TEST_F(Modules, UnloadingFreesTheVariables) {
  GivenModule module;
  CUdeviceptr answer = 0;
  size_t size = 0;
  ASSERT_CUDA(driver().cuModuleGetGlobal(&answer, &size, module, "answer"));

  ASSERT_CUDA(module.unload());

  std::uint32_t word = 0;
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuMemcpyDtoH(&word, answer, 4));
}

}  // namespace
}  // namespace cuvmm::test
