// SPDX-License-Identifier: Apache-2.0
// Grants a buffer of device memory to another process (consumer.cpp), which finds this one by
// itself:
//
//   build/bin/producer                 in one terminal, then
//   build/bin/consumer                 in another
//
// On the simulated driver: build/bin/cuvmm run --sim -- build/bin/producer, and likewise for the
// consumer.
#include <unistd.h>

#include "cuvmm/engine.hpp"
#include "sharing.hpp"

namespace {

using namespace sharing;
using cuvmm::SharedBuffer;
using cuvmm::ShareEvent;
using cuvmm::ShareHost;

// Called first, since all other work would be useless if another producer is running.
ShareHost listen(const Options& options) {
  auto host = options.socket.empty() ? ShareHost::listen() : ShareHost::listen(options.socket);
  if (!host.ok() && host.error().kind() == cuvmm::ErrorKind::AlreadyExists) {
    give_up("another producer is running; end it, or give both programs another --socket PATH");
  }
  return taken(std::move(host));
}

void fill(const SharedBuffer& buffer, const Options& options) {
  std::vector<std::uint32_t> data(integer_count);
  for (std::size_t i = 0; i < integer_count; ++i) data[i] = expected(i);
  say("Generated %zu test integers", integer_count);
  if (options.corrupt) data[integer_count / 2] ^= 0x100;
  check(CALL(cuMemcpyHtoD)(taken(buffer.info()).address, data.data(), buffer_size), "cuMemcpyHtoD");
  say("Copied test data to GPU");
}

// Waits for the consumer's next event of that kind. This producer serves one consumer; others learn
// this when it ends. If the consumer leaves instead, it has failed.
ShareEvent wait_for(ShareHost& host, cuvmm_share_event_kind kind, const Options& options,
                    std::uint64_t consumer = 0) {
  for (;;) {
    const auto event = host.wait(options.timeout);
    if (!event.ok() && event.error().kind() == cuvmm::ErrorKind::TimedOut) {
      give_up("no consumer connected within %lld s; start `consumer` in another terminal",
              static_cast<long long>(options.timeout.count()));
    }
    if (!event.ok()) give_up("%s", event.error().message());
    if (event->kind == kind && (consumer == 0 || event->peer == consumer)) return *event;
    if (event->kind == CUVMM_SHARE_LEFT && event->peer == consumer) {
      give_up("the consumer ended before it had verified the data; its last line says why");
    }
  }
}

void produce(const Options& options) {
  const Device device;
  ShareHost host = listen(options);
  // Ask only now: a driver may be too old for a device's capabilities.
  const auto granule = taken(cuvmm::device_info(0)).granule;
  say("VMM support: yes");
  say("Memory granularity: %llu bytes", static_cast<unsigned long long>(granule));

  SharedBuffer buffer = taken(SharedBuffer::create(0, buffer_size));
  const auto size = taken(buffer.info()).size;
  say("Buffer size: %zu bytes, aligned size: %llu bytes", buffer_size,
      static_cast<unsigned long long>(size));
  say("Created physical memory allocation");

  const auto address = taken(buffer.map());
  say("Reserved virtual address space at 0x%llx", static_cast<unsigned long long>(address));
  say("Mapped physical memory to virtual address");
  say("Set read/write access permissions");

  fill(buffer, options);

  // The host exports on its own; this call shows that an export is merely a file descriptor.
  const int descriptor = taken(buffer.export_chunk(0));
  say("Exported allocation as FD: %d", descriptor);
  ::close(descriptor);

  say("Waiting for consumer connection...");
  const auto consumer = wait_for(host, CUVMM_SHARE_CAME, options).peer;
  say("Consumer connected");
  taken(host.send(consumer, buffer));
  wait_for(host, CUVMM_SHARE_FETCHED, options, consumer);
  say("Sent FD and size metadata to consumer");

  const auto answer = wait_for(host, CUVMM_SHARE_ACKNOWLEDGED, options, consumer).status;
  if (answer != verified) give_up("the consumer received wrong data; run both programs again");
  say("Consumer verified data successfully!");
  wait_for(host, CUVMM_SHARE_RELEASED, options, consumer);
}

}  // namespace

int main(int count, char** words) {
  sharing::program = "producer";
  say("=== CUDA VMM Producer ===");
  produce(read_options(count, words, true));
  say("Cleanup complete");
}
