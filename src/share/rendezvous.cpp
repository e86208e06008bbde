// SPDX-License-Identifier: Apache-2.0
#include "share/rendezvous.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* usual_name = "share";

std::string token_of(const std::string& path) {
  return path + ".token";
}

}  // namespace

Result<std::string> usual_place_to_listen() {
  return TRY(private_folder()) + "/" + usual_name;
}

Result<std::unique_ptr<Host>> listen_at(const std::string& path) {
  HostSettings settings;
  settings.path = path;
  settings.token = TRY(Token::make());
  settings.token_path = token_of(path);
  return Host::open(settings);
}

Result<Session> connect_at(const std::string& path, Deadline until) {
  const auto token = read_token(token_of(path));
  if (token.ok()) return Session::connect(path, *token, until);
  if (token.error().system_code != ENOENT) return token.error();
  return Error{.kind = ErrorKind::NotFound,
               .doing = "connect to the exporter",
               .subject = "no process listens there"};
}

Result<Session> connect_at_the_usual_place(Deadline until) {
  std::optional<Session> session;
  TRY(in_any_folder(usual_name, [&](const std::string& path) -> Result<void> {
    session = TRY(connect_at(path, until));
    return {};
  }));
  return std::move(*session);
}

}  // namespace cuvmm::share
