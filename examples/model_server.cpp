// SPDX-License-Identifier: Apache-2.0
// A server with a model's weights on the card, which answers requests one at a time. With cuvmmd,
// several servers share a card, and the weights of idle ones are on the host (docs/node.md).
//
//   yes | head -2 | build/bin/cuvmm run --sim=memory=1G -- build/bin/model_server --mib 300
//
// A line of input is a request. The answer says whether all sampled words of the weights are right,
// and how long it took: "right 1.234 ms". Exit status 0 if all were right.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "driver_calls.hpp"
#include "driver_check.hpp"

const char* const program = "model_server";

namespace {

constexpr std::size_t block_size = std::size_t{32} << 20;
constexpr std::size_t looked_at = 4096;

// Fills each block with a word of its own.
std::vector<CUdeviceptr> load_weights(std::size_t mib, unsigned seed) {
  std::vector<CUdeviceptr> blocks;
  for (std::size_t taken = 0; taken + block_size <= mib << 20; taken += block_size) {
    CUdeviceptr block = 0;
    check(CALL(cuMemAlloc)(&block, block_size), "cuMemAlloc");
    check(CALL(cuMemsetD32)(block, seed + static_cast<unsigned>(blocks.size()), block_size / 4),
          "cuMemsetD32");
    blocks.push_back(block);
  }
  return blocks;
}

bool is_right(const std::vector<CUdeviceptr>& blocks, unsigned seed) {
  std::vector<std::uint32_t> words(looked_at / 4);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const CUdeviceptr at : {blocks[i], blocks[i] + block_size - looked_at}) {
      check(CALL(cuMemcpyDtoH)(words.data(), at, looked_at), "cuMemcpyDtoH");
      for (const std::uint32_t word : words) {
        if (word != seed + i) return false;
      }
    }
  }
  return true;
}

}  // namespace

int main(int count, char** words) {
  std::size_t mib = 256;
  unsigned seed = 1;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i];
    if (name == "--mib") mib = static_cast<std::size_t>(std::atoll(words[i + 1]));
    if (name == "--seed") seed = static_cast<unsigned>(std::atoi(words[i + 1])) * 1000;
  }
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(CALL(cuInit)(0), "cuInit");
  check(CALL(cuDeviceGet)(&device, 0), "cuDeviceGet");
  check(CALL(cuDevicePrimaryCtxRetain)(&context, device), "cuDevicePrimaryCtxRetain");
  check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  const std::vector<CUdeviceptr> weights = load_weights(mib, seed);
  check(CALL(cuCtxSynchronize)(), "cuCtxSynchronize");
  std::printf("ready\n");
  std::fflush(stdout);

  bool all_right = true;
  char line[256];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const auto began = std::chrono::steady_clock::now();
    const bool right = is_right(weights, seed);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    std::printf("%s %.3f ms\n", right ? "right" : "wrong", took.count());
    std::fflush(stdout);
    all_right &= right;
  }
  return all_right ? 0 : 1;
}
