"""Make the firmware: the model as C, the tables of the front end, a clip; compile it all, and run it in an emulator.

    python -m keyword_spotter.firmware.make [FILE.wav] [-o FOLDER]     in the folder `examples`

Needs arm-none-eabi-gcc with newlib, and qemu-system-arm. Without them it writes the sources and says what is missing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from .. import FOLDER, MODEL
from ..features import (
    CLIP_SAMPLES,
    COEFFICIENTS,
    FFT_SAMPLES,
    FLOOR,
    FRAMES,
    HOP_SAMPLES,
    LOUDNESS_OFFSET,
    WINDOW_SAMPLES,
    cosines,
    features,
    gains,
    mel_filters,
    window,
)
from ..sound import SoundError, read_wav, windows

HERE = Path(__file__).resolve().parent
TARGET = "c -mcpu=cortex-m4f -accelerators=ultra_trail"
COMPILER, EMULATOR = "arm-none-eabi-gcc", "qemu-system-arm"
FLAGS = (
    "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16",
    "-mfloat-abi=hard", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections",
)  # fmt: skip
LINKING = ("-nostartfiles", "--specs=nano.specs", "--specs=nosys.specs", "-Wl,--gc-sections,-z,noexecstack", "-T")
SOURCES = ("board.c", "board.h", "board.ld", "front_end.c", "front_end.h", "main.c")
HOST_ONLY = ("_main.c", "_entry.c", "_profile.c")
"""Ends of the sources that a firmware does not want: the example program, what Python loads, the profile's."""


def table(ctype: str, name: str, values: Iterable[float | int]) -> str:
    """A constant array in C; floats are written so that they are read as the same float32."""
    texts = [f"{np.float32(v):.9e}f" if ctype == "float" else str(v) for v in values]
    lines = [", ".join(texts[at : at + 8]) for at in range(0, len(texts), 8)]
    return f"static const {ctype} {name}[{len(texts)}] = {{\n    " + ",\n    ".join(lines) + ",\n};\n"


def tables_header() -> str:
    """front_end_tables.h: every number of the front end, from `features`."""
    defines = {
        "SAMPLES": CLIP_SAMPLES,
        "HOP": HOP_SAMPLES,
        "WINDOW": WINDOW_SAMPLES,
        "FFT": FFT_SAMPLES,
        "FRAMES": FRAMES,
        "COEFFICIENTS": COEFFICIENTS,
        "FLOOR": f"{FLOOR}f",
        "LOUDNESS_OFFSET": f"{LOUDNESS_OFFSET}f",
    }
    first, count, weights = [], [], []
    for row in mel_filters():
        (bins,) = np.nonzero(row)
        first.append(int(bins[0]) if len(bins) else 0)
        count.append(int(bins[-1]) - first[-1] + 1 if len(bins) else 0)
        weights += row[first[-1] : first[-1] + count[-1]].tolist()
    angles = 2 * np.pi * np.arange(FFT_SAMPLES // 2) / FFT_SAMPLES
    rows = [", ".join(f"{np.float32(v):.9e}f" for v in row) for row in cosines()]
    dct = f"static const float front_end_dct[{COEFFICIENTS}][{COEFFICIENTS}] = {{\n"
    dct += "".join(f"    {{{row}}},\n" for row in rows) + "};\n"
    return "\n".join(
        [
            "/* Made by make.py from features.py. Only front_end.c includes it with its arrays. */",
            "#ifndef FRONT_END_TABLES_H\n#define FRONT_END_TABLES_H\n",
            *(f"#define FRONT_END_{name} {value}" for name, value in defines.items()),
            "\n#ifdef FRONT_END_TABLES",
            table("float", "front_end_window", window()),
            table("float", "front_end_cosines", np.cos(angles)),
            table("float", "front_end_sines", np.sin(angles)),
            table("unsigned char", "front_end_first", first),
            table("unsigned char", "front_end_bins", count),
            table("float", "front_end_weights", weights),
            table("float", "front_end_gains", gains()),
            dct,
            "#endif\n#endif\n",
        ]
    )


def clip_header(path: Path) -> str:
    """clip.h: the first second of a WAV file, and the features that `features` computes of it."""
    _, clip = next(windows(read_wav(path)))
    samples = np.clip(np.rint(clip * 32768), -32768, 32767).astype(np.int16)
    wanted = features(samples / np.float32(32768)).ravel()
    head = "#include <stdint.h>\n\n"
    return head + table("int16_t", "clip_samples", samples) + table("int8_t", "clip_features", wanted)


def write(path: Path, folder: Path) -> list[Path]:
    """Writes the project with the clip of `path` into `folder`; gives the C and assembler files to compile."""
    import uma

    clip = clip_header(path)
    folder.mkdir(parents=True, exist_ok=True)
    uma.build(MODEL, target=TARGET).save(folder / "model")
    for name in SOURCES:
        shutil.copy(HERE / name, folder)
    (folder / "front_end_tables.h").write_text(tables_header())
    (folder / "clip.h").write_text(clip)
    model = [one for one in sorted((folder / "model").glob("*.[cS]")) if not one.name.endswith(HOST_ONLY)]
    return [*model, *sorted(folder.glob("*.c"))]


def link(sources: list[Path], folder: Path) -> Path:
    """Compiles and links; gives the image."""
    image = folder / "spotter.elf"
    places = [f"-I{folder}", f"-I{folder / 'model'}"]
    command: list[str | Path] = [COMPILER, *FLAGS, *places, *sources, *LINKING, folder / "board.ld", "-lm", "-o", image]
    subprocess.run(command, check=True, cwd=folder / "model")
    return image


def run(image: Path) -> int:
    """Runs the image in the emulator; gives the exit code of its program."""
    arguments = ["-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none", "-semihosting-config"]
    return subprocess.run([EMULATOR, *arguments, "enable=on,target=native", "-kernel", image], check=False).returncode


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wav", nargs="?", type=Path, default=FOLDER / "wavs" / "seven.wav", metavar="FILE.wav")
    parser.add_argument("-o", "--output", type=Path, default=Path("build", "keyword_spotter_firmware"))
    given = parser.parse_args()
    folder = given.output.resolve()
    try:
        sources = write(given.wav, folder)
    except SoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    print(f"sources: {given.output}", flush=True)
    for tool in (COMPILER, EMULATOR):
        if shutil.which(tool) is None:
            print(f"{tool} is not on PATH: the firmware is neither compiled nor run", file=sys.stderr)
            return 6
    return run(link(sources, folder))


if __name__ == "__main__":
    sys.exit(main())
