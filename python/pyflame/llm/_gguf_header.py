"""The header of GGUF files as Python reads it, without the files' tensors and without NumPy. The format: ggml's docs/gguf.md."""
import mmap
import os
import struct

MAGIC = b"GGUF"
STRING, ARRAY, BOOL = 8, 9, 7  # kinds of values; the others are numbers
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class Reader:
    """Reads the values of a file's header one after the other. data: the file's bytes. ValueError for what is not inside of them; KeyError for a kind that is not known."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError(f"{size} bytes at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size:self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self):
        return bytes(self.take(self.number("<Q"))).decode("utf-8", "surrogateescape")

    def value(self, kind, depth=0):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(NUMBERS[kind])
        kind, count = self.number("<I"), self.number("<Q")
        if kind in NUMBERS:
            form = NUMBERS[kind]
            data = self.take(count * struct.calcsize(form))  # before a form of so many numbers is made
            return list(struct.unpack(f"<{count}{form[1:]}", data))
        if count > len(self.data) or depth > 4:
            raise ValueError(f"a list of {count} items")
        return [self.value(kind, depth + 1) for _ in range(count)]


def architecture(path):
    """general.architecture of a file, which is read no further than to it. None where it has none: reading all of it says better what is wrong. OSError."""
    if os.path.getsize(path) == 0:
        return None
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        r = Reader(data)
        try:
            if r.take(4) != MAGIC or r.number("<I") not in (2, 3):
                return None
            r.number("<Q")
            for _ in range(r.number("<Q")):
                key, value = r.string(), r.value(r.number("<I"))
                if key == "general.architecture":
                    return value
        except (ValueError, KeyError, TypeError, OverflowError, struct.error):
            pass
        return None
