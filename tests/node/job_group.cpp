// SPDX-License-Identifier: Apache-2.0
#include "node/job_group.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace cuvmm::node {
namespace {

TEST(JobGroups, FollowFromTheCgroupOfASlurmStep) {
  EXPECT_EQ(group_of_cgroups("0::/system.slice/slurmstepd.scope/job_12/step_3/user/task_0\n"),
            "slurm-12.3");
  EXPECT_EQ(group_of_cgroups("9:cpuset:/\n4:memory:/slurm/uid_0/job_7/step_0/task_1\n0::/\n"),
            "slurm-7.0");
  EXPECT_EQ(group_of_cgroups("0::/system.slice/slurmstepd.scope/job_12/step_batch/user\n"),
            "slurm-12")
      << "the job's own script";
}

TEST(JobGroups, FollowFromTheCgroupOfAPod) {
  EXPECT_EQ(group_of_cgroups("0::/kubepods.slice/kubepods-burstable.slice/"
                             "kubepods-burstable-pod8a2f_01.slice/cri-containerd-77.scope\n"),
            "pod-8a2f_01");
  EXPECT_EQ(group_of_cgroups("0::/kubepods/besteffort/pod8a2f-01/77\n"), "pod-8a2f-01");
  EXPECT_EQ(group_of_cgroups("0::/kubepods.slice/kubepods-pod8a2f.slice/x.scope"), "pod-8a2f");
}

TEST(JobGroups, DoNotFollowFromSessionsServicesAndNamesThatOnlyLookAlike) {
  for (const char* text :
       {"", "0::/\n", "0::/user.slice/user-1000.slice/session-3.scope\n",
        "0::/system.slice/train.service\n", "0::/home/job_7/step_0\n", "0::/podcast.slice\n",
        "0::/slurm/job_x/step_0\n", "0::/kubepods.slice/kubepods-burstable.slice\n", "::::\n\n:"}) {
    EXPECT_EQ(group_of_cgroups(text), "") << text;
  }
}

TEST(JobGroups, FollowFromTheVariablesOfSlurmAndRay) {
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "RAY_JOB_ID"}) ::unsetenv(name);
  EXPECT_EQ(group_of_environment(), "");
  ::setenv("RAY_JOB_ID", "01000000", 1);
  EXPECT_EQ(group_of_environment(), "ray-01000000");
  ::setenv("SLURM_JOB_ID", "12", 1);
  EXPECT_EQ(group_of_environment(), "slurm-12");
  ::setenv("SLURM_STEP_ID", "3", 1);
  EXPECT_EQ(group_of_environment(), "slurm-12.3");
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "RAY_JOB_ID"}) ::unsetenv(name);
}

}  // namespace
}  // namespace cuvmm::node
