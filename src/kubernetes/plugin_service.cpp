// SPDX-License-Identifier: Apache-2.0
#include "kubernetes/plugin_service.hpp"

#include <chrono>

#include "base/log.hpp"

namespace cuvmm::kubernetes {
namespace {

// How soon a watcher that has disconnected silently is noticed.
constexpr std::chrono::milliseconds looks_at_watcher_every{500};

template <class Ids>
std::vector<std::string> texts(const Ids& ids) {
  return {ids.begin(), ids.end()};
}

grpc::Status refuse(grpc::StatusCode code, const std::string& why) {
  CUVMM_LOG(Warning, "refused: %s", why.c_str());
  return {code, why};
}

}  // namespace

v1beta1::DevicePluginOptions plugin_options() {
  v1beta1::DevicePluginOptions options;
  options.set_get_preferred_allocation_available(true);
  return options;
}

PluginService::PluginService(Units units, ContainerOptions options)
    : options_(std::move(options)), units_(std::move(units)) {}

void PluginService::set_health(std::size_t card, bool is_healthy) {
  const std::lock_guard lock{mutex_};
  if (!units_.set_health(card, is_healthy)) return;
  CUVMM_LOG(Warning, "card %s %s", units_.cards()[card].uuid.c_str(),
            is_healthy ? "answers again" : "does not answer; its units are unhealthy");
  ++news_;
  changed_.notify_all();
}

void PluginService::stop() {
  const std::lock_guard lock{mutex_};
  is_stopped_ = true;
  changed_.notify_all();
}

void PluginService::resume() {
  const std::lock_guard lock{mutex_};
  is_stopped_ = false;
}

v1beta1::ListAndWatchResponse PluginService::list() const {
  v1beta1::ListAndWatchResponse answer;
  for (std::size_t card = 0; card < units_.cards().size(); ++card) {
    const Card& facts = units_.cards()[card];
    for (std::uint32_t number = 0; number < facts.units; ++number) {
      v1beta1::Device* const device = answer.add_devices();
      device->set_id(units_.id(card, number));
      device->set_health(facts.is_healthy ? "Healthy" : "Unhealthy");
    }
  }
  return answer;
}

grpc::Status PluginService::GetDevicePluginOptions(grpc::ServerContext* /*context*/,
                                                   const v1beta1::Empty* /*request*/,
                                                   v1beta1::DevicePluginOptions* answer) {
  *answer = plugin_options();
  return grpc::Status::OK;
}

grpc::Status PluginService::ListAndWatch(
    grpc::ServerContext* context, const v1beta1::Empty* /*request*/,
    grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) {
  std::unique_lock lock{mutex_};
  while (!is_stopped_) {
    const std::uint64_t sent = news_;
    const auto answer = list();
    lock.unlock();
    if (!writer->Write(answer)) return grpc::Status::OK;
    lock.lock();
    while (!is_stopped_ && news_ == sent) {
      changed_.wait_for(lock, looks_at_watcher_every);
      if (context->IsCancelled()) return grpc::Status::OK;
    }
  }
  return grpc::Status::OK;
}

grpc::Status PluginService::GetPreferredAllocation(
    grpc::ServerContext* /*context*/, const v1beta1::PreferredAllocationRequest* request,
    v1beta1::PreferredAllocationResponse* answer) {
  const std::lock_guard lock{mutex_};
  for (const auto& container : request->container_requests()) {
    const UnitChoice choice =
        units_.prefer(texts(container.available_deviceids()),
                      texts(container.must_include_deviceids()), container.allocation_size());
    if (!choice.ok()) return refuse(grpc::StatusCode::RESOURCE_EXHAUSTED, choice.refusal);
    auto* const chosen = answer->add_container_responses();
    for (const std::string& unit : choice.ids) chosen->add_deviceids(unit);
  }
  return grpc::Status::OK;
}

grpc::Status PluginService::Allocate(grpc::ServerContext* /*context*/,
                                     const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* answer) {
  const std::lock_guard lock{mutex_};
  for (const auto& container : request->container_requests()) {
    const UnitChoice choice = units_.check(texts(container.devices_ids()));
    if (!choice.ok()) return refuse(grpc::StatusCode::INVALID_ARGUMENT, choice.refusal);
    const Card& card = units_.cards()[choice.card];
    const ContainerSetup setup = set_up_container(card, choice.ids.size(), options_);
    auto* const allocated = answer->add_container_responses();
    for (const auto& [name, value] : setup.environment) {
      (*allocated->mutable_envs())[name] = value;
    }
    for (const ContainerMount& mount : setup.mounts) {
      v1beta1::Mount* const added = allocated->add_mounts();
      added->set_container_path(mount.inside);
      added->set_host_path(mount.host);
      added->set_read_only(mount.is_read_only);
    }
    for (const std::string& device : setup.cdi_devices) {
      allocated->add_cdi_devices()->set_name(device);
    }
    CUVMM_LOG(Info, "a container gets %zu GiB of card %s", choice.ids.size(), card.uuid.c_str());
  }
  return grpc::Status::OK;
}

grpc::Status PluginService::PreStartContainer(grpc::ServerContext* /*context*/,
                                              const v1beta1::PreStartContainerRequest* /*request*/,
                                              v1beta1::PreStartContainerResponse* /*answer*/) {
  return grpc::Status::OK;
}

}  // namespace cuvmm::kubernetes
