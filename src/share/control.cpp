// SPDX-License-Identifier: Apache-2.0
#include "share/control.hpp"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "base/log.hpp"
#include "share/packet.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* prefix = "control-";
constexpr const char* token_prefix = "token-";  // not the sockets' own: those are looked through

// With whoever has connected and says nothing.
constexpr Duration patience{2'000'000};

std::string path_in(const std::string& folder, const char* kind, pid_t process) {
  return folder + "/" + kind + std::to_string(process);
}

// Of processes that were killed. A token is written a moment before its socket is there.
void remove_stale_tokens(const std::string& folder) {
  constexpr std::time_t a_minute = 60;
  DIR* const files = ::opendir(folder.c_str());
  if (files == nullptr) return;
  while (const dirent* entry = ::readdir(files)) {
    const std::string name = entry->d_name;
    if (!name.starts_with(token_prefix)) continue;
    std::string token = folder;
    token.append("/").append(name);
    const std::string socket = folder + "/" + prefix + name.substr(std::strlen(token_prefix));
    struct stat facts;
    const bool is_old =
        ::lstat(token.c_str(), &facts) == 0 && facts.st_mtime + a_minute < ::time(nullptr);
    if (is_old && ::access(socket.c_str(), F_OK) != 0) ::unlink(token.c_str());
  }
  ::closedir(files);
}

// One packet, of just that size.
template <class Words>
Result<Words> receive_words(const Fd& socket, Deadline until, const char* doing) {
  Words words;
  for (;;) {
    const ssize_t got = ::recv(socket.number(), &words, sizeof words, MSG_TRUNC);
    if (got == static_cast<ssize_t>(sizeof words)) return words;
    if (got == 0) return other_side_has_gone(doing);
    if (got > 0) return Error::invalid(doing, "it is of another version");
    if (errno != EAGAIN && errno != EINTR) return system_error(doing);
    TRY(wait_for(socket, POLLIN, until, doing));
  }
}

template <class Words>
Result<void> send_words(const Fd& socket, const Words& words, Deadline until, const char* doing) {
  for (;;) {
    const ssize_t sent = ::send(socket.number(), &words, sizeof words, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(sizeof words)) return {};
    if (sent >= 0 || (errno != EAGAIN && errno != EINTR)) return system_error(doing);
    TRY(wait_for(socket, POLLOUT, until, doing));
  }
}

Result<void> serve_one(const Fd& socket, const Token& token,
                       const std::function<ControlAnswer(const ControlRequest&)>& answer) {
  constexpr const char* doing = "serve a control request";
  TRY(checked_peer(socket));
  const auto request = TRY(receive_words<ControlRequest>(socket, Deadline::after(patience), doing));
  ControlAnswer said;
  if (request.version != control_version) {
    said.say("this process speaks another version");
  } else if (!same(request.token, token)) {
    return Error::invalid(doing, "the token is wrong");
  } else {
    said = answer(request);
  }
  return send_words(socket, said, Deadline::after(patience), doing);
}

}  // namespace

void ControlAnswer::say(const std::string& words) {
  const std::size_t length = std::min(words.size(), text.size() - 1);
  std::memcpy(text.data(), words.data(), length);
  text[length] = '\0';
}

Result<ControlSocket> ControlSocket::open(pid_t process) {
  const std::string folder = TRY(private_folder());
  remove_stale_sockets(folder, prefix);
  remove_stale_tokens(folder);
  const std::string token_path = path_in(folder, token_prefix, process);
  const Token token = TRY(Token::make());
  TRY(write_token(token_path, token));
  auto listening =
      ListeningSocket::open(path_in(folder, prefix, process), ListeningSocket::Replace::Nothing);
  if (!listening.ok()) {
    ::unlink(token_path.c_str());
    return listening.error();
  }
  return ControlSocket{std::move(*listening), token_path, token, process};
}

// A forked child that ends must not take its parent's.
void ControlSocket::remove() const {
  if (process_ != ::getpid()) return;
  ::unlink(listening_.path().c_str());
  ::unlink(token_path_.c_str());
}

void ControlSocket::serve(const std::function<ControlAnswer(const ControlRequest&)>& answer,
                          Deadline until) {
  for (;;) {
    Fd socket{
        ::accept4(listening_.socket().number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (socket.is_open()) {
      const auto served = serve_one(socket, token_, answer);
      if (!served.ok() && !says_gone(served.error())) {
        CUVMM_LOG(Warning, "%s", served.error().text().c_str());
      }
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (until.is_over()) return;
    if (errno != EAGAIN) ::poll(nullptr, 0, 10);
    (void)wait_for(listening_.socket(), POLLIN, until, "wait for control requests").ok();
  }
}

Result<ControlAnswer> tell(pid_t process, ControlRequest request, Deadline until) {
  constexpr const char* doing = "control a process";
  Error missing{.kind = ErrorKind::NotFound,
                .doing = doing,
                .subject = "it has no control socket (VMM_CONTROL=on opens one)"};
  for (const std::string& folder : private_folders()) {
    const auto socket = connect_to(path_in(folder, prefix, process), until);
    if (!socket.ok()) {
      if (socket.error().kind != ErrorKind::NotFound) missing = socket.error();
      continue;
    }
    request.token = TRY(read_token(path_in(folder, token_prefix, process)));
    TRY(checked_peer(*socket));
    TRY(send_words(*socket, request, until, doing));
    ControlAnswer answer = TRY(receive_words<ControlAnswer>(*socket, until, doing));
    answer.text.back() = '\0';
    return answer;
  }
  return missing;
}

std::vector<pid_t> controlled_processes() {
  std::vector<pid_t> processes;
  for (const std::string& folder : private_folders()) {
    DIR* const files = ::opendir(folder.c_str());
    if (files == nullptr) continue;
    while (const dirent* entry = ::readdir(files)) {
      const std::string name = entry->d_name;
      if (name.compare(0, std::strlen(prefix), prefix) != 0) continue;
      const std::string number = name.substr(std::strlen(prefix));
      const bool digits = !number.empty() && number.size() < 10 &&
                          std::all_of(number.begin(), number.end(),
                                      [](char digit) { return digit >= '0' && digit <= '9'; });
      if (digits) processes.push_back(static_cast<pid_t>(std::stol(number)));
    }
    ::closedir(files);
  }
  std::sort(processes.begin(), processes.end());
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  return processes;
}

}  // namespace cuvmm::share
