// SPDX-License-Identifier: Apache-2.0
// Takes the buffer that producer.cpp grants, maps it and checks its contents.
#include "sharing.hpp"

namespace {

using namespace sharing;
using cuvmm::SharedImport;
using cuvmm::SharedMapping;
using cuvmm::ShareSession;

ShareSession connect(const Options& options) {
  auto session = options.socket.empty() ? ShareSession::connect(options.timeout)
                                        : ShareSession::connect(options.socket, options.timeout);
  if (!session.ok() && session.error().kind() == cuvmm::ErrorKind::NotFound) {
    give_up("no producer is running; start `producer` first, in another terminal");
  }
  return taken(std::move(session));
}

SharedImport receive(ShareSession& session, const Options& options) {
  auto import = session.receive(options.timeout);
  if (!import.ok() && import.error().kind() == cuvmm::ErrorKind::NotFound) {
    give_up("the producer serves one consumer and has served another; start `producer` again");
  }
  return taken(std::move(import));
}

// The index of the first wrong integer; integer_count if all are right.
std::size_t first_wrong(const SharedMapping& mapping) {
  std::vector<std::uint32_t> data(integer_count);
  check(CALL(cuMemcpyDtoH)(data.data(), mapping.address(), buffer_size), "cuMemcpyDtoH");
  say("Copied %zu bytes from GPU to host", buffer_size);
  std::size_t i = 0;
  while (i < integer_count && data[i] == expected(i)) ++i;
  return i;
}

void consume(const Options& options) {
  const Device device;
  say("Connecting to producer...");
  ShareSession session = connect(options);
  say("Connected to producer");

  SharedImport import = receive(session, options);
  const auto info = taken(import.info());
  if (info.size < buffer_size)
    give_up("the producer sent less than a buffer; run both programs again");
  say("Received FD: %d, size: %llu bytes", info.descriptor,
      static_cast<unsigned long long>(info.size));
  say("Imported allocation handle from FD");

  std::size_t wrong = 0;
  {
    const SharedMapping mapping = taken(import.map(0));
    say("Reserved virtual address space at 0x%llx",
        static_cast<unsigned long long>(mapping.address()));
    say("Mapped imported memory to virtual address");
    say("Set read/write access permissions");
    wrong = first_wrong(mapping);
  }
  const bool right = wrong == integer_count;
  if (right) say("Data verification PASSED (%zu integers verified)", integer_count);
  check(session.acknowledge(import, right ? verified : corrupted, options.timeout));
  if (!right) {
    give_up(
        "the data is corrupted from integer %zu on; run both programs again, and if that does not "
        "help, look for another writer of the buffer",
        wrong);
  }
  say("Sent acknowledgment to producer");
  check(session.release(std::move(import), options.timeout));
}

}  // namespace

int main(int count, char** words) {
  sharing::program = "consumer";
  say("=== CUDA VMM Consumer ===");
  consume(read_options(count, words, false));
  say("Cleanup complete");
}
