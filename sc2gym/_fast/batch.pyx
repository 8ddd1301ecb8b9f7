"""Batches: the memory that environments hand out, and how one follows from the one before.

A `Slot` is one batch: its observation arrays, and for every lane the episode it is in, where in
it, and what the step to there gave. Nothing of this depends on the agent, since a recorded game
goes on whatever the agent does. So `follow`, `begin` and `fill` can prepare a slot before the
actions are known; `hand_out` then scores them and builds what `step` returns.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cimport cython
cimport numpy as cnp

from .frame cimport NOTES_BYTES, PLAYER_FIELDS, Frames, FrameSource, Layout, Row, Scratch

import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded

cnp.import_array()

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    /* Threads keep counts of their own there: never claim to be the only holder. */
    #define sc2gym_references(object) PY_SSIZE_T_MAX
    #else
    #define sc2gym_references(object) Py_REFCNT(object)
    #endif
    """
    Py_ssize_t sc2gym_references(PyObject* object) noexcept

cdef extern from "Python.h":
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t) noexcept

cdef enum:
    NO_OP = 0  # the raw function id of no_op, in pysc2.lib.actions

REWARDS = ("imitation", "outcome", "score")
AUTORESETS = ("NextStep", "SameStep", "Disabled")

cdef enum:
    IMITATION, OUTCOME, SCORE, CALLABLE

cdef enum:
    NEXT_STEP, SAME_STEP, DISABLED

# An episode's end is told this many steps before, so that the next one can be decoded.
cdef enum:
    SOON = 512

cdef class Rules:
    """What all slots of an environment have in common.

    Args:
        frames: The layout of observations.
        bare: Whether an observation is the one array itself rather than a dict.
        num_actions: Actions are 0 to num_actions - 1.
        reward: One of REWARDS, or a function of (episode, step, action).
        autoreset: One of AUTORESETS.
        max_episode_steps: Steps after which a lane is truncated; None for no limit.
    """

    def __cinit__(
        self, Frames frames not None, bint bare, int64_t num_actions, reward, str autoreset,
        max_episode_steps,
    ):
        self.frames = frames
        self.bare = bare
        self.num_actions = num_actions
        self.reward = CALLABLE if callable(reward) else REWARDS.index(reward)
        self.function = reward
        self.autoreset = AUTORESETS.index(autoreset)
        self.max_episode_steps = min(max_episode_steps or 0, INT32_MAX)

    def __dealloc__(self):
        free(self.scratch)

    cdef Scratch* scratch_of(self, Py_ssize_t num_envs) except? NULL:
        """What sources keep from frame to frame of each lane, for all batches together.

        NULL for another number of lanes than the first that asked.
        """
        cdef size_t size
        cdef Py_ssize_t i
        cdef uint8_t* memory
        if self.scratch == NULL:
            size = self.row_sizes()["minimap"]
            self.scratch = <Scratch*>calloc(
                num_envs, sizeof(Scratch) + NOTES_BYTES + size
            )
            if self.scratch == NULL:
                raise MemoryError()
            self.num_scratch = num_envs
            memory = <uint8_t*>(self.scratch + num_envs)
            for i in range(num_envs):
                self.scratch[i].notes = memory + i * NOTES_BYTES
                self.scratch[i].planes = memory + num_envs * NOTES_BYTES + i * size
        return self.scratch if self.num_scratch == num_envs else NULL

    cdef double score(
        self, const State* state, const State* was, tuple drawn, int64_t action
    ) except? -1:
        """What the step to `state` is worth with an action for `was`, in the episode drawn."""
        if state.stepped and self.reward == IMITATION:
            return was.expert != NO_OP and was.expert == action
        if state.stepped and self.reward == CALLABLE:
            return self.function(drawn[0], was.step, action)
        return state.reward

    def row_sizes(self):
        """Bytes of one lane's row, by key."""
        cdef Layout* layout = &self.frames.layout
        cdef Py_ssize_t pixels = <Py_ssize_t>layout.minimap_height * layout.minimap_width
        cdef Py_ssize_t cells = <Py_ssize_t>layout.max_units * layout.num_columns
        return {
            "minimap": layout.num_layers * pixels,
            "units": cells * sizeof(float),
            "unit_tags": layout.max_units * sizeof(int64_t),
            "unit_count": sizeof(int32_t),
            "player": PLAYER_FIELDS * sizeof(int32_t),
            "upgrades": layout.num_upgrades,
            "game_loop": sizeof(int32_t),
        }


