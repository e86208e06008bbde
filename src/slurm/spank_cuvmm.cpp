// SPDX-License-Identifier: Apache-2.0
// A Slurm plugin (SPANK). Slurm counts GPU memory as a generic resource. The plugin turns the grant
// of a job or step into cuvmm's limit, and adds the preload library to its tasks' programs. slurmd,
// slurmstepd, srun, sbatch and salloc load it, and resolve Slurm's own functions.
#include <dlfcn.h>
#include <grp.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/option_types.hpp"
#include "slurm/grant.hpp"
#include "slurm/leftovers.hpp"

extern "C" {
#include <slurm/slurm.h>
#include <slurm/spank.h>
}

#define CUVMM_SPANK extern "C" __attribute__((visibility("default")))

// Slurm looks for these by name.
CUVMM_SPANK const char plugin_name[] = "cuvmm";
CUVMM_SPANK const char plugin_type[] = "spank";
CUVMM_SPANK const unsigned int plugin_version = SLURM_VERSION_NUMBER;
CUVMM_SPANK const unsigned int spank_plugin_version = 1;

namespace cuvmm::slurm {
namespace {

namespace fs = std::filesystem;

// The arguments in plugstack.conf: "required spank_cuvmm.so gres=gpumem unit=1M".
struct Settings {
  std::string resource = "gpumem";
  Size unit = MiB;
  std::string preload;  // empty: the stub of this plugin's installation
};

struct JobOption {
  spank_option described;
  const char* variable;
  bool (*is_right)(const char* value);
  const char* allowed;
};

bool is_size(const char* value) {
  return OptionType<Bytes>::read(value).has_value();
}

template <long least, long most>
bool is_between(const char* value) {
  char* end = nullptr;
  const long number = std::strtol(value, &end, 10);
  return *value != '\0' && *end == '\0' && number >= least && number <= most;
}

int take_value(int index, const char* value, int remote);

std::array<JobOption, 3> options{{
    {{const_cast<char*>("cuvmm-guarantee"), const_cast<char*>("SIZE"),
      const_cast<char*>(
          "GPU memory that each program of the job can always get from cuvmmd, as 4G"),
      1, 0, &take_value},
     "VMM_GUARANTEE",
     &is_size,
     "a size, as 4G"},
    {{const_cast<char*>("cuvmm-weight"), const_cast<char*>("N"),
      const_cast<char*>("share of GPU time where programs take turns, from 1 to 10000"), 1, 1,
      &take_value},
     "VMM_WEIGHT",
     &is_between<1, 10'000>,
     "a number from 1 to 10000"},
    {{const_cast<char*>("cuvmm-priority"), const_cast<char*>("N"),
      const_cast<char*>("cuvmmd reclaims from the lowest first, from -100 to 100"), 1, 2,
      &take_value},
     "VMM_PRIORITY",
     &is_between<-100, 100>,
     "a number from -100 to 100"},
}};
std::array<std::string, options.size()> values;

// In srun, sbatch and salloc, a wrong value ends the submission.
int take_value(int index, const char* value, int) {
  const JobOption& option = options.at(static_cast<std::size_t>(index));
  if (value == nullptr || !option.is_right(value)) {
    slurm_error("--%s=%s: allowed: %s", option.described.name, value != nullptr ? value : "",
                option.allowed);
    return ESPANK_BAD_ARG;
  }
  values.at(static_cast<std::size_t>(index)) = value;
  return ESPANK_SUCCESS;
}

// Returns nothing if an argument is unknown.
std::optional<Settings> read_settings(int count, char** words) {
  Settings settings;
  for (int i = 0; i < count; ++i) {
    const std::string_view word = words[i];
    const std::string value{word.substr(std::min(word.size(), word.find('=') + 1))};
    const auto size = OptionType<Bytes>::read(value);
    if (word.starts_with("gres=") && !value.empty()) {
      settings.resource = value;
    } else if (word.starts_with("unit=") && size && size->value != 0) {
      settings.unit = size->value;
    } else if (word.starts_with("preload=/")) {
      settings.preload = value;
    } else {
      slurm_error("spank_cuvmm: plugstack.conf: '%s' is none of gres=NAME, unit=SIZE, preload=PATH",
                  words[i]);
      return {};
    }
  }
  return settings;
}

// Finds LIB/libcuvmm_stub.so from LIB/cuvmm/slurm/spank_cuvmm.so.
std::string stub_of_this_installation() {
  Dl_info own{};
  if (dladdr(&plugin_name, &own) == 0 || own.dli_fname == nullptr) return {};
  std::error_code error;
  const fs::path here = fs::canonical(own.dli_fname, error);
  return error ? "" : here.parent_path().parent_path().parent_path() / "libcuvmm_stub.so";
}

struct Place {
  std::uint32_t job = 0;
  std::uint32_t step = 0;
  std::uint32_t node = 0;
  std::uint32_t tasks = 1;

