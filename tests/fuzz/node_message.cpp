// SPDX-License-Identifier: Apache-2.0
// The readers of messages between the node service and its clients and observers, for libFuzzer.
// What is read is written and read again: both have to be the same. ./dev fuzz runs it; the tests
// of the node run it on changes of its corpus (tests/fuzz/node_message).
#include <cstdlib>

#include "node/observer_message.hpp"

namespace {

using Bytes = std::vector<std::byte>;

template <class Decode, class Encode>
void read_twice(std::span<const std::byte> packet, Decode decode, Encode encode) {
  const auto read = decode(packet);
  if (!read.ok()) return;
  const Bytes written = encode(*read);
  const bool is_prefix = written.size() <= packet.size();
  const auto again = decode(written);
  if (!is_prefix || !again.ok() || encode(*again) != written) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cuvmm::node;
  const auto packet = std::as_bytes(std::span{data, size});
  read_twice(packet, decode, encode);
  read_twice(packet, decode_observed, encode_observed);
  return 0;
}
