# SPDX-License-Identifier: GPL-2.0
"""What c10d asks of a backend: all of it, of all types, with gaps and without."""

import os
import signal
import threading
import time

from ranks import (MOST_S, begin, datetime, dist, group, marked, numbers, raises, same, store, torch,
                   towline)

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
REDUCED = (*FLOATS, *INTEGERS, torch.bool)
MOVED = (*REDUCED, torch.int16, torch.complex64, torch.complex128)
COUNTS = (0, 1, 7, 1000, 70001)
OPS = dist.ReduceOp
ARITHMETIC = {OPS.SUM: lambda all: all.sum(0), OPS.PRODUCT: lambda all: all.prod(0),
              OPS.MIN: lambda all: all.amin(0), OPS.MAX: lambda all: all.amax(0)}
BITS = {OPS.BAND: torch.bitwise_and, OPS.BOR: torch.bitwise_or, OPS.BXOR: torch.bitwise_xor}


def reduced(op, every):
    """By PyTorch, at one place; numbers are small, so that all orders give the same."""
    dtype = every[0].dtype
    if op in BITS:
        result = every[0]
        for one in every[1:]:
            result = BITS[op](result, one)
        return result
    wide = torch.stack(every).to(torch.float64 if dtype.is_floating_point else torch.int64)
    result = ARITHMETIC[op](wide)
    return result.ne(0) if dtype == torch.bool else result.to(dtype)


def strided(tensor):
    """The same values, with gaps."""
    gaps = torch.zeros(tensor.numel() * 2, dtype=tensor.dtype)[::2]
    return gaps.view(tensor.shape).copy_(tensor) if tensor.dim() == 1 else tensor


def test_all_reduce(rank, size):
    """Types, reductions, counts."""
    with group():
        for dtype in REDUCED:
            for op in (*ARITHMETIC, *(BITS if not dtype.is_floating_point else ())):
                for count in COUNTS:
                    every = [numbers(one, count, dtype, 1, 4) for one in range(size)]
                    mine = every[rank].clone()
                    dist.all_reduce(mine, op)
                    same(mine, reduced(op, every))
        mean = torch.full((10,), float(rank))
        dist.all_reduce(mean, OPS.AVG)
        same(mean, torch.full((10,), sum(range(size)) / size))
        gaps = strided(numbers(rank, 1000, torch.float32))
        dist.all_reduce(gaps)
        same(gaps, reduced(OPS.SUM, [numbers(one, 1000, torch.float32) for one in range(size)]))
        turned = torch.arange(12.0).reshape(3, 4).t() + rank
        dist.all_reduce(turned)
        same(turned, torch.arange(12.0).reshape(3, 4).t() * size + sum(range(size)))
        many = numbers(rank, 100, torch.complex64)
        dist.all_reduce(many)
        same(many, sum(numbers(one, 100, torch.complex64) for one in range(size)))
        scalar = torch.tensor(float(rank))
        dist.all_reduce(scalar)
        assert scalar.item() == sum(range(size))


def test_reduce_and_broadcast(rank, size):
    """By each root."""
    with group():
        for root in range(size):
            for dtype in MOVED:
                for count in COUNTS:
                    mine = strided(numbers(rank, count, dtype))
                    dist.broadcast(mine, root)
                    same(mine, numbers(root, count, dtype))
            for dtype in REDUCED:
                every = [numbers(one, 1000, dtype, 1, 4) for one in range(size)]
                mine = every[rank].clone()
                dist.reduce(mine, root, OPS.SUM)
                same(mine, reduced(OPS.SUM, every) if rank == root else every[rank])


def test_gathers(rank, size):
    """All-gather in its forms, gather, scatter."""
    with group():
        for dtype in MOVED:
            for count in COUNTS:
                mine = strided(numbers(rank, count, dtype))
                every = [numbers(one, count, dtype) for one in range(size)]
                apart = [torch.zeros(count, dtype=dtype) for _ in range(size)]
                dist.all_gather(apart, mine)
                row = torch.zeros(size, count, dtype=dtype)
                dist.all_gather(list(row), mine)
                whole = torch.zeros(size * count, dtype=dtype)
                dist.all_gather_into_tensor(whole, mine)
                for one, (a, b, c) in enumerate(zip(apart, row, whole.split(count) if count else row)):
                    same(a, every[one])
                    same(b, every[one])
                    same(c, every[one])
        for root in range(size):
            mine = numbers(rank, 1000, torch.float32)
            all_of = [torch.zeros(1000) for _ in range(size)] if rank == root else None
            dist.gather(mine, all_of, root)
            for one, what in enumerate(all_of or ()):
                same(what, numbers(one, 1000, torch.float32))
            parts = [numbers(one + 10 * root, 70001, torch.int16) for one in range(size)]
            got = torch.zeros(70001, dtype=torch.int16)
            dist.scatter(got, parts if rank == root else None, root)
            same(got, parts[rank])


