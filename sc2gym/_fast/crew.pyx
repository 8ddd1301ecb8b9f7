"""The threads that fill batches ahead of their turn, and the line of batches they work through.

They are plain threads that take the GIL only where a source does. Whoever needs a batch that is
not ready helps with it rather than wait, so a crew without threads is simply the caller's own.

A process that forks has no threads in the child. Before it does, threads come to rest between
two pieces of work, with no lock held, here or in a source; the child's crews begin anew.
"""

import os
import weakref

cimport cython

from .batch cimport Batch, Work, fill_rows

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t*, void*, void* (*)(void*) noexcept nogil, void*)
    int pthread_join(pthread_t, void**)
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, void*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_broadcast(pthread_cond_t*)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    enum:
        SIG_SETMASK
    int sigfillset(sigset_t*)
    int pthread_sigmask(int, const sigset_t*, sigset_t*)

cdef enum:
    MAX_THREADS = 256

cdef struct Line:
    # Held for bookkeeping only: never while rows are filled, nor while waiting for the GIL.
    pthread_mutex_t lock
    pthread_cond_t come         # there is work, or the end
    pthread_cond_t done         # a batch is complete, or nobody is at work
    Work* first                 # those with rows that nobody took
    Work* last
    int idle                    # threads that wait for work
    int busy                    # threads and callers that fill rows
    bint resting                # nobody may begin to
    bint closing


cdef void unlink(Line* line, Work* work) noexcept nogil:
    """Takes a batch out of the line, wherever it stands."""
    cdef Work* before = line.first
    if before == work:
        line.first = work.behind
    else:
        while before != NULL and before.behind != work:
            before = before.behind
        if before == NULL:
            return
        before.behind = work.behind
    if line.last == work:
        line.last = NULL if line.first == NULL else before
    work.behind = NULL


cdef void take_part(Line* line, Work* work) noexcept nogil:
    """Fills the next rows of a batch that has some; the lock is held before and after."""
    cdef Py_ssize_t begin = work.taken
    cdef Py_ssize_t end = min(begin + work.chunk, work.count)
    cdef Py_ssize_t failed = 0
    cdef int code = 0
    work.taken = end
    if end == work.count:
        unlink(line, work)
    line.busy += 1
    pthread_mutex_unlock(&line.lock)
    fill_rows(work, begin, end, &failed, &code)
    pthread_mutex_lock(&line.lock)
    line.busy -= 1
    if code and not work.code:
        work.code = code
        work.failed = failed
    work.done += end - begin
    if work.done == work.count or (line.resting and not line.busy):
        pthread_cond_broadcast(&line.done)


cdef void* thread(void* argument) noexcept nogil:
    cdef Line* line = <Line*>argument
    pthread_mutex_lock(&line.lock)
    while not line.closing:
        if line.first == NULL or line.resting:
            line.idle += 1
            pthread_cond_wait(&line.come, &line.lock)
            line.idle -= 1
        else:
            take_part(line, line.first)
    pthread_mutex_unlock(&line.lock)
    return NULL


_crews = weakref.WeakSet()


