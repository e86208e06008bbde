// SPDX-License-Identifier: Apache-2.0
// Libraries: modules without a context, and their kernels.
#include <algorithm>

#include "streams_support.hpp"

namespace cuvmm::test {
namespace {

class GivenLibrary {
 public:
  GivenLibrary() {
    GIVEN(driver().cuLibraryLoadData(&library_, kernels_ptx(), nullptr, nullptr, 0, nullptr,
                                     nullptr, 0));
  }
  ~GivenLibrary() { EXPECT_CUDA(driver().cuLibraryUnload(library_)); }
  GivenLibrary(const GivenLibrary&) = delete;
  GivenLibrary& operator=(const GivenLibrary&) = delete;
  operator CUlibrary() const { return library_; }
  CUkernel kernel(const char* name) const {
    CUkernel found = nullptr;
    GIVEN(driver().cuLibraryGetKernel(&found, library_, name));
    return found;
  }

 private:
  CUlibrary library_ = nullptr;
};

class Libraries : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    NEEDS_CALL(cuLibraryLoadData);
  }
};

TEST_F(Libraries, AKernelIsFoundByItsName) {
  const GivenLibrary library;
  EXPECT_NE(library.kernel("fill"), nullptr);
  EXPECT_EQ(library.kernel("fill"), library.kernel("fill"));
}

TEST_F(Libraries, AMissingKernelIsNotFound) {
  const GivenLibrary library;
  CUkernel kernel = nullptr;
  EXPECT_ANSWER(CUDA_ERROR_NOT_FOUND, driver().cuLibraryGetKernel(&kernel, library, "absent"));
}

TEST_F(Libraries, TheKernelsAreCountedAndListed) {
  NEEDS_CALL(cuLibraryEnumerateKernels);
  const GivenLibrary library;
  unsigned count = 0;
  ASSERT_CUDA(driver().cuLibraryGetKernelCount(&count, library));
  std::vector<CUkernel> kernels_found(count);

  ASSERT_CUDA(driver().cuLibraryEnumerateKernels(kernels_found.data(), count, library));

  EXPECT_NE(std::find(kernels_found.begin(), kernels_found.end(), library.kernel("fill")),
            kernels_found.end());
  EXPECT_NE(std::find(kernels_found.begin(), kernels_found.end(), library.kernel("sum")),
            kernels_found.end());
}

TEST_F(Libraries, AKernelIsAFunctionInTheCurrentContext) {
  const GivenLibrary library;
  const GivenBlocking memory{4 * KiB};
  CUfunction function = nullptr;
  ASSERT_CUDA(driver().cuKernelGetFunction(&function, library.kernel("fill")));

  ASSERT_CUDA(
      launch(function, default_stream, memory.address(), std::uint32_t{6}, std::uint32_t{16}));

  EXPECT_TRUE(all_words_are(memory.address(), 16, 6));
}

TEST_F(Libraries, AKernelMayBeLaunchedInAFunctionsPlace) {
  const GivenLibrary library;
  const GivenBlocking memory{4 * KiB};
  const auto function = reinterpret_cast<CUfunction>(library.kernel("fill"));

  ASSERT_CUDA(
      launch(function, default_stream, memory.address(), std::uint32_t{7}, std::uint32_t{16}));

  EXPECT_TRUE(all_words_are(memory.address(), 16, 7));
}

TEST_F(Libraries, AKernelLaunchesInWhicheverContextIsCurrent) {
  const GivenLibrary library;
  const auto function = reinterpret_cast<CUfunction>(library.kernel("fill"));
  const OwnContext other;
  const GivenBlocking memory{4 * KiB};

  ASSERT_CUDA(
      launch(function, default_stream, memory.address(), std::uint32_t{8}, std::uint32_t{16}));

  EXPECT_TRUE(all_words_are(memory.address(), 16, 8));
}

