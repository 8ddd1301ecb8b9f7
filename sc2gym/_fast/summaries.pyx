"""What an episode needs to know of every recorded frame, read from the frames' summaries."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from sc2gym._fast.wire cimport Decoder, Table

import numpy as np

# How a command was given, which together with its ability says which function it is; the first
# ones as in `vocabulary.Abilities.raw_function`.
QUICK, POINT, UNIT, AUTOCAST, CAMERA = 0, 1, 2, 4, 5

# Bits of `has` in the records below, in the order of the fields' numbers (see sc2gym.schema).
cdef enum:
    HAS_RAW = 1 << 0            # Action
    HAS_FEATURE_LAYER = 1 << 1
    HAS_UI = 1 << 3
    HAS_LOOP = 1 << 5
    HAS_COMMAND = 1 << 0        # ActionRaw, ActionSpatial
    HAS_CAMERA = 1 << 1
    HAS_AUTOCAST = 1 << 2       # ActionRaw
    HAS_UI_AUTOCAST = 1 << 8    # ActionUI
    HAS_POINT = 1 << 1          # ActionRawUnitCommand, ActionSpatialUnitCommand
    HAS_UNIT = 1 << 2           # ActionRawUnitCommand
    HAS_MINIMAP = 1 << 2        # ActionSpatialUnitCommand


cdef inline uint64_t bits(const char* record, int64_t offset) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, record + offset, 8)
    return value


cdef inline int32_t number(const char* record, int64_t offset) noexcept nogil:
    cdef int32_t value
    memcpy(&value, record + offset, 4)
    return value


cdef inline float real(const char* record, int64_t offset) noexcept nogil:
    cdef float value
    memcpy(&value, record + offset, 4)
    return value


def offset_of(dtype, str path):
    """The byte at which a field lies in a record; dots lead into records within."""
    cdef int64_t offset = 0
    for name in path.split("."):
        dtype, start = dtype.fields[name][:2]
        offset += start
    return offset


@cython.boundscheck(False)  # results are as long as there are frames; records are the schema's
def read_index(Decoder decoder not None, summaries, int64_t frames):
    """What an episode needs to know of every frame, from the frames' summaries.

    Args:
        decoder: Of `ResponseObservation`.
        summaries: The messages, in order.
        frames: How many.

    Returns:
        Scores, float64 (frames,): minerals and vespene collected and value killed. Commands,
        int64 (commands, 3): game loop, ability id (0 for the camera) and QUICK to CAMERA; the
        loop is -1 - frame where the game did not say it. Results by player id, as the game's
        enum `Result`.

    Raises:
        CorruptMessageError: A summary is damaged.
    """
    cdef double[::1] score = np.zeros(frames, np.float64)
    cdef Table* root = decoder.tables
    cdef Table* actions = decoder.tables + <int> decoder.schema.index("actions")
    cdef int64_t row, frame = 0
    cdef int64_t[4] parts
    cdef const char* action
    cdef list commands = []
    dtype = decoder.schema.tables[0].dtype
    details = "observation.score.score_details."
    for row, name in enumerate(
        ("collected_minerals", "collected_vespene", "killed_value_units", "killed_value_structures")
    ):
        parts[row] = offset_of(dtype, details + name)
    reader = ActionReader(decoder.schema.tables[decoder.schema.index("actions")].dtype)
    results = {}
    for summary in summaries:
        decoder.read(summary)
        for row in range(4):
            score[frame] += real(root.data, parts[row])
        for row in range(actions.count):
            action = actions.data + row * actions.row
            command = (<ActionReader> reader).read(action, frame)
            if command is not None:
                commands.append(command)
        for result in decoder["player_result"]:
            results[int(result["player_id"])] = int(result["result"])
        frame += 1
        if frame > frames:
            raise ValueError("more summaries than frames")
    return np.asarray(score), np.array(commands, np.int64).reshape(-1, 3), results


cdef class ActionReader:
    """Finds the command in an `Action` record."""

    cdef int64_t loop, raw, layer, ui
    cdef int64_t raw_command, raw_autocast, layer_command, ui_autocast
    cdef int64_t ability, layer_ability, raw_toggled, ui_toggled

    def __init__(self, dtype):
        self.loop = offset_of(dtype, "game_loop")
        self.raw = offset_of(dtype, "action_raw.has")
        self.layer = offset_of(dtype, "action_feature_layer.has")
        self.ui = offset_of(dtype, "action_ui.has")
        self.raw_command = offset_of(dtype, "action_raw.unit_command.has")
        self.ability = offset_of(dtype, "action_raw.unit_command.ability_id")
        self.raw_toggled = offset_of(dtype, "action_raw.toggle_autocast.ability_id")
        self.layer_command = offset_of(dtype, "action_feature_layer.unit_command.has")
        self.layer_ability = offset_of(dtype, "action_feature_layer.unit_command.ability_id")
        self.ui_toggled = offset_of(dtype, "action_ui.toggle_autocast.ability_id")

    cdef tuple read(self, const char* action, int64_t frame):
        cdef uint64_t has = bits(action, 0)
        cdef uint64_t kind
        cdef int64_t loop = -1 - frame
        if has & HAS_LOOP:
            loop = <uint32_t> number(action, self.loop)
        if has & HAS_RAW:
            kind = bits(action, self.raw)
            if kind & HAS_COMMAND:
                kind = bits(action, self.raw_command)
                return (
                    loop, number(action, self.ability),
                    UNIT if kind & HAS_UNIT else POINT if kind & HAS_POINT else QUICK,
                )
            if kind & HAS_AUTOCAST:
                return loop, number(action, self.raw_toggled), AUTOCAST
            if kind & HAS_CAMERA:
                return loop, 0, CAMERA
        if has & HAS_FEATURE_LAYER:
            kind = bits(action, self.layer)
            if kind & HAS_COMMAND:
                kind = bits(action, self.layer_command)
                return (
                    loop, number(action, self.layer_ability),
                    POINT if kind & (HAS_POINT | HAS_MINIMAP) else QUICK,
                )
            if kind & HAS_CAMERA:
                return loop, 0, CAMERA
        if has & HAS_UI and bits(action, self.ui) & HAS_UI_AUTOCAST:
            return loop, number(action, self.ui_toggled), AUTOCAST
        return None     # selections, chat
