// SPDX-License-Identifier: Apache-2.0
// mutate SECONDS SEED TRACE...: changes the traces at random, mends their checksums half of the
// time so that the changes are accepted, and passes them to the target. A fallback for libFuzzer,
// which does it better.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/mend_checksums.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace {

using cuvmm::test::mend_checksums;
using Bytes = std::vector<std::uint8_t>;

Bytes content_of(const char* path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

Bytes changed(const Bytes& whole, std::mt19937_64& random) {
  Bytes bytes = whole;
  for (auto changes = 1 + random() % 24; changes > 0 && !bytes.empty(); --changes) {
    const std::size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<std::uint8_t>(random());
        break;
      case 1:
        bytes[at] ^= static_cast<std::uint8_t>(1U << random() % 8);
        break;
      case 2:  // the largest number possible
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    std::min<std::size_t>(8, bytes.size() - at), std::uint8_t{0xFF});
        break;
      case 3:
        bytes.resize(at);
        break;
      default:  // duplicates a part of the trace
        const std::size_t size = std::min<std::size_t>(64 * (1 + random() % 40), bytes.size() - at);
        const Bytes part(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                         bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
        const std::size_t to = random() % bytes.size() / 64 * 64;
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(to), part.begin(), part.end());
    }
  }
  if (random() % 2 == 0) mend_checksums(bytes);
  return bytes;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: mutate SECONDS SEED TRACE...\n");
    return 2;
  }
  std::vector<Bytes> traces;
  for (int i = 3; i < count; ++i) traces.push_back(content_of(words[i]));
  std::mt19937_64 random{std::strtoull(words[2], nullptr, 10)};
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>{std::atof(words[1])};
  std::uint64_t tried = 0;
  for (; Clock::now() < end; ++tried) {
    const Bytes bytes = changed(traces[random() % traces.size()], random);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("seed %s: %llu traces\n", words[2], static_cast<unsigned long long>(tried));
  return 0;
}
