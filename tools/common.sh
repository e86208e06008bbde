# SPDX-License-Identifier: Apache-2.0
# Functions shared by dev and its parts. Sourced; expects the repository's root in `root` and as the
# current folder.

say() { printf 'dev: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# CUVMM_JOBS, or else nproc.
jobs_here() { printf '%s' "${CUVMM_JOBS:-$(nproc)}"; }

build_folder() {  # PRESET
  if [[ $1 == release ]]; then printf build; else printf 'build-%s' "$1"; fi
}

commit_here() {
  local commit
  commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || { printf unknown; return; }
  [[ -z $(git status --porcelain --untracked-files=no 2>/dev/null) ]] || commit+=-changed
  printf '%s' "$commit"
}

# Names the content of src and include, committed or not: the parts of one result may be measured one
# after another as long as that content stays the same.
sources_here() {
  local index trees
  index=$(mktemp -d)
  trees=$(
    export GIT_INDEX_FILE=$index/index
    { git read-tree HEAD && git add -A -- src include && tree=$(git write-tree) &&
      git rev-parse "$tree:src" "$tree:include"; } 2>/dev/null
  ) || trees=
  rm -rf "$index"
  [[ -n $trees ]] || { printf unknown; return; }
  trees=$(sha256sum <<<"$trees")
  printf '%s' "${trees:0:12}"
}
sources_built() { cat build/lib/cuvmm/sources 2>/dev/null || printf unknown; }

# The commit of build/, even if it was copied from another machine.
commit_built() { cat build/lib/cuvmm/commit 2>/dev/null || printf unknown; }

# Results are stored under the machine's name: its processor model and count, since host names say
# nothing. CUVMM_MACHINE overrides it.
machine_here() {
  local model
  model=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
  printf '%s' "${CUVMM_MACHINE:-${model:-$(uname -m)}-x$(nproc)}" |
    tr '[:upper:]' '[:lower:]' | sed -E 's/\((r|tm)\)//g; s/@.*(-x[0-9]+)$/\1/; s/[^a-z0-9]+/-/g; s/^-|-$//g'
}

# What nvidia-smi says of each card that the programs see.
of_visible_cards() {  # WHAT
  nvidia-smi ${CUDA_VISIBLE_DEVICES:+-i "$CUDA_VISIBLE_DEVICES"} --query-gpu="$1" --format=csv,noheader
}

json_text() {  # TEXT: as a JSON string
  local text=$1
  text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\t'/\\t} text=${text//$'\n'/\\n}
  printf '"%s"' "$text"
}
