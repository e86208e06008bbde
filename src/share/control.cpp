// SPDX-License-Identifier: Apache-2.0
#include "share/control.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/log_rarely.hpp"
#include "share/packet.hpp"
#include "share/process.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* control_prefix = "control-";
constexpr const char* controlling = "control a process";
constexpr const char* serving = "serve a control request";

// How long to wait for a peer that connects and sends nothing.
constexpr Duration patience{2'000'000};
constexpr std::size_t most_visitors = 64;  // at a time; others wait in the backlog

// A resumed process may exit before its answer has been sent; the destructor below waits for that.
constinit std::atomic<pid_t> resume_answer_pending{
    0};  // by pid, so that a forked child does not wait

class PendingResumeAnswer {
 public:
  explicit PendingResumeAnswer(const ControlRequest& request) {
    if (request.what == ControlWhat::Resume) resume_answer_pending.store(::getpid());
  }
  ~PendingResumeAnswer() { resume_answer_pending.store(0); }
  PendingResumeAnswer(const PendingResumeAnswer&) = delete;
  PendingResumeAnswer& operator=(const PendingResumeAnswer&) = delete;
};

[[gnu::destructor]] void wait_for_resume_answer() {
  const auto until = Deadline::after(patience);
  while (resume_answer_pending.load() == ::getpid() && !until.is_over()) ::poll(nullptr, 0, 1);
}

// Unique among running processes, across pid namespaces.
std::string name_of(pid_t process) {
  return control_prefix + std::to_string(process) + "-" + std::to_string(namespace_of_processes());
}

// Receives one packet of exactly the size of `Words`; nothing if none has arrived yet.
template <class Words>
Result<std::optional<Words>> received(const Fd& socket, const char* doing) {
  Words words;
  for (;;) {
    const ssize_t got = ::recv(socket.number(), &words, sizeof words, MSG_TRUNC | MSG_DONTWAIT);
    if (got == static_cast<ssize_t>(sizeof words)) return std::optional{words};
    if (got == 0) return other_side_has_gone(doing);
    if (got > 0) return Error::invalid(doing, "it is of another version");
    if (errno == EAGAIN) return std::optional<Words>{};
    // ECONNRESET: the other side has closed, with words of ours unread. What it said comes next.
    if (errno != EINTR && errno != ECONNRESET) return system_error(doing);
  }
}

Result<std::optional<ControlAnswer>> received_answer(const Fd& socket) {
  auto answer = TRY(received<ControlAnswer>(socket, controlling));
  if (answer) answer->text.back() = '\0';
  return answer;
}

template <class Words>
Result<void> send_words(const Fd& socket, const Words& words, Deadline until, const char* doing) {
  for (;;) {
    const ssize_t sent = ::send(socket.number(), &words, sizeof words, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(sizeof words)) return {};
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return other_side_has_gone(doing);
    if (sent >= 0 || (errno != EAGAIN && errno != EINTR)) return system_error(doing);
    TRY(wait_for(socket, POLLOUT, until, doing));
  }
}

void say_why(const Error& error) {
  if (!says_gone(error)) CUVMM_LOG_RARELY(Warning, "%s", error.text().c_str());
}

void give(const Fd& socket, const ControlAnswer& answer) {
  const auto said = send_words(socket, answer, Deadline::after(patience), serving);
  if (!said.ok()) say_why(said.error());
}

ControlAnswer refusal(const char* why) {
  ControlAnswer answer;
  answer.say(why);
  return answer;
}

struct Reached {
  pid_t process = 0;  // in our namespace; 0 if it is not visible here
  Fd socket;
};

// Every process that listens in our folders.
std::vector<Reached> reach_everybody(Deadline until) {
  std::vector<Reached> everybody;
  for (const std::string& path : folders_to_search()) {
    const auto folder = PrivateFolder::open(path);
    if (!folder.ok()) continue;
    remove_stale_sockets(*folder, control_prefix);
    for (const std::string& name : sockets_in(*folder, control_prefix)) {
      auto socket = connect_to(folder->open_path_of(name), until);
      if (!socket.ok()) continue;
      const auto process = checked_peer(*socket);
      if (process.ok()) everybody.push_back({*process, std::move(*socket)});
    }
  }
  return everybody;
}