def test_coalesced(rank, size):
    """Several tensors by one call."""
    with group():
        shapes = [(3, 4), (70001,), (), (1000,)]
        mine = [torch.full(shape, float(rank)) for shape in shapes]
        dist.all_reduce_coalesced(mine)
        for one, shape in zip(mine, shapes):
            same(one, torch.full(shape, float(sum(range(size)))))
        outs = [[torch.zeros(shape) for shape in shapes] for _ in range(size)]
        dist.all_gather_coalesced(outs, [torch.full(shape, float(rank)) for shape in shapes])
        for one, out in enumerate(outs):
            for tensor, shape in zip(out, shapes):
                same(tensor, torch.full(shape, float(one)))


def test_reduce_scatter(rank, size):
    """Lists, in a row and not, and whole tensors."""
    with group():
        for dtype in REDUCED:
            for count in COUNTS:
                every = [numbers(one, count * size, dtype, 1, 4) for one in range(size)]
                want = reduced(OPS.SUM, every)[rank * count:(rank + 1) * count]
                out = strided(torch.zeros(count, dtype=dtype))
                dist.reduce_scatter_tensor(out, every[rank])
                same(out, want)
                lists = every[rank].view(size, count)
                out = torch.zeros(count, dtype=dtype)
                dist.reduce_scatter(out, list(lists))
                same(out, want)
                out = torch.zeros(count, dtype=dtype)
                dist.reduce_scatter(out, [one.clone() for one in lists])
                same(out, want)
        out = torch.zeros(12)
        dist.reduce_scatter(out, [torch.arange(12.0).reshape(3, 4).t() + one for one in range(size)])
        same(out, (torch.arange(12.0).reshape(3, 4).t().reshape(12) + rank) * size)


def test_all_to_all(rank, size):
    """Evenly, unevenly, by lists."""
    with group():
        for dtype in MOVED:
            for count in COUNTS:
                every = [numbers(one, count * size, dtype) for one in range(size)]
                out = torch.zeros(count * size, dtype=dtype)
                dist.all_to_all_single(out, strided(every[rank]))
                same(out, torch.cat([one.view(size, count)[rank] for one in every]))
                outs = [torch.zeros(count, dtype=dtype) for _ in range(size)]
                dist.all_to_all(outs, list(every[rank].view(size, count)))
                for one, what in enumerate(outs):
                    same(what, every[one].view(size, count)[rank])
        # Rank R has R + S rows for rank S.
        sends = [rank + other for other in range(size)]
        gets = [other + rank for other in range(size)]
        out = torch.zeros(sum(gets), 3)
        dist.all_to_all_single(out, torch.full((sum(sends), 3), float(rank)), gets, sends)
        same(out, torch.cat([torch.full((gets[one], 3), float(one)) for one in range(size)]))


def test_letters(rank, size):
    """From one rank to another: tags, any source, large ones that nobody expects, batches."""
    with group():
        following, before = (rank + 1) % size, (rank - 1) % size
        for count in (0, 1, 5000, 300000):
            works = [dist.isend(torch.full((count,), float(rank + tag)), following, tag=tag)
                     for tag in (0, 7)]
            # In the other order: each tag has its own.
            for tag in (7, 0):
                got = strided(torch.zeros(count))
                assert dist.recv(got, before, tag=tag) == before
                same(got, torch.full((count,), float(before + tag)))
            for work in works:
                work.wait()
        if rank:
            dist.send(torch.full((3,), rank), 0, tag=1)
        else:
            senders = set()
            for _ in range(size - 1):
                got = torch.zeros(3, dtype=torch.int64)
                sender = dist.recv(got, tag=1)
                assert got.eq(sender).all()
                senders.add(sender)
            assert senders == set(range(1, size))
        got = torch.zeros(1000)
        for work in dist.batch_isend_irecv([
                dist.P2POp(dist.isend, torch.full((1000,), float(rank)), following),
                dist.P2POp(dist.irecv, got, before)]):
            work.wait()
        assert got.eq(before).all()
        # What nobody receives holds up no call of all.
        lost = dist.isend(torch.zeros(100000), following, tag=9)
        total = torch.ones(5)
        dist.all_reduce(total)
        assert total.eq(size).all() and not lost.is_completed()
        # Nobody receives before all have looked.
        dist.barrier()
        if rank == 0:
            dist.send(torch.zeros(5), 1, tag=11)
        elif rank == 1:
            with raises(RuntimeError, "rank 0", "20 bytes", "24"):
                dist.recv(torch.zeros(6), 0, tag=11)
        dist.recv(torch.zeros(100000), before, tag=9)
        lost.wait()


