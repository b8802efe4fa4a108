#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-only OR MIT
"""Disaggregated inference: some processes fill KV blocks for prompts, one takes them and goes on.

	disaggregated.py decode HOST:PORT PROMPTS
	disaggregated.py prefill HOST:PORT

The decoding process hands prompts to whoever has come.  A prefilling one fills blocks of its cache, wherever
some are free, and says which; the other one reads them into free blocks of its own.  Prefilling processes come
and go: what one that is lost had to do others do, or the same one when it is back.  HOST:PORT is only where
they meet, by TCP.  The model is not there: a block has numbers that follow from prompt, layer and place.
"""

import argparse
import asyncio
import contextlib
import json
import random

import numpy as np

import towline

LAYERS, BLOCK_TOKENS, HEAD = 4, 16, 64
BLOCKS = 512
# Prompts that one prefilling process has at a time.
AT_ONCE = 4


def tokens_of(prompt):
    """How long it is."""
    return 64 + 16 * (prompt % 13)


def kv_of(prompt):
    """What a model would compute: of shape (blocks, tokens of a block, numbers)."""
    count = LAYERS * -(-tokens_of(prompt) // BLOCK_TOKENS)
    places = np.arange(count * BLOCK_TOKENS * HEAD, dtype=np.float32).reshape(count, BLOCK_TOKENS, HEAD)
    return np.sin(places * (prompt + 1))


class Cache:
    """Blocks, of which some are free; registered as one."""

    def __init__(self, agent):
        self.blocks = np.zeros((BLOCKS, BLOCK_TOKENS, HEAD), np.float32)
        self.free = list(range(BLOCKS))
        random.shuffle(self.free)
        agent.register(self.blocks)

    def take(self, count):
        """Any that are free: their numbers."""
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def give(self, taken):
        """They are free again."""
        self.free += taken

    def addresses(self, taken):
        """Where they are."""
        return [self.blocks[number].ctypes.data for number in taken]


async def exchange(agent, reader, writer):
    """Each end tells the other one what it is: the other agent."""
    data = agent.metadata()
    writer.write(len(data).to_bytes(4, "big") + data)
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await agent.connected(await reader.readexactly(size))


class Decoder:
    """Hands out prompts, and takes what comes of them."""

    def __init__(self, agent, prompts):
        self.agent = agent
        self.cache = Cache(agent)
        self.todo = list(range(prompts))
        self.left = prompts
        self.others = {}        # by name
        self.has = {}           # of each, the prompts
        self.lost = self.wrong = 0
        agent.on_peer_lost(self.gone)

    async def come(self, reader, writer):
        """One that prefills: it is known from now on."""
        other = await exchange(self.agent, reader, writer)
        writer.close()
        self.others[other.name], self.has[other.name] = other, set()
        self.hand_out(other.name)

    def gone(self, name, error):
        """Somebody else does what it had to do."""
        print(f"{name} is lost: {error.strerror}", flush=True)
        self.lost += 1
        self.others.pop(name, None)
        self.todo += sorted(self.has.pop(name, ()))
        for other in list(self.others):
            self.hand_out(other)

    def hand_out(self, name):
        """As many prompts as it may have."""
        while self.todo and len(self.has[name]) < AT_ONCE:
            prompt = self.todo.pop(0)
            self.has[name].add(prompt)
            # If it is lost gone() sees to that.
            with contextlib.suppress(towline.Error):
                self.agent.notify(self.others[name], json.dumps({"prompt": prompt}).encode())

    async def take(self, name, filled):
        """Read what was filled, and go on with it."""
        theirs = filled["blocks"]
        mine = self.cache.take(len(theirs))
        try:
            places = [(here, there, self.cache.blocks[0].nbytes)
                      for here, there in zip(self.cache.addresses(mine), theirs, strict=True)]
            prepared = await self.agent.prepared("read", self.others[name], places)
            # It may free them when it is told.
            await prepared.post(notify=json.dumps({"done": filled["prompt"]}).encode())
            self.wrong += not np.array_equal(self.cache.blocks[mine], kv_of(filled["prompt"]))
        finally:
            self.cache.give(mine)

    async def run(self):
        """Until all is done."""
        while self.left:
            name, payload = await self.agent.receive()
            filled = json.loads(payload)
            try:
                await self.take(name, filled)
            except (towline.Error, KeyError):
                # It is lost in the middle: gone() sees to that.
                continue
            if filled["prompt"] in self.has.get(name, ()):
                self.has[name].remove(filled["prompt"])
                self.left -= 1
                print(f"prompt {filled['prompt']} by {name}", flush=True)
                self.hand_out(name)


async def decode(dev, host, port, prompts):
    """The decoding process."""
    with towline.Agent(dev, "decode") as agent:
        decoder = Decoder(agent, prompts)
        server = await asyncio.start_server(decoder.come, host, port)
        async with server:
            await decoder.run()
    print(f"{prompts} prompts, {decoder.wrong} wrong, {decoder.lost} lost", flush=True)


async def prefill(dev, host, port):
    """A prefilling process: until the decoding one has ended."""
    with towline.Agent(dev) as agent:
        cache, taken, ended = Cache(agent), {}, asyncio.Event()
        agent.on_peer_lost(lambda *_: ended.set())
        reader, writer = await asyncio.open_connection(host, port)
        other = await exchange(agent, reader, writer)

        async def work():
            while True:
                said = json.loads((await agent.receive())[1])
                if "done" in said:
                    cache.give(taken.pop(said["done"]))
                    continue
                prompt = said["prompt"]
                filled = kv_of(prompt)
                taken[prompt] = cache.take(len(filled))
                cache.blocks[taken[prompt]] = filled
                agent.notify(other, json.dumps({"prompt": prompt,
                                                "blocks": cache.addresses(taken[prompt])}).encode())

        working = asyncio.create_task(work())
        await asyncio.wait((working, asyncio.create_task(ended.wait())), return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
    print("over", flush=True)


def main():
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=("decode", "prefill"))
    parser.add_argument("at", metavar="HOST:PORT")
    parser.add_argument("prompts", nargs="?", type=int, default=100)
    said = parser.parse_args()
    host, port = said.at.rsplit(":", 1)
    with towline.Device() as dev:
        if said.role == "decode":
            asyncio.run(decode(dev, host, int(port), said.prompts))
        else:
            asyncio.run(prefill(dev, host, int(port)))


if __name__ == "__main__":
    main()
