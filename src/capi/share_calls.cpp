// SPDX-License-Identifier: Apache-2.0
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>

#include "base/fork_closed.hpp"
#include "capi/pool_words.hpp"
#include "share/buffer.hpp"
#include "share/imported.hpp"
#include "share/rendezvous.hpp"

// The objects behind the C API's opaque pointers.
struct cuvmm_shared_buffer {
  cuvmm::capi::ProcessOfOrigin origin = {};
  cuvmm::Lock lock{cuvmm::LockOrder::IpcSession};  // guards the members below
  cuvmm::share::Buffer buffer;
};
struct cuvmm_share_host {
  cuvmm::capi::ProcessOfOrigin origin = {};
  std::atomic<int> calls_inside{0};
  cuvmm::ForkClosedFd stop;                       // readable once the host is to end
  cuvmm::Lock lock{cuvmm::LockOrder::IpcOpened};  // guards the members below
  std::unique_ptr<cuvmm::share::Host> host;
};
struct cuvmm_share_session {
  cuvmm::capi::ProcessOfOrigin origin = {};
  std::atomic<int> calls_inside{0};
  cuvmm::Lock lock{cuvmm::LockOrder::IpcSession};  // guards the members below
  cuvmm::share::Session session;
};
struct cuvmm_shared_import {
  cuvmm::capi::ProcessOfOrigin origin = {};
  const cuvmm::share::Imported imported;
};
struct cuvmm_shared_mapping {
  cuvmm::capi::ProcessOfOrigin origin = {};
  cuvmm::share::MappedGrant mapped;
};

namespace cuvmm::capi {
namespace {

using share::Deadline;
using share::GrantAccess;

Deadline after(std::uint64_t timeout) {
  constexpr std::uint64_t longest = std::uint64_t{1} << 50;  // 35 years
  return Deadline::after(Duration{static_cast<Duration::rep>(std::min(timeout, longest))});
}

bool has_reserved(const std::uint64_t* reserved, std::size_t count) {
  return std::any_of(reserved, reserved + count, [](std::uint64_t word) { return word != 0; });
}

// A call of a host or a session, which cannot end before the call has returned.
class CallInside {
 public:
  explicit CallInside(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }
  ~CallInside() { count_.fetch_sub(1); }
  CallInside(const CallInside&) = delete;
  CallInside& operator=(const CallInside&) = delete;

