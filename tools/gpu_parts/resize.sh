# SPDX-License-Identifier: Apache-2.0
# Growing a buffer to 16 GiB on the card: natively, by VMM_RESIZE=auto and by its promise, with the
# driver's calls and with the runtime's. Each must succeed, and served ones must copy less.
programs=(build/bin/resize_test)
[[ -x build/bin/resize_test_runtime ]] && programs+=(build/bin/resize_test_runtime)
status=0
copied() { sed -n 's/^asked to copy .* MiB, copied \([0-9.]*\) MiB$/\1/p' <<<"$1"; }
for program in "${programs[@]}"; do
  name=$(basename "$program")
  echo "-- $name, natively"
  natively=$("$program") || status=1
  echo "$natively"
  for how in auto elide; do
    echo "-- $name, VMM_RESIZE=$how"
    served=$(VMM_RESIZE=$how build/bin/cuvmm run --mode vmm -- "$program") || status=1
    echo "$served"
    awk -v served="$(copied "$served")" -v natively="$(copied "$natively")" \
      'BEGIN { exit !(served != "" && served + 0 < natively / 4) }' ||
      { echo "$name copies as much as natively"; status=1; }
  done
done
exit "$status"
