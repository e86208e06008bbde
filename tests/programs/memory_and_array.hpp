// SPDX-License-Identifier: Apache-2.0
// Memory that cuvmm serves, and an array of 16 MiB that the driver serves, with known contents.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "examples/driver_calls.hpp"
#include "examples/driver_check.hpp"

class MemoryAndArray {
 public:
  explicit MemoryAndArray(std::size_t bytes)
      : in_memory_(bytes / 4), in_array_(width * height * 4) {
    check(CALL(cuMemAlloc)(&memory_, bytes), "cuMemAlloc");
    CUDA_ARRAY_DESCRIPTOR wanted{};
    wanted.Width = width;
    wanted.Height = height;
    wanted.Format = CU_AD_FORMAT_UNSIGNED_INT32;
    wanted.NumChannels = 4;
    check(CALL(cuArrayCreate)(&array_, &wanted), "cuArrayCreate");
  }

  void write(std::uint32_t number) {
    check(CALL(cuMemsetD32)(memory_, number, in_memory_.size()), "cuMemsetD32");
    in_array_.assign(in_array_.size(), number);
    copy(true);
    in_array_.assign(in_array_.size(), 0);
  }
  bool holds(std::uint32_t number) {
    copy(false);
    check(CALL(cuMemcpyDtoH)(in_memory_.data(), memory_, in_memory_.size() * 4), "cuMemcpyDtoH");
    return are_all(in_array_, number) && are_all(in_memory_, number);
  }

 private:
  static constexpr std::size_t width = 1024;  // elements of 16 bytes
  static constexpr std::size_t height = 1024;

  void copy(bool to_array) {
    CUDA_MEMCPY2D copy{};
    copy.WidthInBytes = width * 16;
    copy.Height = height;
    (to_array ? copy.srcMemoryType : copy.dstMemoryType) = CU_MEMORYTYPE_HOST;
    (to_array ? copy.dstMemoryType : copy.srcMemoryType) = CU_MEMORYTYPE_ARRAY;
    (to_array ? copy.dstArray : copy.srcArray) = array_;
    copy.srcHost = copy.dstHost = in_array_.data();
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes;
    check(CALL(cuMemcpy2D)(&copy), "cuMemcpy2D");
  }
  static bool are_all(const std::vector<std::uint32_t>& words, std::uint32_t number) {
    const std::size_t others = (words.size() - 1) * sizeof number;
    return words[0] == number && std::memcmp(&words[0], &words[1], others) == 0;
  }

  CUdeviceptr memory_ = 0;
  CUarray array_ = nullptr;
  std::vector<std::uint32_t> in_memory_;
  std::vector<std::uint32_t> in_array_;
};
