# SPDX-License-Identifier: GPL-2.0
"""Agents: blocks of memory by their addresses, to processes that come and go."""

import asyncio
import concurrent.futures
import contextlib
import errno
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import towline
from conftest import MIB, WAIT_S, Child, becomes, own_address, used_bytes


class Two:
    """Two agents of one process, each with a megabyte of ordinary memory."""

    def __init__(self, dev, **how):
        self.dev = dev
        with contextlib.ExitStack() as stack:
            made = stack.enter_context
            self.one = made(towline.Agent(dev, "one", own_address(), **how))
            self.two = made(towline.Agent(dev, "two"))
            self.here, self.there = np.zeros((2, MIB // 8), np.int64), np.zeros(MIB // 8, np.int64)
            made(self.one.register(self.here))
            made(self.two.register(self.there))
            self.other = self.both(self.one.connect, self.two.metadata(), WAIT_S)
            self.stack = stack.pop_all()

    def both(self, function, *arguments):
        """A call of one agent's that waits for the other one, which goes on meanwhile."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            future = pool.submit(function, *arguments)
            while not future.done():
                self.two.progress(0.01)
            return future.result()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stack.__exit__(*error)


@pytest.fixture(name="two")
def _two(dev):
    with Two(dev) as made:
        yield made


def address(array):
    """Where it is."""
    return array.__array_interface__["data"][0]


def blocks(here, there, nbytes=8):
    """Some of one array, to or from as many of another one; numbers of elements."""
    def some(array, numbers):
        return address(array) + np.asarray(numbers) * array.itemsize
    return np.stack([some(*here), some(*there), np.full(len(here[1]), nbytes)], 1)


def shuffled(count, seed):
    """Numbers in any order."""
    return np.random.default_rng(seed).permutation(count)


def error_of(post):
    """What it ends with."""
    error = post.exception(WAIT_S)
    return error.errno if error else 0


def test_write_and_read(two):
    """Scattered blocks, again and again; told of when they are there."""
    mine, theirs = shuffled(2000, 1), shuffled(2000, 2)
    prepared = two.one.prepare("write", two.other, blocks((two.here[0], mine), (two.there, theirs)))
    assert len(prepared) == 2000 and two.other.name == "two" and two.two.address == own_address()
    for step in range(3):
        two.here[0, :2000] = np.arange(2000) + step
        post = prepared.post(notify=b"step %d" % step)
        assert post.result(WAIT_S) is None and post.done() and not post.cancelled()
        # Its own kernel counts it, a moment later perhaps.
        assert two.two.recv(WAIT_S) == ("one", b"step %d" % step)
        assert (two.there[theirs] == mine + step).all() and not two.there[2000:].any()
    back = two.one.prepare("read", two.other, blocks((two.here[1], mine), (two.there, theirs)))
    back.post().result(WAIT_S)
    assert (two.here[1, :2000] == np.arange(2000) + 2).all()
    two.here[0], two.there[:] = 7, 0
    prepared.post(which=[3, 5]).result(WAIT_S)
    assert np.flatnonzero(two.there).tolist() == sorted(theirs[[3, 5]])
    with pytest.raises(IndexError):
        prepared.post(which=[2000])
    assert two.two.notifications() == []
    two.one.notify(two.other, b"x" * 2016).result(WAIT_S)
    assert two.two.recv(WAIT_S) == ("one", b"x" * 2016)
    with pytest.raises(towline.Timeout):
        two.two.recv(0.01)
    # Without waiting: what has come is not lost.
    for number in range(20):
        two.one.notify(two.other, b"%d" % number).result(WAIT_S)
    came = []
    while len(came) < 20:
        with contextlib.suppress(towline.Timeout):
            came.append(two.two.recv(0)[1])
    assert came == [b"%d" % number for number in range(20)]


def test_registering(dev, two):
    """Parts of one array, and what lies side by side, are registered once."""
    def count():
        return len(dev.exports()) - before

    before = len(dev.exports())
    whole = np.zeros(1265 * 1000, np.float32)
    first = two.two.register(*whole.reshape(1265, 1000))
    second = two.two.register(whole[5:], whole.reshape(1265, 1000)[77])
    third = two.two.register((address(whole) + 100, 12), (address(whole), whole.nbytes))
    assert count() == 1
    first.close()
    first.close()
    third.close()
    assert count() == 1
    second.close()
    assert count() == 0
    pages = np.zeros(MIB, np.uint8)
    beside = [(address(pages) + at, 4096) for at in range(0, MIB, 4096)]
    apart = [(address(pages) + at, 100) for at in range(0, MIB - 100, 16384)]
    with two.two.register(*beside):
        assert count() == 1
        with two.two.register(*apart):
            assert count() == 1
    with two.two.register(*apart):
        assert count() == len(apart)
    pages.flags.writeable = False
    with two.two.register(pages), two.two.register(pages):
        other = two.one.connect(two.two.metadata())
        assert other is two.other
        read, write = (blocks((two.here[0], [0]), (pages, [at])) for at in (0, 8))
        two.one.prepare("read", other, read).post().result(WAIT_S)
        with pytest.raises(ValueError, match="registered there"):
            two.one.prepare("write", other, write)
    with pytest.raises(towline.Error) as caught:
        two.two.register((address(whole), 64), (4096, 4096))
    assert caught.value.errno == errno.EFAULT and count() == 0
    two.two.register(whole)
    gc.collect()
    assert count() == 1
    with pytest.raises(TypeError, match="objects"):
        two.two.register(np.array([None]))


def test_registered_in_parts(dev, two):
    """A part first, then more of it; by others, too, and whoever ends first ends nothing of the others'."""
    array = np.zeros(10000, np.int64)
    at, some = address(array), blocks((two.here[0], [1]), (array, [9999]))
    part = two.two.register((at, 8000))
    theirs = towline.Region.from_memory(dev, array)
    more = two.two.register((at, array.nbytes))
    third = towline.Agent(dev, "three")
    third.register(array)
    for one in (part, theirs, third):
        one.close()
    two.here[0, 1] = 5
    two.one.connect(two.two.metadata())
    two.one.prepare("write", two.other, some).post().result(WAIT_S)
    assert array[9999] == 5
    more.close()
    with towline.Region(dev, MIB) as region:
        two.one.register(region)
        there = region.array(10, "i8")
        there[3] = 6
        place = address(there)
        del there
    # The registration keeps it.
    two.two.register(array)
    two.one.connect(two.two.metadata())
    two.one.prepare("write", two.other, [(place + 24, at, 8)]).post().result(WAIT_S)
    assert array[0] == 6
    with pytest.raises(ValueError, match="closed"):
        two.one.register(region)
    frozen = np.zeros(100, np.int64)
    frozen.flags.writeable = False
    first = two.one.register(frozen)
    frozen.flags.writeable = True
    with two.one.register(frozen):
        first.close()


def test_connected_by_many(two):
    """At once, by several threads: one of them; and one that says it is another one harms nobody."""
    def connect():
        others.append(third.connect(metadata, WAIT_S))

    metadata, others, lost = two.two.metadata(), [], []
    two.two.on_peer_lost(lambda *what: lost.append(what))
    with towline.Agent(two.dev, "three") as third:
        threads = [threading.Thread(target=connect) for _ in range(5)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            two.two.progress(0.01)
        assert len(set(others)) == 1 and len(others) == 5
        for _ in range(20):
            two.two.progress(0.01)
        assert third.notify(others[0], b"once").result(WAIT_S) is None
        assert two.two.recv(WAIT_S) == ("three", b"once") and not lost and not others[0].error
        token, third._token = third._token, two.one._token
        third._others.clear()
        other = third.connect(metadata, WAIT_S)
        third.notify(other, b"as one").result(WAIT_S)
        assert two.two.recv(WAIT_S)[1] == b"as one"
        third._token = token
    becomes(lambda: two.two.progress(0.01) or lost)
    two.one.notify(two.other, b"still").result(WAIT_S)
    assert two.two.recv(WAIT_S) == ("one", b"still")


def test_pool(dev, arena, two):
    """Arrays of an arena, and regions, are registered where they are."""
    with towline.Region(dev, MIB) as region, contextlib.ExitStack() as stack:
        array = arena.zeros(1000, "i8")
        regions = len(dev.regions())
        stack.enter_context(two.one.register(array[10:], region))
        assert len(dev.regions()) == regions
        array[:] = np.arange(1000)
        region.array(10, "i8")[:] = 5
        some = np.concatenate([blocks((array, [1, 999]), (two.there, [0, 1])),
                               blocks((region.array(10, "i8"), [9]), (two.there, [2]))])
        two.one.prepare("write", two.other, some).post().result(WAIT_S)
        assert two.there[:4].tolist() == [1, 999, 5, 0]


def test_refused(dev, two):
    """What is wrong is said at once."""
    for said in (b"", b"{}", b"[1]", b"\xff", two.two.metadata().replace(b'"towline": 1', b'"towline": 2'),
                 two.two.metadata().replace(b'"memory": [[', b'"memory": [["a", '),
                 two.two.metadata().replace(b'"memory": [[', b'"memory": [[-')):
        with pytest.raises(ValueError, match="no metadata"):
            two.one.connect(said)
    good = blocks((two.here[0], [0, 1]), (two.there, [0, 1]))
    for wrong, text in ((good[:, :2], "shape"), (good[:0], "shape"), (good + [1 << 30, 0, 0], "block 0.* here"),
                        (good + [0, MIB, 0], "block 0.* there"), (good - [0, 0, 8], "block 0: 0 bytes"),
                        (good * [[1, 1, 1], [1, 1, 1 << 50]], "block 1"), (good - [0, 0, 16], "block 0: -8")):
        with pytest.raises(ValueError, match=text):
            two.one.prepare("write", two.other, wrong)
    with pytest.raises(KeyError):
        two.one.prepare("move", two.other, good)
    prepared = two.one.prepare("write", two.other, good)
    for payload in (b"", b"x" * 2017):
        with pytest.raises(ValueError, match="1 to 2016"):
            prepared.post(notify=payload)
    for payload in (np.zeros(4), "text"):
        with pytest.raises(TypeError, match="bytes"):
            two.one.notify(two.other, payload)
    with pytest.raises(IndexError):
        prepared.post(which=[-1])
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="time"):
            prepared.post(timeout=wrong)
    for wrong in ((0, 8), (8, 0), (1 << 63, 8), (1 << 62, 1 << 62), (8, -8)):
        with pytest.raises(ValueError, match="no memory"):
            two.one.register(wrong)
    with pytest.raises(TypeError):
        two.one.register(5)
    with pytest.raises(ValueError, match="name"):
        towline.Agent(dev, "")


def test_more_than_there_is_room(dev):
    """Posts wait for each other, and end in any case; numbers of blocks, and notifications, beyond all rings."""
    with Two(dev, entries=2) as two:
        count = 30000
        mine, theirs = shuffled(count, 3), shuffled(count, 4)
        two.here[0, :count] = np.arange(count)
        prepared = two.one.prepare("write", two.other, blocks((two.here[0], mine), (two.there, theirs)))
        posts = [prepared.post(notify=b"%d" % number) for number in range(10)]
        more = [two.one.notify(two.other, b"n" * 2000) for _ in range(50)]
        came = []
        while len(came) < 60:
            two.one.progress(0.01)
            came += [payload for _, payload in two.two.notifications()]
        assert [one for one in came if one[:1] != b"n"] == [b"%d" % number for number in range(10)]
        assert not any(map(error_of, posts + more))
        assert (two.there[theirs] == mine).all()


def test_callbacks(two):
    """Called once, with the post; at once when it has ended."""
    prepared = two.one.prepare("write", two.other, blocks((two.here[0], [0]), (two.there, [0])))
    seen = []
    post = prepared.post()
    post.add_done_callback(seen.append)
    post.result(WAIT_S)
    post.add_done_callback(seen.append)
    assert seen == [post, post]


def test_callback_raises(two, caplog):
    """That is logged, and all others are called."""
    def wrong(_):
        raise KeyError("wrong")

    seen = []
    post = two.one.prepare("write", two.other, blocks((two.here[0], [0]), (two.there, [0]))).post()
    for function in (wrong, seen.append, wrong, seen.append):
        post.add_done_callback(function)
    post.result(WAIT_S)
    post.add_done_callback(wrong)
    assert seen == [post, post] and caplog.text.count("KeyError: 'wrong'") == 3


def test_many_notifications(two):
    """More than are kept stay where they are, and nothing else waits for who does not take them."""
    posts = [two.one.notify(two.other, b"%d" % number) for number in range(3000)]
    for _ in range(200):
        two.one.progress()
        two.two.progress()
    assert not posts[-1].done()
    back = two.both(two.two.connect, two.one.metadata(), WAIT_S)
    two.two.notify(back, b"back").result(WAIT_S)
    assert two.one.recv(WAIT_S) == ("two", b"back")
    came = []
    while len(came) < 3000:
        two.one.progress()
        came += two.two.notifications()
    assert came == [("one", b"%d" % number) for number in range(3000)] and not any(map(error_of, posts))


def test_select(two):
    """An agent is a descriptor: when it is not ready nothing is there."""
    two.one.notify(two.other, b"x")
    deadline = time.monotonic() + WAIT_S
    came = []
    while not came:
        assert time.monotonic() < deadline
        two.one.progress()
        if select.select([two.two], [], [], 0.01)[0]:
            came = two.two.notifications()
    two.two.progress()
    while select.select([two.two], [], [], 0)[0]:
        assert time.monotonic() < deadline
        two.two.progress()


def test_closed_by_another_thread(two):
    """Who waits meanwhile is told."""
    wrong = []

    def wait(function):
        try:
            function()
            wrong.append("nothing was raised")
        except ValueError:
            pass
        except BaseException as error:  # pylint: disable=broad-exception-caught
            wrong.append(error)

    async def wait_there():
        await two.two.receive()

    threads = [threading.Thread(target=wait, args=(function,)) for function in (
        two.two.recv, two.two.recv, lambda: asyncio.run(wait_there()))]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    two.two.close()
    for thread in threads:
        thread.join()
    assert not wrong


def test_cancel(dev):
    """What has not begun does not; what is told of was not cancelled."""
    with Two(dev, entries=2) as two:
        every = np.arange(40000)
        prepared = two.one.prepare("write", two.other, blocks((two.here[0], every), (two.there, every)))
        first, second = (prepared.post(notify=b"told") for _ in range(2))
        assert second.cancel() and second.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            second.result(WAIT_S)
        assert second.cancelled() and second.done()
        two.both(first.result, WAIT_S)
        assert not first.cancel() and not first.cancelled()
        two.one.notify(two.other, b"after")
        assert [two.two.recv(WAIT_S)[1] for _ in range(2)] == [b"told", b"after"]


def test_asyncio(dev):
    """All of it in one loop; an await that is cancelled ends nothing."""
    async def main():
        with towline.Agent(dev, "a") as one, towline.Agent(dev, "b") as two:
            here, there = np.arange(1000), np.zeros(1000, np.int64)
            one.register(here)
            two.register(there)
            other, back = await asyncio.gather(one.connected(two.metadata()), two.connected(one.metadata()))
            prepared = await one.prepared("write", other, blocks((here, range(1000)), (there, range(1000))))
            receiving = asyncio.create_task(two.receive())
            await asyncio.sleep(0)
            await prepared.post(notify=b"there")
            assert await receiving == ("a", b"there") and (there == here).all()
            receiving = asyncio.create_task(two.receive())
            await asyncio.sleep(0.01)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            posts = [prepared.post(notify=b"%d" % number) for number in range(50)]
            waiting = asyncio.ensure_future(posts[-1])
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.gather(*posts)
            assert [(await two.receive())[1] for _ in range(50)] == [b"%d" % number for number in range(50)]
            await two.notify(back, b"back")
            assert await one.receive() == ("b", b"back")

    asyncio.run(main())


def test_threads(two):
    """Each waits for its own, whoever finds that it has ended."""
    wrong = []

    def work(first):
        try:
            some = np.arange(first, first + 100)
            prepared = two.one.prepare("write", two.other, blocks((two.here[0], some), (two.there, some)))
            for _ in range(50):
                prepared.post(notify=b"x").result(WAIT_S)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 400, 100)]
    two.here[0, :400] = np.arange(400)
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for _ in range(200):
        assert two.two.recv(WAIT_S) == ("one", b"x")
    for thread in threads:
        thread.join()
    assert not wrong and (two.there[:400] == np.arange(400)).all()
    # Who sleeps while another thread finds that its post has ended is woken, and waits for no tick.
    assert time.monotonic() - begin < 20