// Measured: launches accept a CUkernel in place of a function, queries about functions do not.
TEST_F(Libraries, ParameterQueriesForFunctionsRefuseAKernel) {
  NEEDS_CALL(cuFuncGetParamInfo);
  const GivenLibrary library;
  const auto function = reinterpret_cast<CUfunction>(library.kernel("fill"));
  size_t offset = 0;
  size_t size = 0;

  EXPECT_ANSWER(CUDA_ERROR_INVALID_HANDLE,
                driver().cuFuncGetParamInfo(function, 0, &offset, &size));
}

TEST_F(Libraries, AKernelReportsItsParameterOffsets) {
  NEEDS_CALL(cuKernelGetParamInfo);
  const GivenLibrary library;
  const CUkernel kernel = library.kernel("many_parameters");
  size_t offset = 99;
  size_t size = 99;

  EXPECT_CUDA(driver().cuKernelGetParamInfo(kernel, 0, &offset, &size));
  EXPECT_EQ(offset, 0u);
  EXPECT_EQ(size, 1u);
  EXPECT_CUDA(driver().cuKernelGetParamInfo(kernel, 4, &offset, &size));
  EXPECT_EQ(offset, 16u);
  EXPECT_EQ(size, 24u);
  EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE, driver().cuKernelGetParamInfo(kernel, 6, &offset, &size));
}

TEST_F(Libraries, AKernelKnowsItsNameAndItsLibrary) {
  NEEDS_CALL(cuKernelGetName);
  NEEDS_CALL(cuKernelGetLibrary);
  const GivenLibrary library;
  const char* name = nullptr;
  CUlibrary found = nullptr;

  EXPECT_CUDA(driver().cuKernelGetName(&name, library.kernel("add_one")));
  EXPECT_CUDA(driver().cuKernelGetLibrary(&found, library.kernel("add_one")));

  EXPECT_STREQ(name, "add_one");
  EXPECT_EQ(found, static_cast<CUlibrary>(library));
}

TEST_F(Libraries, ALibraryIsAModuleInTheCurrentContext) {
  const GivenLibrary library;
  CUmodule module = nullptr;
  CUfunction function = nullptr;

  EXPECT_CUDA(driver().cuLibraryGetModule(&module, library));
  EXPECT_CUDA(driver().cuModuleGetFunction(&function, module, "fill"));

  EXPECT_NE(function, nullptr);
}

TEST_F(Libraries, ALibraryNeedsNoContext) {
  CUlibrary library = nullptr;
  EXPECT_CUDA(without_a_context([&] {
    return driver().cuLibraryLoadData(&library, kernels_ptx(), nullptr, nullptr, 0, nullptr,
                                      nullptr, 0);
  }));
  EXPECT_CUDA(driver().cuLibraryUnload(library));
}

TEST_F(Libraries, AGraphTakesAKernel) {
  NEEDS_CALL(cuGraphAddKernelNode_v2);
  const GivenLibrary library;
  const GivenStream stream;
  const GivenBlocking memory{4 * KiB};
  const GivenGraph graph;
  CUdeviceptr address = memory.address();
  std::uint32_t value = 9;
  std::uint32_t count = 16;
  void* parameters[] = {&address, &value, &count, nullptr};
  CUDA_KERNEL_NODE_PARAMS_v2 node_parameters{};
  node_parameters.kern = library.kernel("fill");
  node_parameters.gridDimX = node_parameters.gridDimY = node_parameters.gridDimZ = 1;
  node_parameters.blockDimX = 32;
  node_parameters.blockDimY = node_parameters.blockDimZ = 1;
  node_parameters.kernelParams = parameters;
  CUgraphNode node = nullptr;

  ASSERT_CUDA(driver().cuGraphAddKernelNode(&node, graph, nullptr, 0, &node_parameters));
  const GivenExec exec{graph};
  ASSERT_CUDA(exec.launch(stream));
  ASSERT_CUDA(driver().cuStreamSynchronize(stream));

  EXPECT_TRUE(all_words_are(memory.address(), 16, 9));
}

}  // namespace
}  // namespace cuvmm::test
