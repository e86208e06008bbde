// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>

#include <deviceplugin.grpc.pb.h>
#include "kubernetes/container_setup.hpp"
#include "kubernetes/units.hpp"

namespace cuvmm::kubernetes {

// The calls from the kubelet. They arrive on gRPC's threads.
class PluginService final : public v1beta1::DevicePlugin::Service {
 public:
  PluginService(Units units, ContainerOptions options);

  // Notifies all watchers if the health has changed.
  void set_health(std::size_t card, bool is_healthy);
  // Ends all watches, so that the server can shut down. New ones can begin after resume().
  void stop();
  void resume();

  grpc::Status GetDevicePluginOptions(grpc::ServerContext* context, const v1beta1::Empty* request,
                                      v1beta1::DevicePluginOptions* answer) override;
  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty* request,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override;
  grpc::Status GetPreferredAllocation(grpc::ServerContext* context,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* answer) override;
  grpc::Status Allocate(grpc::ServerContext* context, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* answer) override;
  grpc::Status PreStartContainer(grpc::ServerContext* context,
                                 const v1beta1::PreStartContainerRequest* request,
                                 v1beta1::PreStartContainerResponse* answer) override;

 private:
  v1beta1::ListAndWatchResponse list() const;  // requires mutex_

  const ContainerOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Units units_;              // guarded by mutex_
  std::uint64_t news_ = 0;   // guarded by mutex_: counts changes of health
  bool is_stopped_ = false;  // guarded by mutex_
};

// The plugin's options, sent at registration and on request.
v1beta1::DevicePluginOptions plugin_options();

}  // namespace cuvmm::kubernetes