  // The controller does not know batch scripts and other special steps.
  bool is_numbered_step() const { return step < SLURM_MAX_NORMAL_STEP_ID; }
};

std::optional<Place> place_of(spank_t spank) {
  Place place;
  const bool known = spank_get_item(spank, S_JOB_ID, &place.job) == ESPANK_SUCCESS &&
                     spank_get_item(spank, S_JOB_STEPID, &place.step) == ESPANK_SUCCESS &&
                     spank_get_item(spank, S_JOB_NODEID, &place.node) == ESPANK_SUCCESS &&
                     spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &place.tasks) == ESPANK_SUCCESS;
  return known ? std::optional{place} : std::nullopt;
}

struct Answer {
  bool known = false;  // the controller answered
  std::optional<SlurmGrant> grant;
};

// The step's own grant, which may be less than its job's.
Answer granted_to_step(const Settings& settings, const Place& place) {
  job_step_info_response_msg_t* steps = nullptr;
  if (slurm_get_job_steps(0, place.job, place.step, &steps, SHOW_ALL) != SLURM_SUCCESS) return {};
  Answer answer{.known = true, .grant = {}};
  for (std::uint32_t i = 0; i < steps->job_step_count; ++i) {
    const job_step_info_t& step = steps->job_steps[i];
    if (step.step_id.step_id != place.step || step.tres_per_node == nullptr) continue;
    answer.grant = granted_of(settings.resource, step.tres_per_node);
  }
  slurm_free_job_step_info_response_msg(steps);
  return answer;
}

Answer granted_to_job(const Settings& settings, const Place& place) {
  job_info_msg_t* jobs = nullptr;
  if (slurm_load_job(&jobs, place.job, SHOW_DETAIL) != SLURM_SUCCESS) return {};
  Answer answer{.known = true, .grant = {}};
  for (std::uint32_t i = 0; i < jobs->record_count; ++i) {
    const slurm_job_info_t& job = jobs->job_array[i];
    if (job.job_id != place.job) continue;
    const char* const here =
        place.node < job.gres_detail_cnt ? job.gres_detail_str[place.node] : job.tres_per_node;
    if (here != nullptr) answer.grant = granted_of(settings.resource, here);
  }
  slurm_free_job_info_msg(jobs);
  return answer;
}

// Asks the controller once per step and node, or twice if the step inherits its job's memory.
Answer granted(const Settings& settings, const Place& place) {
  if (place.is_numbered_step()) {
    Answer answer = granted_to_step(settings, place);
    if (!answer.known || answer.grant) return answer;
  }
  return granted_to_job(settings, place);
}

bool set(spank_t spank, const char* name, const std::string& value) {
  return spank_setenv(spank, name, value.c_str(), 1) == ESPANK_SUCCESS;
}

bool preload(spank_t spank, const Settings& settings) {
  const std::string library =
      settings.preload.empty() ? stub_of_this_installation() : settings.preload;
  if (::access(library.c_str(), R_OK) != 0) {
    slurm_error("spank_cuvmm: %s cannot be read on this node", library.c_str());
    return false;
  }
  std::array<char, 4096> before{};
  const bool has_any = spank_getenv(spank, "LD_PRELOAD", before.data(),
                                    static_cast<int>(before.size())) == ESPANK_SUCCESS;
  const std::string known = has_any ? before.data() : "";
  if (known.find(library) != std::string::npos) return true;
  return set(spank, "LD_PRELOAD", known.empty() ? library : known + ":" + library);
}

// Sets up the environment of the step's tasks. Returns false if the limit is unknown, so that no
// task runs without one.
bool prepare_tasks(spank_t spank, const Settings& settings) {
  const auto place = place_of(spank);
  if (!place) return slurm_error("spank_cuvmm: this step is unknown to slurmstepd"), false;
  const Answer answer = granted(settings, *place);
  if (!answer.known) {
    slurm_error("spank_cuvmm: the controller does not say what job %u was granted: %s", place->job,
                slurm_strerror(errno));
    return false;
  }
  bool is_ours = answer.grant.has_value();
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (values[i].empty()) continue;
    is_ours = true;
    if (!set(spank, options[i].variable, values[i])) return false;
  }
  if (!is_ours) return true;  // leave jobs that do not ask for the resource alone
  if (answer.grant) {
    const Size limit = limit_of_task(*answer.grant, settings.unit, place->tasks);
    if (limit == 0) return slurm_error("spank_cuvmm: no memory is left for a task"), false;
    if (!set(spank, "VMM_LIMIT", std::to_string(limit))) return false;
    const auto device = device_of(*answer.grant);
    if (device && !set(spank, "CUDA_VISIBLE_DEVICES", std::to_string(*device))) return false;
  }
  // Ranks wait for each other, so they must get and lose their turns together.
  const std::string job = "slurm-" + std::to_string(place->job);
  const std::string step =
      place->is_numbered_step() ? job + "." + std::to_string(place->step) : job;
  return set(spank, "VMM_NAME", step) && set(spank, "VMM_GROUP", step) && preload(spank, settings);
}

