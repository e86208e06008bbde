// SPDX-License-Identifier: Apache-2.0
// A place for sockets, an exporter, and the steps of an importer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "share/host.hpp"
#include "share/imported.hpp"
#include "share/session.hpp"
#include "support/child.hpp"
#include "support/driver_under_test.hpp"

namespace cuvmm::test {

inline constexpr Size shared_chunk = 2 * MiB;

// A private folder, with a path for a socket and a token; removed at the end.
class SharePlace {
 public:
  SharePlace();
  ~SharePlace();
  SharePlace(const SharePlace&) = delete;
  SharePlace& operator=(const SharePlace&) = delete;

  std::string socket() const { return folder_ + "/share.sock"; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

// The token of all tests except those that try others.
share::Token test_token(std::uint8_t first = 1);

share::HostSettings host_settings(const std::string& path);

// "ok" or the Error.
std::string said(const Result<void>& result);
template <class T>
std::string said(const Result<T>& result) {
  return said(result.ok() ? Result<void>{} : Result<void>{result.error()});
}

template <class T>
T needed(Result<T> result, const char* what) {
  if (!result.ok()) throw std::runtime_error(std::string(what) + ": " + result.error().text());
  return std::move(result).value();
}
#define NEEDED(expression) ::cuvmm::test::needed(expression, #expression)
inline void needed_ok(const Result<void>& result, const char* what) {
  if (!result.ok()) throw std::runtime_error(std::string(what) + ": " + result.error().text());
}
#define NEEDED_OK(expression) ::cuvmm::test::needed_ok(expression, #expression)

inline share::Deadline in_time() {
  return share::Deadline::after(std::chrono::seconds{60});
}
inline share::Deadline soon() {
  return share::Deadline::after(std::chrono::milliseconds{200});
}

// `count` chunks of one granule each, filled with a pattern that depends on the seed.
std::vector<ChunkRef> given_chunks(std::size_t count, std::uint32_t seed);
share::Granted given_granted(std::size_t chunks, std::uint32_t seed);

int open_descriptors();

// Waits for the next event of this kind and skips others.
share::HostEvent event_of(share::Host& host, share::HostEvent::What what);
// Serves the host until all importers have left.
void serve_until_all_left(share::Host& host);

// Expects the pattern that given_chunks() wrote, read through a mapping.
void expect_shared_pattern(CUdeviceptr address, Size size, std::uint32_t seed);

}  // namespace cuvmm::test