Result<Fd> reach(pid_t process, Deadline until) {
  Fd socket;
  const auto by_name =
      in_any_folder(name_of(process), [&](const std::string& path) -> Result<void> {
        socket = TRY(connect_to(path, until));
        if (TRY(checked_peer(socket)) == process) return {};
        return Error{.kind = ErrorKind::NotFound, .doing = controlling};
      });
  if (by_name.ok()) return socket;
  // It may run in a child namespace of ours, where its pid differs.
  for (Reached& one : reach_everybody(until)) {
    if (one.process == process) return std::move(one.socket);
  }
  if (by_name.error().kind != ErrorKind::NotFound) return by_name.error();
  return Error{
      .kind = ErrorKind::NotFound,
      .doing = controlling,
      .subject =
          "it has no control socket here: start it with `cuvmm run --control`, as the same "
          "user and with the same XDG_RUNTIME_DIR. It has none before its first "
          "driver call, and none with --mode monitor or off"};
}

}  // namespace

void ControlAnswer::say(const std::string& words) {
  const std::size_t length = std::min(words.size(), text.size() - 1);
  std::memcpy(text.data(), words.data(), length);
  text[length] = '\0';
}

Result<ListeningSocket> ControlSocket::listen() {
  const std::string folder = TRY(private_folder());
  remove_stale_sockets(TRY(PrivateFolder::open(folder)), control_prefix);
  return ListeningSocket::open(folder + "/" + name_of(::getpid()),
                               {.replace = ListeningSocket::Replace::Nothing});
}

Result<ControlSocket> ControlSocket::open() {
  ControlSocket socket{TRY(listen())};
  socket.keep_spare();
  return socket;
}

void ControlSocket::keep_file() {
  listening_.refresh_file();
  if (!listening_.is_of_this_process() || listening_.has_file()) return;
  if (auto again = listen(); again.ok()) listening_ = std::move(*again);
}

// A socket, because it cannot be mistaken for a file of the program.
void ControlSocket::keep_spare() {
  if (spare_.is_open()) return;
  spare_ = ForkClosedFd{Fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)}};
}

bool ControlSocket::free_spare_for_visitor() {
  const bool used_up = errno == EMFILE || errno == ENFILE;
  if (!used_up || !spare_.is_open() || !has_event(listening_.socket(), POLLIN)) return false;
  spare_.close();
  return true;
}

void ControlSocket::let_in() {
  keep_spare();
  while (visitors_.size() < most_visitors) {
    Fd socket{
        ::accept4(listening_.socket().number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED || free_spare_for_visitor()) continue;
      if (errno != EAGAIN) ::poll(nullptr, 0, 10);
      return;
    }
    const auto who = checked_peer(socket, user_);
    if (who.ok()) {
      visitors_.push_back({OwnFd{std::move(socket)}, now_us()});
    } else {
      say_why(who.error());
    }
  }
}

void ControlSocket::listen_to_visitors() {
  const std::uint64_t now = now_us();
  std::erase_if(visitors_, [&](Visitor& visitor) {
    if (visitor.asks) return false;
    const auto request = received<ControlRequest>(visitor.socket.file(), serving);
    if (!request.ok()) {
      say_why(request.error());
      return true;
    }
    visitor.asks = *request;
    return !visitor.asks && now - visitor.came_us > static_cast<std::uint64_t>(patience.count());
  });
}

void ControlSocket::wait_for_visitors(Deadline until) const {
  std::vector<pollfd> waited{{listening_.socket().number(), POLLIN, 0}};
  for (const Visitor& visitor : visitors_) waited.push_back({visitor.socket.number(), POLLIN, 0});
  // Wakes up regularly, so that silent visitors are dropped in time.
  const int longest = visitors_.empty() ? until.milliseconds_left() : 100;
  poll_files(waited, std::min(longest, until.milliseconds_left()));
}

