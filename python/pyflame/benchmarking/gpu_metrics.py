"""The clock of each XCD of an AMD GPU: the file gpu_metrics that the amdgpu driver makes in sysfs.

The file is a table. It begins with its size (16 bits), a format and a version (8 bits each). Format 1 has one clock for the whole GPU before version 4, and the clocks of up to
eight XCDs from version 4 on. Versions 4 to 8 have them at a fixed place. Version 9 is a list of fields, each behind a word that says what it is.
"""
import struct

_CLOCKS = 8  # places for XCDs in versions 4 to 8
_PLACES = {4: (240, 288), 5: (312, 360), 6: (264, 1664), 7: (296, 2208), 8: (296, 3872)}  # version: where the clocks begin, and the least size of the table
_PAGE = 4095  # bytes: the driver gives no more of a longer table
_MOST = 1 << 16  # bytes that are read: sizes have 16 bits

# Version 9: a field's word has the number of its values, what it is, the type of the values and their unit.
_FIELD_CLOCK, _TYPE_U16, _UNIT_MHZ = 33, 2, 1
_TYPE_BYTES = (1, 1, 2, 2, 4, 4, 8, 8)


class _Unknown(Exception):
    """Why there are no clocks."""


def _listed(data):
    """The bytes of the clocks in a table of version 9."""
    if len(data) < 8:
        raise _Unknown(f"gpu_metrics is too short: it has {len(data)} bytes, and its list of fields begins at byte 8")
    (count,) = struct.unpack_from("<i", data, 4)
    at = 8
    for _ in range(count):
        if at + 8 > len(data):
            break
        (word,) = struct.unpack_from("<Q", data, at)
        values, field, kind, unit = word & 0x3FF, word >> 10 & 0x3FF, word >> 20 & 0xF, word >> 24 & 0xFF
        if kind >= len(_TYPE_BYTES):
            raise _Unknown(f"gpu_metrics has a field of an unknown type: type {kind} at byte {at}")
        end = at + 8 + values * _TYPE_BYTES[kind]
        if field == _FIELD_CLOCK:
            if (kind, unit) != (_TYPE_U16, _UNIT_MHZ):
                raise _Unknown(f"the clocks in gpu_metrics have another form: type {kind} and unit {unit}, not 16 bits and MHz")
            if end > len(data):
                raise _Unknown(f"gpu_metrics ends within the clocks: it has {len(data)} bytes, and they need {end}")
            return data[at + 8:end]
        at = end
    raise _Unknown(f"gpu_metrics has no clocks among its {max(count, 0)} fields")


def _placed(data, version, size):
    """The bytes of the clocks in a table of versions 4 to 8."""
    begin, least = _PLACES[version]
    if size < least:
        raise _Unknown(f"gpu_metrics of version 1.{version} says that it has {size} bytes; such a table has at least {least}")
    return data[begin:begin + 2 * _CLOCKS]


def _clocks(data):
    if len(data) < 4:
        raise _Unknown(f"gpu_metrics is too short: it has {len(data)} bytes, and its header 4")
    size, form, version = struct.unpack_from("<HBB", data)
    if form == 1 and version < 4:
        raise _Unknown(f"gpu_metrics of version {form}.{version} has one clock for the whole GPU")
    if form != 1 or version not in (*_PLACES, 9):
        raise _Unknown(f"gpu_metrics has version {form}.{version}; the clocks of XCDs are read from 1.4 to 1.9")
    if len(data) != min(size, _PAGE):
        raise _Unknown(f"gpu_metrics has {len(data)} bytes, and its header says {size}")
    part = _listed(data) if version == 9 else _placed(data, version, size)
    found = [mhz for (mhz,) in struct.iter_unpack("<H", part) if mhz not in (0, 0xFFFF)]  # what the driver does not know, such as an XCD that is not there, has all bits set
    if not found:
        raise _Unknown("gpu_metrics has no clock of an XCD")
    return found


def xcd_clocks(data):
    """(clocks in MHz, one for each XCD; None), or (None, why there are none) of the bytes of a file gpu_metrics."""
    try:
        return _clocks(data), None
    except _Unknown as why:
        return None, str(why)


def state(card):
    """What the record of a measurement holds of the XCDs: their clocks, the lowest, the highest and the spread in MHz; or the reason why there are none. `card`: the device's folder in sysfs."""
    try:
        with open(card / "gpu_metrics", "rb") as file:
            clocks, why = xcd_clocks(file.read(_MOST))
    except OSError as e:
        clocks, why = None, f"gpu_metrics cannot be read: {e.strerror or e}"
    if clocks is None:
        return {"xcd_clocks_unknown": why}
    return {"xcd_clocks_mhz": clocks, "xcd_clock_low_mhz": min(clocks), "xcd_clock_high_mhz": max(clocks), "xcd_clock_spread_mhz": max(clocks) - min(clocks)}


def sentence(state):
    """The clocks of a state in words; None if it has none, or if the GPU has one XCD only."""
    clocks = state.get("xcd_clocks_mhz", ())
    if len(clocks) < 2:
        return None
    low, high = min(clocks), max(clocks)
    return f"the clocks of the {len(clocks)} XCDs are {low:.0f} to {high:.0f} MHz, a spread of {high - low:.0f} MHz ({(high - low) / high:.1%})"