 private:
  std::atomic<int>& count_;
};

void wait_for_calls(const std::atomic<int>& count) {
  while (count.load() != 0) ::usleep(100);
}

Result<Fd> make_stop() {
  Fd stop{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!stop.is_open()) return share::system_error("make an eventfd");
  return stop;
}

// Calls `give` on success; otherwise reports the error.
template <class T, class Give>
cuvmm_status answer(const Result<T>& result, cuvmm_error* error, Give give) {
  if (!result.ok()) return refuse(result.error(), error);
  give();
  return CUVMM_OK;
}

Result<share::Buffer> make_buffer(const cuvmm_shared_buffer_options& options) {
  if (options.reserved0 != 0 || has_reserved(options.reserved, std::size(options.reserved))) {
    return Error::invalid("make memory to share", "reserved members are not 0");
  }
  Engine& running = *TRY(engine());
  const HookBypass bypass;
  DeviceMemory& device = *TRY(running.stores().device(options.device));
  return share::Buffer::create(
      running.driver(),
      {.device = options.device, .size = options.size, .chunk_size = options.chunk_size},
      &device.store());
}

Result<std::unique_ptr<share::Host>> make_host(const char* path) {
  if (path != nullptr) return share::listen_at(path);
  const std::string place = TRY(share::usual_place_to_listen());
  return share::listen_at(place);
}

Result<cuvmm_share_event> next_event(share::Host& host, Deadline until, int stop) {
  using What = share::HostEvent::What;
  const HookBypass bypass;
  for (;;) {
    const auto event = TRY(host.wait(until, stop));
    if (!event) return Error{.kind = ErrorKind::TimedOut, .doing = "wait for importers"};
    cuvmm_share_event told{};
    told.status = event->status;
    told.peer = event->peer;
    told.grant = event->grant;
    switch (event->what) {
      case What::Came:
        told.kind = CUVMM_SHARE_CAME;
        return told;
      case What::Fetched:
        told.kind = CUVMM_SHARE_FETCHED;
        return told;
      case What::Acknowledged:
        told.kind = CUVMM_SHARE_ACKNOWLEDGED;
        return told;
      case What::Released:
        told.kind = CUVMM_SHARE_RELEASED;
        return told;
      case What::Left:
        told.kind = CUVMM_SHARE_LEFT;
        return told;
      case What::Asked:
        // This side only sends memory; there is nothing to request from it.
        static_cast<void>(host.refuse(event->peer, share::Refusal::Unknown).ok());
        break;
    }
  }
}

constexpr const char* granting = "grant memory";

Result<GrantAccess> access_of(const cuvmm_share_grant& wanted) {
  if (wanted.reserved0 != 0 || has_reserved(wanted.reserved, std::size(wanted.reserved))) {
    return Error::invalid(granting, "reserved members are not 0");
  }
  switch (wanted.access) {
    case CUVMM_SHARE_READ_WRITE:
      return GrantAccess::ReadWrite;
    case CUVMM_SHARE_READ_ONLY:
      return GrantAccess::ReadOnly;
    default:
      return Error::invalid(granting, "unknown kind of access");
  }
}

Result<share::Granted> granted(const cuvmm_shared_buffer& buffer, const cuvmm_share_grant& wanted) {
  const GrantAccess access = TRY(access_of(wanted));
  const std::uint64_t there = buffer.buffer.chunk_count();
  if (wanted.first_chunk >= there) return Error::invalid(granting, "no such chunks");
  const std::uint64_t count =
      wanted.chunk_count != 0 ? wanted.chunk_count : there - wanted.first_chunk;
  return buffer.buffer.grant(wanted.first_chunk, count, access, wanted.tag);
}

// Exports the chunks now, so that no compaction moves them before the importer fetches them.
Result<share::Granted> granted(const ElasticPool& pool, Stretch stretch,
                               const cuvmm_share_grant& wanted) {
  share::Granted all{.chunks = {}, .offset = 0, .size = stretch.size};
  all.access = TRY(access_of(wanted));
  all.tag = wanted.tag;
  if (wanted.first_chunk != 0 || wanted.chunk_count != 0) {
    return Error::invalid(granting, "chunks of a pool are named by their bytes");
  }
  const auto lend_one = [&](const ChunkRef& chunk) -> Result<void> {
    TRY(chunk.file_to_send());
    all.chunks.push_back(chunk);
    return {};
  };
  TRY(pool.lend(stretch, lend_one));
  return all;
}

void tell_service(const share::Token& token) {
  if (Engine* const running = Engine::running()) running->shares(token);
}

Result<share::Imported> receive(share::Session& session, Deadline until) {
  Engine& running = *TRY(engine());
  const HookBypass bypass;
  // Initializes the driver, which an importer may not have done yet.
  TRY(running.stores().device_count());
  const share::Grant grant = TRY(session.receive(until));
  auto imported = share::Imported::fetch(running.driver(), session, grant, until);
  if (imported.ok()) {
    running.shares(session.token());
  } else if (imported.error().kind == ErrorKind::TimedOut) {
    session.put_back(grant);
  } else {
    static_cast<void>(session.release(grant.id, until).ok());
  }
  return imported;
}

Result<share::MappedGrant> map(const share::Imported& imported, int device, std::uint64_t hint) {
  Engine& running = *TRY(engine());
  const HookBypass bypass;
  TRY(running.stores().device(device));
  return share::MappedGrant::map(running.driver(), imported, AccessSet::of(device), hint);
}

}  // namespace

cuvmm_status shared_buffer_create(const cuvmm_shared_buffer_options* options,
                                  cuvmm_shared_buffer** buffer, cuvmm_error* error) {
  if (options == nullptr || buffer == nullptr) {
    return refuse_missing_pointer("make memory to share", error);
  }
  auto made = make_buffer(*options);
  return answer(made, error,
                [&] { *buffer = new cuvmm_shared_buffer{.buffer = std::move(*made)}; });
}

cuvmm_status shared_buffer_map(cuvmm_shared_buffer* buffer, uint64_t* address, cuvmm_error* error) {
  if (buffer == nullptr || address == nullptr) {
    return refuse_missing_pointer("map memory to share", error);
  }
  const HookBypass bypass;
  const Holding holding{buffer->lock};
  const auto mapped = buffer->buffer.map();
  return answer(mapped, error, [&] { *address = *mapped; });
}

cuvmm_status get_shared_buffer_info(const cuvmm_shared_buffer* buffer,
                                    cuvmm_shared_buffer_info* info, cuvmm_error* error) {
  if (buffer == nullptr || info == nullptr) {
    return refuse_missing_pointer("describe memory to share", error);
  }
  const Holding holding{const_cast<cuvmm_shared_buffer*>(buffer)->lock};
  *info = {};
  info->address = buffer->buffer.address();
  info->size = buffer->buffer.size();
  info->granule = buffer->buffer.granule();
  info->chunk_size = buffer->buffer.chunk_size();
  info->chunk_count = buffer->buffer.chunk_count();
  return CUVMM_OK;
}

cuvmm_status shared_buffer_export(const cuvmm_shared_buffer* buffer, uint64_t chunk,
                                  int32_t* descriptor, cuvmm_error* error) {
  if (buffer == nullptr || descriptor == nullptr) {
    return refuse_missing_pointer("export a chunk", error);
  }
  const HookBypass bypass;
  auto file = buffer->buffer.export_fd(chunk);
  return answer(file, error, [&] { *descriptor = file->release(); });
}

cuvmm_status shared_buffer_destroy(cuvmm_shared_buffer* buffer, cuvmm_error*) {
  destroy_with_memory(buffer);
  return CUVMM_OK;
}

cuvmm_status share_listen(const char* path, cuvmm_share_host** host, cuvmm_error* error) {
  if (host == nullptr) return refuse_missing_pointer("listen at a socket", error);
  auto stop = make_stop();
  if (!stop.ok()) return refuse(stop.error(), error);
  auto made = make_host(path);
  return answer(made, error, [&] {
    *host = new cuvmm_share_host{.stop = cuvmm::ForkClosedFd{std::move(*stop)},
                                 .host = std::move(*made)};
  });
}

cuvmm_status share_wait(cuvmm_share_host* host, uint64_t timeout, cuvmm_share_event* event,
                        cuvmm_error* error) {
  if (host == nullptr || event == nullptr) {
    return refuse_missing_pointer("wait for importers", error);
  }
  const CallInside call{host->calls_inside};
  const Holding holding{host->lock};
  const auto next = next_event(*host->host, after(timeout), host->stop.number());
  return answer(next, error, [&] { *event = *next; });
}

cuvmm_status share_send(cuvmm_share_host* host, uint64_t peer, const cuvmm_shared_buffer* buffer,
                        const cuvmm_share_grant* grant, uint64_t* id, cuvmm_error* error) {
  if (host == nullptr || buffer == nullptr || grant == nullptr || id == nullptr) {
    return refuse_missing_pointer("grant memory", error);
  }
  const CallInside call{host->calls_inside};
  auto wanted = granted(*buffer, *grant);
  if (!wanted.ok()) return refuse(wanted.error(), error);
  const Holding holding{host->lock};
  const auto sent = host->host->grant(peer, std::move(*wanted));
  if (sent.ok()) tell_service(host->host->token());
  return answer(sent, error, [&] { *id = *sent; });
}

cuvmm_status share_send_of_pool(cuvmm_share_host* host, uint64_t peer,
                                const cuvmm_elastic_pool* pool, uint64_t offset, uint64_t size,
                                const cuvmm_share_grant* grant, uint64_t* id, cuvmm_error* error) {
  if (host == nullptr || pool == nullptr || grant == nullptr || id == nullptr) {
    return refuse_missing_pointer("grant memory", error);
  }
  const CallInside call{host->calls_inside};
  const HookBypass bypass;
  auto wanted = granted(*pool->memory, {offset, size}, *grant);
  if (!wanted.ok()) {
    return refuse(wanted.error(), error,
                  where(wanted.error(), {offset, size}, elastic_pool_capacity(pool)));
  }
  const Holding holding{host->lock};
  const auto sent = host->host->grant(peer, std::move(*wanted));
  if (sent.ok()) tell_service(host->host->token());
  return answer(sent, error, [&] { *id = *sent; });
}

cuvmm_status share_stop(cuvmm_share_host* host, cuvmm_error*) {
  if (host == nullptr || !host->origin.is_this_process()) return CUVMM_OK;
  static_cast<void>(::eventfd_write(host->stop.number(), 1));
  wait_for_calls(host->calls_inside);
  destroy(host);
  return CUVMM_OK;
}

cuvmm_status share_connect(const char* path, uint64_t timeout, cuvmm_share_session** session,
                           cuvmm_error* error) {
  if (session == nullptr) return refuse_missing_pointer("connect to the exporter", error);
  auto made = path != nullptr ? share::connect_at(path, after(timeout))
                              : share::connect_at_the_usual_place(after(timeout));
  return answer(made, error,
                [&] { *session = new cuvmm_share_session{.session = std::move(*made)}; });
}

cuvmm_status share_receive(cuvmm_share_session* session, uint64_t timeout,
                           cuvmm_shared_import** import, cuvmm_error* error) {
  if (session == nullptr || import == nullptr) {
    return refuse_missing_pointer("receive a grant", error);
  }
  const CallInside call{session->calls_inside};
  const Holding holding{session->lock};
  auto received = receive(session->session, after(timeout));
  return answer(received, error,
                [&] { *import = new cuvmm_shared_import{.imported = std::move(*received)}; });
}

cuvmm_status get_shared_import_info(const cuvmm_shared_import* import,
                                    cuvmm_shared_import_info* info, cuvmm_error* error) {
  if (import == nullptr || info == nullptr) {
    return refuse_missing_pointer("describe imported memory", error);
  }
  const share::Grant& grant = import->imported.grant();
  *info = {};
  info->grant = grant.id;
  info->size = grant.size;
  info->chunk_count = grant.chunks;
  info->tag = grant.tag;
  info->access =
      grant.access == GrantAccess::ReadOnly ? CUVMM_SHARE_READ_ONLY : CUVMM_SHARE_READ_WRITE;
  info->device = import->imported.device();
  info->descriptor = import->imported.first_descriptor();
  return CUVMM_OK;
}

cuvmm_status shared_import_map(const cuvmm_shared_import* import, int32_t device, uint64_t hint,
                               cuvmm_shared_mapping** mapping, uint64_t* address,
                               cuvmm_error* error) {
  if (import == nullptr || mapping == nullptr || address == nullptr) {
    return refuse_missing_pointer("map imported memory", error);
  }
  auto mapped = map(import->imported, device, hint);
  return answer(mapped, error, [&] {
    *address = mapped->address();
    *mapping = new cuvmm_shared_mapping{.mapped = std::move(*mapped)};
  });
}

cuvmm_status shared_mapping_unmap(cuvmm_shared_mapping* mapping, cuvmm_error*) {
  destroy(mapping);
  return CUVMM_OK;
}

cuvmm_status share_acknowledge(cuvmm_share_session* session, const cuvmm_shared_import* import,
                               uint32_t status, uint64_t timeout, cuvmm_error* error) {
  if (session == nullptr || import == nullptr) {
    return refuse_missing_pointer("acknowledge a grant", error);
  }
  const CallInside call{session->calls_inside};
  const Holding holding{session->lock};
  const auto said = session->session.acknowledge(import->imported.grant(), status, after(timeout));
  return answer(said, error, [] {});
}

cuvmm_status share_release(cuvmm_share_session* session, cuvmm_shared_import* import,
                           uint64_t timeout, cuvmm_error* error) {
  if (import == nullptr) return refuse_missing_pointer("release a grant", error);
  if (!import->origin.is_this_process()) return CUVMM_OK;
  const std::uint64_t grant = import->imported.grant().id;
  destroy(import);
  // Without a session, the exporter notices when the connection ends.
  if (session == nullptr) return CUVMM_OK;
  const HookBypass bypass;
  const CallInside call{session->calls_inside};
  const Holding holding{session->lock};
  const auto released = session->session.release(grant, after(timeout));
  return answer(released, error, [] {});
}

cuvmm_status share_disconnect(cuvmm_share_session* session, cuvmm_error*) {
  if (session == nullptr || !session->origin.is_this_process()) return CUVMM_OK;
  session->session.interrupt();
  wait_for_calls(session->calls_inside);
  destroy(session);
  return CUVMM_OK;
}

}  // namespace cuvmm::capi