def serve(path, name):
    """An agent with a megabyte, which answers what it is told; its metadata is in a file."""
    with towline.Device() as dev, towline.Agent(dev, name) as agent:
        memory = np.zeros(MIB // 8, np.int64)
        agent.register(memory)
        path.with_suffix(".new").write_bytes(b"%d %s" % (address(memory), agent.metadata()))
        path.with_suffix(".new").rename(path)
        others = {}
        while True:
            sender, payload = agent.recv()
            if payload == b"end":
                return
            others[sender] = agent.connect(payload)
            agent.notify(others[sender], b"%d" % memory.sum()).result()


def served(path):
    """What it has written."""
    becomes(path.exists)
    where, metadata = path.read_bytes().split(b" ", 1)
    path.unlink()
    return int(where), metadata


def test_lost(dev, children, tmp_path):
    """Who is killed is told of, and what was for it ends; it comes back as another one of the same name."""
    lost = []
    with towline.Agent(dev, "keeper") as agent:
        agent.on_peer_lost(lambda name, error: lost.append((name, error.errno)))
        here = np.arange(1000)
        agent.register(here)
        before = None
        for life in range(3):
            child = children(serve, tmp_path / "metadata", "comes and goes")
            where, metadata = served(tmp_path / "metadata")
            other = agent.connect(metadata, WAIT_S)
            assert other is not before and other.error is None
            prepared = agent.prepare("write", other, [(address(here), where, 800)])
            prepared.post(notify=agent.metadata()).result(WAIT_S)
            assert agent.recv(WAIT_S) == ("comes and goes", b"%d" % np.arange(100).sum())
            if life == 2:
                agent.notify(other, b"end").result(WAIT_S)
            else:
                child.kill()
            assert child.wait() in (0, -signal.SIGKILL)
            becomes(lambda: agent.progress(0.01) or len(lost) > life)
            assert lost[life] == ("comes and goes", errno.ESTALE) and len(lost) == life + 1
            assert other.error.errno == errno.ESTALE
            for call in (prepared.post, lambda: agent.prepare("read", other, [(1, 1, 1)]),
                         lambda: agent.notify(other, b"x")):
                with pytest.raises(towline.Error) as caught:
                    call()
                assert caught.value.errno == errno.ESTALE
            before = other
        gc.collect()
        assert agent._lines == {} and agent._others == {}


def test_killed_while_it_goes_on(dev, children, tmp_path):
    """Posts end, whether their blocks, or what is told of them, are under way."""
    child = children(serve, tmp_path / "metadata", "killed")
    where, metadata = served(tmp_path / "metadata")
    with towline.Agent(dev, "goes on") as agent:
        here = np.zeros(MIB // 8, np.int64)
        agent.register(here)
        other = agent.connect(metadata, WAIT_S)
        prepared = agent.prepare("write", other, [(address(here), where, MIB)] * 100)
        posts = [prepared.post(notify=b"n" * 2000) for _ in range(5)]
        time.sleep(0.02)
        child.kill()
        child.wait()
        assert {error_of(post) for post in posts} <= {0, errno.ESTALE, errno.ECONNRESET}
        becomes(lambda: agent.progress(0.01) or other.error)
        assert not agent._waiting and not other._outgoing


def test_taken_back(two):
    """What is registered no more is reached no more, and says so."""
    more = np.zeros(100, np.int64)
    registered = two.two.register(more)
    known = two.two.metadata()
    two.one.connect(known)
    some = blocks((two.here[0], [0]), (more, [0]))
    prepared = two.one.prepare("write", two.other, some)
    prepared.post().result(WAIT_S)
    two.here[0, 0] = 9
    registered.close()
    assert error_of(prepared.post()) == errno.ESTALE and more[0] == 0
    other = towline.Agent(two.dev)
    with pytest.raises(towline.Error) as caught:
        other.register(two.here)
        two.both(other.connect, known, WAIT_S)
        other.prepare("write", other._others[two.two._token], some)
    assert caught.value.errno == errno.ENOENT
    other.close()
    two.one.connect(two.two.metadata())
    with pytest.raises(ValueError, match="registered there"):
        two.one.prepare("write", two.other, some)


def test_nothing_left(dev):
    """Agents, registrations, posts, what was found: all is gone afterwards."""
    def all_of_it():
        with Two(dev) as two:
            prepared = two.one.prepare("write", two.other, blocks((two.here[0], [0]), (two.there, [0])))
            prepared.post(notify=b"x").result(WAIT_S)
            two.two.recv(WAIT_S)

    files = len(os.listdir("/proc/self/fd"))
    all_of_it()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(5):
        all_of_it()
    gc.collect()
    assert sys.getallocatedblocks() - before < 500
    assert len(os.listdir("/proc/self/fd")) <= files + 2
    assert not dev.exports() and used_bytes() == 0


def test_left_by_an_exception(dev):
    """Nothing is waited for, and all posts have ended."""
    with contextlib.suppress(KeyError), Two(dev, entries=2) as two:
        every = np.arange(100000)
        prepared = two.one.prepare("write", two.other, blocks((two.here[0], every), (two.there, every)))
        posts = [prepared.post(notify=b"x") for _ in range(5)]
        raise KeyError
    assert {error_of(post) for post in posts} <= {0, errno.ECANCELED}
    with pytest.raises(ValueError, match="closed"):
        prepared.post()
    with pytest.raises(ValueError, match="closed"):
        two.one.metadata()


def use_parents(two, prepared):
    """Everything is the parent's."""
    for call in (prepared.post, two.one.progress, two.two.notifications, two.two.recv,
                 lambda: two.one.register(np.zeros(8))):
        with pytest.raises(towline.Error) as caught:
            call()
        assert caught.value.errno == errno.EPERM
    two.one.close()


def test_forked(two):
    """A child is refused, and its parent goes on."""
    prepared = two.one.prepare("write", two.other, blocks((two.here[0], [0]), (two.there, [0])))
    assert Child(use_parents, two, prepared).wait() == 0
    prepared.post(notify=b"x").result(WAIT_S)
    assert two.two.recv(WAIT_S) == ("one", b"x")


ENDS = """
import threading, time, numpy as np, towline
dev = towline.Device()
one, two = towline.Agent(dev, "one"), towline.Agent(dev, "two")
here, there = np.zeros(1 << 17), np.zeros(1 << 17)
kept = one.register(here), two.register(there)
serving = threading.Thread(target=lambda: [two.progress(1) for _ in iter(int, 1)], daemon=True)
serving.start()
other = one.connect(two.metadata())
at = [array.__array_interface__["data"][0] for array in (here, there)]
prepared = one.prepare("write", other, [(*at, here.nbytes)] * 50)
posts = [prepared.post(notify=b"x") for _ in range(10)]
waiting = threading.Thread(target=posts[-1].result, daemon=True)
waiting.start()
time.sleep(0.01)
print("ends")
"""


def test_ends_with_threads(node):
    """The program's end, with nothing closed, threads that wait and posts on their way."""
    del node
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=WAIT_S,
                              check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
