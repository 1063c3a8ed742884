# SPDX-License-Identifier: Apache-2.0
"""Check on each worker the messages that it gets from the others."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np

import mindspore_rec
from mindspore_rec.parallel import WorkerError, worker_group


def raised(call):
    try:
        call()
    except WorkerError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def child(queue):
    queue.put(worker_group().size)


def check_collectives(group):
    ranks = range(group.size)
    for length in (0, 1, 248, 249, 2500, 40_000):
        data = [bytes([r]) * (length + r) for r in ranks]
        assert group.all_gather(data[group.rank]) == data
        for root in ranks:
            assert group.broadcast(data[root] if root == group.rank else None, root) == data[root]
    assert group.all_gather_json({"rank": group.rank}) == [{"rank": r} for r in ranks]
    channel = group.channel("ahead")
    for length in (0, 3, 999, 1000, 1001, 30_000):
        sent = [bytes([group.rank, to]) * (length + to) for to in ranks]
        expected = [bytes([r, group.rank]) * (length + group.rank) for r in ranks]
        assert channel.all_to_all(sent) == expected
    group.barrier()


def check_messages(group):
    """Requests from all to all while the channels are in use, long ones and short ones."""
    channel = group.channel("merge")
    done = threading.Event()

    def answer():
        answered = 0
        while answered < 20 * group.size:
            request = channel.poll(tag=0)
            if request is None:
                time.sleep(0.001)  # workers may share a core
                continue
            sender, data = request
            channel.send(sender, data[::-1], tag=1)
            answered += 1
        done.set()

    server = threading.Thread(target=answer)
    server.start()
    for i in range(20):
        text = os.urandom(i * 200)
        for to in range(group.size):
            channel.send(to, text)
        group.all_gather(b"at the same time")
        for to in range(group.size):
            assert channel.receive(to, tag=1) == (to, text[::-1])
    server.join()
    assert done.is_set()
    assert channel.poll() is None and channel.poll(tag=1) is None


def check_channels_of_threads(group):
    """Each channel keeps to itself whatever the order in which threads come."""
    errors = []

    def gather(name, times):
        try:
            for i in range(times):
                text = f"{name} {i}"
                all_of = group.channel(name).all_gather(f"{text} {group.rank}".encode())
                assert all_of == [f"{text} {r}".encode() for r in range(group.size)]
        except BaseException as error:
            errors.append(error)

    names = ["step", "ahead", "checkpoint"]
    if group.rank == 1:
        names.reverse()
    threads = [threading.Thread(target=gather, args=(name, 50)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def check_differences(group):
    group.require_equal("configuration", "same")
    last = group.size - 1
    text = raised(lambda: group.require_equal("configuration", f"{group.rank == last}"))
    assert text == (
        f"configuration of worker {last} differs from that of worker 0: True and False; all "
        "workers must have the same"
    ), text
    arrays = [np.arange(6.0).reshape(2, 3), np.zeros(3000, np.float32)]
    names = ["dense.weight", "dense.bias"]
    group.require_same_arrays("dense parameters", names, arrays)
    if group.rank == last:
        arrays[1][2999] = 1e-30
    text = raised(lambda: group.require_same_arrays("dense parameters", names, arrays))
    assert text == f"dense parameters differ between worker 0 and worker {last}: dense.bias", text


def check_children(group):
    """A process that a worker starts is no worker."""
    code = "from mindspore_rec.parallel import worker_group; print(worker_group().size)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "1\n", done.stderr
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == 1
    process.join()
    assert process.exitcode == 0
    group.barrier()


def main():
    session = mindspore_rec.init()
    group = worker_group()
    assert (session.rank, session.size, session.host) == (group.rank, group.size, group.host)
    assert session.rank == int(os.environ["OMPI_COMM_WORLD_RANK"])
    assert group.hosts == [group.host] * group.size
    assert (group.local_rank, group.local_size) == (group.rank, group.size)
    check_collectives(group)
    check_messages(group)
    check_channels_of_threads(group)
    check_differences(group)
    if group.rank == 0:
        check_children(group)
    else:
        group.barrier()
    statistics = group.channel("control").statistics()
    assert statistics["calls"] > 20 and statistics["bytes_sent"] > 0 < statistics["seconds"]
    group.begin_step(5, [10 * (r + 1) for r in range(group.size)])
    print(f"checked {group.rank} of {group.size}")


if __name__ == "__main__":
    main()
