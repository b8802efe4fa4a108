# SPDX-License-Identifier: GPL-2.0
"""Tensors in the pool: where they are, how long, in which threads and processes."""

import copy
import os
import threading

from ranks import dist, group, marked, raises, torch, towline

allocator, in_pool, memory = towline.torch.allocator, towline.torch.in_pool, towline.torch.memory


@marked(ranks=1)
def test_scope(*_):
    """Within, of this thread; nested; after an exception."""
    assert not in_pool(torch.zeros(10))
    elsewhere = []
    with allocator():
        one = torch.arange(1000.0)
        thread = threading.Thread(target=lambda: elsewhere.append(torch.zeros(10)))
        thread.start()
        thread.join()
        with allocator():
            two = one * 2
        three = one.view(10, 100)[3:5]
        four = torch.zeros(0)
    assert in_pool(one) and in_pool(two) and in_pool(three) and not in_pool(elsewhere[0])
    assert four.numel() == 0 and not in_pool(torch.zeros(10))
    with raises(KeyError):
        with allocator():
            raise KeyError("x")
    assert not in_pool(torch.zeros(10))
    assert two.sum() == 2 * one.sum() and one.data_ptr() % 64 == 0


@marked(ranks=1)
def test_lives(*_):
    """As long as anything uses it, and not longer."""
    with allocator():
        kept = torch.ones(1 << 20)
    used = memory()["in_use_bytes"]
    assert used >= 4 << 20
    array = kept.numpy()
    del kept
    assert memory()["in_use_bytes"] == used and array.sum() == 1 << 20
    del array
    assert memory()["in_use_bytes"] < used - (4 << 20) + 4096
    with allocator():
        grows = torch.ones(10)
        grows.resize_(100000)
        assert in_pool(grows) and grows[:10].sum() == 10
    grows.resize_(1 << 20)
    assert not in_pool(grows) and grows[:10].sum() == 10
    with allocator():
        model = torch.nn.Linear(100, 100)
        other = copy.deepcopy(model)
    assert all(in_pool(one) for one in (*model.parameters(), *other.parameters()))
    model(torch.ones(100)).sum().backward()
    assert torch.equal(model(torch.ones(100)), other(torch.ones(100)))


@marked(ranks=1)
def test_raw(*_):
    """What PyTorch frees by its address alone, as scratch of convolutions."""
    nn = torch.nn
    torch.manual_seed(1)
    with allocator():
        inside = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3))
    outside, images = copy.deepcopy(inside), torch.rand(32, 1, 8, 8)
    for _ in range(3):
        with allocator():
            one = inside(images)
            one.sum().backward()
        two = outside(images)
        two.sum().backward()
        assert torch.equal(one, two)
        for mine, other in zip(inside.parameters(), outside.parameters()):
            assert torch.equal(mine.grad, other.grad)


@marked(ranks=1)
def test_no_room(*_):
    """What has no room is ordinary memory, and is counted."""
    with allocator():
        large = [torch.ones(64 << 20, dtype=torch.uint8) for _ in range(10)]
    assert all(one.sum() == 64 << 20 for one in large)
    assert any(in_pool(one) for one in large) and not all(in_pool(one) for one in large)
    assert memory()["fallbacks"] == sum(not in_pool(one) for one in large)
    del large
    assert memory()["fallback_bytes"] == 0


@marked(ranks=1)
def test_whole_process(*_):
    """All threads, from now on."""
    with allocator(whole_process=True):
        pass
    made = []
    thread = threading.Thread(target=lambda: made.append(torch.zeros(10)))
    thread.start()
    thread.join()
    assert in_pool(made[0]) and in_pool(torch.zeros(10))


@marked(ranks=1)
def test_forked(*_):
    """A child reads its parent's tensors, and has ordinary ones of its own, until it opens the device."""
    with allocator():
        model, data = torch.nn.Linear(10, 10), torch.arange(100.0)
        pid = os.fork()
        if not pid:
            assert data.sum() == 4950 and in_pool(data) is False
            mine = torch.zeros(1000)
            assert not in_pool(mine)
            del data
            model(torch.ones(10)).sum().backward()
            with allocator():
                assert in_pool(torch.ones(10))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert data.sum() == 4950 and in_pool(data)


@marked(ranks=1)
def test_forked_raw(*_):
    """A child frees nothing of what its parent has by its address alone."""
    with allocator():
        numbers = torch.arange(10000.0)
        packed = numbers.to_mkldnn()
    pid = os.fork()
    if not pid:
        del packed
        others = [torch.ones(10000) for _ in range(10)]
        os._exit(sum(int(one.sum()) for one in others) != 100000)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert torch.equal(packed.to_dense(), numbers)


class Squares(torch.utils.data.Dataset):
    """Of a tensor that is in the pool of the process that made it."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index] ** 2, index


def load(values, context, workers):
    """All of them, in batches, by processes of their own."""
    loader = torch.utils.data.DataLoader(Squares(values), batch_size=16, num_workers=workers,
                                         multiprocessing_context=context)
    seen = 0
    for squares, indices in loader:
        assert torch.equal(squares, indices.to(squares.dtype) ** 2)
        seen += len(squares)
        yield
    assert seen == len(values)


@marked(ranks=2)
def test_loaders(_, size):
    """Forked while another thread is within a collective, as often as there are epochs."""
    with group():
        with allocator():
            values = torch.arange(256.0)
        over, failed = threading.Event(), []

        def reduce():
            try:
                # All ranks make as many calls: each says whether it wants more.
                more = torch.ones(1)
                while more.item():
                    total = torch.ones(20000)
                    dist.all_reduce(total)
                    assert total.eq(size).all()
                    more = torch.tensor([0.0 if over.is_set() else 1.0])
                    dist.all_reduce(more, dist.ReduceOp.MAX)
            except BaseException as error:  # pylint: disable=broad-exception-caught
                failed.append(error)

        thread = threading.Thread(target=reduce)
        thread.start()
        for _ in range(3):
            for _ in load(values, "fork", 2):
                pass
        over.set()
        thread.join()
        assert not failed, failed
        total = torch.ones(5)
        dist.all_reduce(total)
        assert total.eq(size).all()


@marked(ranks=1)
def test_spawned_loader(*_):
    """Which has a PyTorch of its own; what it sends comes by shared memory."""
    with group():
        with allocator():
            values = torch.arange(64.0)
        for _ in load(values, "spawn", 1):
            pass


@marked(ranks=2)
def test_copies(_, size):
    """What is in the pool is not copied, and what is not is."""
    with group():
        with allocator():
            inside = torch.ones(1 << 18)
        dist.all_reduce(inside)
        before = towline.torch.stats()
        dist.all_reduce(inside)
        between = towline.torch.stats()
        dist.all_reduce(torch.ones(1 << 18))
        after = towline.torch.stats()
        for what in ("staged_bytes", "copied_bytes", "eager_bytes"):
            assert between[what] == before[what], what
        assert after["staged_bytes"] > between["staged_bytes"]
        assert inside.eq(size * size).all()
