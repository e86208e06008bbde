// SPDX-License-Identifier: Apache-2.0
// The parsers of messages between the node service and its clients and observers, for libFuzzer. A
// parsed message is written and parsed again: both must be the same. ./dev fuzz runs it; the node
// tests run it on mutations of its corpus (tests/fuzz/node_message).
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