void ControlSocket::serve(const Answering& answer, Deadline until) {
  for (;;) {
    let_in();
    listen_to_visitors();
    const auto next = std::find_if(visitors_.begin(), visitors_.end(),
                                   [](const Visitor& visitor) { return visitor.asks.has_value(); });
    if (next != visitors_.end()) {
      const Visitor visitor = std::move(*next);
      visitors_.erase(next);
      const PendingResumeAnswer telling{*visitor.asks};
      give(visitor.socket.file(), answer_to(visitor, answer));
      continue;
    }
    if (until.is_over()) return;
    wait_for_visitors(until);
  }
}

// Whoever sent a request to pause together.
class ControlSocket::SenderAsCoordinator : public PauseCoordinator {
 public:
  SenderAsCoordinator(const OwnFd& socket, const StillWanted& is_wanted)
      : socket_(socket), is_wanted_(is_wanted) {}
  void report(bool has_ended_work) override {
    ControlAnswer standing;
    standing.outcome = has_ended_work ? ControlOutcome::EndedWork : ControlOutcome::Works;
    standing.steps_heard = steps_heard_;
    give(socket_.file(), standing);
  }
  std::optional<GroupStep> step() override {
    const auto said = received<ControlRequest>(socket_.file(), serving);
    if (said.ok() && *said && (*said)->what == ControlWhat::Step) {
      step_ = static_cast<GroupStep>((*said)->step);
      ++steps_heard_;
    }
    return step_;
  }
  void forget_step() override { step_.reset(); }
  void wait() override {
    pollfd waited{socket_.number(), POLLIN, 0};
    poll_files({&waited, 1}, 5);
  }
  bool is_waiting() override { return is_wanted_(); }

 private:
  const OwnFd& socket_;
  const StillWanted& is_wanted_;
  std::optional<GroupStep> step_;
  std::uint32_t steps_heard_ = 0;
};

ControlAnswer ControlSocket::answer_to(const Visitor& visitor, const Answering& answer) {
  const ControlRequest& request = *visitor.asks;
  if (request.version != control_version) return refusal("this process speaks another version");
  const StillWanted is_wanted = [&] { return is_still_wanted(visitor, answer); };
  SenderAsCoordinator sender{visitor.socket, is_wanted};
  const bool is_together = (request.flags & control_flag::together) != 0;
  return answer(request, is_wanted, is_together ? &sender : nullptr);
}

bool ControlSocket::is_still_wanted(const Visitor& asking, const Answering& answer) {
  if (has_gone(asking.socket.file())) return false;
  let_in();
  listen_to_visitors();
  bool is_wanted = true;
  std::erase_if(visitors_, [&](const Visitor& visitor) {
    if (!visitor.asks || visitor.asks->version != control_version) return false;
    if (visitor.asks->what == ControlWhat::Resume && asking.asks->what != ControlWhat::Resume) {
      is_wanted = false;  // and is served next
      return false;
    }
    give(visitor.socket.file(), visitor.asks->what == ControlWhat::State
                                    ? answer(*visitor.asks, &always_wanted, nullptr)
                                    : refusal("another pause or resume is under way"));
    return true;
  });
  return is_wanted;
}

Result<ControlConnection> ControlConnection::open(pid_t process, Deadline until) {
  return ControlConnection{TRY(reach(process, until))};
}

Result<void> ControlConnection::send(const ControlRequest& request, Deadline until) const {
  return send_words(socket_, request, until, controlling);
}

Result<std::optional<ControlAnswer>> ControlConnection::receive() const {
  return received_answer(socket_);
}

Result<ControlAnswer> tell(pid_t process, const ControlRequest& request, Deadline until) {
  return tell(TRY(reach(process, until)), request, until);
}

Result<ControlAnswer> tell(const Fd& socket, const ControlRequest& request, Deadline until) {
  TRY(send_words(socket, request, until, controlling));
  for (;;) {
    if (const auto answer = TRY(received_answer(socket))) return *answer;
    TRY(wait_for(socket, POLLIN, until, controlling));
  }
}

std::vector<pid_t> controlled_processes() {
  std::vector<pid_t> processes;
  for (const Reached& one : reach_everybody(Deadline::after(patience))) {
    if (one.process > 0) processes.push_back(one.process);
  }
  std::sort(processes.begin(), processes.end());
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  return processes;
}

}  // namespace cuvmm::share
