# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Events of several types, each a table of columns, back in the order of their stream.

What comes out is what `tracks.build` follows. Checks are off: rows are counted by the tables that
they come from, columns are looked up by `_field`, which checks their width, and runs in child
tables are checked by `_run`, since a damaged file decides where those begin.
"""

cimport numpy as cnp
from libc.math cimport NAN, isnan
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libc.string cimport memcpy, memset

from sc2gym._fast.tracks cimport CommandOp, Op

import numpy as np

from sc2gym._fast.tracks import COMMAND_OP, OP

cdef enum:
    MAX_USERS = 32              # user ids have five bits
    NUM_USERS = 16              # those that are followed
    BOUND = 1 << 30             # numbers beyond it are no number of any game
    FIXED = 4096                # points are in cells with 12 bits of fraction
    POINT = 1                   # alternatives of m_data
    UNIT = 2
    STOPS = 2                   # see tracks.pyx
    SELECT = 0
    GROUP = 1
    COMMAND = 2
    POSITION = 6
    NO_GROUP = 10
    NUM_GROUPS = 11
    NO_ACTION = 7
    MAX_PLACE = 1 << 20         # of a unit in a selection, larger than any

cdef int64_t NULL_INT = -(<int64_t>1 << 62) * 2

GIVEN = np.dtype([("game_loop", "i4"), ("user", "i2"), ("target", "i1"), ("ability_link", "i8"),
                  ("ability_index", "i8"), ("x", "f4"), ("y", "f4"), ("target_tag", "i8"),
                  ("flags", "i8"), ("index", "i8")])

cdef packed struct Given:
    int32_t game_loop
    int16_t user
    int8_t target
    int64_t ability_link
    int64_t ability_index
    float x
    float y
    int64_t target_tag
    int64_t flags
    int64_t index

cdef struct Events:
    const char* base
    Py_ssize_t stride
    Py_ssize_t count
    Py_ssize_t next             # the row that comes next in the merge
    Py_ssize_t index            # offsets of what every event has
    Py_ssize_t loop
    Py_ssize_t user


cdef Events _events(rows) except *:
    cdef Events events
    memset(&events, 0, sizeof(events))
    events.base = <const char*>cnp.PyArray_DATA(rows)
    events.stride = cnp.PyArray_STRIDE(rows, 0)
    events.count = len(rows)
    events.index = events.loop = events.user = -1
    if "_index" in rows.dtype.fields:
        events.index, events.loop = _field(rows, "_index"), _field(rows, "_gameloop")
        events.user = _field(rows, "_userid", 1, False)
    return events


cdef Py_ssize_t _field(rows, str name, Py_ssize_t numbers=1, bint required=True) except? -2:
    # The offset of a column of so many int64 a row; -1 where there is none and need not be.
    found = rows.dtype.fields.get(name)
    if found is None:
        if required:
            raise ValueError(f"no column {name!r}")
        return -1
    if found[0].base.char not in "lq" or found[0].itemsize != 8 * numbers:
        raise TypeError(f"column {name!r} is {found[0]}")
    return found[1]


cdef inline int64_t _at(const Events* events, Py_ssize_t row, Py_ssize_t offset) noexcept nogil:
    # Records are packed, so columns need not be aligned.
    cdef int64_t value
    if offset < 0:
        return NULL_INT
    memcpy(&value, events.base + row * events.stride + offset, 8)
    return value


cdef inline bint _run(int64_t start, int64_t count, Py_ssize_t rows) noexcept nogil:
    # Whether a run lies in a table of so many rows.
    return 0 <= start <= rows and 0 <= count <= rows - start


cdef inline int _first(Events* events, int count) noexcept nogil:
    # Whose next row stands first in the stream; -1 at the end.
    cdef int i, first = -1
    cdef int64_t index, least = 0
    for i in range(count):
        if events[i].next < events[i].count:
            index = _at(&events[i], events[i].next, events[i].index)
            if first < 0 or index < least:
                first, least = i, index
    return first


cdef inline int32_t _bounded(int64_t value, int32_t null) noexcept nogil:
    return <int32_t>value if 0 <= value < BOUND else null


# -- commands -------------------------------------------------------------------------------

cdef struct Aim:
    int64_t kind, x, y, tag

cdef struct Columns:
    Py_ssize_t kind, x, y, tag


def commands(cmd, point, unit, again, int32_t end):
    """Every command, repeats included.

    A command that is given again shows as a CommandManagerState, after an update of its target
    if that is another. So a command is what the user's last Cmd was, at the target that the user
    named last.

    Args:
        cmd, point, unit, again: Events Cmd, CmdUpdateTargetPoint, CmdUpdateTargetUnit and
            CommandManagerState; the latter three may be empty tables of any columns.
        end: Loops are at most that.

    Returns:
        Structured array of dtype `GIVEN` in stream order.
    """
    cdef Events[4] events
    cdef Aim[MAX_USERS] aims
    cdef Py_ssize_t[MAX_USERS] last
    cdef Columns at_point, at_unit, updated_point, updated_unit
    cdef Aim* aim
    cdef Given* given
    cdef Py_ssize_t row, used = 0
    cdef int64_t user
    cdef int which, i
    for i, rows in enumerate((cmd, point, unit, again)):
        events[i] = _events(rows)
    link, number, flags = (_field(cmd, name) for name in (
        "m_abil.m_abilLink", "m_abil.m_abilCmdIndex", "m_cmdFlags"))
    cdef Py_ssize_t link_at = link, number_at = number, flags_at = flags
    at_point.kind = _field(cmd, "m_data?")
    at_point.x, at_point.y = _field(cmd, "m_data.TargetPoint.x"), _field(cmd, "m_data.TargetPoint.y")
    at_unit.x = _field(cmd, "m_data.TargetUnit.m_snapshotPoint.x")
    at_unit.y = _field(cmd, "m_data.TargetUnit.m_snapshotPoint.y")
    at_unit.tag = _field(cmd, "m_data.TargetUnit.m_tag")
    updated_point.x = _field(point, "m_target.x", 1, False)
    updated_point.y = _field(point, "m_target.y", 1, False)
    updated_unit.x = _field(unit, "m_target.m_snapshotPoint.x", 1, False)
    updated_unit.y = _field(unit, "m_target.m_snapshotPoint.y", 1, False)
    updated_unit.tag = _field(unit, "m_target.m_tag", 1, False)
    table = np.empty(len(cmd) + len(again), GIVEN)
    cdef Given[::1] out = table
    memset(aims, 0, sizeof(aims))
    for i in range(MAX_USERS):
        last[i] = -1
    with nogil:
        while True:
            which = _first(events, 4)
            if which < 0:
                break
            row = events[which].next
            events[which].next += 1
            user = _at(&events[which], row, events[which].user)
            if not 0 <= user < MAX_USERS:
                continue
            aim = &aims[user]
            if which == 0:
                last[user] = row
                aim.kind = _at(&events[0], row, at_point.kind)
                aim.x = aim.y = 0
                aim.tag = -1
                if aim.kind == NULL_INT:
                    aim.kind = 0
                elif aim.kind == POINT:
                    aim.x = _at(&events[0], row, at_point.x)
                    aim.y = _at(&events[0], row, at_point.y)
                elif aim.kind == UNIT:
                    aim.x = _at(&events[0], row, at_unit.x)
                    aim.y = _at(&events[0], row, at_unit.y)
                    aim.tag = _at(&events[0], row, at_unit.tag)
            elif which == 1:
                aim.kind = POINT
                aim.x = _at(&events[1], row, updated_point.x)
                aim.y = _at(&events[1], row, updated_point.y)
                aim.tag = -1
            elif which == 2:
                aim.kind = UNIT
                aim.x = _at(&events[2], row, updated_unit.x)
                aim.y = _at(&events[2], row, updated_unit.y)
                aim.tag = _at(&events[2], row, updated_unit.tag)
            if last[user] < 0 or which == 1 or which == 2:
                continue
            given = &out[used]
            used += 1
            given.game_loop = <int32_t>min(_at(&events[which], row, events[which].loop), <int64_t>end)
            given.user = <int16_t>user
            given.index = _at(&events[which], row, events[which].index)
            given.ability_link = _at(&events[0], last[user], link_at)
            given.ability_index = _at(&events[0], last[user], number_at)
            given.flags = _at(&events[0], last[user], flags_at)
            given.target = <int8_t>aim.kind
            given.target_tag = aim.tag
            if aim.kind == POINT or aim.kind == UNIT:
                given.x = <float>(<double>aim.x / FIXED)
                given.y = <float>(<double>aim.y / FIXED)
            else:
                given.x = given.y = NAN
    return table[:used]


# -- what is selected, and what is done with it -----------------------------------------------

cdef struct Mask:
    Py_ssize_t kind, bits, ones, zeros      # columns
    int32_t first_one, first_zero           # where their child tables begin in the indices


cdef void _mask(CommandOp* op, const Events* events, Py_ssize_t row, const Mask* mask
                ) noexcept nogil:
    # By a bit each, by the indices of what goes, or by the indices of what stays.
    cdef int64_t kind = _at(events, row, mask.kind)
    cdef Py_ssize_t pair
    cdef int32_t first = 0
    op.mask_kind = op.mask_start = op.mask_count = 0
    if kind == 1:
        pair = mask.bits
    elif kind == 2:
        pair, first = mask.ones, mask.first_one
    elif kind == 3:
        pair, first = mask.zeros, mask.first_zero
    else:
        return
    op.mask_kind = <int32_t>kind
    op.mask_start = <int32_t>_at(events, row, pair) + first
    op.mask_count = <int32_t>_at(events, row, pair + 8)


cdef Mask _mask_columns(rows, str path, Py_ssize_t first_one, Py_ssize_t first_zero) except *:
    cdef Mask mask
    mask.kind = _field(rows, f"{path}?")
    mask.bits = _field(rows, f"{path}.Mask", 2)
    mask.ones = _field(rows, f"{path}.OneIndices", 2)
    mask.zeros = _field(rows, f"{path}.ZeroIndices", 2)
    mask.first_one, mask.first_zero = <int32_t>first_one, <int32_t>first_zero
    return mask


def orders(delta, group, given, const int8_t[::1] motions, const int32_t[::1] functions,
           list indices, int32_t end):
    """Selections, control groups and commands for `tracks.build`.

    Args:
        delta, group: Events SelectionDelta and ControlGroupUpdate.
        given: From `commands`.
        motions: How each raw function moves units.
        functions: The raw function of each command.
        indices: The child tables of removal masks: OneIndices and ZeroIndices of `delta`, then
            those of `group`.
        end: Loops are at most that.

    Returns:
        (dtype `COMMAND_OP` in stream order with loops ascending, int32 indices of all four).
    """
    cdef Events[2] events
    cdef Events* source
    cdef Mask[2] masks
    cdef Py_ssize_t[5] begins
    cdef const Given[::1] command = given
    cdef CommandOp* op
    cdef Py_ssize_t row, used = 0, next_command = 0
    cdef int64_t user, loop, least, value
    cdef int32_t latest = 0
    cdef int which, i
    begins[0] = 0
    for i in range(4):
        begins[i + 1] = begins[i] + len(indices[i])
    every = np.empty(begins[4] + 1, np.int32)
    cdef int32_t[::1] place = every
    place[begins[4]] = 0
    cdef Events table
    for i in range(4):
        table = _events(indices[i])
        value = _field(indices[i], "value")
        for row in range(table.count):
            place[begins[i] + row] = <int32_t>min(
                max(_at(&table, row, value), <int64_t>-1), <int64_t>MAX_PLACE)
    events[0], events[1] = _events(delta), _events(group)
    masks[0] = _mask_columns(delta, "m_delta.m_removeMask", begins[0], begins[1])
    masks[1] = _mask_columns(group, "m_mask", begins[2], begins[3])
    cdef Py_ssize_t group_id = _field(delta, "m_controlGroupId")
    cdef Py_ssize_t added = _field(delta, "m_delta.m_addUnitTags", 2)
    cdef Py_ssize_t group_index = _field(group, "m_controlGroupIndex")
    cdef Py_ssize_t action = _field(group, "m_controlGroupUpdate")
    if functions.shape[0] != command.shape[0]:
        raise ValueError("one function a command")
    ops = np.empty(events[0].count + events[1].count + command.shape[0], COMMAND_OP)
    cdef CommandOp[::1] out = ops
    with nogil:
        while True:
            which = _first(events, 2)
            source = &events[which]
            if next_command < command.shape[0] and (
                which < 0 or command[next_command].index < _at(source, source.next, source.index)
            ):
                which = COMMAND
                row = next_command
                next_command += 1
                user, loop = command[row].user, command[row].game_loop
            elif which < 0:
                break
            else:
                row = source.next
                source.next += 1
                user, loop = _at(source, row, source.user), _at(source, row, source.loop)
            if not 0 <= user < NUM_USERS:
                continue
            op = &out[used]
            used += 1
            memset(op, 0, sizeof(op[0]))
            # The counter may step back (a resumed game); what comes later is later.
            latest = max(latest, <int32_t>min(loop, <int64_t>end))
            op.loop, op.kind, op.user, op.target = latest, which, <int16_t>user, -1
            if which == COMMAND:
                _give(op, &command[row], motions[functions[row]]
                      if 0 <= functions[row] < motions.shape[0] else 0)
                continue
            _mask(op, source, row, &masks[which])
            value = _at(source, row, group_id if which == SELECT else group_index)
            op.group = <int16_t>value if 0 <= value < NUM_GROUPS else NO_GROUP
            if which == SELECT:
                op.add_start = <int32_t>_at(source, row, added)
                op.add_count = <int32_t>_at(source, row, added + 8)
            else:
                value = _at(source, row, action)
                op.action = <int16_t>value if 0 <= value <= NO_ACTION else NO_ACTION
    return ops[:used], every


cdef inline void _give(CommandOp* op, const Given* given, int8_t motion) noexcept nogil:
    op.motion = motion
    op.target = given.target_tag
    op.queued = (given.flags & 2) != 0
    if isnan(given.x):
        if motion != STOPS:
            op.motion = 0
    else:
        op.x, op.y = given.x, given.y


# -- what the tracker tells -------------------------------------------------------------------

cdef struct UnitColumns:
    Py_ssize_t index, recycle, owner, name, x, y, creator


def operations(list tables, positions, items, bytes data, types, double scale, double offset,
               int32_t end):
    """Tracker events as operations for `tracks.build`.

    Args:
        tables: Events UnitBorn, UnitInit, UnitDone, UnitDied, UnitOwnerChange and
            UnitTypeChange, in the order of their kinds; None for those that there are not.
        positions, items: Events UnitPositions and their child table m_items, or None.
        data: The tracker stream, of which the events hold type names.
        types: {name: unit type}; other names are type 0.
        scale, offset: From the file's places to cells.
        end: Loops are at most that.

    Returns:
        (dtype `OP` in stream order with loops ascending, how many type names were unknown).
    """
    cdef Events[POSITION + 1] events
    cdef UnitColumns[POSITION] columns
    cdef UnitColumns* column
    cdef Events item
    cdef Events* source
    cdef Py_ssize_t row, used = 0, size = 0, unknown = 0, items_at = -1, unit_at = -1
    cdef Py_ssize_t value_at = -1, triple
    cdef int64_t start, length, index
    cdef int32_t latest = 0
    cdef int which
    cdef Op* op
    memset(events, 0, sizeof(events))
    memset(&item, 0, sizeof(item))
    for which in range(POSITION):
        rows = tables[which]
        if rows is None or not len(rows):
            continue
        events[which] = _events(rows)
        size += events[which].count
        column = &columns[which]
        column.index = _field(rows, "m_unitTagIndex")
        column.recycle = _field(rows, "m_unitTagRecycle")
        column.owner = _field(rows, "m_controlPlayerId", 1, False)
        column.name = _field(rows, "m_unitTypeName", 2, False)
        column.x = _field(rows, "m_x", 1, False)
        column.y = _field(rows, "m_y", 1, False)
        column.creator = _field(rows, "m_creatorUnitTagIndex", 1, False)
    if positions is not None and len(positions):
        events[POSITION], item = _events(positions), _events(items)
        items_at, unit_at = _field(positions, "m_items", 2), _field(positions, "m_firstUnitIndex")
        value_at = _field(items, "value")
        size += item.count // 3
    ops = np.zeros(size, OP)
    cdef Op[::1] out = ops
    while True:
        which = _first(events, POSITION + 1)
        if which < 0:
            break
        source = &events[which]
        row = source.next
        source.next += 1
        # The counter may step back (a resumed game); what comes later in the stream is later.
        latest = max(latest, <int32_t>min(_at(source, row, source.loop), <int64_t>end))
        if which < POSITION and used < size:
            column = &columns[which]
            op = &out[used]
            used += 1
            op.loop, op.kind = latest, which
            op.index = _bounded(_at(source, row, column.index), -1)
            op.recycle = _bounded(_at(source, row, column.recycle), 0)
            op.creator = _bounded(_at(source, row, column.creator), -1)
            if column.owner >= 0:
                index = _at(source, row, column.owner)
                op.owner = <int16_t>index if 0 <= index < 16 else 16
            if column.x >= 0:
                op.x = <float>(_bounded(_at(source, row, column.x), 0) * scale + offset)
                op.y = <float>(_bounded(_at(source, row, column.y), 0) * scale + offset)
            if column.name >= 0:
                start, length = _at(source, row, column.name), _at(source, row, column.name + 8)
                if _run(start, length, len(data)):
                    op.type = types.get((<const char*>data)[start:start + length], 0)
                unknown += op.type == 0
            continue
        # Items are triples: how much further the next unit's index is, then x and y.
        start, length = _at(source, row, items_at), _at(source, row, items_at + 8)
        if not _run(start, length, item.count):
            continue
        index = _bounded(_at(source, row, unit_at), 0)
        for triple in range(start, start + length - 2, 3):
            if used == size:
                break   # runs that overlap, which no decoder makes
            op = &out[used]
            used += 1
            index += _bounded(_at(&item, triple, value_at), 0)
            op.loop, op.kind = latest, POSITION
            op.index, op.recycle, op.creator = <int32_t>min(index, <int64_t>BOUND), -1, -1
            op.x = <float>(_bounded(_at(&item, triple + 1, value_at), 0) * scale + offset)
            op.y = <float>(_bounded(_at(&item, triple + 2, value_at), 0) * scale + offset)
    return ops[:used], unknown
