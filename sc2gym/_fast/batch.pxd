"""Batches as C sees them, for `batch` and for the threads of `crew` that fill them."""

from libc.stdint cimport int32_t, int64_t, uint8_t
cimport numpy as cnp

from .frame cimport Frames, Layout, Row, Scratch, fill_function

cdef struct Lane:
    # An episode as C sees it. The pointers are into what the batch's Python side keeps alive.
    fill_function fill
    const void* data
    const int32_t* game_loops   # (length + 1,)
    const int32_t* expert       # (length + 1,)
    const double* score         # (length + 1,)
    double loops_per_second
    double outcome
    int32_t length              # steps that can be taken
    bint terminates             # the game ends with it; False: only the stream does

cdef struct State:
    # Where a lane is in its episode, and what the step to there gave.
    int32_t step
    int32_t elapsed             # steps since the reset, which may have begun further on
    int32_t game_loop
    int32_t expert              # what the player does next
    double seconds
    double reward               # what of it does not depend on the action
    bint stepped                # False: the lane was reset instead, and its action means nothing
    bint terminated
    bint truncated
    bint over                   # no step is left; a reset clears it, the two above it leaves

cdef struct Work:
    # Rows to fill, for whoever fills them. What is below the line belongs to the crew that has
    # the work and is read and written under its lock.
    const Layout* layout
    const Lane* lanes
    const State* states
    const Row* rows
    Py_ssize_t count
    Py_ssize_t chunk            # rows that one thread takes at a time
    # ---
    Py_ssize_t taken            # rows that someone is at or has done
    Py_ssize_t done
    Py_ssize_t failed           # one whose source returned `code`
    int code
    Work* behind                # the next in line

cdef void fill_rows(
    const Work* work, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t* failed, int* code
) noexcept nogil


cdef class Rules:
    cdef Frames frames
    cdef bint bare
    cdef int64_t num_actions
    cdef int reward
    cdef object function
    cdef int autoreset
    cdef int32_t max_episode_steps
    cdef Scratch* scratch
    cdef Py_ssize_t num_scratch

    cdef Scratch* scratch_of(self, Py_ssize_t num_envs) except? NULL
    cdef double score(
        self, const State* state, const State* was, tuple drawn, int64_t action
    ) except? -1


cdef class Batch:
    cdef readonly Py_ssize_t num_envs
    cdef Rules rules
    cdef tuple keys
    cdef tuple arrays
    cdef Row* rows
    cdef Lane* lanes
    cdef State* states
    cdef Work work
    # The crew that has the work and did not give it back; None where nobody has.
    cdef object crew

    cpdef bint is_free(self) noexcept
    cdef fail(self, Py_ssize_t row, int code)
    cdef episode(self, Py_ssize_t row)
    cdef check_filled(self)


cdef class Slot(Batch):
    cdef readonly list drawn
    cdef readonly list started
    cdef readonly list soon
    cdef readonly dict finals

    cdef State* at(self, Py_ssize_t lane) except NULL
    cdef copy(self, Slot before)
    cdef list walk(self, bint with_finals)
    cdef int32_t left(self, Py_ssize_t lane) noexcept
    cdef observe(self, Py_ssize_t lane)
    cdef cnp.ndarray check(self, actions)


cdef class Strip(Batch):
    cdef Py_ssize_t steps
    cdef list drawn
