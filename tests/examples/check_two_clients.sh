#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_two_clients.sh BUILD: the example ends well, natively and under cuvmm, with a figure in each
# line; what tools/schedule_figures.py reads of it is all there.
set -uo pipefail
build=$1
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
status=0
wrong() { echo "wrong: $*"; status=1; }

said=$(timeout 60 "$build/bin/cuvmm" run --sim -- "$build/bin/two_clients" 8 2>&1) || wrong "it ends with $?: $said"
for name in 'the first alone' 'the other alone' together 'stream priorities' 'policy fifo' \
    'policy round_robin' 'policy priority' 'policy fair, 3:1'; do
  grep -qE "^$name +([0-9]+ us|-) +.*" <<<"$said" || wrong "there is no line '$name'"
done
(($(grep -cE '^(together|policy fair, 3:1) +[0-9.]+% +[0-9.]+%$' <<<"$said") == 2)) ||
  wrong 'the shares of two that always have work are not there'
natively=$(LD_LIBRARY_PATH=$build/lib/cuvmm/sim timeout 60 "$build/bin/two_clients" 4 2>&1) ||
  wrong "natively it ends with $?: $natively"
grep -q 'the policies need' <<<"$natively" || wrong 'natively it does not say what the policies need'

figures=$(printf -- '-- two clients, round 1\n%s\n' "$said" |
  python3 -B "$here/../../tools/schedule_figures.py") || wrong 'the figures cannot be read'
for name in alone_p99_us priority_p99_us priority_beyond_alone_us priority_kept fair_share_error; do
  grep -q "\"$name\"" <<<"$figures" || wrong "the figures have no $name"
done
((status == 0)) || printf '%s\n%s\n' "$said" "$figures"
exit "$status"
