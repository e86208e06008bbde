// SPDX-License-Identifier: Apache-2.0
// The reader of messages between the node service and its clients, for libFuzzer. What is read is
// written and read again: both have to be the same. ./dev fuzz runs it; the tests of the node run
// it on changes of its corpus (tests/fuzz/node_message).
#include "node/message.hpp"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cuvmm::node;
  const auto read = decode(std::as_bytes(std::span{data, size}));
  if (!read.ok()) return 0;
  const std::vector<std::byte> written = encode(*read);
  const bool is_prefix = written.size() <= size;
  const auto again = decode(written);
  if (!is_prefix || !again.ok() || encode(*again) != written) std::abort();
  return 0;
}
