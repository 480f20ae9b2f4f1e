"""Pieces of generated C: types, arrays of bytes, and text from models as identifiers, comments and string literals.

Nothing breaks out of an identifier, comment or string.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection
from itertools import chain, count

__all__ = ["C_TYPES", "LITTLE_ENDIAN", "c_comment", "c_identifier", "c_string", "weights_array"]

C_TYPES = {
    "bool": "bool",
    **{f"{sign}int{size}": f"{sign}int{size}_t" for sign in ("", "u") for size in (8, 16, 32, 64)},
    "float16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
"""The type of C that holds an element, by its dtype."""

LITTLE_ENDIAN = """\
#if defined(__BYTE_ORDER__) && defined(__ORDER_LITTLE_ENDIAN__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "{symbol} is for machines that store the lowest byte first"
#endif
"""
"""Refuses to compile ``symbol`` for a machine on which its bytes mean other numbers."""

_BYTES_PER_LINE = 24

_MAX_IDENTIFIER = 60
_MAX_COMMENT = 200

_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
    co_return co_yield compl complex concept const const_cast consteval constexpr constinit continue contract_assert
    decltype default delete do double dynamic_cast else enum explicit export extern false far float for fortran friend
    goto if imaginary inline int interrupt long mutable namespace near new noexcept noreturn not not_eq nullptr operator
    or or_eq pascal private protected public register reinterpret_cast requires restrict return short signed sizeof
    static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
    typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
"""Of C up to C23 and C++ up to C++26, and spellings that common compilers and headers add."""

_MACROS = """
    arm bsd edom eilseq eof erange errno huge_val i i386 infinity linux m68k main max_align_t mb_cur_max mips nan null
    offsetof pic powerpc ptrdiff_t sgi signbit size_t sparc ssize_t stderr stdin stdout sun unix va_arg va_copy va_end
    va_list va_start vax win32 x86_64
"""
"""Names that compilers predefine or standard headers define as macros or types, in lower case."""

_HEADERS = """
    aio alloca assert complex cpio ctype dirent dlfcn elf endian err errno error execinfo fcntl features fenv float
    fmtmsg fnmatch ftw getopt glob grp iconv ifaddrs inttypes iso646 langinfo libgen libintl limits link locale malloc
    math memory monetary mqueue ndbm netdb nl_types paths poll printf pthread pwd regex resolv sched search semaphore
    setjmp sgtty signal spawn stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdio_ext stdlib
    stdnoreturn string strings stropts syslog tar termios tgmath threads time uchar ucontext ulimit unistd utime utmp
    utmpx values wait wchar wctype windows wordexp
"""
"""Headers of C, POSIX and Windows: a model called ``math`` would put another ``math.h`` on the include path."""

_PREFIXES = "cnd mtx posix_spawn_file_actions posix_spawnattr res sem"
"""Words to which ``_init`` makes the name of a function of the C library."""

_RESERVED = {
    *f"{_KEYWORDS} {_MACROS} {_HEADERS} {_PREFIXES}".split(),
    *(word.lower() for word in keyword.kwlist),
}
_RESERVED_PATTERN = re.compile(r"uma(_.*)?|pthread_.*|u?int.*_(t|max|min|c)")


def c_identifier(name: str, taken: Collection[str] = ()) -> str:
    """An identifier for something that a model calls ``name``, whatever that text is.

    The result is ASCII, at most 60 characters long, and safe as a C or C++ identifier, as the prefix of a model's
    symbols, as a file name and as a Python identifier. A name that is all that already, and free, is itself.

    Args:
        name: any text, the empty one included.
        taken: names that the result must differ from. Keep it in a set where there are many.
    """
    # Two underscores in a row, or one in front, belong to the language.
    word = re.sub(r"[^A-Za-z0-9]+", "_", name[: 4 * _MAX_IDENTIFIER]).strip("_") or "unnamed"
    if word[0].isdigit():
        word = f"n{word}"
    word = _cut(word, _MAX_IDENTIFIER)
    lower = word.lower()  # some file systems do not tell cases apart
    if lower in _RESERVED or _RESERVED_PATTERN.fullmatch(lower):
        word = _cut(f"m_{word}", _MAX_IDENTIFIER)
    if word not in taken:
        return word
    stem = _cut(word, _MAX_IDENTIFIER - 11)
    # Going on from the number of names taken finds a free one at once even where thousands have one name.
    return next(f"{stem}_{n}" for n in chain(range(2, 10), count(len(taken))) if f"{stem}_{n}" not in taken)


def _cut(word: str, length: int) -> str:
    return word[:length].rstrip("_")


def c_comment(text: str) -> str:
    """``text`` as the inside of one ``/* ... */`` on one line; what C would act on, or a reader not see, is escaped."""
    line = text[: _MAX_COMMENT + 1].encode("ascii", "backslashreplace").decode("ascii")
    line = re.sub(r"[\0-\x1f\x7f]", lambda match: f"\\x{ord(match.group()):02x}", line)
    if len(line) > _MAX_COMMENT:
        line = line[: _MAX_COMMENT - 3] + "..."
    return re.sub(r"\?(?=\?)", "? ", line).replace("*/", "* /").replace("/*", "/ *")


def c_string(text: str) -> str:
    """``text`` in UTF-8 as a string literal of C99, with escapes for all that is not printable ASCII.

    A NUL ends the string for who reads it in C. Literals of more than 4095 bytes are beyond what C99 promises.
    """
    return '"' + "".join(_CHARACTERS[byte] for byte in text.encode("utf-8", "backslashreplace")) + '"'


def _character(byte: int) -> str:
    character = chr(byte)
    if character in '"\\?':
        return f"\\{character}"
    return character if 32 <= byte < 127 else f"\\{byte:03o}"


_CHARACTERS = [_character(byte) for byte in range(256)]


def weights_array(name: str, data: bytes, alignment: int) -> str:
    """Return ``NAME_weights.c``: the constants of a model as an array, for any compiler of C99.

    Args:
        name: of the model.
        data: all constants in one piece.
        alignment: of the whole, in bytes.
    """
    symbol = f"{name}_weights"
    words = [f"{byte}," for byte in data]
    lines = ["".join(words[start : start + _BYTES_PER_LINE]) for start in range(0, len(words), _BYTES_PER_LINE)]
    return "\n".join(
        [
            f"/* The constants of {name}. Generated by UMA; do not edit. */",
            '#include "uma_runtime.h"',
            "",
            LITTLE_ENDIAN.format(symbol=symbol),
            f"UMA_HIDDEN extern const unsigned char {symbol}[];",
            "",
            f"UMA_ALIGNAS({alignment}) const unsigned char {symbol}[{len(words)}] = {{",
            *lines,
            "};",
            "",
        ]
    )