// Uses a child process, since slurmd's threads must keep their user.
void clean_up_as(uid_t user, gid_t group) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_user = (::geteuid() != 0 || ::setgroups(0, nullptr) == 0) &&
                         ::setresgid(group, group, group) == 0 &&
                         ::setresuid(user, user, user) == 0;
    const std::string number = std::to_string(user);
    if (is_user) {
      remove_leftovers("/tmp/cuvmm-" + number);
      remove_leftovers("/dev/shm/cuvmm-" + number);
      remove_leftovers("/run/user/" + number + "/cuvmm");
    }
    ::_exit(0);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace cuvmm::slurm

using namespace cuvmm::slurm;

// Slurm stops only if a required plugin returns a negative value.
//
// Called everywhere, so that a wrong argument in plugstack.conf is reported at once.
CUVMM_SPANK int slurm_spank_init(spank_t spank, int count, char** words) {
  if (!read_settings(count, words)) return SLURM_ERROR;
  if (spank_context() == S_CTX_SLURMD || spank_context() == S_CTX_JOB_SCRIPT) return ESPANK_SUCCESS;
  for (JobOption& option : options) {
    if (spank_option_register(spank, &option.described) != ESPANK_SUCCESS) return SLURM_ERROR;
  }
  return ESPANK_SUCCESS;
}

// Called in slurmstepd, once per step and node, as the job's user.
CUVMM_SPANK int slurm_spank_user_init(spank_t spank, int count, char** words) {
  const auto settings = read_settings(count, words);
  return settings && prepare_tasks(spank, *settings) ? ESPANK_SUCCESS : SLURM_ERROR;
}

// Called once per job and node, after all its processes have ended.
CUVMM_SPANK int slurm_spank_job_epilog(spank_t spank, int, char**) {
  uid_t user = 0;
  gid_t group = 0;
  if (spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS) return ESPANK_SUCCESS;
  if (spank_get_item(spank, S_JOB_GID, &group) != ESPANK_SUCCESS) {
    const passwd* const entry = ::getpwuid(user);
    if (entry == nullptr) return ESPANK_SUCCESS;
    group = entry->pw_gid;
  }
  clean_up_as(user, group);
  return ESPANK_SUCCESS;
}
