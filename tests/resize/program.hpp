// SPDX-License-Identifier: Apache-2.0
// Random programs, without data races, that resize now and then and do anything else that could
// notice.
#pragma once

#include <array>
#include <random>

#include "resize/world.hpp"

namespace cuvmm::test {

// What one program observes is independent of the device's order: run() returns a digest of
// everything that it read back.
class RandomProgram {
 public:
  // `least`: roughly the smallest block size.
  RandomProgram(CUcontext context, const Kernels& kernels, std::uint64_t seed, Size least);
  ~RandomProgram();
  RandomProgram(const RandomProgram&) = delete;
  RandomProgram& operator=(const RandomProgram&) = delete;

  // Runs the program to its end and returns the digest of what it read.
  std::uint64_t run();

 private:
  static constexpr std::size_t buffer_count = 4;
  static constexpr std::size_t stream_count = 3;  // the legacy, a blocking, a non-blocking one

  struct Buffer {
    CUdeviceptr address = 0;
    Size size = 0;
    Size defined = 0;  // bytes from the beginning that the program has written
    std::size_t last_stream = 0;
    bool is_in_use = false;  // by work of that stream that has not been waited for
  };

  std::uint64_t pick(std::uint64_t count) { return random_() % count; }
  bool chance(std::uint64_t percent) { return pick(100) < percent; }
  Size any_size();
  Buffer& any_buffer() { return buffers_[pick(buffer_count)]; }

  void step();
  void act(std::uint64_t what);
  void allocate(Buffer& buffer, Size size);
  void release(Buffer& buffer);
  void resize(Buffer& buffer);
  void copy(Buffer& to, Buffer& from, Size size, std::size_t stream);
  void set(Buffer& buffer, std::size_t stream);
  void launch(Buffer& buffer, std::size_t stream);
  void write_tail(Buffer& buffer, std::size_t stream);
  void read(Buffer& buffer);
  void look_around();
  void wait_for(std::size_t stream);
  // Orders the buffer so that work of `stream` may use it from now on.
  void order(Buffer& buffer, std::size_t stream);
  void in_this_or_another_thread(const std::function<void()>& act);

  const CUcontext context_;
  const Kernels& kernels_;
  const Size least_;
  const Size most_;
  std::mt19937_64 random_;
  std::array<Buffer, buffer_count> buffers_;
  std::array<CUstream, stream_count> streams_{};
  CUevent event_ = nullptr;
  CUdeviceptr words_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace cuvmm::test
