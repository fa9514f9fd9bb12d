"""Batches: no sentence is dropped, a resumed training has the same batches, loading ends cleanly, and errors are one line."""

import atexit
import contextlib
import functools
import queue
import threading
import time

import numpy
from fairseq.data import data_utils
from fairseq.data.iterators import BackgroundConsumer
from fairseq.tasks import FairseqTask


def keeping_the_last(batch_by_size):
    """fairseq's batch_by_size, with the sentences that it leaves out.

    Later versions drop a last batch whose size is not a multiple of 8, in training, and without a word also of a test set: up to
    seven sentences would have no translation.
    """

    @functools.wraps(batch_by_size)
    def batch_all(indices, *args, **kwargs):
        indices = numpy.asarray(indices if hasattr(indices, "__len__") else list(indices), dtype=numpy.int64)
        if not len(indices):
            return []
        batches = list(batch_by_size(indices, *args, **kwargs))
        if kwargs.get("fixed_shapes") is None:
            rest = indices[sum(map(len, batches)) :]
            batches += [rest] if len(rest) else []
        return batches

    return batch_all


def same_after_resuming(get_batch_iterator):
    """fairseq's get_batch_iterator, with the batches of the first epoch in every other.

    Later versions draw from seed and epoch which sentences share a batch, but only once a run: a training resumed in another
    epoch than the first would have other batches to its end than without the interruption.
    """

    @functools.wraps(get_batch_iterator)
    def get_same_batches(self, dataset, *args, **kwargs):
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

    return get_same_batches


def with_one_line(filter_indices):
    """fairseq's filter_indices_by_size, whose message about a sentence that is too long comes without a traceback."""

    @functools.wraps(filter_indices)
    def filter_or_stop(*args, **kwargs):
        try:
            return filter_indices(*args, **kwargs)
        except Exception as error:
            if "since max_positions=" not in str(error):
                raise
            raise SystemExit(f"fairseq_posenc: {error}") from None

    return filter_or_stop


def end_loading(timeout: float = 10.0) -> None:
    """End the threads in which fairseq loads batches in advance; wait `timeout` seconds for them at most.

    When a training ends within an epoch, its thread is still at work. Until Python 3.13 a thread that is inside torch while
    Python ends aborts the process, so that a finished training returned the exit status 134.
    """
    end = time.monotonic() + timeout
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer):
            thread._max_len = 0  # it ends after its next batch
            while thread.is_alive() and time.monotonic() < end:
                with contextlib.suppress(queue.Empty):
                    thread._queue.get(timeout=0.05)  # makes room, should the thread wait for it


def apply() -> None:
    atexit.register(end_loading)
    data_utils.batch_by_size = keeping_the_last(data_utils.batch_by_size)
    FairseqTask.get_batch_iterator = same_after_resuming(FairseqTask.get_batch_iterator)
    FairseqTask.filter_indices_by_size = with_one_line(FairseqTask.filter_indices_by_size)
