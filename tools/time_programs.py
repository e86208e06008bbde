#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch programs that tools/time_figures.py runs side by side on one card.

    time_programs.py serving|training [--seconds N] [--warm-up Ns]

Serving answers a request of a small transformer every 20 ms; training steps a larger one without a
pause. Each says "ready". At each further line of input it works for the warm-up before and after the
time that counts, like examples/busy, and prints the percentiles of its answers' times, or its steps
per second.
"""

import argparse
import json
import sys
import time

import torch


def transformer(layers, width):
    layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers).to("cuda", torch.bfloat16)


class Clock:
    def __init__(self, seconds, warm_up):
        self.seconds, self.warm_up = seconds, warm_up
        self.began = time.perf_counter()

    def now(self):
        return time.perf_counter() - self.began

    def goes_on(self):
        return self.now() < self.seconds + 2 * self.warm_up

    def counts(self):
        return self.warm_up <= self.now() < self.warm_up + self.seconds


def serve():
    model = transformer(6, 512).eval()
    request = torch.randn(1, 256, 512, device="cuda", dtype=torch.bfloat16)

    @torch.inference_mode()
    def answer():
        return model(request).float().sum().item()

    def run(clock):
        times = []
        for number in range(1 << 30):
            time.sleep(max(0.0, number * 0.020 - clock.now()))
            if not clock.goes_on():
                break
            asked = time.perf_counter()
            answer()
            if clock.counts():
                times.append((time.perf_counter() - asked) * 1e6)
        times.sort()
        return {"answers": len(times), "p50_us": times[len(times) // 2],
                "p99_us": times[int(0.99 * (len(times) - 1))]}

    return answer, run


def train():
    model = transformer(8, 1024)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch = torch.randn(16, 512, 1024, device="cuda", dtype=torch.bfloat16)

    def step():
        optimizer.zero_grad()
        loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    def run(clock):
        steps = 0
        while clock.goes_on():
            step()
            steps += clock.counts()
        return {"steps_per_second": steps / clock.seconds}

    return step, run


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    words.add_argument("kind", choices=("serving", "training"))
    words.add_argument("--seconds", type=float, default=5)
    words.add_argument("--warm-up", type=lambda text: float(text.rstrip("s")), default=0)
    arguments = words.parse_args()
    torch.manual_seed(1)
    once, run = (serve if arguments.kind == "serving" else train)()
    for _ in range(20):
        once()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(run(Clock(arguments.seconds, arguments.warm_up))), flush=True)


if __name__ == "__main__":
    main()
