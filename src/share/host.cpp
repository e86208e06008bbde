// SPDX-License-Identifier: Apache-2.0
#include "share/host.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/log_rarely.hpp"

namespace cuvmm::share {
namespace {

// Peers that may be connected at a time without having said Hello, beyond the known importers.
constexpr std::size_t most_strangers = 512;

// An importer sends one message and waits for the answer, so its socket has room for the answer.
// One that leaves no room violates the protocol.
constexpr Deadline at_once{};

}  // namespace

Result<std::unique_ptr<Host>> Host::open(const HostSettings& settings) {
  // Runs once the path is ours, and before anyone can connect.
  const auto put_token_down = [&]() -> Result<void> {
    if (settings.token_path.empty()) return {};
    return write_token(settings.token_path, settings.token);
  };
  ListeningSocket listening =
      TRY(ListeningSocket::open(settings.path, {.replace = settings.replace}, put_token_down));
  return std::unique_ptr<Host>{new Host{settings, std::move(listening)}};
}

Host::~Host() {
  if (listening_.is_of_this_process()) refuse_importers_without_grants();
  if (!settings_.token_path.empty() && listening_.is_of_this_process()) {
    ::unlink(settings_.token_path.c_str());
  }
}

// Tells importers without a grant that there will be none; otherwise their connections would break
// as if this process had died.
void Host::refuse_importers_without_grants() {
  accept_all();
  for (const auto& [id, peer] : peers_) {
    if (peer.grants.empty()) (void)say(peer, Refused{.why = Refusal::Ended});
  }
}

void Host::refresh_files() {
  constexpr std::uint64_t an_hour_us = 3600ull * 1'000'000;
  const std::uint64_t now = now_us();
  if (now < refreshed_us_ + an_hour_us) return;
  refreshed_us_ = now;
  listening_.refresh_file();
  if (!settings_.token_path.empty() && listening_.is_of_this_process()) {
    ::utimensat(AT_FDCWD, settings_.token_path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  }
}

std::size_t Host::grants() const {
  std::size_t count = 0;
  for (const auto& [id, peer] : peers_) count += peer.grants.size();
  return count;
}

// The program may have closed the socket with all other files. New importers find the new one.
void Host::listen_again() {
  if (listening_.socket().is_open() || process_ != ::getpid()) return;
  { const ListeningSocket closed = std::move(listening_); }  // removes its file
  auto listening = ListeningSocket::open(settings_.path, {.replace = settings_.replace});
  if (listening.ok()) {
    listening_ = std::move(*listening);
  } else {
    CUVMM_LOG_RARELY(Warning, "%s; new importers are refused", listening.error().text().c_str());
  }
}

Result<std::optional<HostEvent>> Host::wait(Deadline until, int also) {
  refresh_files();
  listen_again();
  while (events_.empty()) {
    std::vector<pollfd> waited{{listening_.socket().number(), POLLIN, 0}, {also, POLLIN, 0}};
    std::vector<PeerId> ids;
    bool strangers = false;
    for (const auto& [id, peer] : peers_) {
      waited.push_back({peer.socket.number(), POLLIN, 0});
      ids.push_back(id);
      strangers = strangers || !peer.known;
    }
    // Wakes up regularly while there are strangers, so that they are dropped in time.
    const int longest = strangers ? 100 : until.milliseconds_left();
    const int ready = poll_files(waited, std::min(longest, until.milliseconds_left()));
    drop_closed_peers();
    drop_the_silent();
    if (ready > 0) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto peer = peers_.find(ids[i]);
        if (waited[i + 2].revents == 0 || peer == peers_.end()) continue;
        const auto served = serve(ids[i], peer->second);
        if (served.ok()) continue;
        if (!says_gone(served.error())) {
          CUVMM_LOG_RARELY(Info, "an importer is dropped: %s", served.error().text().c_str());
        }
        drop(ids[i]);
      }
      if (waited[0].revents != 0) accept_all();
      if (waited[1].revents != 0) break;
    }
    if (events_.empty() && until.is_over()) break;
  }
  if (events_.empty()) return std::optional<HostEvent>{};
  const HostEvent event = events_.front();
  events_.pop_front();
  return std::optional{event};
}

