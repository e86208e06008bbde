// SPDX-License-Identifier: Apache-2.0
// Fat binaries as nvcc embeds them, but made here, so that the runtime can launch kernels on
// machines without nvcc.
#pragma once

#include <cuda_runtime_api.h>
#include <lz4.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name,
                            int thread_limit, void*, void*, void*, void*, int*);
}

namespace cuvmm::test {

enum class Packing { Plain, Lz4, Zstd };
enum class ImageKind : std::uint16_t { Ptx = 1, MachineCode = 2 };

class FatBinaryWriter {
 public:
  void add(ImageKind kind, std::uint32_t target, const std::string& content, Packing packing) {
    std::string payload = content;
    std::uint64_t flags = 0x11;  // 64-bit, for Linux
    std::uint64_t uncompressed = 0;
    if (packing != Packing::Plain) {
      uncompressed = content.size();
      flags |= packing == Packing::Lz4 ? 0x2000 : 0x8000;
      payload = compressed(content, packing);
    }
    const auto compressed_bytes =
        static_cast<std::uint32_t>(packing == Packing::Plain ? 0 : payload.size());
    payload.resize((payload.size() + 7) / 8 * 8, '\0');
    put<std::uint16_t>(static_cast<std::uint16_t>(kind));
    put<std::uint16_t>(0x101);
    put<std::uint32_t>(64);  // size of this header
    put<std::uint64_t>(payload.size());
    put<std::uint32_t>(compressed_bytes);
    put<std::uint32_t>(0);
    put<std::uint32_t>(0);
    put<std::uint32_t>(target);
    put<std::uint64_t>(64);
    put<std::uint64_t>(flags);
    put<std::uint64_t>(0);
    put<std::uint64_t>(uncompressed);
    images_ += payload;
  }

  // The wrapper to register; lives as long as this object.
  void* wrapper() {
    const std::uint64_t size = images_.size();
    binary_.assign(16, '\0');
    const std::uint32_t magic = 0xba55ed50;
    const std::uint16_t version = 1;
    const std::uint16_t header = 16;
    std::memcpy(binary_.data(), &magic, 4);
    std::memcpy(binary_.data() + 4, &version, 2);
    std::memcpy(binary_.data() + 6, &header, 2);
    std::memcpy(binary_.data() + 8, &size, 8);
    binary_ += images_;
    wrapper_ = {0x466243b1, 1, binary_.data(), nullptr};
    return &wrapper_;
  }

 private:
  struct Wrapper {
    std::uint32_t magic;
    std::uint32_t version;
    const void* data;
    const void* more;
  };

  static std::string compressed(const std::string& content, Packing packing) {
    std::string out(ZSTD_compressBound(content.size()) + 1024, '\0');
    if (packing == Packing::Zstd) {
      out.resize(ZSTD_compress(out.data(), out.size(), content.data(), content.size(), 3));
    } else {
      out.resize(static_cast<std::size_t>(LZ4_compress_default(content.data(), out.data(),
                                                               static_cast<int>(content.size()),
                                                               static_cast<int>(out.size()))));
    }
    return out;
  }

  template <class Value>
  void put(Value value) {
    images_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string images_;
  std::string binary_;
  Wrapper wrapper_{};
};

// A registered program with its kernels, which the runtime knows by addresses of host functions.
class RegisteredKernels {
 public:
  RegisteredKernels(FatBinaryWriter& binary, const std::vector<const char*>& names)
      : stubs_(new char[names.size()]) {
    handle_ = __cudaRegisterFatBinary(binary.wrapper());
    for (std::size_t i = 0; i < names.size(); ++i) {
      __cudaRegisterFunction(handle_, &stubs_[i], const_cast<char*>(names[i]), names[i], -1,
                             nullptr, nullptr, nullptr, nullptr, nullptr);
    }
    __cudaRegisterFatBinaryEnd(handle_);
  }
  ~RegisteredKernels() { __cudaUnregisterFatBinary(handle_); }
  RegisteredKernels(const RegisteredKernels&) = delete;
  RegisteredKernels& operator=(const RegisteredKernels&) = delete;

  const void* kernel(std::size_t index) const { return &stubs_[index]; }

 private:
  char* const stubs_;  // never freed: each program's functions have unique addresses
  void** handle_ = nullptr;
};

}  // namespace cuvmm::test
