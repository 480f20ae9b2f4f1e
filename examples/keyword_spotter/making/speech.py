"""Speech from synthesisers: every word by every voice, as WAV files of 16 kHz.

    python -m keyword_spotter.making.speech FOLDER

The synthesisers, espeak-ng and flite, are Debian's packages: they are downloaded with apt-get and unpacked into
FOLDER/synthesisers, an environment of their own; nothing is installed. Needs Debian or a relative of it, on x86-64.

Voices are split before anything else: `voices` says of each whether it is for training or for the test, and the split
is by what a listener would call a person: all accents of one espeak-ng variant are on one side, and so is a human
speaker whose recordings a voice was made from. Every voice is synthetic.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import wave
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .. import DIGITS
from ..features import SAMPLE_RATE_HZ
from ..sound import read_wav

PACKAGES = (
    "espeak-ng", "espeak-ng-data", "libespeak-ng1", "libpcaudio0", "libsonic0", "flite", "libflite1",
)  # fmt: skip
LIBRARIES = "usr/lib/x86_64-linux-gnu"

PAUSE_SAMPLES = SAMPLE_RATE_HZ // 5

Sound = NDArray[np.float32]

ACCENTS = ("en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-us-nyc", "en-029", "en-gb-x-gbcwmd")

_TRAINING_VARIANTS = """
    Alex Alicia Andrea Andy Annie Denis Diogo Gene Henrique Hugo Jacky Lee Marco Mario Michael Mike Mr-serious
    Nguyen RicishayMax Storm Tweaky adam anika announcer antonio aunty belinda benjamin boris caleb david ed
    edward f1 f2 f3 f4 grandma grandpa gustave iven iven2 iven3 john kaukovalta klatt klatt2 klatt3 klatt4 linda
    m1 m2 m3 m4 m5 m6 m8 marcelo max michel miguel norbert pablo paul pedro quincy rob robert
    sandro steph steph2 steph3 travis victor zac"""
TRAINING_VARIANTS = tuple(_TRAINING_VARIANTS.split())
TEST_VARIANTS = ("f5", "m7", "shelby", "Gene2", "edward2", "iven4", "klatt5", "klatt6", "RicishayMax2", "RicishayMax3")
"""Names of espeak-ng, with a hyphen for a space."""

EFFECT_VARIANTS = (
    "AnxiousAndy", "UniRobot", "anikaRobot", "croak", "fast", "robosoft", "robosoft2", "robosoft3", "robosoft4",
    "robosoft5", "robosoft6", "robosoft7", "robosoft8", "whisper", "whisperf",
)  # fmt: skip
"""Robots, whispers and the like: for training, so that it hears words in voices that are far from all others."""

LEFT_OUT = ("Gene", "RicishayMax", "edward", "iven", "iven2", "iven3", "klatt", "klatt2", "klatt3", "klatt4")
"""Those of the training variants that a variant of the test was derived from: they are used for nothing."""

_UNKNOWN_TRAINING = """
    able above across action after again agree airport almost alone always amber among animal answer anyone apple
    april arrow august autumn average backward banana battle beach beauty become bed before begin believe between
    beyond bird black blanket blood blue board bottle bottom branch bread breakfast bridge bring brother brown build
    business butter cabin candle captain carpet castle cat catch center chair change cheese chicken children circle
    city clean clever close cloud color common corner country cousin cover create cross crown dance danger daughter
    december deep desert dinner distance dog double down dragon dream drive early earth east eastern easy effort
    electric empty engine enough enter equal error evening example eye face factory family farmer father feather
    february feel fence field fifteen fifty figure film fine finger finish fire fish fix flat floor follow foot
    forest forget forty forward fourteen fox free friday friend front fruit future game garden gentle giant glass go
    gold grass great green ground group guitar half hammer hand happy heaven heavy height hero history holiday honey
    horse hospital hotel hour house hundred hunter ice idea inside into iron island january job judge juice july
    june kettle key kitchen knee know lake language large late laugh leader learn leather left lemon lesson letter
    level library light line liner little live lucky machine magic manner marvin master matter maybe meadow medal
    middle milk million mine minute mirror moment monkey month moon more morning mother mountain mouse music narrow
    nature needle neighbor nephew never next nickel night no noise north notice november number object ocean october
    off offer office often on onion open orange order other outside oven owner paint palace paper parent parrot
    party people pepper perfect person picture pilot pine pizza place plain player pocket poem police potato power
    present price prince problem promise public purple puzzle quarter queen question quick quiet rabbit radio rain
    reach ready reason record remain remember report rice right river road roof round rubber saddle safe salad salt
    saturday school science season second secret september service seventeen seventy shadow shape sharp sheep sheila
    shirt shoulder sick simple sing single sixty skill sleep smile smooth snow social soldier song south space
    special spider spoon spring square stand station steam stone stop story strange street strong student sudden
    summer sunday supper surface swim system table tall taxi teacher temple tennis thirty thousand through thunder
    thursday ticket tiger tired title today together tomato tomorrow tower town travel treasure tree triangle
    trouble tuesday tunnel twelve twenty uncle under until up upper useful valley velvet very village violin visit
    visual voice wagon walk warm wash water weather wednesday week west whisper white whole wide wild wind window
    winner winter wise woman wonder wood word work world worry wow yellow yes yesterday young zebra"""
UNKNOWN_TRAINING = tuple(_UNKNOWN_TRAINING.split())
_UNKNOWN_TEST = """
    please button garage monday silver planet coffee camera hello thank sugar pencil doctor jungle market rocket
    sister basket flower turtle"""
UNKNOWN_TEST = tuple(_UNKNOWN_TEST.split())
"""No word sounds like a digit (won, too, for, ate)."""


@dataclass(frozen=True)
class Voice:
    """Who speaks.

    Args:
        name: as results name it.
        engine: ``espeak-ng`` or ``flite``.
        command: arguments of the synthesiser that choose the voice.
        test: whether it is for the test, and so for nothing else.
        number: chooses its unknown words, and is in the names of its files.
    """

    name: str
    engine: str
    command: tuple[str, ...]
    test: bool
    number: int = 0


def voices() -> Iterator[Voice]:
    """All voices that are used, each with a few rates, pitches or accents."""
    for number, voice in enumerate(_voices()):
        if voice.name not in LEFT_OUT:
            yield dataclasses.replace(voice, number=number)


def _voices() -> Iterator[Voice]:
    yield from _variants(TRAINING_VARIANTS, test=False)
    yield from _variants(TEST_VARIANTS, test=True)
    for name, test in (("kal16", False), ("awb", False), ("rms", False), ("slt", True)):
        shapes = ((1.0, 0), (1.25, 0)) if test else tuple((s, p) for s in (0.85, 1.05, 1.3) for p in (-15, 0, 20))
        for stretch, shift in shapes:
            mean = {"kal16": 95, "awb": 125, "rms": 100, "slt": 175}[name] + shift
            set_f0 = () if shift == 0 else ("--setf", f"int_f0_target_mean={mean}")
            command = ("-voice", name, "--setf", f"duration_stretch={stretch}", *set_f0)
            yield Voice(name, "flite", command, test)
    yield from _variants(EFFECT_VARIANTS, test=False)


def _variants(names: Sequence[str], *, test: bool) -> Iterator[Voice]:
    """Of espeak-ng, in a few accents each, at a rate and a pitch that are drawn."""
    for variant in names:
        named = variant.replace("-", " ")
        draw = np.random.default_rng(zlib.crc32(named.encode()))
        for accent in draw.choice(ACCENTS, 2 if test else 4, replace=False):
            rate, pitch = draw.integers(120, 190), draw.integers(30, 70)
            yield Voice(variant, "espeak-ng", ("-v", f"{accent}+{named}", "-s", f"{rate}", "-p", f"{pitch}"), test)


def install(folder: Path) -> Path:
    """Downloads and unpacks the synthesisers into `folder`, unless they are there; gives the root of their files."""
    root = folder / "root"
    if not root.exists():
        folder.mkdir(parents=True)
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, check=True)
        for package in sorted(folder.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, folder / "unpacked"], check=True)
        (folder / "unpacked").rename(root)
    return root


def spoken(root: Path, voice: Voice, words: Sequence[str], folder: Path) -> list[Sound]:
    """`words` as `voice` speaks them, each without silence before and behind it, at 16 kHz.

    espeak-ng speaks all in one go, each a sentence of its own, and they are cut where PAUSE_SAMPLES are silent.

    Raises:
        RuntimeError: these are not so many sounds as words, or one is no word by its length: a voice that is missing
            speaks nothing, and says nothing.
    """
    program, path = root / "usr" / "bin" / voice.engine, folder / "said.wav"
    if voice.engine == "espeak-ng":
        head: list[str | Path] = [program, f"--path={root / LIBRARIES}", *voice.command, "-g", "20", "-w", path]
        commands = [[*head, "\n\n".join(f"{word}." for word in words)]]
    else:
        commands = [[program, *voice.command, "-o", path, "-t", word] for word in words]
    sounds = []
    for command in commands:
        subprocess.run(command, env={"LD_LIBRARY_PATH": str(root / LIBRARIES)}, check=True, capture_output=True)
        sounds += pieces(read_wav(path))
    lengths_s = [round(len(sound) / SAMPLE_RATE_HZ, 2) for sound in sounds]
    if len(sounds) != len(words) or not all(0.1 < one < 1.5 for one in lengths_s):
        raise RuntimeError(f"{voice.name} ({' '.join(voice.command)}) speaks {len(words)} words in {lengths_s} s")
    return sounds


def pieces(sound: Sound) -> list[Sound]:
    """What lies between pauses, with the peak at one half."""
    loud = np.flatnonzero(np.abs(sound) > np.abs(sound).max(initial=0) / 50)
    starts = np.flatnonzero(np.diff(loud, prepend=-2 * PAUSE_SAMPLES) > PAUSE_SAMPLES)
    ends = [*loud[starts[1:] - 1], *loud[-1:]]
    margin = SAMPLE_RATE_HZ // 50
    found = [sound[max(0, first - margin) : last + margin] for first, last in zip(loud[starts], ends, strict=True)]
    return [one * np.float32(0.5 / np.abs(one).max()) for one in found]


def main() -> None:
    """The command line."""
    folder = Path(sys.argv[1])
    root = install(folder / "synthesisers")
    count = {"training": 0, "test": 0}
    for voice in voices():
        others = UNKNOWN_TEST if voice.test else UNKNOWN_TRAINING
        words = [*DIGITS, *np.random.default_rng(voice.number).choice(others, 6 if voice.test else 14, replace=False)]
        side = "test" if voice.test else "training"
        (folder / side).mkdir(exist_ok=True)
        try:
            sounds = spoken(root, voice, words, folder)
        except RuntimeError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        for word, sound in zip(words, sounds, strict=True):
            name = f"{voice.engine}_{voice.name}_{voice.number}_{word}.wav"
            with wave.open(str(folder / side / name), "wb") as file:
                file.setparams((1, 2, SAMPLE_RATE_HZ, 0, "NONE", ""))
                file.writeframes((sound * 32767).astype("<i2").tobytes())
        count[side] += len(words)
    print(count)


if __name__ == "__main__":
    main()
