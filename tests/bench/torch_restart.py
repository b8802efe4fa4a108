# SPDX-License-Identifier: GPL-2.0
"""A model and its optimizer back after the end of their process: taken over, and loaded from a checkpoint.

	torch_restart.py [-s BYTES] [-t PAIRS]

BYTES of state in all: parameters, and twice as much by Adam.  Each life is forked from this process, which
has imported PyTorch; from there until the state can be used.  Prints pairs of milliseconds.
"""

import argparse
import os
import time

import torch

import towline.torch

CHECKPOINT = "/dev/shm/tow-bench-checkpoint.pt"
NAME = "bench-restart"


def make(count):
    """Nothing is drawn at random that is replaced at once."""
    model = torch.nn.utils.skip_init(torch.nn.Linear, 1024, count // 1024 // 16 * 16)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def life(function, *arguments):
    """In a process of its own: what it has returned, a number."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, f"{function(*arguments)}\n".encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as told:
        text = told.read()
    _, status = os.waitpid(pid, 0)
    if status or not text:
        raise SystemExit("a life has failed")
    return float(text)


def first(count):
    """Makes both."""
    model, optimizer = make(count)
    with torch.no_grad():
        for one in model.parameters():
            one.fill_(1)
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, CHECKPOINT)
    towline.torch.persistent(model, optimizer, NAME).commit(1)
    return 0


def taken_over(count):
    """Milliseconds."""
    began = time.monotonic()
    model, optimizer = make(count)
    kept = towline.torch.persistent(model, optimizer, NAME)
    took = time.monotonic() - began
    assert kept.step == 1 and abs(model.weight[-1, -1].item() - 0.99) < 1e-4
    return 1000 * took


def loaded(count):
    """Milliseconds."""
    began = time.monotonic()
    model, optimizer = make(count)
    found = torch.load(CHECKPOINT)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    took = time.monotonic() - began
    assert abs(model.weight[-1, -1].item() - 0.99) < 1e-4
    return 1000 * took


def last(count):
    """Nothing stays."""
    model, optimizer = make(count)
    towline.torch.persistent(model, optimizer, NAME).destroy()
    return 0


def main():
    """All lives."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", type=int, default=256 << 20)
    parser.add_argument("-t", type=int, default=7)
    args = parser.parse_args()
    count = args.s // 12
    life(first, count)
    try:
        for turn in range(args.t):
            took = {}
            for kind in (taken_over, loaded) if turn % 2 else (loaded, taken_over):
                took[kind] = life(kind, count)
            print(f"pair {took[taken_over]:.1f} {took[loaded]:.1f}", flush=True)
    finally:
        os.unlink(CHECKPOINT)
        life(last, count)


if __name__ == "__main__":
    main()
