# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Events of a game to tracks: who was where when, as far as the events tell.

Tracker events say what units there are; positions come from births, deaths and, for units that
fight, every 240 loops. In between, units go where their player sent them: selections and control
groups are followed, and a command with a target gives the selected units a velocity towards it.
Nothing at a loop depends on anything later, and commands count from the loop after theirs.

Checks are off: `_check` looks once at all that the kernels index by, and `_blocks` at the units
and loops of segments, which may come from elsewhere.
"""

from libc.math cimport ceil, fabs, sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

import numpy as np

cdef enum:
    MAX_INDEX = 1 << 14         # a unit tag has 14 bits of index
    RECYCLE_BITS = 18
    MAX_SELECTION = 512         # the game selects at most 500
    MAX_QUEUE = 8               # waypoints kept of queued commands
    NUM_GROUPS = 11             # control groups 0 to 9, and the selection itself
    NUM_USERS = 16
    SELECTION = 10
    MAX_MEMBERS = 1 << 26       # a long game of many units has a thousandth of that
    MAX_LOOP = 1 << 24          # so that loops can be added without a thought
    MAX_END = MAX_LOOP + 1      # of a segment

# What kind of tracker event an operation is. Positions come as one operation a unit.
cdef enum:
    BORN = 0
    INIT = 1
    DONE = 2
    DIED = 3
    OWNER = 4
    TYPE = 5
    POSITION = 6

# What kind of game event: what it does to a selection, or who is sent where.
cdef enum:
    SELECT = 0
    GROUP = 1
    COMMAND = 2

# Places within so many cells of each other are one, for who walks there.
cdef float SAME_PLACE = 1.0

# How a command moves the units it is given to.
cdef enum:
    STAYS = 0
    GOES = 1                    # all of them go to the target
    STOPS = 2
    ONE_GOES = 3                # the nearest goes: somebody builds
    RALLIES = 4                 # what they train will go to the target
    GOES_OR_RALLIES = 5         # right click: either, by what can move

OP = np.dtype([("loop", "i4"), ("kind", "i2"), ("owner", "i2"), ("index", "i4"), ("recycle", "i4"),
               ("type", "i4"), ("x", "f4"), ("y", "f4"), ("creator", "i4")])
COMMAND_OP = np.dtype([("loop", "i4"), ("kind", "i2"), ("user", "i2"), ("motion", "i2"),
                       ("queued", "i2"), ("x", "f4"), ("y", "f4"), ("target", "i8"),
                       ("group", "i2"), ("action", "i2"), ("mask_kind", "i4"), ("mask_start", "i4"),
                       ("mask_count", "i4"), ("add_start", "i4"), ("add_count", "i4")])
SEGMENT = np.dtype([("begin", "i4"), ("end", "i4"), ("unit", "i4"), ("x", "u2"), ("y", "u2"),
                    ("vx", "i2"), ("vy", "i2"), ("moving", "u2"), ("type", "i2"), ("owner", "i1"),
                    ("building", "u1")])
LIVING = np.dtype([("unit", "i4"), ("type", "i2"), ("owner", "i1"), ("building", "?"),
                   ("x", "f4"), ("y", "f4")])

cdef struct Unit:
    int32_t tag_index
    int32_t recycle
    int32_t begin               # of the segment under way
    int32_t moving
    bint building
    int16_t type
    int8_t owner
    bint alive
    bint rallies
    float x
    float y
    float vx
    float vy
    float rally_x
    float rally_y
    int32_t queued
    float[MAX_QUEUE] queue_x
    float[MAX_QUEUE] queue_y

cdef struct Group:
    # In order of tags, by places in which masks name units. The dead stay until a mask names
    # them (so it is in all of the real replays: no mask then reaches beyond its group, and
    # nothing is added that is there already).
    int32_t count
    uint32_t* tag               # (MAX_SELECTION,)

cdef struct State:
    Unit* units
    Py_ssize_t num_units
    Py_ssize_t max_units
    Segment* segments
    Py_ssize_t num_segments
    Py_ssize_t max_segments
    int32_t* latest             # ordinal of the newest unit at a tag index, -1 for none
    int32_t* snapshots          # (loop, user, first, count) of each selection
    Py_ssize_t num_snapshots
    Py_ssize_t max_snapshots
    int32_t* selected           # ordinals, one run a snapshot
    Py_ssize_t num_selected
    Py_ssize_t max_selected
    Group[NUM_USERS * NUM_GROUPS] groups    # by user
    uint32_t* tags              # of all of them; most are never touched
    const float* speed
    int32_t end
    int bad
    bint no_memory


cdef void* _grown(void* memory, Py_ssize_t* size, Py_ssize_t needed, size_t item, State* s
                  ) noexcept nogil:
    # Room for `needed` items, at least doubling; on failure the old memory and a flag.
    cdef Py_ssize_t larger = max(needed, 2 * size[0], 256)
    cdef void* moved
    if needed <= size[0]:
        return memory
    moved = realloc(memory, larger * item)
    if moved == NULL:
        s.no_memory = True
        return memory
    size[0] = larger
    return moved


cdef inline double _distance(double x, double y) noexcept nogil:
    return sqrt(x * x + y * y)      # squares of cells do not overflow, so no need of hypot


cdef inline uint16_t _place(float cells) noexcept nogil:
    # Not a number, and what lies off any map, is at the edge.
    if not cells > 0:
        return 0
    return <uint16_t>min(cells * PLACE_SCALE + 0.5, 65535.0)


cdef inline int16_t _velocity(float cells) noexcept nogil:
    cdef float scaled = cells * SPEED_SCALE
    if not -32767 < scaled < 32767:
        return 0
    return <int16_t>(scaled + (0.5 if scaled > 0 else -0.5))


cdef void _cut(State* s, Unit* u, int32_t loop) noexcept nogil:
    # Ends the segment under way at `loop` and begins the next there, alike.
    cdef Segment* segment
    cdef int32_t moved
    if loop <= u.begin:
        return
    s.segments = <Segment*>_grown(s.segments, &s.max_segments, s.num_segments + 1,
                                  sizeof(Segment), s)
    if s.no_memory:
        return
    segment = &s.segments[s.num_segments]
    s.num_segments += 1
    segment.begin, segment.end = u.begin, loop
    segment.x, segment.y = _place(u.x), _place(u.y)
    segment.vx, segment.vy = _velocity(u.vx), _velocity(u.vy)
    segment.moving = <uint16_t>min(u.moving, 0xFFFF)
    segment.unit = <int32_t>(u - s.units)
    segment.building = u.building
    segment.type, segment.owner = u.type, u.owner
    moved = min(loop - u.begin, u.moving)
    u.x += u.vx * moved
    u.y += u.vy * moved
    u.moving -= moved
    u.begin = loop
    if u.moving == 0:
        u.vx = u.vy = 0


cdef void _head(State* s, Unit* u, float x, float y) noexcept nogil:
    # Sets out for a point from where the unit is at the beginning of its segment.
    cdef double distance = _distance(x - u.x, y - u.y)
    cdef float speed = s.speed[u.type]
    u.moving = 0
    u.vx = u.vy = 0
    if speed > 0 and distance > 0.1:
        u.moving = <int32_t>min(ceil(distance / speed), <double>MAX_LOOP)
        u.vx = (x - u.x) / u.moving
        u.vy = (y - u.y) / u.moving


cdef void _advance(State* s, Unit* u, int32_t loop) noexcept nogil:
    # Brings a unit to `loop`, past the waypoints it reaches before.
    cdef int32_t i
    while u.queued and u.begin + u.moving < loop and not s.no_memory:
        _cut(s, u, u.begin + u.moving)
        _head(s, u, u.queue_x[0], u.queue_y[0])
        u.queued -= 1
        for i in range(u.queued):
            u.queue_x[i] = u.queue_x[i + 1]
            u.queue_y[i] = u.queue_y[i + 1]
    _cut(s, u, loop)


cdef inline bint _is_bound_for(const Unit* u, float x, float y) noexcept nogil:
    # Goes there already, or stands there. Players click much more often than they change
    # their mind, so this saves most segments.
    return u.queued == 0 and (
        fabs(u.x + u.vx * u.moving - x) < SAME_PLACE
        and fabs(u.y + u.vy * u.moving - y) < SAME_PLACE
    )


cdef void _send(State* s, Unit* u, int32_t loop, float x, float y, bint queued) noexcept nogil:
    if _is_bound_for(u, x, y):
        return
    _advance(s, u, loop)
    if queued and (u.moving or u.queued):
        if u.queued < MAX_QUEUE:
            u.queue_x[u.queued] = x
            u.queue_y[u.queued] = y
            u.queued += 1
        return
    u.queued = 0
    _head(s, u, x, y)


cdef void _halt(Unit* u) noexcept nogil:
    u.queued = u.moving = 0
    u.vx = u.vy = 0


cdef Unit* _living(State* s, int64_t index, int64_t recycle) noexcept nogil:
    # The living unit at a tag; a negative recycle count takes whichever is at the index.
    cdef Unit* u
    if index < 0 or index >= MAX_INDEX or s.latest[index] < 0:
        return NULL
    u = &s.units[s.latest[index]]
    if not u.alive or (recycle >= 0 and u.recycle != recycle):
        return NULL
    return u


cdef void _die(State* s, Unit* u, int32_t loop) noexcept nogil:
    _advance(s, u, loop)
    u.alive = False


cdef void _bear(State* s, const Op* op) noexcept nogil:
    cdef Unit* u
    cdef Unit* creator
    if op.index < 0 or op.index >= MAX_INDEX:
        s.bad += 1
        return
    u = _living(s, op.index, -1)
    if u != NULL:
        _die(s, u, op.loop)
    s.units = <Unit*>_grown(s.units, &s.max_units, s.num_units + 1, sizeof(Unit), s)
    if s.no_memory:
        return
    u = &s.units[s.num_units]
    memset(u, 0, sizeof(Unit))
    u.tag_index, u.recycle = op.index, op.recycle
    u.begin = op.loop
    u.type, u.owner = op.type, op.owner
    u.alive = True
    u.x, u.y = op.x, op.y
    u.building = op.kind == INIT
    s.latest[op.index] = <int32_t>s.num_units
    s.num_units += 1
    creator = _living(s, op.creator, -1)
    if creator != NULL and creator.rallies and op.kind == BORN:
        _head(s, u, creator.rally_x, creator.rally_y)


cdef void _apply(State* s, const Op* op) noexcept nogil:
    cdef Unit* u
    if op.kind == BORN or op.kind == INIT:
        _bear(s, op)
        return
    # Positions name units by index alone.
    u = _living(s, op.index, op.recycle)
    if u == NULL:
        s.bad += 1
        return
    if op.kind == DIED:
        _die(s, u, op.loop)
        return
    _advance(s, u, op.loop)
    if op.kind == DONE:
        u.building = False
    elif op.kind == OWNER:
        u.owner = op.owner
    elif op.kind == TYPE:
        u.type = op.type
        if s.speed[u.type] <= 0:
            _halt(u)
    elif op.kind == POSITION:
        _correct(s, u, op.x, op.y)


cdef void _correct(State* s, Unit* u, float x, float y) noexcept nogil:
    # Where it is known to be. It was going somewhere: it still is, from here.
    cdef float to_x = u.x + u.vx * u.moving
    cdef float to_y = u.y + u.vy * u.moving
    u.x, u.y = x, y
    if u.moving:
        _head(s, u, to_x, to_y)


cdef inline int64_t _bit_of(int64_t start, int count, int i) noexcept nogil:
    # Where in the stream the bit of the i-th unit is. The game writes a mask in words of 32
    # bits, each as bytes with the first unit in the lowest bit, the last byte being of what bits
    # are left; and a word as any number: highest bits first, as many as the byte under way has
    # room for. It ends with the last unit that goes.
    cdef int64_t a = start + (i & ~31)
    cdef int n = min(32, count - (i & ~31))
    cdef int place = max(n - 8 * ((i & 31) // 8 + 1), 0) + (i & 7)  # in the word, 0 is lowest
    cdef int head = min(n, 8 - <int>(a & 7))
    cdef int rest = n - head, m
    if place >= rest:
        return a + place - rest
    m = (rest - 1 - place) // 8
    return a + head + 8 * m + place - max(rest - 8 * (m + 1), 0)


cdef void _remove(Group* g, const CommandOp* op, const uint8_t* data, const int32_t* indices
                  ) noexcept nogil:
    # Takes out what a removal mask names: 1 by a bit each, 2 by index, 3 all but by index.
    cdef uint8_t[MAX_SELECTION] gone
    cdef int64_t at
    cdef int i, kept = 0
    if op.mask_kind == 0 or g.count == 0:
        return
    memset(gone, op.mask_kind == 3, g.count)
    if op.mask_kind == 1:
        for i in range(min(op.mask_count, g.count)):
            at = _bit_of(op.mask_start, op.mask_count, i)
            gone[i] = data[at >> 3] >> (at & 7) & 1
    else:
        for i in range(op.mask_start, op.mask_start + op.mask_count):
            if 0 <= indices[i] < g.count:
                gone[indices[i]] = op.mask_kind == 2
    for i in range(g.count):
        if not gone[i]:
            g.tag[kept] = g.tag[i]
            kept += 1
    g.count = kept


cdef void _add(Group* g, uint32_t tag) noexcept nogil:
    # Keeps the group in order, each tag once.
    cdef int at = g.count
    while at > 0 and g.tag[at - 1] > tag:
        at -= 1
    if g.count >= MAX_SELECTION or (at > 0 and g.tag[at - 1] == tag):
        return
    memmove(&g.tag[at + 1], &g.tag[at], (g.count - at) * sizeof(g.tag[0]))
    g.tag[at] = tag
    g.count += 1


cdef void _snapshot(State* s, int user, int32_t loop) noexcept nogil:
    # Writes down what the user has selected from the loop after `loop` on, by ordinal.
    cdef Group* g = &s.groups[user * NUM_GROUPS + SELECTION]
    cdef int32_t* row
    cdef Unit* u
    cdef int i
    cdef int32_t ordinal
    cdef Py_ssize_t first = s.num_selected, at
    if first + g.count > MAX_MEMBERS:
        s.no_memory = True
        return
    s.selected = <int32_t*>_grown(s.selected, &s.max_selected, s.num_selected + g.count, 4, s)
    s.snapshots = <int32_t*>_grown(s.snapshots, &s.max_snapshots, 4 * (s.num_snapshots + 1), 4, s)
    if s.no_memory:
        return
    for i in range(g.count):
        u = _living(s, g.tag[i] >> RECYCLE_BITS, g.tag[i] & ((1 << RECYCLE_BITS) - 1))
        if u == NULL:
            continue
        ordinal = <int32_t>(u - s.units)
        at = s.num_selected
        while at > first and s.selected[at - 1] > ordinal:
            s.selected[at] = s.selected[at - 1]
            at -= 1
        s.selected[at] = ordinal
        s.num_selected += 1
    row = &s.snapshots[4 * s.num_snapshots]
    row[0], row[1] = loop + 1, user
    row[2], row[3] = <int32_t>first, <int32_t>(s.num_selected - first)
    s.num_snapshots += 1


cdef void _command(State* s, const CommandOp* op, int owner) noexcept nogil:
    cdef Group* g = &s.groups[op.user * NUM_GROUPS + SELECTION]
    cdef Unit* u
    cdef Unit* nearest = NULL
    cdef Unit* target
    cdef double least = 1e30, distance
    cdef float x = op.x, y = op.y
    cdef int32_t loop = op.loop + 1
    cdef int i
    if op.motion == STAYS:
        return
    if op.target >= 0:
        # Better than the snapshot in the event, which is of fogged units: where it is now.
        target = _living(s, op.target >> RECYCLE_BITS, op.target & ((1 << RECYCLE_BITS) - 1))
        if target != NULL:
            if target.queued:
                _advance(s, target, loop)
            x = target.x + target.vx * min(target.moving, loop - target.begin)
            y = target.y + target.vy * min(target.moving, loop - target.begin)
    for i in range(g.count):
        u = _living(s, g.tag[i] >> RECYCLE_BITS, g.tag[i] & ((1 << RECYCLE_BITS) - 1))
        if u == NULL or u.owner != owner:
            continue
        if op.motion == STOPS:
            if u.queued or u.begin + u.moving > loop:
                _advance(s, u, loop)
                _halt(u)
        elif s.speed[u.type] <= 0 or op.motion == RALLIES:
            if op.motion >= RALLIES:
                u.rallies, u.rally_x, u.rally_y = True, x, y
        elif op.motion == ONE_GOES:
            distance = _distance(x - u.x - u.vx * min(u.moving, loop - u.begin),
                                 y - u.y - u.vy * min(u.moving, loop - u.begin))
            if distance < least:
                least, nearest = distance, u
        else:
            _send(s, u, loop, x, y, op.queued)
    if nearest != NULL:
        _send(s, nearest, loop, x, y, op.queued)


cdef inline void _copy(Group* into, const Group* group) noexcept nogil:
    # Most groups are a fraction of what they may be. A damaged file may copy one onto itself.
    if into == group:
        return
    into.count = group.count
    memcpy(into.tag, group.tag, group.count * sizeof(group.tag[0]))


cdef void _select(State* s, const CommandOp* op, const uint8_t* data, const int32_t* indices,
                  const uint32_t* tags) noexcept nogil:
    cdef Group* selection = &s.groups[op.user * NUM_GROUPS + SELECTION]
    cdef Group* g = &s.groups[op.user * NUM_GROUPS + op.group]
    cdef int i
    if op.kind == SELECT:
        _remove(g, op, data, indices)
        for i in range(op.add_start, op.add_start + op.add_count):
            _add(g, tags[i])
    elif op.action in (0, 4):           # set, or set and steal
        _copy(g, selection)
    elif op.action in (1, 5):           # append, or append and steal
        _remove(g, op, data, indices)
        for i in range(selection.count):
            _add(g, selection.tag[i])
    elif op.action == 2:                # recall; the group stays as it is
        _copy(selection, g)
        _remove(selection, op, data, indices)
    elif op.action == 3:                # clear
        g.count = 0
    if op.group == SELECTION or op.action == 2:
        _snapshot(s, op.user, op.loop)


def build(const Op[::1] ops, const CommandOp[::1] commands, const uint8_t[::1] mask_data,
          const int32_t[::1] mask_indices, const uint32_t[::1] tags,
          const int8_t[::1] owner_of_user, const float[::1] speed, int32_t end):
    """Follows a game through its events.

    Args:
        ops: Tracker operations (dtype `OP`), loops ascending.
        commands: Selections, control groups and commands (dtype `COMMAND_OP`), loops ascending.
        mask_data, mask_indices: What removal masks name; a command has a run of one of them.
            Of the former it is a run of bits, a byte's lowest first.
        tags: Units added to a group.
        owner_of_user: (16,) player id of each user, 0 for those who do not play.
        speed: Cells a loop by unit type; 0 does not move by itself.
        end: The game's last loop; units alive then have segments that cover it.

    Returns:
        Tracks.
    """
    cdef State s
    cdef Py_ssize_t i = 0, j = 0
    cdef Unit* u
    if not 0 <= end <= MAX_LOOP:
        raise ValueError(f"end must be 0 to {MAX_LOOP}, not {end}")
    if owner_of_user.shape[0] != NUM_USERS:
        raise ValueError(f"owner_of_user must have {NUM_USERS} entries")
    _check(ops, commands, mask_data, mask_indices, tags, speed)
    memset(&s, 0, sizeof(s))
    s.speed = &speed[0]
    s.end = end
    s.latest = <int32_t*>malloc(MAX_INDEX * 4)
    s.tags = <uint32_t*>malloc(NUM_USERS * NUM_GROUPS * MAX_SELECTION * sizeof(uint32_t))
    try:
        if s.latest == NULL or s.tags == NULL:
            raise MemoryError
        memset(s.latest, 0xFF, MAX_INDEX * 4)
        for i in range(NUM_USERS * NUM_GROUPS):
            s.groups[i].tag = s.tags + i * MAX_SELECTION
        with nogil:
            i = 0
            while (i < ops.shape[0] or j < commands.shape[0]) and not s.no_memory:
                # At one loop what happened comes first, then what was ordered.
                if j == commands.shape[0] or (
                    i < ops.shape[0] and ops[i].loop <= commands[j].loop
                ):
                    _apply(&s, &ops[i])
                    i += 1
                else:
                    if commands[j].kind == COMMAND:
                        _command(&s, &commands[j], owner_of_user[commands[j].user])
                    else:
                        _select(&s, &commands[j], &mask_data[0], &mask_indices[0], &tags[0])
                    j += 1
            for i in range(s.num_units):
                u = &s.units[i]
                if u.alive:
                    _advance(&s, u, max(end, u.begin) + 1)
        if s.no_memory:
            raise MemoryError
        return Tracks(*_arrays(&s), s.bad)
    finally:
        free(s.latest)
        free(s.tags)
        free(s.units)
        free(s.segments)
        free(s.snapshots)
        free(s.selected)


cdef _check(const Op[::1] ops, const CommandOp[::1] commands, const uint8_t[::1] mask_data,
            const int32_t[::1] mask_indices, const uint32_t[::1] tags, const float[::1] speed):
    # Everything the kernels index by, once, so that they need not look again.
    cdef Py_ssize_t i, masks
    if not (tags.shape[0] and mask_data.shape[0] and mask_indices.shape[0]):
        raise ValueError("tags and masks must not be empty")
    for i in range(ops.shape[0]):
        if not (0 <= ops[i].type < speed.shape[0] and 0 <= ops[i].owner <= MAX_OWNER):
            raise ValueError(f"operation {i}: no such type or owner")
        if not 0 <= ops[i].loop <= MAX_LOOP or i and ops[i].loop < ops[i - 1].loop:
            raise ValueError(f"operation {i}: loops must ascend")
    for i in range(commands.shape[0]):
        masks = 8 * mask_data.shape[0] if commands[i].mask_kind == 1 else mask_indices.shape[0]
        if not (
            0 <= commands[i].user < NUM_USERS and 0 <= commands[i].group < NUM_GROUPS
            and 0 <= commands[i].mask_kind <= 3
            and 0 <= commands[i].mask_start <= masks
            and 0 <= commands[i].mask_count <= masks - commands[i].mask_start
            and 0 <= commands[i].add_start <= tags.shape[0]
            and 0 <= commands[i].add_count <= tags.shape[0] - commands[i].add_start
        ):
            raise ValueError(f"command {i}: out of range")
        if not 0 <= commands[i].loop <= MAX_LOOP or i and commands[i].loop < commands[i - 1].loop:
            raise ValueError(f"command {i}: loops must ascend")


cdef tuple _arrays(State* s):
    # Sorted by unit, then time. Units emit their own segments in order, so counting them does.
    segments = np.empty(s.num_segments, SEGMENT)
    tags = np.empty(s.num_units, np.int64)
    births = np.full(s.num_units, -1, np.int32)
    cdef Segment[::1] rows = segments
    cdef int64_t[::1] tag = tags
    cdef int32_t[::1] birth = births
    cdef int64_t[::1] place = np.zeros(s.num_units + 1, np.int64)
    cdef Py_ssize_t i
    cdef int32_t unit
    for i in range(s.num_segments):
        place[s.segments[i].unit + 1] += 1
    for i in range(s.num_units):
        place[i + 1] += place[i]
        tag[i] = (<int64_t>s.units[i].tag_index << RECYCLE_BITS) + s.units[i].recycle
    for i in range(s.num_segments):
        unit = s.segments[i].unit
        if birth[unit] < 0:
            birth[unit] = s.segments[i].begin
        rows[place[unit]] = s.segments[i]
        place[unit] += 1
    snapshots = np.empty((s.num_snapshots, 4), np.int32)
    selected = np.empty(s.num_selected, np.int32)
    cdef int32_t[:, ::1] snapshot = snapshots
    cdef int32_t[::1] chosen = selected
    cdef int j
    for i in range(s.num_snapshots):
        for j in range(4):
            snapshot[i, j] = s.snapshots[4 * i + j]
    for i in range(s.num_selected):
        chosen[i] = s.selected[i]
    return segments, tags, births, (snapshots, selected)


cdef class Tracks:
    """The units of a game as segments.

    Args:
        segment_table: dtype `SEGMENT`, by unit and then by time.
        unit_tags: int64 (units,), (index << 18) + recycle count.
        unit_births: int32 (units,), the loop of the first segment, -1 for none.
        selections: ((n, 4) int32 of (loop from which it holds, user, first, count), ordinals
            of the selected units).
        bad_references: Events that named a unit which was not there; they were skipped.
    """

    def __cinit__(self, segment_table, unit_tags, unit_births, selections, int bad_references):
        self.segment_table = segment_table
        self.unit_tags = unit_tags
        self.unit_births = unit_births
        self.selections = selections
        self.bad_references = bad_references
        for array in (segment_table, unit_tags, unit_births, *selections):
            array.flags.writeable = False
        self.blocks = _blocks(segment_table, min(len(unit_tags), len(unit_births)))
        cdef const Segment[::1] segments = segment_table
        cdef const int32_t[::1] block_start = self.blocks[0]
        cdef const int32_t[::1] first = self.blocks[1]
        self.num_segments = segments.shape[0]
        self.segments = &segments[0] if segments.shape[0] else NULL
        self.block_start = &block_start[0]
        self.first = &first[0] if first.shape[0] else NULL
        self.num_blocks = block_start.shape[0] - 1

    def __reduce__(self):
        return Tracks, (self.segment_table, self.unit_tags, self.unit_births, self.selections,
                        self.bad_references)

    def at(self, int loop):
        """The living units of a loop, in order of birth.

        Returns:
            Structured array of `unit` (ordinal), `type` (index of `vocabulary.unit_types`),
            `owner` (player id), `building` (under construction), and float32 `x`, `y` in
            cells from the map's left and bottom edge.
        """
        table = self.segment_table
        rows = table[(table["begin"] <= loop) & (loop < table["end"])]
        living = np.empty(len(rows), LIVING)
        for name in ("unit", "type", "owner", "building"):
            living[name] = rows[name]
        moved = np.minimum(loop - rows["begin"], rows["moving"])
        for place, speed in (("x", "vx"), ("y", "vy")):
            living[place] = rows[place] / PLACE_SCALE + rows[speed] / SPEED_SCALE * moved
        return living

    @property
    def nbytes(self):
        """Bytes of memory that the arrays take."""
        arrays = (self.segment_table, self.unit_tags, self.unit_births, *self.selections,
                  *self.blocks)
        return sum(array.nbytes for array in arrays)


cdef tuple _blocks(segment_table, Py_ssize_t num_units):
    # The units that a frame has to look at, each by the first of its segments that touches the
    # frame's block: where the runs start, then the runs. Most segments touch only a block that
    # their unit is listed in already.
    cdef const Segment[::1] segments = segment_table
    cdef const Segment* s
    cdef Py_ssize_t i, block, listed = -1, num_blocks = 0
    cdef int32_t unit = -1, free_from = 0
    for i in range(segments.shape[0]):
        s = &segments[i]
        if i == 0 or s.unit != unit:
            if not unit < s.unit < num_units:
                raise ValueError(f"segment {i}: units must ascend")
            unit, free_from = s.unit, 0
        if not free_from <= s.begin < s.end <= MAX_END:
            raise ValueError(f"segment {i}: loops must ascend")
        free_from = s.end
        num_blocks = max(num_blocks, (s.end - 1) // BLOCK_LOOPS + 1)
    starts = np.zeros(num_blocks + 1, np.int32)
    cdef int32_t[::1] start = starts
    unit = -1
    for i in range(segments.shape[0]):
        s = &segments[i]
        if s.unit != unit:
            unit, listed = s.unit, -1
        for block in range(max(s.begin // BLOCK_LOOPS, listed + 1), (s.end - 1) // BLOCK_LOOPS + 1):
            start[block + 1] += 1
            listed = block
    _sum_up(start)
    firsts = np.empty(start[num_blocks], np.int32)
    cdef int32_t[::1] first = firsts
    cdef int32_t[::1] end = starts.copy()
    unit = -1
    for i in range(segments.shape[0]):
        s = &segments[i]
        if s.unit != unit:
            unit, listed = s.unit, -1
        for block in range(max(s.begin // BLOCK_LOOPS, listed + 1), (s.end - 1) // BLOCK_LOOPS + 1):
            first[end[block]] = i
            end[block] += 1
            listed = block
    return starts, firsts


cdef _sum_up(int32_t[::1] counts):
    # From how many each run has to where it starts.
    cdef Py_ssize_t i
    cdef int64_t total = 0
    for i in range(1, counts.shape[0]):
        total += counts[i]
        if total > MAX_MEMBERS:
            raise ValueError("too many units for too long")
        counts[i] = <int32_t>total
