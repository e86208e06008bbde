# SPDX-License-Identifier: Apache-2.0
# Pausing on the card: a program of 8 GiB that leaves it and comes back.
status=0
# Shares of the card, in percent, that come to 8 GiB.
share=$((8 * 1024 * 100 / $(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1) + 1))
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
build/bin/cuvmm run --control -- build/bin/take_turns --memory "$share" --steps 400 --rest 20 &
runner=$!
for _ in {1..600}; do compgen -G "$XDG_RUNTIME_DIR/cuvmm/control-*" >/dev/null && break || sleep 0.05; done
sleep 4
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader | head -n 1; }
echo "-- used before: $(used)"
for round in 1 2 3; do
  build/bin/cuvmm pause --all || status=1
  echo "-- used while paused: $(used)"
  build/bin/cuvmm resume --all || status=1
done
wait "$runner" || status=1
rm -rf "$XDG_RUNTIME_DIR"
exit "$status"
