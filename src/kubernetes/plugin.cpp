// SPDX-License-Identifier: Apache-2.0
#include "kubernetes/plugin.hpp"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "base/log.hpp"

namespace cuvmm::kubernetes {
namespace {

constexpr const char* serving_kubelet = "serve the kubelet";
constexpr const char* api_version = "v1beta1";
constexpr const char* own_socket = "cuvmm-memory.sock";
constexpr const char* kubelet_socket = "kubelet.sock";
constexpr std::chrono::seconds kubelet_answers_within{5};
constexpr int look_at_cards_every_ms = 5'000;
constexpr int register_again_after_ms = 1'000;

Error system_error(const char* subject) {
  return {.kind = ErrorKind::SystemFailed,
          .system_code = errno,
          .doing = serving_kubelet,
          .subject = subject};
}

}  // namespace

Plugin::Plugin(PluginPlace place, PluginService& service, std::function<void()> look_at_cards)
    : place_(std::move(place)), service_(service), look_at_cards_(std::move(look_at_cards)) {}

Plugin::~Plugin() {
  stop_serving();
}

Result<std::unique_ptr<Plugin>> Plugin::open(PluginPlace place, PluginService& service,
                                             std::function<void()> look_at_cards) {
  std::unique_ptr<Plugin> plugin{new Plugin{std::move(place), service, std::move(look_at_cards)}};
  // Before gRPC starts threads, which inherit the mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  plugin->signals_ = Fd{::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (!plugin->signals_.is_open()) return system_error("signals");

  // Before anything is served or registered, so that no event is missed.
  plugin->folder_watch_ = Fd{::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  const bool is_watched =
      plugin->folder_watch_.is_open() &&
      ::inotify_add_watch(
          plugin->folder_watch_.number(), plugin->place_.folder.c_str(),
          IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_ONLYDIR) >= 0;
  if (!is_watched) return system_error("the kubelet's folder of plugins");
  TRY(plugin->serve());
  return plugin;
}

Result<void> Plugin::serve() {
  const std::string path = place_.folder + "/" + own_socket;
  ::unlink(path.c_str());  // left by a killed plugin
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix://" + path, grpc::InsecureServerCredentials());
  builder.RegisterService(&service_);
  service_.resume();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return Error{.kind = ErrorKind::SystemFailed,
                 .doing = serving_kubelet,
                 .subject = "gRPC cannot listen in the kubelet's folder of plugins"};
  }
  return {};
}

void Plugin::stop_serving() {
  if (server_ == nullptr) return;
  service_.stop();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds{1});
  server_->Wait();
  server_.reset();
}

Plugin::Registration Plugin::register_with_kubelet() {
  const std::string path = place_.folder + "/" + kubelet_socket;
  if (::access(path.c_str(), F_OK) != 0) return Registration::KubeletIsNotThere;
  grpc::ChannelArguments arguments;
  // Otherwise gRPC would reuse a channel to a killed kubelet for the new one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel =
      grpc::CreateCustomChannel("unix://" + path, grpc::InsecureChannelCredentials(), arguments);
  const auto stub = v1beta1::Registration::NewStub(channel);
  v1beta1::RegisterRequest request;
  request.set_version(api_version);
  request.set_endpoint(own_socket);
  request.set_resource_name(place_.resource);
  *request.mutable_options() = plugin_options();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kubelet_answers_within);
  v1beta1::Empty answer;
  const grpc::Status status = stub->Register(&context, request, &answer);
  if (status.ok()) {
    CUVMM_LOG(Info, "the kubelet counts %s", place_.resource.c_str());
    return Registration::Done;
  }
  const bool may_come = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  CUVMM_LOG(Warning, "the kubelet did not register %s: %s", place_.resource.c_str(),
            status.error_message().c_str());
  return may_come ? Registration::KubeletIsNotThere : Registration::Refused;
}

Plugin::FolderNews Plugin::read_news() {
  FolderNews news;
  alignas(inotify_event) std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t size = ::read(folder_watch_.number(), buffer.data(), buffer.size());
    if (size <= 0) return news;
    for (ssize_t at = 0; at < size;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      const bool is_gone = (event->mask & (IN_DELETE | IN_MOVED_FROM)) != 0;
      const std::string name = event->len > 0 ? event->name : "";
      if ((event->mask & (IN_DELETE_SELF | IN_IGNORED)) != 0) news.folder_is_gone = true;
      if (name == own_socket && is_gone) news.own_socket_is_gone = true;
      if (name == kubelet_socket && !is_gone) news.kubelet_is_new = true;
      // The queue overflowed: assume that the kubelet restarted.
      if ((event->mask & IN_Q_OVERFLOW) != 0) news.kubelet_is_new = true;
    }
  }
}

Result<void> Plugin::run() {
  bool is_registered = false;
  for (;;) {
    look_at_cards_();
    if (!is_registered) {
      const Registration outcome = register_with_kubelet();
      if (outcome == Registration::Refused) {
        return Error{.kind = ErrorKind::NotSupported,
                     .doing = "register",
                     .subject = "the kubelet refuses this plugin"};
      }
      is_registered = outcome == Registration::Done;
    }
    std::array<pollfd, 2> ready{{{.fd = folder_watch_.number(), .events = POLLIN, .revents = 0},
                                 {.fd = signals_.number(), .events = POLLIN, .revents = 0}}};
    const int timeout = is_registered ? look_at_cards_every_ms : register_again_after_ms;
    if (::poll(ready.data(), ready.size(), timeout) < 0 && errno != EINTR) {
      return system_error("poll");
    }
    if (ready[1].revents != 0) {
      CUVMM_LOG(Info, "asked to end");
      return {};
    }
    const Error folder_is_gone{.kind = ErrorKind::NotFound,
                               .doing = serving_kubelet,
                               .subject = "its folder of plugins has been removed"};
    const auto has_folder = [&] { return ::access(place_.folder.c_str(), F_OK) == 0; };
    const FolderNews news = read_news();
    if (news.folder_is_gone || !has_folder()) return folder_is_gone;
    const bool is_there = ::access((place_.folder + "/" + own_socket).c_str(), F_OK) == 0;
    if (news.own_socket_is_gone && !is_there) {
      CUVMM_LOG(Info, "the kubelet removed our socket: serving again");
      stop_serving();
      // The folder may be removed right after its contents.
      const Result<void> serves = serve();
      if (!serves.ok()) return has_folder() ? serves.error() : folder_is_gone;
      is_registered = false;
    }
    if (news.kubelet_is_new) is_registered = false;
  }
}

}  // namespace cuvmm::kubernetes
