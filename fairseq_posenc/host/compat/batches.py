"""Patches for batches.

The patches keep all sentences, use the same batches after resuming, repair --num-batch-buckets, end threads at exit, and shorten
errors.
"""

import atexit
import contextlib
import queue
import threading
import time
import types

import numpy
from fairseq.data import bucket_pad_length_dataset, data_utils
from fairseq.data.iterators import BackgroundConsumer
from fairseq.tasks import FairseqTask

from .wrappers import wrapper


@wrapper
def keeping_the_last(batch_by_size, indices, *args, **kwargs):
    """Wrap fairseq's batch_by_size so that all sentences are kept.

    Some versions of fairseq, such as fairseq-fixed 0.12.3, drop the last batch if its size is not a multiple of 8. This happens
    in training and in decoding. Up to seven sentences of a test set would then have no translation, without any message.
    """
    indices = numpy.asarray(indices if hasattr(indices, "__len__") else list(indices), dtype=numpy.int64)
    if not len(indices):
        return []
    batches = list(batch_by_size(indices, *args, **kwargs))
    if kwargs.get("fixed_shapes") is None:
        rest = indices[sum(map(len, batches)) :]
        batches += [rest] if len(rest) else []
    return batches


@wrapper
def same_after_resuming(get_batch_iterator, self, dataset, *args, **kwargs):
    """Wrap fairseq's get_batch_iterator so that all epochs use the batches of the first epoch.

    fairseq-fixed 0.12.3 groups sentences into batches at random, once per process. The batches depend on the seed and on the
    epoch in which the process starts. If a training run is resumed in a later epoch, it would then use other batches than an
    uninterrupted run.
    """
    anew = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
    if anew or "epoch" not in kwargs or not self.can_reuse_epoch_itr(dataset):
        return get_batch_iterator(self, dataset, *args, **kwargs)
    kept = self.dataset_to_epoch_iter.get(dataset)
    epoch = kwargs.pop("epoch")
    iterator = get_batch_iterator(self, dataset, *args, epoch=1, **kwargs)
    if iterator is not kept:
        iterator.epoch = max(epoch, 1)
        dataset.set_epoch(epoch)
    return iterator


def buckets_of(sizes, num_buckets):
    """Return the sizes to which --num-batch-buckets pads sentences, as fairseq's get_buckets does.

    fairseq calls numpy.percentile with the argument `interpolation`. In numpy 2.4, this argument has the name `method`.
    """
    return numpy.unique(numpy.percentile(sizes, numpy.linspace(0, 100, num_buckets + 1), method="lower")[1:])


@wrapper
def with_one_line(filter_indices, *args, **kwargs):
    """Wrap fairseq's filter_indices_by_size, so that the error about too long sentences is one line without a traceback."""
    try:
        return filter_indices(*args, **kwargs)
    except Exception as error:
        if "since max_positions=" not in str(error):
            raise
        raise SystemExit(f"fairseq_posenc: {error}") from None


def end_loading(timeout: float = 10.0) -> None:
    """End the threads in which fairseq loads batches in advance. Wait at most `timeout` seconds for them.

    If a training run ends within an epoch, a thread is still running. Before Python 3.14, Python aborts at exit if a thread is
    inside torch. A completed training run would then have exit status 134.
    """
    end = time.monotonic() + timeout
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer):
            thread._max_len = 0  # the thread ends after its next batch
            while thread.is_alive() and time.monotonic() < end:
                with contextlib.suppress(queue.Empty):
                    thread._queue.get(timeout=0.05)  # remove a batch, because the thread waits if the queue is full


def apply() -> None:
    atexit.register(end_loading)
    if not hasattr(numpy, "compat"):  # numpy 2.4 has no module numpy.compat, from which fairseq reads the type of its counts
        numpy.compat = types.SimpleNamespace(long=int)
    data_utils.get_buckets = bucket_pad_length_dataset.get_buckets = buckets_of
    data_utils.batch_by_size = keeping_the_last(data_utils.batch_by_size)
    FairseqTask.get_batch_iterator = same_after_resuming(FairseqTask.get_batch_iterator)
    FairseqTask.filter_indices_by_size = with_one_line(FairseqTask.filter_indices_by_size)