def test_sparse(rank, size):
    """Summed up; as many values as each likes."""
    with group():
        for dense in ((), (4,)):
            mine = torch.sparse_coo_tensor([list(range(rank + 1))], torch.ones(rank + 1, *dense),
                                           (10, *dense))
            dist.all_reduce(mine)
            want = torch.tensor([float(sum(other >= at for other in range(size))) for at in range(10)])
            same(mine.to_dense(), want.view(10, *(1 for _ in dense)).expand(10, *dense).contiguous())
        with raises(ValueError, "summed up"):
            dist.all_reduce(mine, OPS.MAX)
        with raises((TypeError, RuntimeError)):
            dist.broadcast(mine, 0)


def test_objects(rank, size):
    """What c10d builds of these."""
    with group():
        every = [None] * size
        dist.all_gather_object(every, {"rank": rank, "text": "x" * 1000 * rank})
        assert [one["rank"] for one in every] == list(range(size))
        told = [rank, "a"] if rank == 1 else [None, None]
        dist.broadcast_object_list(told, 1)
        assert told == [1, "a"]
        got = [None]
        dist.scatter_object_list(got, [("for", one) for one in range(size)] if not rank else None, 0)
        assert got == [("for", rank)]
        gathered = [None] * size if rank == 2 else None
        dist.gather_object(rank * 2, gathered, 2)
        assert rank != 2 or gathered == [one * 2 for one in range(size)]


def test_futures(rank, size):
    """Works and futures: in any order, many at once, completed while the program does nothing."""
    with group():
        works = [dist.all_reduce(torch.full((count,), float(rank)), async_op=True)
                 for count in range(0, 100000, 4000)]
        for work in reversed(works):
            work.wait()
            assert work.is_completed() and work.is_success()
            assert work.result()[0].eq(sum(range(size))).all()
        called = threading.Event()
        work = dist.all_reduce(torch.ones(100000), async_op=True)
        then = work.get_future().then(lambda future: (called.set(), future.value()[0] * 2)[1])
        assert called.wait(30), "nobody has completed it"
        assert then.wait().eq(2 * size).all()
        assert work.get_future().wait()[0].eq(size).all()
        gathered = [torch.zeros(5) for _ in range(size)]
        work = dist.all_gather(gathered, torch.full((5,), float(rank)), async_op=True)
        assert [one[0].item() for one in work.get_future().wait()] == list(range(size))
        futures = [dist.all_reduce(torch.ones(count), async_op=True).get_future()
                   for count in range(1, 20000, 1000)]
        for future in torch.futures.wait_all(futures):
            assert future[0].eq(size).all()
        letter = torch.zeros(4)
        works = [dist.irecv(letter, (rank - 1) % size), dist.isend(torch.ones(4), (rank + 1) % size)]
        works[0].get_future().wait()
        works[1].get_future().wait()
        assert letter.eq(1).all()
        barrier = dist.barrier(async_op=True)
        barrier.wait()


def test_threads(rank, size):
    """One group, used by several threads at once, and by what waits for futures."""
    with group():
        failed = []

        def talk(tag):
            try:
                for step in range(40):
                    sent = dist.isend(torch.full((1 + 300 * step,), float(tag)), (rank + 1) % size,
                                      tag=tag)
                    got = torch.zeros(1 + 300 * step)
                    dist.recv(got, (rank - 1) % size, tag=tag)
                    assert got.eq(tag).all(), got
                    sent.wait()
            except BaseException as error:  # pylint: disable=broad-exception-caught
                failed.append(error)

        threads = [threading.Thread(target=talk, args=(tag,)) for tag in range(1, 5)]
        for thread in threads:
            thread.start()
        # Within what is called when a future is there another one is waited for, as PowerSGD does.
        for step in range(20):
            first = dist.all_reduce(torch.ones(5000 + step), async_op=True).get_future()
            second = first.then(lambda future: dist.all_reduce(
                future.value()[0], async_op=True).get_future().wait()[0])
            assert second.wait().eq(size * size).all()
        for thread in threads:
            thread.join()
        assert not failed, failed


