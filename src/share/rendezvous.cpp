// SPDX-License-Identifier: Apache-2.0
#include "share/rendezvous.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace cuvmm::share {
namespace {

constexpr const char* folder_name = "share";

// An Error's text must live as long as the process, and a program may try any number of paths. So
// this keeps a limited number of texts, once each; errors beyond them omit the path.
const char* kept_for_good(const std::string& text) {
  static constinit std::array<std::atomic<const char*>, 64> all{};
  for (auto& kept : all) {
    const char* there = kept.load(std::memory_order_acquire);
    if (there == nullptr) {
      const char* const copy = ::strdup(text.c_str());
      if (copy == nullptr || kept.compare_exchange_strong(there, copy)) return copy;
      ::free(const_cast<char*>(copy));
    }
    if (text == there) return there;
  }
  return nullptr;
}

Error about(const std::string& path, Error error) {
  const std::string why = *error.subject != '\0' ? std::string(": ") + error.subject : "";
  if (const char* const text = kept_for_good(path + why)) error.subject = text;
  return error;
}

std::string token_of(const std::string& path) {
  return path + ".token";
}

}  // namespace

Result<std::string> usual_place_to_listen() {
  return TRY(private_folder()) + "/" + folder_name;
}

Result<std::unique_ptr<Host>> listen_at(const std::string& path) {
  HostSettings settings;
  settings.path = path;
  settings.token = TRY(Token::make());
  settings.token_path = token_of(path);
  auto host = Host::open(settings);
  if (!host.ok()) return about(path, host.error());
  return host;
}

Result<Session> connect_at(const std::string& path, Deadline until) {
  const auto token = read_token(token_of(path));
  if (token.ok()) return Session::connect(path, *token, until);
  if (token.error().system_code != ENOENT) return about(path, token.error());
  return about(path, Error{.kind = ErrorKind::NotFound,
                           .doing = "connect to the exporter",
                           .subject = "no process listens there"});
}

Result<Session> connect_at_the_usual_place(Deadline until) {
  std::optional<Session> session;
  TRY(in_any_folder(folder_name, [&](const std::string& path) -> Result<void> {
    session = TRY(connect_at(path, until));
    return {};
  }));
  return std::move(*session);
}

}  // namespace cuvmm::share
