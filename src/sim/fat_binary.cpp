// SPDX-License-Identifier: Apache-2.0
#include "sim/fat_binary.hpp"

#include <lz4.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/size.hpp"
#include "sim/function_attributes.hpp"
#include "sim/ptx_linking.hpp"

namespace cuvmm::sim {
namespace {

constexpr std::uint32_t wrapper_magic = 0x466243b1;
constexpr std::uint32_t header_magic = 0xba55ed50;
constexpr std::uint32_t with_linked_images = 2;  // a wrapper's version

// The object that a program's registration points to.
struct FatBinaryWrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* data;
  const void* linked;  // version 2: null-terminated list of further binaries
};

struct FatBinaryHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t bytes;  // after the header
};

constexpr std::uint16_t kind_ptx = 1;
constexpr std::uint64_t flag_lz4 = 0x2000;
constexpr std::uint64_t flag_zstd = 0x8000;
constexpr Size most_bytes = 256 * MiB;

template <class Value>
Value value_at(const std::byte* place) {
  Value value{};
  std::memcpy(&value, place, sizeof value);
  return value;
}

// Offsets of the fields.
constexpr std::size_t smallest_image_header = 64;
struct ImageFields {
  std::uint16_t kind;
  std::uint32_t header_bytes;
  std::uint32_t bytes;
  std::uint32_t compressed_bytes;
  std::uint32_t target;
  std::uint64_t flags;
  std::uint64_t uncompressed_bytes;
};

ImageFields fields_of(const std::byte* image) {
  return {.kind = value_at<std::uint16_t>(image),
          .header_bytes = value_at<std::uint32_t>(image + 4),
          .bytes = value_at<std::uint32_t>(image + 8),
          .compressed_bytes = value_at<std::uint32_t>(image + 16),
          .target = value_at<std::uint32_t>(image + 28),
          .flags = value_at<std::uint64_t>(image + 40),
          .uncompressed_bytes = value_at<std::uint64_t>(image + 56)};
}

bool decompress(const std::byte* from, const ImageFields& fields, std::string& text) {
  if (fields.uncompressed_bytes == 0 || fields.uncompressed_bytes > most_bytes) return false;
  text.resize(fields.uncompressed_bytes);
  const auto* bytes = reinterpret_cast<const char*>(from);
  if ((fields.flags & flag_zstd) != 0) {
    const std::size_t got =
        ZSTD_decompress(text.data(), text.size(), bytes, fields.compressed_bytes);
    if (ZSTD_isError(got) != 0) return false;
    text.resize(got);
    return true;
  }
  const int got = LZ4_decompress_safe(bytes, text.data(), static_cast<int>(fields.compressed_bytes),
                                      static_cast<int>(text.size()));
  if (got < 0) return false;
  text.resize(static_cast<std::size_t>(got));
  return true;
}

bool text_of(const std::byte* image, const ImageFields& fields, std::string& text) {
  const std::byte* from = image + fields.header_bytes;
  if ((fields.flags & (flag_lz4 | flag_zstd)) != 0) {
    if (fields.compressed_bytes > fields.bytes || !decompress(from, fields, text)) return false;
  } else {
    text.assign(reinterpret_cast<const char*>(from), fields.bytes);
  }
  text.resize(text.find_last_not_of('\0') + 1);
  return true;
}

// A summary of the contents of one fat binary.
struct Found {
  std::uint32_t target = 0;  // of the best text so far
  bool has_code = false;
  bool is_too_new = false;
};

// Finds the newest text that is not too new for the device.
CUresult look_through(const std::byte* binary, Found& found, std::string& text) {
  if (value_at<std::uint32_t>(binary) != header_magic) return CUDA_ERROR_INVALID_IMAGE;
  const auto header_bytes = value_at<std::uint16_t>(binary + 6);
  const auto bytes = value_at<std::uint64_t>(binary + 8);
  if (header_bytes < sizeof(FatBinaryHeader) || bytes > most_bytes) return CUDA_ERROR_INVALID_IMAGE;
  const std::byte* at = binary + header_bytes;
  const std::byte* const end = at + bytes;
  while (static_cast<std::size_t>(end - at) >= smallest_image_header) {
    const ImageFields fields = fields_of(at);
    const auto left = static_cast<std::size_t>(end - at);
    if (fields.header_bytes < smallest_image_header || fields.header_bytes > left ||
        fields.bytes > left - fields.header_bytes) {
      return CUDA_ERROR_INVALID_IMAGE;
    }
    if (fields.kind != kind_ptx) {
      found.has_code = true;
    } else if (fields.target > static_cast<std::uint32_t>(compute_capability)) {
      found.is_too_new = true;
    } else if (fields.target >= found.target) {
      if (!text_of(at, fields, text)) return CUDA_ERROR_INVALID_IMAGE;
      found.target = fields.target;
    }
    at += fields.header_bytes + fields.bytes;
  }
  return CUDA_SUCCESS;
}

// The binaries of the files that nvcc linked, and of the device runtime library, which few programs
// need.
std::vector<const std::byte*> linked_parts(const FatBinaryWrapper& wrapper) {
  std::vector<const std::byte*> parts;
  const auto* const* next = static_cast<const std::byte* const*>(wrapper.linked);
  while (next != nullptr && *next != nullptr) parts.push_back(*next++);
  return parts;
}

}  // namespace

bool is_fat_binary(const void* image) {
  const auto* bytes = static_cast<const std::byte*>(image);
  // Compares byte by byte, as the image may be a text that is shorter than the magic number.
  for (const std::uint32_t magic : {wrapper_magic, header_magic}) {
    unsigned char expected[sizeof magic];
    std::memcpy(expected, &magic, sizeof magic);
    std::size_t same = 0;
    while (same < sizeof magic && bytes[same] == std::byte{expected[same]}) ++same;
    if (same == sizeof magic) return true;
  }
  return false;
}

FatBinaryText read_fat_binary(const void* image) {
  FatBinaryText read;
  const auto* binary = static_cast<const std::byte*>(image);
  std::vector<const std::byte*> parts{binary};
  if (value_at<std::uint32_t>(binary) == wrapper_magic) {
    const auto wrapper = value_at<FatBinaryWrapper>(binary);
    parts.front() = static_cast<const std::byte*>(wrapper.data);
    if (wrapper.version == with_linked_images) parts = linked_parts(wrapper);
    if (parts.empty() || parts.front() == nullptr) {
      return {.answer = CUDA_ERROR_INVALID_IMAGE, .ptx = {}, .lacking = {}};
    }
  }
  Found sum;
  std::vector<std::string> texts;
  for (const std::byte* part : parts) {
    Found found;
    std::string text;
    read.answer = look_through(part, found, text);
    if (read.answer != CUDA_SUCCESS) return read;
    if (!text.empty()) texts.push_back(std::move(text));
    sum.has_code |= found.has_code;
    sum.is_too_new |= found.is_too_new;
  }
  if (!texts.empty()) {
    read.ptx = link_ptx(texts);
  } else if (sum.has_code) {
    read.lacking =
        "machine code (SASS) without PTX beside it: build with -arch=compute_90 or older, or add "
        "-gencode arch=compute_90,code=compute_90";
  } else {
    read.answer = sum.is_too_new ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
  }
  return read;
}

}  // namespace cuvmm::sim