def test_late_letters(rank, _):
    """What comes after a gather's time is not the next one's."""
    begin()
    one = dist.new_group(timeout=datetime.timedelta(seconds=2))
    if rank == 0:
        with raises(RuntimeError, "gather", "ETIMEDOUT"):
            dist.gather(torch.zeros(3), [torch.zeros(3) for _ in range(3)], group=one)
    elif rank == 1:
        time.sleep(4)
        dist.gather(torch.full((3,), 1.0), group=one)
    else:
        dist.gather(torch.full((3,), 1.0), group=one)
    dist.barrier()
    gathered = [torch.zeros(3) for _ in range(3)] if rank == 0 else None
    dist.gather(torch.full((3,), 2.0), gathered, group=one)
    assert all(part.eq(2).all() for part in gathered or ())
    dist.barrier()
    dist.destroy_process_group()


def test_forgotten(rank, size):
    """Nobody keeps the work, nor the tensors."""
    with group():
        kept = torch.ones(50000)
        for _ in range(20):
            dist.all_reduce(torch.ones(50000), async_op=True)
            dist.isend(torch.full((2000,), float(rank)), (rank + 1) % size)
        dist.all_reduce(kept)
        assert kept.eq(size).all()
        for _ in range(20):
            got = torch.zeros(2000)
            dist.recv(got, (rank - 1) % size)
            assert got.eq((rank - 1) % size).all()
        dist.all_reduce(torch.ones(50000), async_op=True)


@marked(ranks=4)
def test_groups(rank, size):
    """Of some ranks, made by all; several at once, in threads of their own."""
    with group():
        groups = [dist.new_group([0, 1]), dist.new_group([3, 1]), dist.new_group([2]),
                  dist.new_group()]
        members = [[0, 1], [1, 3], [2], list(range(size))]
        failed = []

        def work(ranks, group_of):
            try:
                for step in range(30):
                    total = torch.full((1000 + step,), float(rank))
                    dist.all_reduce(total, group=group_of)
                    assert total.eq(sum(ranks)).all()
            except BaseException as error:  # pylint: disable=broad-exception-caught
                failed.append(error)

        threads = [threading.Thread(target=work, args=(ranks, group_of))
                   for ranks, group_of in zip(members, groups) if rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed
        if rank in members[1]:
            what = torch.tensor([rank])
            dist.broadcast(what, 3, group=groups[1])
            assert what.item() == 3


def test_refused(rank, size):
    """Mistakes: nothing is sent, and all goes on."""
    with group():
        with raises(TypeError, "moved, and not reduced"):
            dist.all_reduce(torch.ones(3, dtype=torch.int16))
        with raises(TypeError, "summed up"):
            dist.reduce(torch.ones(3, dtype=torch.complex64), 0, OPS.MAX)
        with raises(ValueError, "tag"):
            dist.isend(torch.ones(1), (rank + 1) % size, tag=-1)
        with raises((ValueError, RuntimeError)):
            dist.all_gather([torch.zeros(3)] * (size - 1), torch.zeros(3))
        with raises(ValueError, "as many elements"):
            dist.all_gather([torch.zeros(4)] * size, torch.zeros(3))
        with raises((ValueError, RuntimeError)):
            dist.all_to_all_single(torch.zeros(size + 1), torch.zeros(size + 1))
        with raises(ValueError, "add up"):
            dist.all_to_all_single(torch.zeros(size), torch.zeros(size), [1] * size,
                                   [2] + [1] * (size - 1))
        with raises((ValueError, RuntimeError)):
            dist.broadcast(torch.zeros(1), size)
        total = torch.ones(3)
        dist.all_reduce(total)
        assert total.eq(size).all()


def test_refused_at_the_root(rank, size):
    """A root's mistake in a gather is not the next one's."""
    with group():
        mine = torch.full((3,), float(rank))
        if rank:
            dist.gather(mine, None, 0)
        else:
            with raises(ValueError, "as many elements"):
                dist.gather(mine, [torch.zeros(4) for _ in range(size)], 0)
        every = [torch.zeros(3) for _ in range(size)] if not rank else None
        dist.gather(mine + 10, every, 0)
        assert rank or all(one.eq(10 + other).all() for other, one in enumerate(every)), every


def test_numbers(rank, size):
    """Letters are not counted: TORCH_DISTRIBUTED_DEBUG=DETAIL compares how many calls ranks have made."""
    with group():
        if rank < 2:
            (dist.recv if rank else dist.send)(torch.zeros(1), 1 - rank)
        towline.torch.monitored_barrier()
        dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(3).to_sparse())
        seen = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
        backend = towline.torch._group(None)    # pylint: disable=protected-access
        number = backend._get_sequence_number_for_group()   # pylint: disable=protected-access
        dist.all_gather(seen, torch.tensor([number]))
        assert len({int(one) for one in seen}) == 1, seen


