"""Finding a C compiler, and making a library with it, also when compilers or disks misbehave."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from uma.errors import ToolchainError, UsageError
from uma.support.compiler_flags import native_flags, refused_file_names, refused_flags
from uma.support.machines import Machine
from uma.toolchain import discovery as toolchain
from uma.toolchain.compile import CompileUnit, compile_objects, compile_program, compile_shared
from uma.toolchain.discovery import Compiler, find_compiler, host_cpu_id
from uma.toolchain.elf import check_machine, code_bytes, segments
from uma.toolchain.subprocesses import run as run_tool

SH = shutil.which("sh")
SLEEP = shutil.which("sleep")
ADD = "int add(int a, int b) { return a + b; }\n"

VERSION = """case $1 in
--version) echo 'x (GCC) 12.2.0'; echo 'Free Software Foundation';;
*) echo TARGET;;
esac"""

Fake = Callable[[str, str], Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """``fake(name, script)`` puts a shell script on a PATH that has nothing else, and no CC."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)

    def write(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!{SH}\n{script}\n")
        path.chmod(0o755)
        return path

    return write


def real(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def as_compiler(path: Path) -> Compiler:
    return Compiler((str(path),), path.name, "gcc", "1", "none")


class TestFinding:
    @pytest.mark.parametrize("kind", ["gcc", "clang"])
    def test_by_name(self, kind: str) -> None:
        path = real(kind)
        compiler = find_compiler(kind)
        assert (compiler.command, compiler.name, compiler.kind) == ((path,), kind, kind)
        assert any(digit.isdigit() for digit in compiler.version)
        assert "-" in compiler.target

    def test_identity_tells_compilers_apart(self) -> None:
        real("gcc"), real("clang")
        assert find_compiler("gcc").identity == find_compiler("gcc").identity
        assert find_compiler("gcc").identity != find_compiler("clang").identity

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "-gcc",
            "/usr/bin/gcc",
            "../gcc",
            "gcc -v",
            "gcc;id",
            "gcc\n",
            "gcc-",
            "gcc-12/x",
            "clang++",
            "@x",
            "g\u0441c",
        ],
    )
    def test_unknown_name(self, name: str) -> None:
        with pytest.raises(UsageError, match="not a known name of a C compiler"):
            find_compiler(name)

    @pytest.mark.parametrize("name", ["cc", "gcc", "clang", "gcc-12", "clang-14", "gcc-4.8", "ziglang"])
    def test_known_name_that_is_not_installed(self, fake: Fake, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ziglang", None)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ToolchainError, match=f"'{name}' is not installed") as error:
            find_compiler(name)
        assert error.value.exit_code == 6
        assert "pip install ziglang" in str(error.value)

    def test_search_order(self, fake: Fake) -> None:
        gcc, clang = real_outside("gcc"), real_outside("clang")
        fake("clang", f'exec {clang} "$@"')
        assert find_compiler().name == "clang"
        fake("gcc", f'exec {gcc} "$@"')
        assert find_compiler().name == "gcc"
        fake("cc", f'exec {clang} "$@"')
        assert (find_compiler().name, find_compiler().kind) == ("cc", "clang")

    def test_search_passes_over_a_stub(self, fake: Fake) -> None:
        gcc = real_outside("gcc")
        fake("cc", "echo 'xcode-select: no developer tools were found'; exit 1")
        fake("gcc", f'exec {gcc} "$@"')
        assert find_compiler().name == "gcc"

    def test_nothing_found(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ToolchainError, match="no C compiler was found") as error:
            find_compiler()
        assert "hint: install gcc or clang" in str(error.value)

    def test_nothing_works(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        fake("cc", "exit 3")
        fake("gcc", "echo I am a teapot")
        with pytest.raises(ToolchainError, match=r"no C compiler works: .*'cc' fails .*exit status 3.*'I am a teapot'"):
            find_compiler()

    def test_replaced_compiler_is_asked_again(self, fake: Fake) -> None:
        gcc, clang = real_outside("gcc"), real_outside("clang")
        fake("cc", f'exec {gcc} "$@"')
        assert find_compiler("cc").kind == "gcc"
        fake("cc", f'exec {clang} "$@"')
        assert find_compiler("cc").kind == "clang"


def real_outside(name: str) -> str:
    """Where `name` is, whatever PATH says just now."""
    path = shutil.which(name, path=os.defpath + ":/usr/local/bin:/usr/bin")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


class TestEnvironment:
    def test_known_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real("clang")
        monkeypatch.setenv("CC", "clang")
        assert find_compiler().name == "clang"

    def test_absolute_path(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        path = fake("my compiler", f'exec {real_outside("gcc")} "$@"')
        monkeypatch.setenv("CC", str(path))
        compiler = find_compiler()
        assert (compiler.command, compiler.name, compiler.kind) == ((str(path),), "my compiler", "gcc")

    def test_a_name_from_the_target_comes_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real("gcc")
        monkeypatch.setenv("CC", "/nonexistent/cc")
        assert find_compiler("gcc").name == "gcc"

    @pytest.mark.parametrize("value", ["gcc -m32", "bin/gcc", "./gcc", "tcc"])
    def test_refused(self, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", value)
        with pytest.raises(UsageError, match="neither a known name") as error:
            find_compiler()
        assert "environment variable CC" in str(error.value)

    def test_path_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "/nonexistent/cc")
        with pytest.raises(ToolchainError, match="cannot start the C compiler 'cc': No such file"):
            find_compiler()

    def test_name_that_is_not_there(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "gcc-99")
        with pytest.raises(ToolchainError, match="'gcc-99' is not installed") as error:
            find_compiler()
        assert error.value.where == "environment variable CC"


ARM = Machine.parse("arm-none-eabi cortex-m4")
A64 = Machine.parse("aarch64-linux-gnu")


class TestOtherMachines:
    @pytest.mark.parametrize("name", [None, "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-gcc-12"])
    def test_its_own_gcc(self, fake: Fake, name: str | None) -> None:
        path = fake(name or "aarch64-linux-gnu-gcc", VERSION.replace("TARGET", "aarch64-unknown-linux-gnu"))
        compiler = find_compiler(name, A64)
        assert (compiler.command, compiler.target) == ((str(path),), "aarch64-unknown-linux-gnu")

    def test_the_environments_compiler_is_for_this_machine(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        fake("aarch64-linux-gnu-gcc", VERSION.replace("TARGET", "aarch64-linux-gnu"))
        monkeypatch.setenv("CC", "/nonexistent/cc")
        assert find_compiler(None, A64).name == "aarch64-linux-gnu-gcc"

    def test_clang_is_told(self) -> None:
        path = real("clang")
        compiler = find_compiler("clang", A64)
        assert compiler.command == (path, "--target=aarch64-linux-gnu")
        assert compiler.target.startswith("aarch64") and compiler.identity != find_compiler("clang").identity

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            (None, "install it: its package is often called gcc-aarch64-linux-gnu"),
            ("clang-3", "install it, or aarch64-linux-gnu-gcc, and give that as -cc"),
        ],
    )
    def test_missing(self, fake: Fake, name: str | None, hint: str) -> None:
        with pytest.raises(ToolchainError, match="for aarch64-linux-gnu is not installed") as error:
            find_compiler(name, A64)
        assert (error.value.hint, error.value.exit_code) == (hint, 6)

    def test_one_that_is_for_something_else(self, fake: Fake) -> None:
        fake("arm-none-eabi-gcc", VERSION.replace("TARGET", "x86_64-linux-gnu"))
        with pytest.raises(ToolchainError, match="'arm-none-eabi-gcc' compiles for x86_64-linux-gnu, not for arm-"):
            find_compiler(None, ARM)

    def test_objects(self) -> None:
        real("arm-none-eabi-gcc")
        part = CompileUnit(find_compiler(None, ARM), ["a.c", "b.c"], ["-mcpu=cortex-m4", "-mthumb", "-O1"])
        made = compile_objects([part], {"a.c": ADD, "b.c": ADD.replace("add", "plus")})
        assert list(made) == ["a.c.o", "b.c.o"]
        for name, one in made.items():
            check_machine(one.content, ARM, name)
            assert 0 < code_bytes(one.content) < 100
            with pytest.raises(ToolchainError, match="made an object for another machine: ELF machine 40 of 32 bits"):
                check_machine(one.content, A64, name)
        assert made == compile_objects([part], {"a.c": ADD, "b.c": ADD.replace("add", "plus")})

    def test_an_object_that_is_none(self) -> None:
        with pytest.raises(ToolchainError, match="made something else than an object: it is not an ELF file"):
            check_machine(b"!<arch>", ARM, "a.c.o")
        with pytest.raises(ToolchainError, match="cannot tell the size of the code in an object"):
            code_bytes(b"\x7fELF")
        with pytest.raises(ToolchainError, match="cannot tell how much memory a program takes"):
            segments(b"")

    def test_a_program(self, tmp_path: Path) -> None:
        files = {"a.c": ADD, "b.c": "int add(int a, int b);\nint main(void) { return add(40, 2); }\n"}
        program = compile_program([CompileUnit(find_compiler(), [*files], ["-O1"])], files, tmp_path / "program")
        assert subprocess.run([program], check=False).returncode == 42
        assert segments(program.read_bytes())

    def test_objects_where_nothing_can_be_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(**given: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("tempfile.TemporaryDirectory", full)
        with pytest.raises(ToolchainError, match="cannot write what the compiler needs or makes: No space left"):
            compile_objects([CompileUnit(find_compiler(), ["a.c"])], {"a.c": ADD})


class TestZiglang:
    def test_found_in_this_environment(self, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        clang = real_outside("clang")
        package = tmp_path / "site" / "ziglang"
        package.mkdir(parents=True)
        package.joinpath("__init__.py").touch()
        monkeypatch.syspath_prepend(str(package.parent))
        assert toolchain._locate("ziglang") is None  # a package without its binary
        zig = fake("zig", f'[ "$1" = cc ] || exit 9; shift; exec {clang} "$@"').rename(package / "zig")
        compiler = find_compiler()
        assert (compiler.name, compiler.kind) == ("ziglang", "clang")
        assert compiler.command[:2] == (str(zig), "cc")


class TestBrokenCompiler:
    def test_garbage(self, fake: Fake) -> None:
        fake("cc", r"printf '\377\376\000 hello\n'")
        with pytest.raises(ToolchainError, match="does not say that it is gcc or clang"):
            find_compiler("cc")

    def test_silence(self, fake: Fake) -> None:
        fake("cc", "exit 0")
        with pytest.raises(ToolchainError, match="but ''"):
            find_compiler("cc")

    def test_not_a_program(self, fake: Fake) -> None:
        fake("cc", "").write_bytes(b"\0not a program")
        with pytest.raises(ToolchainError, match="cannot start cc: Exec format error"):
            find_compiler("cc")

    def test_flood(self, fake: Fake) -> None:
        fake("cc", "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done")
        with pytest.raises(ToolchainError, match="printed more than 1048576 bytes"):
            find_compiler("cc")

    def test_hang_takes_its_children_with_it(self, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(toolchain, "_PROBE_TIMEOUT_S", 0.3)
        fake("cc", f"{SLEEP} 100 & echo $! > '{tmp_path}/child'; wait")
        start = time.monotonic()
        with pytest.raises(ToolchainError, match=r"cc did not finish within 0.3 s and was stopped"):
            find_compiler("cc")
        assert time.monotonic() - start < 90  # it does not wait for the child
        child = int((tmp_path / "child").read_text())
        for _ in range(100):  # until init has collected it
            state = Path(f"/proc/{child}/stat")
            if not state.exists() or state.read_text().split()[2] == "Z":
                return
            time.sleep(0.02)
        pytest.fail("the child of the compiler is still running")


class TestFlags:
    @pytest.mark.parametrize(
        "flag",
        [
            "-O3", "-Os", "-O", "-march=native", "-mcpu=cortex-m7+nofp", "-march=x86-64-v3", "-mtune=znver3",
            "-std=c99", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Werror", "-Wno-unused-parameter",
            "-Werror=shadow", "-Wframe-larger-than=1024", "-g", "-DNDEBUG", "-DUMA_X=1",
            "-mprefer-vector-width=512", "-pedantic", "-mthumb", "-marm", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard",
            "-mabi=ilp32", "-mcmodel=medany", "-misa-spec=2.2", "-mno-unaligned-access", "-mstrict-align",
            "-ffunction-sections", "-fdata-sections", "-march=rv32imac_zicsr", "-mabi=lp64d", "-Dinteger=1", "-Delf",
            "-D_FORTIFY_SOURCE=2", "-DARM_MATH_CM4", "-Dinit=1",
        ],
    )  # fmt: skip
    def test_allowed(self, flag: str) -> None:
        assert refused_flags([flag]) == []

    @pytest.mark.parametrize(
        "flag",
        [
            "", "-", "@file", "x.c", "-fplugin=x.so", "-fplugin-arg-x-y=z", "-B.", "-specs=x", "--specs=x", "-wrapper",
            "-Xclang", "-mllvm", "-load", "-Wl,-rpath,x", "-Wa,-al=x", "-Wp,-MD,x", "-o", "-ox", "-include", "-I/",
            "-L/", "-lm", "-x", "-E", "-save-temps", "-fdump-tree-all", "-fprofile-use=x", "-flto", "-Ofast",
            "-ffast-math", "-march=", "-march=-x", "-march=a b", "-march=a,b", "-march=$(id)", "-O3\n", "-O3 -B.",
            "-DX=\"y\"", "-DX=a b", "-D", "-fuse-ld=x", "-isystem", "-MD", "-MF", "-pipe", "-T", "-###", "--config",
            "-fsanitize=address", "--target=x", "-mfpu=", "-mfpu=@x", "-mfpu=../x", "-mfloat-abi=x",
            "-mabi=-x", "-mcmodel=a/b", "-misa-spec=x", "-mthumb=x", "-fstack-usage", "-fcallgraph-info",
            "-fprofile-generate", "-fprofile-dir=x", "-ftest-coverage", "-fopt-info-all=x",
            "-fpass-plugin=x.so", "-fuse-linker-plugin", "-fdebug-prefix-map=a=b", "-imacros", "-include-pch",
            "-idirafter.", "-iplugindir=x", "-sysroot=x", "--sysroot=x", "-isysroot", "-nostdinc", "-resource-dir=x",
            "-gsplit-dwarf", "-aux-info", "-dumpdir", "-dD", "-M", "-MMD", "-P", "-pass-exit-codes", "-rpath",
            "-shared", "-fsave-optimization-record", "-mfloat-abi=hard,x",
            "-static", "-u", "-z", "-Wl,@x", "-Wl,-T,x", "-Xassembler", "-Xlinker", "-Xpreprocessor", "-DX=(1)",
            "-DX=`id`", "-DX=\\", "-D__attribute__(x)=", "-mcpu=@x", "-mtune=a/b", "-Oz1", "-O 2", "-std=c99 -o x",
            "-g3=x", "-Winvalid pch", "-W", "-W=x",
            # What would break the build.
            "-fvisibility=hidden", "-fvisibility=default", "-mabi=ms", "-mabi=apcs-gnu", "-Dint=long", "-Dwhile",
            "-Dint32_t=int", "-DINT32_MAX=1", "-DNULL=0", "-Dmemcpy=move", "-Dsqrtf=x", "-Dmain=start", "-D__GNUC__=1",
            "-D_Bool=int", "-Duma_model=x", "-DUMA_OK=1",
        ],
    )  # fmt: skip
    def test_refused(self, flag: str) -> None:
        assert refused_flags(["-O2", flag]) == [flag]

    def test_native(self) -> None:
        assert native_flags(["-O3", "-march=native", "-mtune=native", "-mcpu=cortex-m0"]) == [
            "-march=native",
            "-mtune=native",
        ]

    def test_file_names(self) -> None:
        good = ["kws.c", "uma_math.h", "kws_weights.bin", "Makefile"]
        bad = [
            "",
            ".",
            "..",
            "../a.c",
            "/a.c",
            "a/b.c",
            "-o.c",
            ".hidden",
            "a b.c",
            "a\n",
            "a$.c",
            "é.c",
            "x" * 201,
            "A.c",
        ]
        assert refused_file_names([*good, "a.c", *bad]) == bad


class TestCompiling:
    @pytest.mark.parametrize("name", ["gcc", "clang"])
    def test_sources_header_and_binary(self, name: str, tmp_path: Path) -> None:
        real(name)
        files: dict[str, str | bytes] = {
            "a.c": '#include "b.h"\nint twice(int x) { return add(x, x); }\n',
            "b.h": "int add(int a, int b);\n",
            "b.c": '#include "b.h"\n' + ADD,
            "w.c": '__asm__(".data\\n.globl weight\\nweight: .incbin \\"w.bin\\"\\n.text");\n'
            "extern unsigned char weight;\nint get(void) { return *(&weight + 1); }\n",
            "w.bin": b"\x01\x2a",
            "unused.c": "this is not C",
        }
        output = tmp_path / "lib.so"
        assert (
            compile_shared([CompileUnit(find_compiler(name), ["a.c", "b.c", "w.c"], ["-O2", "-Wall"])], files, output)
            == output
        )
        library = ctypes.CDLL(str(output))
        assert (library.twice(21), library.get()) == (42, 42)
        assert os.listdir(tmp_path) == ["lib.so"]

    def test_error_names_source_and_line_and_keeps_the_old_library(self, tmp_path: Path) -> None:
        output = tmp_path / "lib.so"
        output.write_text("old")
        files = {"good.c": ADD, "bad.c": "int x;\nint y = undeclared;\n"}
        with pytest.raises(
            ToolchainError, match=r"could not compile bad.c \(exit status 1\)\n\s+bad.c:2:9: error"
        ) as error:
            compile_shared([CompileUnit(find_compiler(), ["good.c", "bad.c"], ["-O1"])], files, output)
        assert "-O1 -fPIC -c bad.c" in str(error.value)
        assert os.listdir(tmp_path) == ["lib.so"]
        assert output.read_text() == "old"

    def test_long_messages_are_cut(self, tmp_path: Path) -> None:
        text = "".join(f"int a{i} = undeclared{i};\n" for i in range(100))
        with pytest.raises(ToolchainError, match=r"\.\.\. \d+ more lines") as error:
            compile_shared([CompileUnit(find_compiler(), ["x.c"])], {"x.c": text}, tmp_path / "lib.so")
        assert len(str(error.value).splitlines()) < 20

    def test_link_error(self, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match=r"could not link the library.*\n.*add"):
            compile_shared(
                [CompileUnit(find_compiler(), ["a.c", "b.c"])], {"a.c": ADD, "b.c": ADD}, tmp_path / "lib.so"
            )
        assert os.listdir(tmp_path) == []

    def test_missing_c_library(self, fake: Fake, tmp_path: Path) -> None:
        path = fake("cc", "echo 'x.c:1:10: fatal error: stdint.h: No such file or directory'; exit 1")
        with pytest.raises(ToolchainError) as error:
            compile_shared([CompileUnit(as_compiler(path), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so")
        assert error.value.hint is not None
        assert "libc6-dev" in error.value.hint

    @pytest.mark.parametrize(
        ("message", "near"),
        [
            ("cc1: error: bad value 'haswel' for '-march=' switch\ncc1: note: valid arguments to '-march=' switch are: "
             "core2 haswell; did you mean 'haswell'?", "haswell"),
            ("error: unknown target CPU 'haswel'\nnote: valid target CPU values are: core2, haswell", "haswell"),
            ("gcc: error: unrecognized -mcpu target: haswel\ngcc: note: valid arguments are: arm8 haswell", "haswell"),
            ("cc1: error: unknown value 'haswel' for '-mcpu'\ncc1: note: valid arguments are: cortex-a34", ""),
            ("cc1: error: '-mcpu=haswel': unknown CPU\ncc1: error: unknown cpu 'haswel' for '-mtune'", ""),
            ("clang: error: the clang compiler does not support '-mcpu=haswel'", ""),
        ],
    )  # fmt: skip
    def test_unknown_cpu(self, fake: Fake, tmp_path: Path, message: str, near: str) -> None:
        (tmp_path / "message").write_text(message)
        path = fake("cc", f'while read line; do echo "$line"; done < {tmp_path}/message; echo "$line"; exit 1')
        with pytest.raises(ToolchainError) as error:
            compile_shared([CompileUnit(as_compiler(path), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so")
        assert error.value.what == "cc does not know the CPU 'haswel'"
        suggestion = f"did you mean '{near}'? " if near else ""
        assert error.value.hint == f"{suggestion}-mcpu takes native, or a CPU that this compiler knows"

    def test_disk_full_for_the_compiler(self, fake: Fake, tmp_path: Path) -> None:
        path = fake("cc", "echo 'x.o: write failed: No space left on device'; exit 1")
        with pytest.raises(ToolchainError, match="hint: the disk is full"):
            raise_as_text(
                lambda: compile_shared([CompileUnit(as_compiler(path), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so")
            )

    def test_killed_compiler(self, fake: Fake, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match=r"could not compile x.c \(killed by signal 9\)"):
            compile_shared(
                [CompileUnit(as_compiler(fake("cc", "kill -9 $$")), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so"
            )

    def test_hanging_compiler(self, fake: Fake, tmp_path: Path) -> None:
        path = fake("cc", f"{SLEEP} 100")
        with pytest.raises(ToolchainError, match=r"did not finish within 0.2 s"):
            compile_shared([CompileUnit(as_compiler(path), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so", timeout_s=0.2)
        assert os.listdir(tmp_path) == ["bin"]

    def test_temporary_files_of_a_compiler_that_is_stopped(
        self, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "tmp").mkdir()
        monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
        path = fake("cc", f"echo > $TMPDIR/cc.s; {SLEEP} 100")
        with pytest.raises(ToolchainError, match=r"did not finish within 0.2 s"):
            compile_shared([CompileUnit(as_compiler(path), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so", timeout_s=0.2)
        assert sorted(os.listdir(tmp_path)) == ["bin", "tmp"] and not os.listdir(tmp_path / "tmp")

    def test_vanished_compiler(self, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match="cannot start gone: No such file"):
            compile_shared([CompileUnit(as_compiler(tmp_path / "gone"), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so")

    @pytest.mark.parametrize("script", ["exit 0", f"{shutil.which('mkdir')} x.c.o", f"{shutil.which('mkfifo')} x.c.o"])
    def test_compiler_that_makes_no_file(self, fake: Fake, tmp_path: Path, script: str) -> None:
        with pytest.raises(ToolchainError, match=r"^cc made no file when it was to compile x\.c"):
            compile_shared([CompileUnit(as_compiler(fake("cc", script)), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so")

    def test_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match="cannot write what the compiler needs or makes") as error:
            compile_shared([CompileUnit(find_compiler(), ["x.c"])], {"x.c": ADD}, tmp_path / "no" / "lib.so")
        assert error.value.where == str(tmp_path / "no")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
        with pytest.raises(ToolchainError, match="Permission denied"):
            compile_shared([CompileUnit(find_compiler(), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so")

    def test_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(self: Path, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(ToolchainError, match="No space left on device"):
            compile_shared([CompileUnit(find_compiler(), ["x.c"])], {"x.c": ADD}, tmp_path / "lib.so")
        assert os.listdir(tmp_path) == []

    def test_refusals(self, tmp_path: Path) -> None:
        compiler, output = find_compiler(), tmp_path / "lib.so"
        with pytest.raises(UsageError, match="'-fplugin=x' is not allowed"):
            compile_shared([CompileUnit(compiler, ["x.c"], ["-fplugin=x"])], {"x.c": ADD}, output)
        with pytest.raises(UsageError, match=r"'\.\./x\.c' is not an allowed name"):
            compile_shared([CompileUnit(compiler, ["../x.c"])], {"../x.c": ADD}, output)
        with pytest.raises(UsageError, match=r"'y\.c' is not among the files"):
            compile_shared([CompileUnit(compiler, ["y.c"])], {"x.c": ADD}, output)
        with pytest.raises(UsageError, match="no source"):
            compile_shared([CompileUnit(compiler, [])], {"x.c": ADD}, output)
        assert os.listdir(tmp_path) == []


def raise_as_text(action: Callable[[], object]) -> None:
    """Run `action`; the message of what it raises includes where and hint."""
    try:
        action()
    except ToolchainError as error:
        raise ToolchainError(str(error)) from error


class TestCpu:
    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        host_cpu_id.cache_clear()

    def identify(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
        path = tmp_path / "cpuinfo"
        path.write_text(text)
        monkeypatch.setattr(toolchain, "_CPUINFO", path)
        host_cpu_id.cache_clear()
        return host_cpu_id()

    def test_depends_on_model_and_features_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        core = "processor\t: 0\nmodel name\t: A\ncpu MHz\t: 1000\nflags\t: fpu avx2\n\n"
        one = self.identify(tmp_path, monkeypatch, core)
        assert self.identify(tmp_path, monkeypatch, core + core.replace("1000", "2000")) == one
        assert self.identify(tmp_path, monkeypatch, core.replace("avx2", "avx512f")) != one
        assert self.identify(tmp_path, monkeypatch, core + core.replace(": A", ": B")) != one
        host_cpu_id.cache_clear()

    def test_without_proc(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(toolchain, "_CPUINFO", tmp_path / "none")
        assert len(host_cpu_id()) == 64
        host_cpu_id.cache_clear()


def test_no_thread_is_left_when_a_tool_has_ended(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    for _ in range(20):
        assert run_tool([sys.executable, "-S", "-c", ""], cwd=tmp_path, timeout_s=60) == (0, "")
        assert set(threading.enumerate()) == before
