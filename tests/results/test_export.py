import json
import os
import shutil

import pytest
from logs import LEDGER, SCENARIO, small_log

from simkv.errors import ResultsError
from simkv.results.export import check_target, read_folder
from simkv.results.results import Results

FILES = ["bubbles.parquet", "format.json", "itls.parquet", "ledger.json", "requests.parquet", "scenario.yaml",
         "stages.parquet", "steps.parquet", "summary.json", "waits.parquet"]  # fmt: skip


@pytest.fixture
def results():
    return Results(small_log(), SCENARIO, LEDGER)


@pytest.fixture
def folder(results, tmp_path):
    return results.save(tmp_path / "run")


def fault(call, *arguments, **options):
    with pytest.raises(ResultsError) as caught:
        call(*arguments, **options)
    (line,) = caught.value.faults
    assert "\n" not in line
    return line


def test_saving_twice_gives_the_same_bytes(results, folder, tmp_path):
    again = Results(small_log(), SCENARIO, LEDGER).save(tmp_path / "again")
    assert sorted(path.name for path in folder.iterdir()) == FILES
    for name in FILES:
        assert (folder / name).read_bytes() == (again / name).read_bytes()


def test_a_loaded_run_saved_again_gives_the_same_bytes(folder, tmp_path):
    again = Results.load(folder).save(tmp_path / "again")
    for name in FILES:
        assert (folder / name).read_bytes() == (again / name).read_bytes()


def test_without_a_ledger_there_is_no_such_file(tmp_path):
    folder = Results(small_log(), SCENARIO).save(tmp_path / "run")
    assert not (folder / "ledger.json").exists()
    assert Results.load(folder).ledger is None


def test_missing_parents_are_made(results, tmp_path):
    assert results.save(tmp_path / "a" / "b" / "run").is_dir()


def test_an_existing_folder_is_kept(results, folder):
    assert fault(results.save, folder) == (
        f"{folder}: wanted a folder that does not exist yet, got one that does; "
        "use --force to replace it or another -o"
    )


def test_a_result_folder_is_replaced_when_asked(results, folder):
    (folder / "old.txt").write_text("old")
    results.save(folder, overwrite=True)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert os.listdir(folder.parent) == ["run"]


def test_another_folder_is_never_replaced(results, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    assert fault(results.save, tmp_path, overwrite=True) == (
        f"{tmp_path}: wanted a simkv result folder to replace, got something else; "
        "remove it yourself or use another -o"
    )
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_parent_that_cannot_be_written(results, tmp_path):
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "run"
    assert fault(results.save, target) == (
        f"{target}: wanted a folder that can be written, got: Not a directory; use another -o"
    )


def test_a_parent_without_permission(results, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    assert fault(check_target, tmp_path / "a" / "run") == (
        f"{tmp_path}/a/run: wanted a folder that can be written, got: Permission denied; use another -o"
    )


def test_nothing_half_written_is_left(results, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("simkv.results.export._write_json", full)
    assert fault(results.save, tmp_path / "run").endswith("got: No space left on device; use another -o")
    assert list(tmp_path.iterdir()) == []


def test_the_old_folder_comes_back_if_the_new_one_cannot_be_moved(results, folder, monkeypatch):
    from pathlib import Path

    rename = Path.rename

    def refuse_the_second(path, target):
        if path.name.startswith(".") and not path.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse_the_second)
    fault(results.save, folder, overwrite=True)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert os.listdir(folder.parent) == ["run"]


def test_a_missing_folder(tmp_path):
    path = tmp_path / "nowhere"
    assert fault(read_folder, path) == (
        f"{path}: wanted a simkv result folder, got nothing there; give the -o of a `simkv run`"
    )


def test_a_file_instead_of_a_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    assert fault(read_folder, path) == (
        f"{path}: wanted a simkv result folder, got a file; give the -o of a `simkv run`"
    )


def test_some_other_folder(tmp_path):
    assert fault(read_folder, tmp_path) == (
        f"{tmp_path}/format.json: wanted a simkv result folder, got one without this file; "
        "give the -o of a `simkv run`"
    )


def test_another_version(folder):
    path = folder / "format.json"
    path.write_text(json.dumps({"simkv_results": 9, "simkv_version": "9.0"}))
    assert fault(read_folder, folder) == (
        f"{path}: wanted simkv_results 2, got 9, written by simkv 9.0; "
        "use that version or run the scenario again"
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("requests.parquet", "a Parquet table"),
        ("itls.parquet", "a Parquet table"),
        ("summary.json", "a JSON object"),
        ("scenario.yaml", "a YAML mapping"),
    ],
)
def test_a_missing_file(folder, name, wanted):
    (folder / name).unlink()
    assert fault(read_folder, folder) == (
        f"{folder / name}: wanted {wanted}, got no such file; run the scenario again"
    )


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_a_truncated_table(folder, kept):
    path = folder / "steps.parquet"
    path.write_bytes(path.read_bytes()[:kept])
    assert fault(read_folder, folder) == (
        f"{path}: wanted a Parquet table, got a truncated or damaged file; run the scenario again"
    )


def test_a_table_without_a_column(folder):
    shutil.copy(folder / "itls.parquet", folder / "stages.parquet")
    assert fault(read_folder, folder) == (
        f"{folder}/stages.parquet: wanted a table with the column stage, got one without it; "
        "run the scenario again"
    )


@pytest.mark.parametrize(
    ("name", "content", "got"),
    [
        ("summary.json", b'{\n"duration": ', "a file that cannot be parsed (line 2)"),
        ("summary.json", b"[]", "a list"),
        ("format.json", b"\xff\xfe", "a file that cannot be parsed"),
        ("scenario.yaml", b"{", "a file that cannot be parsed"),
        ("scenario.yaml", b"", "a NoneType"),
    ],
)
def test_a_bad_text_file(folder, name, content, got):
    (folder / name).write_bytes(content)
    wanted = "a YAML mapping" if name.endswith("yaml") else "a JSON object"
    assert (
        fault(read_folder, folder) == f"{folder / name}: wanted {wanted}, got {got}; run the scenario again"
    )