def test_same_store(rank, size):
    """Groups one after the other meet by one store, and by the same names."""
    first = store()
    meeting = dist.PrefixStore("same", first)
    for turn in range(3):
        dist.init_process_group("towline", store=dist.PrefixStore(f"turn {turn}", first), rank=rank,
                                world_size=size)
        other = towline.torch._backend.create(meeting, rank, size, datetime.timedelta(seconds=20))
        total = torch.ones(3)
        other.allreduce([total]).wait()
        assert total.eq(size).all()
        dist.barrier()
        towline.torch._backend.close(other)
        with raises(RuntimeError, "has ended"):
            other.allreduce([total])
        dist.destroy_process_group()


def test_closed_meanwhile(rank, size):
    """By one thread, while others make calls, break off and ask: they are told that it has ended."""
    meeting = store()
    backend = towline.torch._backend
    for turn in range(5):
        other = backend.create(meeting, rank, size, datetime.timedelta(seconds=20))
        ended = []

        def call(one=other, ended=ended, letters=False):
            try:
                while True:
                    if letters:
                        backend.stats(one)
                        one.send([torch.ones(1)], (rank + 1) % size, 1)
                    else:
                        one.allreduce([torch.ones(100)])
            except RuntimeError as error:
                ended.append(str(error))

        threads = [threading.Thread(target=call),
                   threading.Thread(target=call, kwargs={"letters": True})]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        backend.close(other)
        for thread in threads:
            thread.join()
        assert len(ended) == 2 and all("towline" in one for one in ended), ended
        with raises(RuntimeError, "has ended"):
            backend.abort(other)


@marked(ranks=2)
def test_forked_while_waiting(rank, _):
    """What its parent's thread waits for a child is refused, and not for ever."""
    with group():
        work = dist.irecv(torch.zeros(1), 1 - rank)
        waits = threading.Thread(target=work.wait)
        waits.start()
        time.sleep(0.2)
        for ask in (work.wait, work.get_future, work.is_completed, dist.barrier):
            pid = os.fork()
            if not pid:
                signal.alarm(20)
                with raises(RuntimeError, "EPERM"):
                    ask()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, ask
        dist.send(torch.ones(1), 1 - rank)
        waits.join()


def test_another_call(rank, size):
    """Rank 1 reduces something else: that call fails at all, and those after it are good."""
    with group():
        with raises(RuntimeError, "rank 1", "EPROTO"):
            dist.all_reduce(torch.ones(8 if rank == 1 else 7))
        total = torch.ones(3)
        dist.all_reduce(total)
        assert total.eq(size).all()


def test_late(rank, _):
    """Rank 1 does not come: it is named, and the group has failed."""
    begin()
    one = dist.new_group(timeout=datetime.timedelta(seconds=3))
    if rank == 1:
        time.sleep(6)
    else:
        with raises(RuntimeError, "rank 1 did not come before the timeout", "ETIMEDOUT"):
            dist.all_reduce(torch.ones(5), group=one)
        with raises(RuntimeError, "rank 1"):
            dist.barrier(group=one)
    dist.barrier()
    dist.destroy_process_group()


@marked(ends={2: -9})
def test_killed(rank, _):
    """Rank 2 dies: others are told who, whatever they wait for."""
    begin()
    dist.barrier()
    if rank == 2:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    with raises(RuntimeError, "rank 2 has died"):
        if rank:
            dist.recv(torch.zeros(3), 2)
        else:
            dist.all_reduce(torch.ones(100000))
    with raises(RuntimeError, "rank 2 has died"):
        dist.all_reduce(torch.ones(5))
    assert time.monotonic() - began < 20


