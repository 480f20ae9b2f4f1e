"""`Artifact.save` and `load` of a ``.zip``: the same bytes each time, replaced whole, read as hostile data."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests._support.scale_artifact import FILES, artifact_of, changed

from uma.artifact import Artifact, archive, load
from uma.errors import ModelError, UsageError

Change = Callable[[dict[str, bytes]], object]


@pytest.fixture
def zipped(artifact: Artifact, tmp_path: Path) -> Path:
    return artifact.save(tmp_path / "scale.zip")


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as there:
        return {name: there.read(name) for name in there.namelist()}


def packed(content: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as there:
        for name, data in content.items():
            there.writestr(name, data)
    return made.getvalue()


def test_it_is_the_artifact(artifact: Artifact, zipped: Path, tmp_path: Path) -> None:
    again = load(zipped)
    assert (again.record, dict(again.files)) == (artifact.record, dict(artifact.files))
    folder = artifact.save(tmp_path / "scale")
    assert members(zipped) == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert load(str(zipped)).metadata == again.metadata


def test_the_same_bytes_each_time(artifact: Artifact, zipped: Path, tmp_path: Path) -> None:
    assert load(zipped).save(tmp_path / "deep" / "er" / "again.ZIP").read_bytes() == zipped.read_bytes()
    with zipfile.ZipFile(zipped) as there:
        infos = there.infolist()
    assert [info.filename for info in infos] == sorted(info.filename for info in infos)
    assert {(info.date_time, info.compress_type, info.external_attr) for info in infos} == {
        ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED, 0o644 << 16)
    }


def test_objects_are_in_it_and_not_read(artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Artifact, "objects", lambda self: {"c/scale.c.o": b"machine code"})
    path = artifact.save(tmp_path / "scale.zip", objects=True)
    assert members(path)["objects/c/scale.c.o"] == b"machine code"
    assert list(json.loads(members(path)["objects/digests.json"])) == ["c/scale.c.o"]
    assert "objects/c/scale.c.o" not in load(path).files


def test_another_tool_may_compress_it(artifact: Artifact, zipped: Path) -> None:
    zipped.write_bytes(packed({**members(zipped), "__MACOSX/x": b"of some tool"}, zipfile.ZIP_DEFLATED))
    assert load(zipped).record == artifact.record


class TestReplacing:
    def test_an_artifact_is_replaced(self, zipped: Path, tmp_path: Path) -> None:
        other = artifact_of(FILES, changed("notes", ["another"]))
        assert other.save(zipped) == zipped
        assert load(zipped).record.notes == ("another",)
        assert list(tmp_path.iterdir()) == [zipped]

    @pytest.mark.parametrize(
        ("content", "why"),
        [(b"mine", "damaged: File is not a zip file"), (packed({"a": b""}), "holds no artifact")],
        # (An archive has the time in it.)
        ids=["text", "another archive"],
    )
    def test_nothing_else_is(self, content: bytes, why: str, artifact: Artifact, tmp_path: Path) -> None:
        (tmp_path / "mine.zip").write_bytes(content)
        with pytest.raises(UsageError, match=f"not an artifact that may be replaced: the archive .*{why}"):
            artifact.save(tmp_path / "mine.zip")
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]

    def test_a_folder_is_not(self, artifact: Artifact, tmp_path: Path) -> None:
        artifact.save(tmp_path / "scale").rename(tmp_path / "scale.zip")
        with pytest.raises(UsageError, match="not an artifact that may be replaced: it is not a file"):
            artifact.save(tmp_path / "scale.zip")

    def test_what_cannot_be_written_leaves_nothing(self, artifact: Artifact, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match="cannot write the artifact: Not a directory"):
            artifact.save(tmp_path / "file" / "deep" / "scale.zip")
        with pytest.raises(UsageError, match="cannot write the artifact: there is a null character"):
            artifact.save("a\0.zip")
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


def outside(name: str) -> Change:
    return lambda there: there.update({name: b"evil"})


def of_size(there: dict[str, bytes]) -> None:
    there["main.c"] += b" "


class TestHostile:
    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (outside("../evil"), r"damaged: it has '\.\./evil', which would be outside of its folder"),
            (outside("a/../../evil"), "would be outside"),
            (outside("/etc/evil"), "would be outside"),
            (outside("..\\evil"), "would be outside"),
            (outside("C:evil"), "would be outside"),
            (outside(".."), "would be outside"),
            (lambda there: there.pop("main.c"), "damaged: it lacks 'main.c'"),
            (of_size, "damaged: 'main.c' has .* bytes, expected"),
            (lambda there: there.update({"main.c": there["main.c"].replace(b"1", b"2")}), "changed or damaged"),
            (lambda there: there.update({"metadata.json": b"{}"}), "the artifact is not sound"),
            (lambda there: there.update({"metadata.json": b"{"}), "the metadata is not JSON"),
            (lambda there: there.update({"metadata.json": b'{"schema_version": 99}'}), "made by a newer version"),
        ],
    )
    def test_what_is_in_it(self, change: Change, why: str, zipped: Path, tmp_path: Path) -> None:
        there = members(zipped)
        change(there)
        zipped.write_bytes(packed(there))
        with pytest.raises(ModelError, match=why) as error:
            load(zipped)
        assert error.value.where is not None and error.value.where.startswith(str(zipped))
        assert list(tmp_path.iterdir()) == [zipped]

    def test_one_name_twice(self, zipped: Path) -> None:
        with zipfile.ZipFile(zipped, "a") as there, pytest.warns(UserWarning, match="Duplicate name"):
            there.writestr("main.c", "int main;")
        with pytest.raises(ModelError, match=r"it has 'main\.c' twice"):
            load(zipped)

    def test_no_artifact(self, tmp_path: Path) -> None:
        path = tmp_path / "x.zip"
        path.write_bytes(packed({"a": b"b"}))
        with pytest.raises(UsageError, match="the archive holds no artifact"):
            load(path)
        path.write_bytes(packed({}))
        with pytest.raises(UsageError, match="there is no artifact at"):
            load(path)

    def test_bytes_that_are_missing_or_changed(self, zipped: Path) -> None:
        whole = zipped.read_bytes()
        for end in range(4, len(whole), len(whole) // 20):
            zipped.write_bytes(whole[:end])
            with pytest.raises(ModelError, match="the archive is damaged"):
                load(zipped)
        for place in range(4, len(whole), len(whole) // 60):
            zipped.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
            try:
                load(zipped)  # a date, for example, means nothing
            except (ModelError, UsageError):
                pass

    def test_it_is_too_large(self, zipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        there = members(zipped)
        zipped.write_bytes(packed(there, zipfile.ZIP_DEFLATED))
        monkeypatch.setattr(archive, "_MAX_UNPACKED_BYTES", 0)
        with pytest.raises(ModelError, match="its files would fill more than 0 MiB, unpacked"):
            load(zipped)
        monkeypatch.setattr(archive, "MAX_METADATA_BYTES", 10)
        with pytest.raises(ModelError, match=r"metadata\.json has more than 10 bytes"):
            load(zipped)

    def test_it_is_compressed_or_encrypted_otherwise(self, zipped: Path) -> None:
        there = members(zipped)
        zipped.write_bytes(packed(there, zipfile.ZIP_BZIP2))
        with pytest.raises(ModelError, match="is compressed in a way that is not read"):
            load(zipped)
        plain = bytearray(packed({name: there[name] for name in ["metadata.json", *there]}))
        central = plain.index(b"PK\x01\x02")
        struct.pack_into("<H", plain, central + 8, 1)
        zipped.write_bytes(plain)
        with pytest.raises(ModelError, match=r"the archive is damaged: .*encrypted"):
            load(zipped)

    def test_it_cannot_be_read(self, zipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("uma.artifact.artifact.is_archive", lambda path: True)
        monkeypatch.setattr(archive, "open_plain", refuse)
        with pytest.raises(UsageError, match="the artifact cannot be read: Permission denied"):
            load(zipped)