void Host::accept_all() {
  while (listening_.socket().is_open()) {
    Fd socket{
        ::accept4(listening_.socket().number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (socket.is_open()) {
      accept_one(std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    // Out of descriptors, for instance: no importer can be accepted, but the existing ones go on.
    if (errno != EAGAIN) {
      CUVMM_LOG_ONCE(Warning, "%s", system_error("accept an importer").text().c_str());
      ::poll(nullptr, 0, 10);
    }
    return;
  }
}

void Host::accept_one(Fd socket) {
  const auto who = checked_peer(socket);
  if (!who.ok()) {
    CUVMM_LOG_RARELY(Warning, "%s; the connection is refused", who.error().text().c_str());
    return;
  }
  if (peers_.size() - known_ >= most_strangers) return;
  Peer& peer = peers_[++last_peer_];
  peer.socket = ForkClosedFd{std::move(socket)};
  peer.came_us = now_us();
}

// Drops peers whose sockets the program has closed along with its own descriptors.
void Host::drop_closed_peers() {
  for (auto at = peers_.begin(); at != peers_.end();) {
    const auto peer = at++;
    if (!peer->second.socket.is_open()) drop(peer->first);
  }
}

void Host::drop_the_silent() {
  if (peers_.size() == known_) return;
  const std::uint64_t now = now_us();
  const auto patience = static_cast<std::uint64_t>(settings_.patience.count());
  for (auto at = peers_.begin(); at != peers_.end();) {
    const PeerId id = at->first;
    const bool silent = !at->second.known && now - at->second.came_us > patience;
    ++at;
    if (silent) drop(id);
  }
}

void Host::drop(PeerId id) {
  const auto peer = peers_.find(id);
  if (peer == peers_.end()) return;
  const bool was_known = peer->second.known;
  if (was_known) --known_;
  // One event per grant, so that the caller need not track which peer holds which grants.
  for (const auto& [grant, granted] : peer->second.grants) {
    add({.what = HostEvent::What::Released, .peer = id, .grant = grant, .asked = {}});
  }
  peers_.erase(peer);
  if (was_known) add({.what = HostEvent::What::Left, .peer = id, .asked = {}});
}

// Handles one message, so that no peer can starve the others.
Result<void> Host::serve(PeerId id, Peer& peer) {
  auto packet = receive(peer.socket.file(), at_once);
  if (!packet.ok() && packet.error().kind == ErrorKind::TimedOut) return {};
  if (!packet.ok()) {
    if (packet.error().kind == ErrorKind::NotAvailable) {
      // Every version can decode this, so the other side can report the mismatch.
      (void)say(peer, Refused{.why = Refusal::Version});
    }
    return packet.error();
  }
  return take(id, peer, packet->message);
}

Result<void> Host::take(PeerId id, Peer& peer, const Message& message) {
  using What = HostEvent::What;
  if (const auto* hello = std::get_if<Hello>(&message)) return greet(id, peer, *hello);
  if (!peer.known) return Error::invalid("serve an importer", "it has not sent a greeting");
  if (const auto* ask = std::get_if<Ask>(&message)) {
    add({.what = What::Asked, .peer = id, .asked = *ask});
    return {};
  }
  if (const auto* fetch = std::get_if<Fetch>(&message)) return answer_fetch(id, peer, *fetch);
  if (const auto* said = std::get_if<Acknowledge>(&message)) {
    if (!peer.grants.contains(said->grant)) {
      return Error::invalid("serve an importer", "it acknowledged memory that it was not given");
    }
    add({.what = What::Acknowledged,
         .peer = id,
         .grant = said->grant,
         .status = said->status,
         .asked = {}});
    return {};
  }
  if (const auto* release = std::get_if<Release>(&message)) {
    if (peer.grants.erase(release->grant) == 0) {
      return Error::invalid("serve an importer", "it released memory that it was not given");
    }
    add({.what = What::Released, .peer = id, .grant = release->grant, .asked = {}});
    return say(peer, Released{release->grant});
  }
  return Error::invalid("serve an importer", "it sent an exporter's message");
}

Result<void> Host::greet(PeerId id, Peer& peer, const Hello& hello) {
  constexpr const char* doing = "let an importer in";
  const bool right = same(hello.token, settings_.token);
  const auto refuse_as = [&](Refusal why) {
    (void)say(peer, Refused{.why = why});
    return Error::invalid(doing, name_of(why));
  };
  if (peer.known) return refuse_as(Refusal::OutOfTurn);
  if (!right) return refuse_as(Refusal::Token);
  if (known_ >= settings_.most_peers) return refuse_as(Refusal::TooMany);
  TRY(say(peer, Welcome{.process = static_cast<std::uint32_t>(::getpid())}));
  peer.known = true;
  ++known_;
  add({.what = HostEvent::What::Came, .peer = id, .asked = {}});
  return {};
}

// `files` keeps the descriptors open until the kernel has duplicated them into the packet.
Result<void> Host::answer_fetch(PeerId id, Peer& peer, const Fetch& fetch) {
  const auto found = peer.grants.find(fetch.grant);
  if (found == peer.grants.end()) return say(peer, Refused{.why = Refusal::Unknown});
  const Granted& granted = found->second;
  const std::vector<ChunkRef>& chunks = granted.chunks;
  if (fetch.first >= chunks.size()) {
    return Error::invalid("serve an importer", "it fetches no such chunks");
  }
  const std::size_t end = std::min(chunks.size(), fetch.first + most_descriptors);
  Chunks sent{.grant = fetch.grant, .first = fetch.first, .sizes = {}};
  std::vector<SentFile> files;
  std::vector<int> numbers;
  for (std::size_t i = fetch.first; i < end; ++i) {
    auto file = chunks[i].file_to_send();
    if (!file.ok() && !files.empty()) break;  // out of descriptors, perhaps: the rest comes later
    if (!file.ok()) {
      CUVMM_LOG(Warning, "%s", file.error().text().c_str());
      return say(peer, Refused{.why = Refusal::Failed});
    }
    sent.sizes.push_back(chunks[i]->size());
    numbers.push_back(file->number);
    files.push_back(std::move(*file));
  }
  const auto said = say(peer, sent, numbers);
  // The user's limit of descriptors in flight is reached; the importer may retry.
  if (!said.ok() && said.error().system_code == ETOOMANYREFS) {
    CUVMM_LOG(Warning, "%s", said.error().text().c_str());
    return say(peer, Refused{.why = Refusal::Failed});
  }
  TRY(said);
  if (fetch.first + files.size() == chunks.size()) {
    add({.what = HostEvent::What::Fetched, .peer = id, .grant = fetch.grant, .asked = {}});
  }
  return {};
}

Result<void> Host::say(const Peer& peer, const Message& message, std::span<const int> files) {
  return send(peer.socket.file(), message, files, at_once);
}

Result<GrantId> Host::grant(PeerId id, Granted granted) {
  constexpr const char* doing = "grant memory";
  const auto peer = peers_.find(id);
  if (peer == peers_.end() || !peer->second.known) {
    return Error{
        .kind = ErrorKind::NotFound, .doing = doing, .subject = "the importer is not there"};
  }
  Grant grant{.id = ++last_grant_,
              .total = granted.total(),
              .offset = granted.offset,
              .size = granted.size,
              .chunks = static_cast<std::uint32_t>(granted.chunks.size()),
              .access = granted.access,
              .tag = granted.tag};
  const bool fits = grant.size != 0 && grant.offset <= grant.total &&
                    grant.size <= grant.total - grant.offset && grant.chunks <= most_chunks;
  if (granted.chunks.empty() || !fits) return Error::invalid(doing, "it does not fit its chunks");
  const GrantId id_of_it = grant.id;
  const auto said = say(peer->second, grant);
  // An importer that has not received earlier grants yet may have no room for this one.
  if (!said.ok() && said.error().kind != ErrorKind::TimedOut) drop(id);
  TRY(said);
  peer->second.grants.emplace(id_of_it, std::move(granted));
  return id_of_it;
}

Result<void> Host::refuse(PeerId id, Refusal why) {
  const auto peer = peers_.find(id);
  if (peer == peers_.end()) return {};
  return say(peer->second, Refused{.why = why});
}

}  // namespace cuvmm::share