def test_abort(rank, _):
    """By another thread than that which waits; others blame this rank."""
    begin()
    dist.barrier()
    if rank == 1:
        threading.Timer(0.5, towline.torch.abort).start()
    total = torch.ones(10)
    with raises(RuntimeError, "ECANCELED"):
        if rank == 1:
            dist.recv(total, 0)
        else:
            dist.all_reduce(total)
    with raises(RuntimeError, "" if rank == 1 else "rank 1"):
        dist.barrier()
    # Another rank may write there, until the group's end.
    with raises(RuntimeError, "not resizable"):
        total.resize_(100000)
    dist.destroy_process_group()


def test_monitored_barrier(rank, _):
    """Rank 0 says who is missing, and later ones are good."""
    with group():
        towline.torch.monitored_barrier()
        if rank != 2:
            with raises(RuntimeError, *(("rank 2 did not come",) if not rank else ())):
                towline.torch.monitored_barrier(timeout=datetime.timedelta(seconds=1),
                                                wait_all_ranks=True)


@marked(ends={2: -9})
def test_monitored_dead(rank, _):
    """Of a barrier rank 0 says who has died, and not that others did not come."""
    begin()
    dist.barrier()
    if rank == 2:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank:
        time.sleep(3)
    with raises(RuntimeError, "monitored_barrier", "has died" if rank else "rank 2 has died"):
        towline.torch.monitored_barrier(wait_all_ranks=True)


def test_monitored_interrupted(rank, _):
    """By a signal's handler, which raises what it likes."""
    begin()

    def handler(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, handler)
    if rank:
        time.sleep(3)
    else:
        signal.alarm(1)
        with raises(KeyboardInterrupt):
            towline.torch.monitored_barrier(wait_all_ranks=True)
    # Without letters that others wait for.
    os._exit(0)


@marked(ranks=2)
def test_destroyed(rank, _):
    """With something on its way: that is broken off, and another group is made."""
    meeting = store()
    for turn in range(3):
        dist.init_process_group("towline", store=dist.PrefixStore(f"turn {turn}", meeting), rank=rank,
                                world_size=2)
        dist.barrier()
        work = dist.irecv(torch.zeros(5), 1 - rank)
        future = work.get_future()
        # Who breaks off may do so before the other one has seen that all had come to the barrier.
        meeting.set(f"{turn} {rank}", "here")
        meeting.wait([f"{turn} {1 - rank}"])
        dist.destroy_process_group()
        with raises(RuntimeError, "ECANCELED"):
            future.wait()


@marked(ranks=1)
def test_arrays(*_):
    """The package for NumPy takes tensors where they are, and gives them, also of bfloat16."""
    with towline.Device() as dev, towline.Arena(dev) as arena, \
            towline.Group(dev, towline.World(0, 1, session="alone")) as made, \
            towline.Comm(made, arena) as comm:
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            mine, into = torch.arange(6.0).reshape(2, 3).to(dtype), torch.zeros(2, 3).to(dtype)
            work = comm.irecv(into)
            comm.isend(mine, 0).wait(MOST_S)
            work.wait(MOST_S)
            same(into.float(), mine.float())
            copy = arena.array(mine)
            assert copy in arena and mine not in arena
            there = torch.from_dlpack(towline.dlpack(copy))
            same(there.float(), mine.float())
            assert there.dtype == dtype and there in arena and there.data_ptr() == copy.ctypes.data
            # Each keeps the memory, whichever is left.
            del copy
            same(there.float(), mine.float())
            assert arena.stats().in_use_bytes
            del there, work
        tensor = torch.ones(3, requires_grad=True)
        with raises((RuntimeError, BufferError), "grad"):
            comm.iallreduce(tensor)
        assert comm.iallreduce(tensor.detach(), op="avg").wait(MOST_S).sum() == 3
        with raises(ValueError, "gaps"):
            comm.iallreduce(torch.ones(3, 4).t())
        array = comm.ibroadcast(torch.ones(5, dtype=torch.bfloat16)).wait(MOST_S)
        assert array.dtype == towline.bfloat16 and array.view("u2").tolist() == [0x3f80] * 5


def test_no_device(rank, _):
    """One rank's device is missing: all say so at once, and what was missing."""
    if rank == 1:
        os.environ["TOW_DEVICE"] = "nothing0"
    began = time.monotonic()
    with raises(RuntimeError, "device", *(() if rank == 1 else ("rank 1",))):
        begin()
    assert time.monotonic() - began < 20