@cython.final
cdef class Crew:
    """Fills batches in the order in which they come.

    Args:
        num_threads: Threads beside the callers, started with the first batch; 0 for none.
        wake: Threads that sleep are woken for so many batches at a time.

    Attributes:
        num_threads: As given, 0 after `close`.
    """

    cdef readonly int num_threads
    cdef int wake
    cdef int waiting            # batches that came since threads were woken
    cdef int started
    cdef Line line
    cdef pthread_t[MAX_THREADS] threads
    cdef object __weakref__

    def __cinit__(self, int num_threads, int wake=1):
        self.new_line()
        if not 0 <= num_threads <= MAX_THREADS:
            raise ValueError(f"num_threads must be 0 to {MAX_THREADS}, got {num_threads}")
        self.num_threads = num_threads
        self.wake = wake

    def __init__(self, num_threads, wake=1):
        _crews.add(self)

    def __dealloc__(self):
        self.close()
        pthread_mutex_destroy(&self.line.lock)
        pthread_cond_destroy(&self.line.come)
        pthread_cond_destroy(&self.line.done)

    cdef void new_line(self) noexcept:
        pthread_mutex_init(&self.line.lock, NULL)
        pthread_cond_init(&self.line.come, NULL)
        pthread_cond_init(&self.line.done, NULL)

    @property
    def alive(self):
        """Threads that there are now."""
        return self.started

    def submit(self, Batch batch not None):
        """Puts a batch in line. It must not be changed until `wait` or `cancel` gave it back.

        Raises:
            ResetNeeded: A lane has no episode.
        """
        cdef Work* work = &batch.work
        if batch.crew is not None:
            raise ValueError("the batch is in line already")
        batch.check_filled()
        if self.started < self.num_threads:
            self.start()
        batch.crew = self
        pthread_mutex_lock(&self.line.lock)
        work.taken = work.done = 0
        work.code = 0
        work.behind = NULL
        if self.line.first == NULL:
            self.line.first = work
        else:
            self.line.last.behind = work
        self.line.last = work
        self.waiting += 1
        if self.line.idle and self.waiting >= self.wake:
            self.waiting = 0
            pthread_cond_broadcast(&self.line.come)
        pthread_mutex_unlock(&self.line.lock)

    def is_ready(self, Batch batch not None):
        """Whether `wait` would not have to wait."""
        pthread_mutex_lock(&self.line.lock)
        ready = batch.work.done == batch.work.count
        pthread_mutex_unlock(&self.line.lock)
        return ready

    def wait(self, Batch batch not None):
        """Returns when a batch is filled, and helps until then.

        Raises:
            RecordingError, RuntimeError: A source had no frame.
        """
        if batch.crew is None:
            return
        self.mine(batch)
        if not self.is_ready(batch):
            with nogil:
                self.finish(&batch.work)
        batch.crew = None
        if batch.work.code:
            batch.fail(batch.work.failed, batch.work.code)

    def cancel(self, Batch batch not None):
        """Gives a batch back as it is, as soon as no thread is at it."""
        if batch.crew is None:
            return
        self.mine(batch)
        with nogil:
            self.drop(&batch.work)
        batch.crew = None

    cdef mine(self, Batch batch):
        if batch.crew is not self:
            raise ValueError("the batch is in another crew's line")

    cdef void finish(self, Work* work) noexcept nogil:
        cdef Line* line = &self.line
        pthread_mutex_lock(&line.lock)
        while work.done < work.count:
            if work.taken < work.count and not line.resting:
                take_part(line, work)
            else:
                pthread_cond_wait(&line.done, &line.lock)
        pthread_mutex_unlock(&line.lock)

    cdef void drop(self, Work* work) noexcept nogil:
        cdef Line* line = &self.line
        pthread_mutex_lock(&line.lock)
        if work.taken < work.count:
            unlink(line, work)
            work.done += work.count - work.taken
            work.taken = work.count
        while work.done < work.count:
            pthread_cond_wait(&line.done, &line.lock)
        pthread_mutex_unlock(&line.lock)

    cdef start(self):
        cdef sigset_t every, usual
        cdef int error = 0
        # Signals are for Python's main thread.
        sigfillset(&every)
        pthread_sigmask(SIG_SETMASK, &every, &usual)
        while self.started < self.num_threads:
            error = pthread_create(&self.threads[self.started], NULL, thread, &self.line)
            if error:
                break
            self.started += 1
        pthread_sigmask(SIG_SETMASK, &usual, NULL)
        if error and not self.started:
            raise OSError(error, f"no thread to fill batches: {os.strerror(error)}")

    def close(self):
        """Ends the threads, each with the rows that it is at. `wait` fills what is left."""
        cdef int i
        pthread_mutex_lock(&self.line.lock)
        self.line.closing = True
        pthread_cond_broadcast(&self.line.come)
        pthread_mutex_unlock(&self.line.lock)
        with nogil:
            for i in range(self.started):
                pthread_join(self.threads[i], NULL)
        self.started = self.num_threads = 0

    def rest(self):
        """Brings threads to rest, before a fork."""
        with nogil:
            pthread_mutex_lock(&self.line.lock)
            self.line.resting = True
            while self.line.busy:
                pthread_cond_wait(&self.line.done, &self.line.lock)
            pthread_mutex_unlock(&self.line.lock)

    def go_on(self, bint in_child=False):
        """Lets them go on; in a child there are none, and nobody holds or awaits a lock."""
        if in_child:
            self.new_line()
            self.line.idle = self.line.busy = self.started = 0
        pthread_mutex_lock(&self.line.lock)
        self.line.resting = False
        pthread_cond_broadcast(&self.line.come)
        pthread_cond_broadcast(&self.line.done)
        pthread_mutex_unlock(&self.line.lock)


def _before_fork():
    for crew in list(_crews):
        crew.rest()


def _in_parent():
    for crew in list(_crews):
        crew.go_on()


def _in_child():
    for crew in list(_crews):
        crew.go_on(in_child=True)


os.register_at_fork(
    before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child
)
