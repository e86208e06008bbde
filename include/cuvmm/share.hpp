// SPDX-License-Identifier: Apache-2.0
// Memory passed between processes: the C API of cuvmm/share.h as owning objects and Results. The
// contracts are in that header.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cuvmm/elastic_pool.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/share.h"

namespace cuvmm {
inline namespace v1 {

using ShareEvent = cuvmm_share_event;
using SharedBufferInfo = cuvmm_shared_buffer_info;
using SharedImportInfo = cuvmm_shared_import_info;

enum class GrantAccess : std::int32_t {
  read_write = CUVMM_SHARE_READ_WRITE,
  read_only = CUVMM_SHARE_READ_ONLY,
};

// Which chunks of a buffer to grant; by default all of them.
struct Grant {
  std::uint64_t first_chunk = 0;
  std::uint64_t chunk_count = 0;
  GrantAccess access = GrantAccess::read_write;
  std::uint64_t tag = 0;
};

namespace detail {

template <auto end>
struct EndBy {
  template <class T>
  void operator()(T* ended) const {
    end(ended, nullptr);
  }
};

}  // namespace detail

// The exporter's memory.
class SharedBuffer {
 public:
  static Result<SharedBuffer> create(int device, std::uint64_t size, std::uint64_t chunk_size = 0) {
    cuvmm_shared_buffer_options options{};
    options.device = device;
    options.size = size;
    options.chunk_size = chunk_size;
    auto made = detail::answer_with<cuvmm_shared_buffer*>([&](auto** buffer, cuvmm_error* error) {
      return cuvmm_shared_buffer_create(&options, buffer, error);
    });
    if (!made.ok()) return made.error();
    return SharedBuffer{*made};
  }

  Result<std::uint64_t> map() {
    return detail::answer_with<std::uint64_t>([this](std::uint64_t* address, cuvmm_error* error) {
      return cuvmm_shared_buffer_map(get(), address, error);
    });
  }
  Result<SharedBufferInfo> info() const {
    return detail::answer_with<SharedBufferInfo>(
        [this](SharedBufferInfo* info, cuvmm_error* error) {
          return cuvmm_get_shared_buffer_info(get(), info, error);
        });
  }
  // Returns a file descriptor, which the caller closes.
  Result<int> export_chunk(std::uint64_t chunk) const {
    const auto fd =
        detail::answer_with<std::int32_t>([&](std::int32_t* number, cuvmm_error* error) {
          return cuvmm_shared_buffer_export(get(), chunk, number, error);
        });
    if (!fd.ok()) return fd.error();
    return int{*fd};
  }
  cuvmm_shared_buffer* get() const { return buffer_.get(); }

 private:
  explicit SharedBuffer(cuvmm_shared_buffer* buffer) : buffer_(buffer) {}
  std::unique_ptr<cuvmm_shared_buffer, detail::EndBy<&cuvmm_shared_buffer_destroy>> buffer_;
};

// The exporter's socket.
class ShareHost {
 public:
  static Result<ShareHost> listen() { return listen_at(nullptr); }
  static Result<ShareHost> listen(const std::string& path) { return listen_at(path.c_str()); }

  Result<ShareEvent> wait(std::chrono::microseconds timeout) {
    return detail::answer_with<ShareEvent>([&](ShareEvent* event, cuvmm_error* error) {
      return cuvmm_share_wait(host_.get(), detail::in_us(timeout), event, error);
    });
  }
  // Returns the grant's number.
  Result<std::uint64_t> send(std::uint64_t peer, const SharedBuffer& buffer,
                             const Grant& grant = {}) {
    cuvmm_share_grant wanted{};
    wanted.first_chunk = grant.first_chunk;
    wanted.chunk_count = grant.chunk_count;
    wanted.tag = grant.tag;
    wanted.access = static_cast<std::int32_t>(grant.access);
    return detail::answer_with<std::uint64_t>([&](std::uint64_t* id, cuvmm_error* error) {
      return cuvmm_share_send(host_.get(), peer, buffer.get(), &wanted, id, error);
    });
  }

  // Grants whole granules of a shareable pool, allocated to the last byte. `grant` names no chunks.
  Result<std::uint64_t> send(std::uint64_t peer, const ElasticPool& pool, std::uint64_t offset,
                             std::uint64_t size, const Grant& grant = {}) {
    cuvmm_share_grant wanted{};
    wanted.first_chunk = grant.first_chunk;
    wanted.chunk_count = grant.chunk_count;
    wanted.tag = grant.tag;
    wanted.access = static_cast<std::int32_t>(grant.access);
    return detail::answer_with<std::uint64_t>([&](std::uint64_t* id, cuvmm_error* error) {
      return cuvmm_share_send_of_pool(host_.get(), peer, pool.get(), offset, size, &wanted, id,
                                      error);
    });
  }

 private:
  explicit ShareHost(cuvmm_share_host* host) : host_(host) {}
  static Result<ShareHost> listen_at(const char* path) {
    auto made = detail::answer_with<cuvmm_share_host*>(
        [&](auto** host, cuvmm_error* error) { return cuvmm_share_listen(path, host, error); });
    if (!made.ok()) return made.error();
    return ShareHost{*made};
  }
  std::unique_ptr<cuvmm_share_host, detail::EndBy<&cuvmm_share_stop>> host_;
};

// Granted memory mapped at addresses of this process. The destructor unmaps it.
class SharedMapping {
 public:
  std::uint64_t address() const { return address_; }

 private:
  friend class SharedImport;
  SharedMapping(cuvmm_shared_mapping* mapping, std::uint64_t address)
      : mapping_(mapping), address_(address) {}
  std::unique_ptr<cuvmm_shared_mapping, detail::EndBy<&cuvmm_shared_mapping_unmap>> mapping_;
  std::uint64_t address_;
};

// Memory granted to this process. Pass it to ShareSession::release() before its session ends.
class SharedImport {
 public:
  SharedImport(SharedImport&& other) noexcept : import_(std::exchange(other.import_, nullptr)) {}
  SharedImport& operator=(SharedImport&&) = delete;
  ~SharedImport() {
    if (import_ != nullptr) cuvmm_share_release(nullptr, import_, 0, nullptr);
  }

  Result<SharedImportInfo> info() const {
    return detail::answer_with<SharedImportInfo>(
        [this](SharedImportInfo* info, cuvmm_error* error) {
          return cuvmm_get_shared_import_info(import_, info, error);
        });
  }
  Result<SharedMapping> map(int device, std::uint64_t hint = 0) const {
    std::uint64_t address = 0;
    auto made = detail::answer_with<cuvmm_shared_mapping*>([&](auto** mapping, cuvmm_error* error) {
      return cuvmm_shared_import_map(import_, device, hint, mapping, &address, error);
    });
    if (!made.ok()) return made.error();
    return SharedMapping{*made, address};
  }

 private:
  friend class ShareSession;
  explicit SharedImport(cuvmm_shared_import* import) : import_(import) {}
  cuvmm_shared_import* import_;
};

// The importer's connection.
class ShareSession {
 public:
  static Result<ShareSession> connect(std::chrono::microseconds timeout) {
    return connect_to(nullptr, timeout);
  }
  static Result<ShareSession> connect(const std::string& path, std::chrono::microseconds timeout) {
    return connect_to(path.c_str(), timeout);
  }

  Result<SharedImport> receive(std::chrono::microseconds timeout) {
    auto made = detail::answer_with<cuvmm_shared_import*>([&](auto** import, cuvmm_error* error) {
      return cuvmm_share_receive(session_.get(), detail::in_us(timeout), import, error);
    });
    if (!made.ok()) return made.error();
    return SharedImport{*made};
  }
  Result<void> acknowledge(const SharedImport& import, std::uint32_t status,
                           std::chrono::microseconds timeout) {
    return detail::answer([&](cuvmm_error* error) {
      return cuvmm_share_acknowledge(session_.get(), import.import_, status, detail::in_us(timeout),
                                     error);
    });
  }
  Result<void> release(SharedImport import, std::chrono::microseconds timeout) {
    return detail::answer([&](cuvmm_error* error) {
      return cuvmm_share_release(session_.get(), std::exchange(import.import_, nullptr),
                                 detail::in_us(timeout), error);
    });
  }

 private:
  explicit ShareSession(cuvmm_share_session* session) : session_(session) {}
  static Result<ShareSession> connect_to(const char* path, std::chrono::microseconds timeout) {
    auto made = detail::answer_with<cuvmm_share_session*>([&](auto** session, cuvmm_error* error) {
      return cuvmm_share_connect(path, detail::in_us(timeout), session, error);
    });
    if (!made.ok()) return made.error();
    return ShareSession{*made};
  }
  std::unique_ptr<cuvmm_share_session, detail::EndBy<&cuvmm_share_disconnect>> session_;
};

}  // namespace v1
}  // namespace cuvmm
