# SPDX-License-Identifier: Apache-2.0
# ./dev stress: runs the tests labelled `stress`, with the full counts for random tests, and records
# the results.
export CUVMM_TEST_SCALE=${CUVMM_TEST_SCALE:-10}
# Per setting of stress.*: ten million in total over four settings and three orders.
export CUVMM_STRESS_OPERATIONS=${CUVMM_STRESS_OPERATIONS:-850000}
results=bench/results/$(machine_here)
mkdir -p "$results"
{
  echo "commit $(commit_built)"
  echo "machine $(machine_here)"
  echo "CUVMM_TEST_SCALE $CUVMM_TEST_SCALE"
  echo "CUVMM_STRESS_OPERATIONS $CUVMM_STRESS_OPERATIONS"
  ctest --preset release --label-regex stress --no-tests=error
} | tee "$results/stress.txt"

# Runs random programs against the model of stream order, natively and served in several settings,
# in two processes at a time. Each setting has its own seeds.
order_programs=${CUVMM_ORDER_PROGRAMS:-1000000}
source tools/order_programs.sh
{
  echo "commit $(commit_built)"
  echo "machine $(machine_here)"
  echo "CUVMM_ORDER_PROGRAMS $order_programs"
  run_order_programs "$order_programs"
} | tee "$results/order.txt"

# Clients of a node service, killed at random times.
{
  echo "commit $(commit_built)"
  echo "machine $(machine_here)"
  python3 -B bench/node.py build --rounds 0 --clients 0 --kills "${CUVMM_NODE_KILLS:-1000}"
} | tee "$results/node_kills.txt"
