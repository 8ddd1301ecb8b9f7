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

from .frame cimport PLAYER_FIELDS, Frames, FrameSource, Layout, Row, fill_function

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

cdef struct Lane:
    # An episode as C sees it. The pointers are into what `Slot.drawn` keeps alive.
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

    cdef Frames frames
    cdef bint bare
    cdef int64_t num_actions
    cdef int reward
    cdef object function
    cdef int autoreset
    cdef int32_t max_episode_steps

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


@cython.final
cdef class Slot:
    """One batch, and where every lane is.

    Args:
        arrays: Observation key -> array, C-contiguous, batch in front. They must own their
            memory or have something else than an array as base, so that every view of them
            holds a reference to them.
        rules: What the slots of the environment share.

    Attributes:
        drawn: Per lane a tuple that begins with its episode; the rest is the caller's.
        started: The lanes that begin an episode with this batch.
        finals: Under same-step autoreset, lane -> (observation, info) of the episode's end.

    Raises:
        ValueError: An array has not the size or the layout that the rules ask for.
    """

    cdef readonly list drawn
    cdef readonly list started
    cdef readonly dict finals
    cdef Rules rules
    cdef tuple keys
    cdef tuple arrays
    cdef Py_ssize_t num_envs
    cdef Row* rows
    cdef Lane* lanes
    cdef State* states

    def __cinit__(self, dict arrays not None, Rules rules not None):
        cdef Py_ssize_t i, size
        cdef cnp.ndarray array
        cdef char* start
        self.rules = rules
        self.keys = tuple(arrays)
        self.arrays = tuple(arrays.values())
        self.num_envs = len(self.arrays[0])
        self.drawn = [None] * self.num_envs
        self.started = []
        self.finals = {}
        self.rows = <Row*>calloc(self.num_envs, sizeof(Row))
        self.lanes = <Lane*>calloc(self.num_envs, sizeof(Lane))
        self.states = <State*>calloc(self.num_envs, sizeof(State))
        if self.rows == NULL or self.lanes == NULL or self.states == NULL:
            raise MemoryError()
        sizes = rules.row_sizes()
        for key, array in zip(self.keys, self.arrays):
            size = sizes[key]
            if not array.flags.c_contiguous or array.nbytes != size * self.num_envs:
                raise ValueError(f"{key}: need {self.num_envs} contiguous rows of {size} bytes")
            start = <char*>cnp.PyArray_DATA(array)
            for i in range(self.num_envs):
                point(&self.rows[i], key, start + i * size)

    def __dealloc__(self):
        free(self.rows)
        free(self.lanes)
        free(self.states)

    def __len__(self):
        return self.num_envs

    cpdef bint is_free(self) noexcept:
        """Whether nobody holds an array of this slot, nor a view or a tensor of one."""
        cdef Py_ssize_t i
        for i in range(len(self.arrays)):
            if sc2gym_references(PyTuple_GET_ITEM(self.arrays, i)) != 1:
                return False
        return True

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
            self.finals = {}

    def follow(self, Slot before not None):
        """Takes the step that comes after `before`, which stays as it is.

        Returns:
            The lanes that must `begin` an episode before the slot can be filled.

        Raises:
            ResetNeeded: Autoreset is disabled and a lane is over.
        """
        cdef Py_ssize_t i
        cdef State* state
        cdef int mode = self.rules.autoreset
        cdef int32_t limit = self.rules.max_episode_steps
        cdef list ending = []
        if mode == DISABLED:
            over = [i for i in range(self.num_envs) if before.states[i].over]
            if over:
                raise ResetNeeded(
                    f"lanes {over} are at their episode's end and autoreset is disabled: reset"
                    " them with options={'reset_mask': terminations | truncations}"
                )
        self.copy(before)
        for i in range(self.num_envs):
            state = &self.states[i]
            if state.over:
                state.stepped = state.terminated = state.truncated = False
                state.reward = 0
                ending.append(i)
                continue
            advance(state, &self.lanes[i], self.rules.reward, limit)
            if state.over and mode == SAME_STEP:
                self.finals[i] = (self.observe(i), self.info(i))
                ending.append(i)
        return ending

    def begin(self, Py_ssize_t lane, tuple drawn not None, int32_t step=0):
        """Puts a lane at a step of a new episode. What its last step gave stays as it is.

        Args:
            lane: Which.
            drawn: The episode, and whatever goes with it.
            step: Where to begin, before the episode's last.
        """
        cdef State* state = self.at(lane)
        cdef Lane* entry = &self.lanes[lane]
        episode = drawn[0]
        cdef FrameSource source = episode.source
        cdef const int32_t[::1] game_loops = episode.game_loops
        cdef const int32_t[::1] expert = episode.expert_actions
        cdef const double[::1] score = episode.score
        cdef Py_ssize_t length = game_loops.shape[0] - 1
        if not 0 <= step < length:
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
        state.elapsed = 0
        state.over = False
        look(state, entry)
        self.started.append(lane)

    def fill(self):
        """Writes the observations of all lanes, without the GIL."""
        cdef Py_ssize_t i = 0
        cdef int code = 0
        cdef const Layout* layout = &self.rules.frames.layout
        for i in range(self.num_envs):
            if self.lanes[i].fill == NULL:
                raise ResetNeeded(f"lane {i} has no episode yet")
        with nogil:
            for i in range(self.num_envs):
                code = self.lanes[i].fill(
                    self.lanes[i].data, self.states[i].game_loop, layout, &self.rows[i]
                )
                if code:
                    break
        if code:
            self.fail(i, code)

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
        code = self.lanes[lane].fill(
            self.lanes[lane].data, self.states[lane].game_loop, &self.rules.frames.layout, &row
        )
        if code:
            self.fail(lane, code)
        return arrays[self.keys[0]] if self.rules.bare else arrays

    cdef fail(self, Py_ssize_t lane, int code):
        # A source that reads from a file says itself what it met there.
        failure = getattr(self.drawn[lane][0].source, "failure", None)
        if failure is not None:
            raise failure
        raise RuntimeError(
            f"{self.drawn[lane][0].name}: no frame at game loop {self.states[lane].game_loop}"
            f" (code {code})"
        )

    # Handing out

    def observations(self):
        """The batch: views of the slot's arrays, one array or a dict of them.

        They are new array objects, so that what a caller does to one (its shape, its flags)
        stays his own; each holds a reference to the slot's array.
        """
        if self.rules.bare:
            return view(self.arrays[0])
        return {key: view(array) for key, array in zip(self.keys, self.arrays)}

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
            reward[i] = state.reward
            if state.stepped:
                if not 0 <= action[i] < self.rules.num_actions:
                    raise InvalidAction(
                        f"action {action[i]} of lane {i} is not in [0, {self.rules.num_actions})"
                    )
                if self.rules.reward == IMITATION:
                    reward[i] = was.expert != NO_OP and was.expert == action[i]
                elif self.rules.reward == CALLABLE:
                    reward[i] = self.rules.function(before.drawn[i][0], was.step, action[i])
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
        if array.ndim != 1 or array.shape[0] != self.num_envs or array.dtype.kind not in "iu":
            raise InvalidAction(
                f"need {self.num_envs} integers, one a lane, got"
                f" {array.dtype} of shape {(<object>array).shape}"
            )
        return np.ascontiguousarray(array, dtype=np.int64)


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
