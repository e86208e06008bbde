// SPDX-License-Identifier: Apache-2.0
#include "node/container.hpp"

#include <gtest/gtest.h>

namespace cuvmm::node {
namespace {

const std::string id(64, 'a');
const std::string other_id(64, '7');

TEST(Containers, FollowFromTheCgroupsOfTheUsualRuntimes) {
  for (const std::string& path : {
           "/docker/" + id,
           "/system.slice/docker-" + id + ".scope",
           "/machine.slice/libpod-" + id + ".scope/container",
           "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope",
           "/system.slice/nerdctl-" + id + ".scope",
           "/default/" + id,
           "/docker/" + id + "/init.scope",
       }) {
    EXPECT_EQ(container_of_cgroups("0::" + path + "\n"), (Container{.id = id, .pod = ""})) << path;
    EXPECT_EQ(container_of_cgroups("12:pids:" + path + "\n0::/\n")->id, id) << path;
  }
}

TEST(Containers, FollowFromTheCgroupOfAPod) {
  const std::string slice = "kubepods-burstable-pod8a2f_01.slice";
  for (const std::string& path : {
           "/kubepods.slice/kubepods-burstable.slice/" + slice + "/cri-containerd-" + id + ".scope",
           "/kubepods.slice/kubepods-burstable.slice/" + slice + "/crio-" + id + ".scope",
           "/kubepods/besteffort/pod8a2f-01/" + id,
       }) {
    EXPECT_EQ(container_of_cgroups("0::" + path), (Container{.id = id, .pod = "8a2f-01"})) << path;
  }
  EXPECT_EQ(container_of_cgroups("1:cpu:/system.slice/containerd.service/" + slice +
                                 ":cri-containerd:" + id)
                ->id,
            id);
}

TEST(Containers, OfNestedOnesTheInnermostCounts) {
  EXPECT_EQ(container_of_cgroups("0::/docker/" + id + "/kubelet/libpod-" + other_id + ".scope")->id,
            other_id);
}

TEST(Containers, DoNotFollowFromNamesThatOnlyLookAlike) {
  for (const std::string& text :
       {std::string{}, std::string{"0::/"}, std::string{"0::/user.slice/session-3.scope\n"},
        "0::/docker/" + id.substr(1), "0::/docker/x" + id, "0::/docker/" + std::string(64, 'A'),
        "0::/machine.slice/libpod-conmon-" + id + ".scope", std::string{"::::\n\n:/"}}) {
    EXPECT_FALSE(container_of_cgroups(text)) << text;
  }
}

TEST(Containers, AreNamedByTheBeginningOfTheirIdOrTheirPods) {
  const Container container{.id = id, .pod = "8a2f-01"};
  EXPECT_TRUE(container.is_named("aaa"));
  EXPECT_TRUE(container.is_named("8a2f"));
  EXPECT_FALSE(container.is_named("aab"));
  EXPECT_FALSE((Container{.id = id, .pod = ""}.is_named("8")));
}

}  // namespace
}  // namespace cuvmm::node
