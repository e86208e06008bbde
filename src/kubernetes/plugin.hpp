// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server.h>

#include <functional>
#include <memory>
#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "kubernetes/plugin_service.hpp"

namespace cuvmm::kubernetes {

struct PluginPlace {
  std::string folder;    // the kubelet's folder, with kubelet.sock
  std::string resource;  // "cuvmm.dev/memory-gib"
};

// Serves the kubelet and registers with it, and does so again after every restart of the kubelet,
// which removes all sockets in its folder and recreates its own. One thread runs it.
class Plugin {
 public:
  // Calls `look_at_cards` every few seconds to update the cards' health.
  static Result<std::unique_ptr<Plugin>> open(PluginPlace place, PluginService& service,
                                              std::function<void()> look_at_cards);
  ~Plugin();

  // Runs until SIGTERM or SIGINT. Returns an Error if the kubelet refuses the plugin or its folder
  // is gone.
  Result<void> run();

 private:
  enum class Registration : std::uint8_t { Done, KubeletIsNotThere, Refused };
  struct FolderNews {
    bool own_socket_is_gone = false;
    bool kubelet_is_new = false;
    bool folder_is_gone = false;
  };

  Plugin(PluginPlace place, PluginService& service, std::function<void()> look_at_cards);
  Result<void> serve();
  void stop_serving();
  Registration register_with_kubelet();
  FolderNews read_news();

  const PluginPlace place_;
  PluginService& service_;
  const std::function<void()> look_at_cards_;
  Fd folder_watch_;  // inotify
  Fd signals_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace cuvmm::kubernetes
