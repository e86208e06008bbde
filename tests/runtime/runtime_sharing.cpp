// SPDX-License-Identifier: Apache-2.0
// Memory of one process in another, through the CUDA runtime's IPC handles.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/runtime_checks.hpp"

namespace cuvmm::test {
namespace {

class RuntimeSharing : public RuntimeTest {};

constexpr const char* handle_variable = "CUVMM_TEST_RUNTIME_HANDLE";
constexpr std::size_t words = 1 << 20;

std::string as_text(const cudaIpcMemHandle_t& handle) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : handle.reserved) {
    text += digits[(static_cast<unsigned char>(byte) >> 4) & 15];
    text += digits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

cudaIpcMemHandle_t from_text(const std::string& text) {
  cudaIpcMemHandle_t handle{};
  for (std::size_t i = 0; i < sizeof handle.reserved; ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

// Runs this program again with one test.
int status_of_child(const char* test) {
  const std::string filter = std::string{"--gtest_filter="} + test;
  char name[] = "/proc/self/exe";
  char* arguments[] = {name, const_cast<char*>(filter.c_str()), nullptr};
  pid_t child = 0;
  if (::posix_spawn(&child, name, nullptr, nullptr, arguments, environ) != 0) return -1;
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_F(RuntimeSharing, AnotherProcessOpensMemoryAndWritesThere) {
  void* memory = nullptr;
  ASSERT_RUNTIME(cudaMalloc(&memory, words * 4));
  EXPECT_RUNTIME(cudaMemset(memory, 0x21, words * 4));
  EXPECT_RUNTIME(cudaDeviceSynchronize());
  cudaIpcMemHandle_t handle{};
  ASSERT_RUNTIME(cudaIpcGetMemHandle(&handle, memory));
  ::setenv(handle_variable, as_text(handle).c_str(), 1);
  EXPECT_EQ(status_of_child("RuntimeSharing.InTheOtherProcess"), 0);
  ::unsetenv(handle_variable);
  EXPECT_EQ(read_back(memory, words), std::vector<std::uint32_t>(words, 0x43434343));
  EXPECT_RUNTIME(cudaFree(memory));
}

TEST_F(RuntimeSharing, InTheOtherProcess) {
  const char* text = std::getenv(handle_variable);
  if (text == nullptr) GTEST_SKIP() << "is run by the test before it";
  void* memory = nullptr;
  ASSERT_RUNTIME(cudaIpcOpenMemHandle(&memory, from_text(text), cudaIpcMemLazyEnablePeerAccess));
  EXPECT_EQ(read_back(memory, words), std::vector<std::uint32_t>(words, 0x21212121));
  EXPECT_RUNTIME(cudaMemset(memory, 0x43, words * 4));
  EXPECT_RUNTIME(cudaDeviceSynchronize());
  EXPECT_RUNTIME(cudaIpcCloseMemHandle(memory));
}

}  // namespace
}  // namespace cuvmm::test
