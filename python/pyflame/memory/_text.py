"""Bytes and tables as text."""


def size(nbytes):
    """'1.50 GiB', '12.0 MiB', '300 bytes'."""
    for unit, scale, digits in (("GiB", 1 << 30, 2), ("MiB", 1 << 20, 1), ("KiB", 1 << 10, 1)):
        if abs(nbytes) >= scale:
            return f"{nbytes / scale:,.{digits}f} {unit}"
    return f"{nbytes} bytes"


def gib(nbytes):
    """The number of GiB with enough digits for a table; '-' for None."""
    return "-" if nbytes is None else f"{nbytes / (1 << 30):,.2f}" if nbytes >= 10 << 20 or not nbytes else f"{nbytes / (1 << 30):.4f}"


def table(rows, right=()):
    """Rows of words in columns; the columns in `right` are aligned there."""
    rows = [[str(word) for word in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(w.rjust(widths[i]) if i in right else w.ljust(widths[i]) for i, w in enumerate(row)).rstrip() for row in rows)


def bytes_of(text):
    """Bytes from a number or from text such as '24GiB', '80 GB' or '1.5G' (all by 1024). ValueError."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    word = str(text).strip().upper().removesuffix("IB").removesuffix("B")
    scale = {"K": 10, "M": 20, "G": 30, "T": 40}.get(word[-1:])
    try:
        value = float(word[:-1] if scale else word)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 60:
        raise ValueError(f"memory: not a size; got {text!r}; expected bytes, or text such as '24GiB'")
    return int(value * (1 << (scale or 0)))
