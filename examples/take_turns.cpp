// SPDX-License-Identifier: Apache-2.0
// Work that needs most of a card, so that two such programs must take turns: each is paused while
// the other runs, and then finds its memory at the same addresses with the same contents.
//
//   build/bin/cuvmm run --control -- build/bin/take_turns --memory 60% --steps 200 &
//   build/bin/cuvmm pause $!        # its device memory is free now, and it waits
//   build/bin/cuvmm resume $!       # it continues where it was
//
// Each step writes a number to both ends of every block and checks the number of the step before.
// Blocks for --cold are written once and checked at the end. Exit status 0 if every number was
// right.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "driver_calls.hpp"
#include "driver_check.hpp"

const char* const program = "take_turns";

namespace {

constexpr std::size_t block_size = std::size_t{32} << 20;
constexpr std::size_t end_size = 4096;

struct Wanted {
  double share = 0.5;        // of the card
  std::size_t mib = 0;       // if set, overrides `share`
  std::size_t cold_mib = 0;  // the part of it that no step touches
  int steps = 50;
  int rest_ms = 20;  // between steps
};

void print_usage(std::FILE* to) {
  std::fprintf(to,
               "usage: take_turns [--memory PERCENT | --mib MIB] [--cold MIB] [--steps N] "
               "[--rest MS]\n"
               "\n"
               "Writes numbers to device memory and checks them, step by step.\n"
               "\n"
               "  --memory PERCENT   share of the card to take (50)\n"
               "  --mib MIB          memory to take, instead of a share\n"
               "  --cold MIB         part of it that no step touches (0)\n"
               "  --steps N          number of steps (50)\n"
               "  --rest MS          pause between steps, in milliseconds (20)\n");
}

[[noreturn]] void refuse(const std::string& word) {
  std::fprintf(stderr, "take_turns: invalid argument '%s'\n", word.c_str());
  print_usage(stderr);
  std::exit(2);
}

// Ends the program if the arguments ask for help or are not understood.
Wanted read_arguments(int count, char** words) {
  Wanted wanted;
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i];
    if (name == "--help" || name == "-h") {
      print_usage(stdout);
      std::exit(0);
    }
    if (i + 1 == count) refuse(name);
    const char* const text = words[i + 1];
    char* end = nullptr;
    const double number = std::strtod(text, &end);
    // A percentage may carry its sign.
    const bool is_number = end != text && (*end == '\0' || std::strcmp(end, "%") == 0);
    if (!is_number || !(number >= 0 && number <= 1e9)) refuse(name + " " + text);
    if (name == "--memory") {
      wanted.share = number / 100;
    } else if (name == "--mib") {
      wanted.mib = static_cast<std::size_t>(number);
    } else if (name == "--cold") {
      wanted.cold_mib = static_cast<std::size_t>(number);
    } else if (name == "--steps") {
      wanted.steps = static_cast<int>(number);
    } else if (name == "--rest") {
      wanted.rest_ms = static_cast<int>(number);
    } else {
      refuse(name);
    }
  }
  return wanted;
}

// Allocates half by cuMemAlloc, half by cuMemAllocAsync.
std::vector<CUdeviceptr> take_blocks(const Wanted& wanted) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(CALL(cuMemGetInfo)(&free, &total), "cuMemGetInfo");
  const auto share = static_cast<std::size_t>(static_cast<double>(total) * wanted.share);
  const std::size_t bytes = wanted.mib != 0 ? wanted.mib << 20 : share;
  std::vector<CUdeviceptr> blocks;
  for (std::size_t taken = 0; taken + block_size <= bytes; taken += block_size) {
    CUdeviceptr block = 0;
    if (blocks.size() % 2 == 0) {
      check(CALL(cuMemAlloc)(&block, block_size), "cuMemAlloc");
    } else {
      check(CALL(cuMemAllocAsync)(&block, block_size, nullptr), "cuMemAllocAsync");
    }
    blocks.push_back(block);
  }
  return blocks;
}

// Whether both ends of every block hold the previous step's number.
bool is_right(const std::vector<CUdeviceptr>& blocks, std::uint32_t number) {
  std::vector<std::uint32_t> words(end_size / 4);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const CUdeviceptr at : {blocks[i], blocks[i] + block_size - end_size}) {
      check(CALL(cuMemcpyDtoH)(words.data(), at, end_size), "cuMemcpyDtoH");
      for (const std::uint32_t word : words) {
        if (word == number + i) continue;
        std::fprintf(stderr, "take_turns: block %zu holds %u, not %zu\n", i, word, number + i);
        return false;
      }
    }
  }
  return true;
}

void fill(const std::vector<CUdeviceptr>& blocks, std::uint32_t number) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    check(CALL(cuMemsetD32)(blocks[i], static_cast<unsigned>(number + i), block_size / 4),
          "cuMemsetD32");
  }
}

void write_ends(const std::vector<CUdeviceptr>& blocks, std::uint32_t number) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const CUdeviceptr at : {blocks[i], blocks[i] + block_size - end_size}) {
      check(CALL(cuMemsetD32)(at, static_cast<unsigned>(number + i), end_size / 4), "cuMemsetD32");
    }
  }
}

}  // namespace

int main(int count, char** words) {
  const Wanted wanted = read_arguments(count, words);
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(CALL(cuInit)(0), "cuInit");
  check(CALL(cuDeviceGet)(&device, 0), "cuDeviceGet");
  check(CALL(cuDevicePrimaryCtxRetain)(&context, device), "cuDevicePrimaryCtxRetain");
  check(CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");

  std::vector<CUdeviceptr> blocks = take_blocks(wanted);
  std::printf("%zu blocks, %zu MiB\n", blocks.size(), blocks.size() * (block_size >> 20));
  std::fflush(stdout);
  const std::size_t cold_blocks = std::min(blocks.size(), (wanted.cold_mib << 20) / block_size);
  const auto first_hot = blocks.begin() + static_cast<std::ptrdiff_t>(cold_blocks);
  const std::vector<CUdeviceptr> cold{blocks.begin(), first_hot};
  blocks.erase(blocks.begin(), first_hot);
  fill(cold, 7);
  fill(blocks, 0);
  for (int step = 1; step <= wanted.steps; ++step) {
    if (!is_right(blocks, static_cast<std::uint32_t>(step - 1) * 1000)) return 1;
    write_ends(blocks, static_cast<std::uint32_t>(step) * 1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(wanted.rest_ms));
  }
  if (!is_right(blocks, static_cast<std::uint32_t>(wanted.steps) * 1000)) return 1;
  if (!is_right(cold, 7)) return 1;
  for (const CUdeviceptr block : cold) check(CALL(cuMemFree)(block), "cuMemFree");
  for (const CUdeviceptr block : blocks) check(CALL(cuMemFree)(block), "cuMemFree");
  check(CALL(cuDevicePrimaryCtxRelease)(device), "cuDevicePrimaryCtxRelease");
  std::printf("all %d steps read back what they wrote\n", wanted.steps);
  return 0;
}