@cython.no_gc_clear  # a thread may be filling it from the episodes that it keeps alive
cdef class Batch:
    """Memory for frames, and the states of the lanes that they show.

    Args:
        arrays: Observation key -> array, C-contiguous, batch in front. They must own their
            memory or have something else than an array as base, so that every view of them
            holds a reference to them.
        rules: What the batches of the environment share.
        steps: 0 for one frame a lane. Else arrays are (steps, lanes, ...), and rows come lane
            by lane, as neighbouring frames of one game are cheapest one after the other.

    Attributes:
        num_envs: Lanes.

    Raises:
        ValueError: An array has not the size or the layout that the rules ask for.
    """

    def __cinit__(self, dict arrays not None, Rules rules not None, Py_ssize_t steps=0):
        cdef Py_ssize_t i, lane, size, count
        cdef cnp.ndarray array
        cdef char* start
        cdef Scratch* scratch
        self.rules = rules
        self.keys = tuple(arrays)
        self.arrays = tuple(arrays.values())
        self.num_envs = self.arrays[0].shape[1 if steps else 0]
        count = self.num_envs * (steps or 1)
        self.rows = <Row*>calloc(count, sizeof(Row))
        self.lanes = <Lane*>calloc(count, sizeof(Lane))
        self.states = <State*>calloc(count, sizeof(State))
        if self.rows == NULL or self.lanes == NULL or self.states == NULL:
            raise MemoryError()
        scratch = rules.scratch_of(self.num_envs)
        if scratch != NULL:
            for i in range(count):
                self.rows[i].scratch = &scratch[i // steps if steps else i]
        sizes = rules.row_sizes()
        for key, array in zip(self.keys, self.arrays):
            size = sizes[key]
            if not array.flags.c_contiguous or array.nbytes != size * count:
                raise ValueError(f"{key}: need {count} contiguous rows of {size} bytes")
            start = <char*>cnp.PyArray_DATA(array)
            for i in range(count):
                lane = i // steps if steps else i
                point(
                    &self.rows[i], key,
                    start + size * ((i - lane * steps) * self.num_envs + lane if steps else i),
                )
        self.work.layout = &rules.frames.layout
        self.work.lanes = self.lanes
        self.work.states = self.states
        self.work.rows = self.rows
        self.work.count = self.work.chunk = self.work.taken = self.work.done = count

    def __dealloc__(self):
        if self.crew is not None:
            self.crew.cancel(self)
        free(self.rows)
        free(self.lanes)
        free(self.states)

    def __len__(self):
        return self.num_envs

    cpdef bint is_free(self) noexcept:
        """Whether nobody holds an array of this batch, nor a view or a tensor of one."""
        cdef Py_ssize_t i
        for i in range(len(self.arrays)):
            if sc2gym_references(PyTuple_GET_ITEM(self.arrays, i)) != 1:
                return False
        return True

    def observations(self):
        """The batch: views of its arrays, one array or a dict of them.

        They are new array objects, so that what a caller does to one (its shape, its flags)
        stays his own; each holds a reference to the batch's array.
        """
        if self.rules.bare:
            return view(self.arrays[0])
        return {key: view(array) for key, array in zip(self.keys, self.arrays)}

    def fill(self):
        """Writes all frames, without the GIL.

        Raises:
            ResetNeeded: A lane has no episode.
            RecordingError, RuntimeError: A source had no frame.
        """
        cdef Py_ssize_t failed = 0
        cdef int code = 0
        self.check_filled()
        with nogil:
            fill_rows(&self.work, 0, self.work.count, &failed, &code)
        if code:
            self.fail(failed, code)

    cdef check_filled(self):
        cdef Py_ssize_t i
        for i in range(self.work.count):
            if self.lanes[i].fill == NULL:
                raise ResetNeeded(f"lane {i} has no episode yet")

    cdef episode(self, Py_ssize_t row):
        raise NotImplementedError

    cdef fail(self, Py_ssize_t row, int code):
        episode = self.episode(row)
        # A source that reads from a file says itself what it met there.
        failure = getattr(episode.source, "failure", None)
        if failure is not None:
            raise failure
        raise RuntimeError(
            f"{episode.name}: no frame at game loop {self.states[row].game_loop} (code {code})"
        )


@cython.final
@cython.no_gc_clear
cdef class Slot(Batch):
    """One batch, and where every lane is.

    Args:
        arrays: As in `Batch`, and so is `rules`.

    Attributes:
        drawn: Per lane a tuple that begins with its episode; the rest is the caller's.
        started: The lanes that begin an episode with this batch.
        soon: The lanes whose episodes' ends came into sight with this batch.
        finals: Under same-step autoreset, lane -> (observation, info) of the episode's end.
    """

    def __cinit__(self, dict arrays not None, Rules rules not None):
        self.drawn = [None] * self.num_envs
        self.started = []
        self.soon = []
        self.finals = {}

    cdef episode(self, Py_ssize_t row):
        return self.drawn[row][0]

    # Where lanes are

    def step(self, Py_ssize_t lane):
        """The step of its episode that a lane is at."""
        return self.at(lane).step

    def elapsed(self, Py_ssize_t lane):
        """The steps of a lane since its reset."""
        return self.at(lane).elapsed

    def over(self, Py_ssize_t lane):
        """Whether a lane has no step left and was not reset."""
        return bool(self.at(lane).over)

    def expert_actions(self):
        """What the player of every lane does next, int64 (num_envs,)."""
        return np.array([self.states[i].expert for i in range(self.num_envs)], np.int64)

    def resets(self):
        """Which lanes the step to here only reset, bool (num_envs,)."""
        return np.array([not self.states[i].stepped for i in range(self.num_envs)], np.bool_)

    def info(self, Py_ssize_t lane):
        """What every step tells about a lane, as the single environment tells it."""
        cdef State* state = self.at(lane)
        return {
            "expert_action": state.expert,
            "game_loop": state.game_loop,
            "seconds": state.seconds,
        }

    cdef State* at(self, Py_ssize_t lane) except NULL:
        if not 0 <= lane < self.num_envs:
            raise IndexError(f"no lane {lane} of {self.num_envs}")
        return &self.states[lane]

    # Preparing

    cdef copy(self, Slot before):
        """The lanes as they are in `before`, where all are in an episode."""
        cdef Py_ssize_t i
        if before.num_envs != self.num_envs:
            raise ValueError(f"{before.num_envs} lanes do not go into {self.num_envs}")
        for i in range(self.num_envs):
            if before.lanes[i].fill == NULL:
                raise ResetNeeded(f"lane {i} has no episode yet")
        self.drawn = before.drawn.copy()
        self.started = []
        self.soon = []
        if self.finals:
            self.finals = {}
        memcpy(self.lanes, before.lanes, self.num_envs * sizeof(Lane))
        memcpy(self.states, before.states, self.num_envs * sizeof(State))

    def stay(self, Slot before):
        """Puts every lane where it is in `before`, for a reset of some; None for nowhere."""
        if before is not None:
            self.copy(before)
        else:
            self.started = []
            self.soon = []
            self.finals = {}

    cdef int32_t left(self, Py_ssize_t lane) noexcept:
        """Steps to the end of a lane's episode."""
        cdef State* state = &self.states[lane]
        cdef int32_t limit = self.rules.max_episode_steps
        cdef int32_t steps = self.lanes[lane].length - state.step
        return min(steps, limit - state.elapsed) if limit else steps

    def steps_left(self):
        """The fewest steps to the end of any lane's episode."""
        cdef Py_ssize_t i
        cdef int32_t fewest = INT32_MAX
        for i in range(self.num_envs):
            fewest = min(fewest, 0 if self.states[i].over else self.left(i))
        return fewest

    def follow(self, Slot before not None):
        """Takes the step that comes after `before`, which stays as it is.

        Returns:
            The lanes that must `begin` an episode before the slot can be filled.

        Raises:
            ResetNeeded: Autoreset is disabled and a lane is over.
        """
        cdef Py_ssize_t i
        if self.rules.autoreset == DISABLED:
            over = [i for i in range(self.num_envs) if before.states[i].over]
            if over:
                raise ResetNeeded(
                    f"lanes {over} are at their episode's end and autoreset is disabled: reset"
                    " them with options={'reset_mask': terminations | truncations}"
                )
        self.copy(before)
        return self.walk(True)

    cdef list walk(self, bint with_finals):
        """Takes a step; returns the lanes that must begin an episode."""
        cdef Py_ssize_t i
        cdef State* state
        cdef int mode = self.rules.autoreset
        cdef int32_t limit = self.rules.max_episode_steps
        cdef list ending = []
        for i in range(self.num_envs):
            state = &self.states[i]
            if state.over:
                state.stepped = state.terminated = state.truncated = False
                state.reward = 0
                ending.append(i)
                continue
            advance(state, &self.lanes[i], self.rules.reward, limit)
            if not state.over:
                if self.left(i) == SOON:
                    self.soon.append(i)
            elif mode == SAME_STEP:
                if with_finals:
                    self.finals[i] = (self.observe(i), self.info(i))
                ending.append(i)
        return ending

    def begin(
        self, Py_ssize_t lane, tuple drawn not None, int32_t step=0, int32_t elapsed=0,
        bint over=False,
    ):
        """Puts a lane at a step of a new episode. What its last step gave stays as it is.

        Args:
            lane: Which.
            drawn: The episode, and whatever goes with it.
            step: Where to begin, before the episode's last.
            elapsed: Steps that count as taken already.
            over: Whether the lane is to be at an end, which may be that of the episode.
        """
        cdef State* state = self.at(lane)
        cdef Lane* entry = &self.lanes[lane]
        episode = drawn[0]
        cdef FrameSource source = episode.source
        cdef const int32_t[::1] game_loops = episode.game_loops
        cdef const int32_t[::1] expert = episode.expert_actions
        cdef const double[::1] score = episode.score
        cdef Py_ssize_t length = game_loops.shape[0] - 1
        if not 0 <= step < length + over:
            raise ValueError(f"no step {step} to begin at: {episode.name} has {length}")
        if expert.shape[0] <= length or score.shape[0] <= length:
            raise ValueError(f"{episode.name}: an episode's arrays must be of one length")
        # The episode is frozen: as long as `drawn` has it, the pointers are good.
        self.drawn[lane] = drawn
        entry.fill = source.fill
        entry.data = source.data
        entry.game_loops = &game_loops[0]
        entry.expert = &expert[0]
        entry.score = &score[0]
        entry.loops_per_second = episode.loops_per_second
        entry.outcome = episode.outcome
        entry.terminates = episode.terminated
        entry.length = <int32_t>length
        state.step = step
        state.elapsed = elapsed
        state.over = over
        look(state, entry)
        self.started.append(lane)
        if self.left(lane) <= SOON:
            self.soon.append(lane)

    cdef observe(self, Py_ssize_t lane):
        """A lane's observation in memory of its own."""
        cdef Row row
        cdef int code
        cdef cnp.ndarray array, batch
        cdef dict arrays = {}
        memset(&row, 0, sizeof(Row))
        for key, batch in zip(self.keys, self.arrays):
            array = cnp.PyArray_EMPTY(
                batch.ndim - 1, batch.shape + 1, cnp.PyArray_TYPE(batch), 0
            )
            point(&row, key, <char*>cnp.PyArray_DATA(array))
            arrays[key] = array
        with nogil:
            code = self.lanes[lane].fill(
                self.lanes[lane].data, self.states[lane].game_loop, self.work.layout, &row
            )
        if code:
            self.fail(lane, code)
        return arrays[self.keys[0]] if self.rules.bare else arrays

    # Handing out

    def hand_out(self, Slot before not None, actions):
        """What `step` returns, all arrays but the observations in memory of their own.

        Args:
            before: The slot that the actions answer.
            actions: (num_envs,) integers.

        Returns:
            Observations, rewards (float64), terminations, truncations (bool), infos.

        Raises:
            InvalidAction: Actions of another shape or type, or out of range.
        """
        cdef Py_ssize_t i
        cdef cnp.npy_intp shape = self.num_envs
        if before.num_envs != self.num_envs:
            raise ValueError(f"{before.num_envs} lanes are not {self.num_envs}")
        cdef cnp.ndarray chosen = self.check(actions)
        cdef const int64_t* action = <const int64_t*>cnp.PyArray_DATA(chosen)
        cdef cnp.ndarray rewards = cnp.PyArray_EMPTY(1, &shape, cnp.NPY_FLOAT64, 0)
        cdef cnp.ndarray terminations = cnp.PyArray_EMPTY(1, &shape, cnp.NPY_BOOL, 0)
        cdef cnp.ndarray truncations = cnp.PyArray_EMPTY(1, &shape, cnp.NPY_BOOL, 0)
        cdef cnp.ndarray expert = cnp.PyArray_EMPTY(1, &shape, cnp.NPY_INT64, 0)
        cdef cnp.ndarray game_loop = cnp.PyArray_EMPTY(1, &shape, cnp.NPY_INT64, 0)
        cdef cnp.ndarray seconds = cnp.PyArray_EMPTY(1, &shape, cnp.NPY_FLOAT64, 0)
        cdef double* reward = <double*>cnp.PyArray_DATA(rewards)
        cdef State* state
        cdef State* was
        for i in range(self.num_envs):
            state = &self.states[i]
            was = &before.states[i]
            if state.stepped:
                if not 0 <= action[i] < self.rules.num_actions:
                    raise InvalidAction(
                        f"action {action[i]} of lane {i} is not in [0, {self.rules.num_actions})"
                    )
            reward[i] = self.rules.score(state, was, before.drawn[i], action[i])
            (<uint8_t*>cnp.PyArray_DATA(terminations))[i] = state.terminated
            (<uint8_t*>cnp.PyArray_DATA(truncations))[i] = state.truncated
            (<int64_t*>cnp.PyArray_DATA(expert))[i] = state.expert
            (<int64_t*>cnp.PyArray_DATA(game_loop))[i] = state.game_loop
            (<double*>cnp.PyArray_DATA(seconds))[i] = state.seconds
        infos = {
            "expert_action": expert,
            "_expert_action": everyone(shape),
            "game_loop": game_loop,
            "_game_loop": everyone(shape),
            "seconds": seconds,
            "_seconds": everyone(shape),
        }
        return self.observations(), rewards, terminations, truncations, infos

    cdef cnp.ndarray check(self, actions):
        """The actions as int64, contiguous; the caller holds the result."""
        cdef cnp.ndarray array = np.asarray(actions)
        cdef int kind = cnp.PyArray_TYPE(array)
        if (
            array.ndim != 1 or array.shape[0] != self.num_envs
            or not cnp.PyTypeNum_ISINTEGER(kind)
        ):
            raise InvalidAction(
                f"need {self.num_envs} integers, one a lane, got"
                f" {array.dtype} of shape {(<object>array).shape}"
            )
        if kind == cnp.NPY_INT64 and cnp.PyArray_ISCARRAY_RO(array):
            return array
        return np.ascontiguousarray(array, dtype=np.int64)


@cython.final
@cython.no_gc_clear
cdef class Strip(Batch):
    """Many steps of all lanes, of which nothing depends on the agent.

    Args:
        arrays: As in `Batch`, (steps, lanes, ...).
        rules: As in `Batch`.
        steps: How many, 1 or more.
    """

    def __cinit__(self, dict arrays not None, Rules rules not None, Py_ssize_t steps):
        if steps < 1:
            raise ValueError(f"a strip has 1 step or more, got {steps}")
        self.steps = steps
        # A thread stays with a lane.
        self.work.chunk = steps
        self.drawn = []

    def __len__(self):
        return self.steps

    cdef episode(self, Py_ssize_t row):
        # Lanes change episodes on the way; the source tells which this is.
        cdef FrameSource source
        for drawn in self.drawn:
            source = drawn[0].source
            if source.data == self.lanes[row].data:
                return drawn[0]

    def unroll(self, Slot before not None, Slot after not None, begin not None):
        """Takes all steps, with the player's own actions; `fill` then writes the frames.

        Args:
            before: Where lanes are at the first step.
            after: Will be where they are after the last one.
            begin: Called as (after, lane) for every lane that must begin an episode.

        Returns:
            (steps, lanes) each: expert actions (int64), rewards (float64), terminations,
            truncations, and which steps only began an episode (bool).
        """
        cdef Py_ssize_t i, t, row
        cdef Py_ssize_t n = self.num_envs
        cdef State* was
        cdef State* state
        cdef list ending
        if before.num_envs != n or after.num_envs != n:
            raise ValueError(f"slots of {before.num_envs} and {after.num_envs} lanes, not {n}")
        shape = (self.steps, n)
        cdef cnp.ndarray expert = np.empty(shape, np.int64)
        cdef cnp.ndarray rewards = np.empty(shape, np.float64)
        cdef cnp.ndarray terminations = np.empty(shape, np.bool_)
        cdef cnp.ndarray truncations = np.empty(shape, np.bool_)
        cdef cnp.ndarray resets = np.empty(shape, np.bool_)
        after.copy(before)
        self.drawn = list(after.drawn)
        for t in range(self.steps):
            for i in range(n):
                row = i * self.steps + t
                self.lanes[row] = after.lanes[i]
                self.states[row] = after.states[i]
            ending = after.walk(False)
            for i in range(n):
                was = &self.states[i * self.steps + t]
                state = &after.states[i]
                row = t * n + i
                (<int64_t*>cnp.PyArray_DATA(expert))[row] = was.expert
                (<uint8_t*>cnp.PyArray_DATA(terminations))[row] = state.terminated
                (<uint8_t*>cnp.PyArray_DATA(truncations))[row] = state.truncated
                (<uint8_t*>cnp.PyArray_DATA(resets))[row] = not state.stepped
                (<double*>cnp.PyArray_DATA(rewards))[row] = self.rules.score(
                    state, was, after.drawn[i], was.expert
                )
            for i in ending:
                begin(after, i)
                self.drawn.append(after.drawn[i])
        after.started = []
        return expert, rewards, terminations, truncations, resets


cdef void fill_rows(
    const Work* work, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t* failed, int* code
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(begin, end):
        code[0] = work.lanes[i].fill(
            work.lanes[i].data, work.states[i].game_loop, work.layout, &work.rows[i]
        )
        if code[0]:
            failed[0] = i
            break


cdef void look(State* state, const Lane* lane) noexcept nogil:
    state.game_loop = lane.game_loops[state.step]
    state.expert = lane.expert[state.step]
    state.seconds = state.game_loop / lane.loops_per_second


cdef void advance(State* state, const Lane* lane, int reward, int32_t limit) noexcept nogil:
    """One step on. A state that is not over has one: step < length."""
    cdef int32_t step = state.step + 1
    cdef bint end = step == lane.length
    state.step = step
    state.elapsed += 1
    state.stepped = True
    state.terminated = end and lane.terminates
    state.truncated = (end and not lane.terminates) or (limit > 0 and state.elapsed >= limit)
    state.over = state.terminated or state.truncated
    state.reward = 0
    if reward == OUTCOME:
        if end:
            state.reward = lane.outcome
    elif reward == SCORE:
        state.reward = lane.score[step] - lane.score[step - 1]
    look(state, lane)


cdef void point(Row* row, str key, char* memory):
    if key == "minimap":
        row.minimap = <uint8_t*>memory
    elif key == "units":
        row.units = <float*>memory
    elif key == "unit_tags":
        row.unit_tags = <int64_t*>memory
    elif key == "unit_count":
        row.unit_count = <int32_t*>memory
    elif key == "player":
        row.player = <int32_t*>memory
    elif key == "upgrades":
        row.upgrades = <uint8_t*>memory
    elif key == "game_loop":
        row.game_loop = <int32_t*>memory


cdef cnp.ndarray view(cnp.ndarray base):
    cdef cnp.ndarray array = cnp.PyArray_SimpleNewFromData(
        base.ndim, base.shape, cnp.PyArray_TYPE(base), cnp.PyArray_DATA(base)
    )
    cnp.set_array_base(array, base)
    return array


cdef cnp.ndarray everyone(cnp.npy_intp count):
    """A mask that is true for every lane."""
    cdef cnp.ndarray mask = cnp.PyArray_EMPTY(1, &count, cnp.NPY_BOOL, 0)
    memset(cnp.PyArray_DATA(mask), 1, count)
    return mask
