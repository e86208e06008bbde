# SPDX-License-Identifier: Apache-2.0
# Runs cuvmm_order_tests on the simulated driver in several settings, for tools/stress.sh (sourced).
# Ends at the first violation, which the program prints with its trace and its seed.
run_order_programs() {  # PROGRAMS: total for all settings
  local -a names=() commands=()
  local order sim=build/lib/cuvmm/sim program=build/bin/cuvmm_order_tests
  local served="build/bin/cuvmm run --quiet --mode vmm"
  setting() { names+=("$1") commands+=("$2"); }
  for order in eager lazy random:1; do
    setting "native, $order" "env VMM_SIM_ORDER=$order LD_LIBRARY_PATH=$sim $program"
    setting "served, $order" "env VMM_SIM_ORDER=$order $served --sim -- $program"
  done
  setting "limit of 24 MiB" "env VMM_WAIT=1ms $served --sim --limit 24M -- $program"
  setting "limit of 24 MiB, tight" "env VMM_WAIT=1ms VMM_GROW=tight $served --sim --limit 24M -- $program"
  setting "device of 64 MiB" "env VMM_WAIT=1ms $served --sim=memory=64M -- $program --memory 48"
  setting "native, three contexts" "env VMM_SIM_DEVICES=2 LD_LIBRARY_PATH=$sim $program --contexts 3"
  setting "three contexts" "env VMM_WAIT=1ms $served --sim=devices=2,memory=64M -- $program --contexts 3 --memory 48"
  setting "resize by promise" "env VMM_RESIZE=elide $served --sim -- $program"
  # Spill to a neighbour, since the driver waits for copies between the host and memory spilled to
  # the host.
  setting "spilled" "env VMM_WAIT=1ms $served --sim=devices=2 --limit 16M --spill peer -- $program"
  setting "scheduled" "env VMM_CLIENT=order $served --sim --schedule fair -- $program"
  setting "races" "env VMM_SIM_DELAY=cuEventQuery=50us,cuStreamWaitEvent=50us,cuEventRecord=20us VMM_WAIT=1ms $served --sim=memory=64M -- $program --memory 48"

  # One process per processor at a time, each with its own seeds.
  local parts=$(($(nproc) > 2 ? $(nproc) : 2))
  local each=$((($1 + parts * ${#names[@]} - 1) / (parts * ${#names[@]})))
  local index part seed=1 status=0 folder process
  folder=$(mktemp -d)
  for index in "${!names[@]}"; do
    echo "-- ${names[index]}"
    local -a running=()
    for ((part = 0; part < parts; part++)); do
      # shellcheck disable=SC2086
      ${commands[index]} --programs "$each" --seed "$seed" >"$folder/$part" 2>&1 &
      running+=($!)
      seed=$((seed + each))
    done
    for process in "${running[@]}"; do wait "$process" || status=1; done
    for ((part = 0; part < parts; part++)); do
      if grep -q '^VIOLATION' "$folder/$part"; then tail -n 60 "$folder/$part"; fi
    done
    cat "$folder"/* | awk 'NF == 2 && $2 ~ /^[0-9]+$/ { if (!($1 in sums)) names[++count] = $1; sums[$1] += $2 }
      END { for (i = 1; i <= count; i++) printf "%s %d%s", names[i], sums[names[i]], i < count ? " " : "\n" }'
  done
  rm -rf "$folder"
  return "$status"
}
