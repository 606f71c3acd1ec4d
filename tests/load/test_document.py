"""YAML text → values with line numbers; what is not a plain document is refused in one line a fault."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import ScenarioError
from simkv.load.document import dotted, parse_document, parse_scalar, read_document


def faults_in(text: str) -> tuple[str, ...]:
    """The faults of a text, none if it can be read."""
    try:
        parse_document(text, "x.yaml")
    except ScenarioError as error:
        return error.faults
    return ()


# Laws

VALUES = st.recursive(
    st.integers(-(10**38), 10**38) | st.booleans() | st.none() | st.text("abc xyz_<{#:", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.<", min_size=1), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.text("abcdefgh", min_size=1), VALUES, min_size=1))
def test_json_is_read_as_it_is_and_every_key_knows_its_line(mapping: dict[str, object]) -> None:
    text = json.dumps(mapping, indent=1)
    document = parse_document(text, "x.yaml")
    assert document.value == mapping
    for path, number in document.lines.items():
        if path and isinstance(path[-1], str):
            assert f'"{path[-1]}": ' in text.splitlines()[number - 1]


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_whole_lines(text: str) -> None:
    assert all(fault.startswith("x.yaml") and fault.isprintable() for fault in faults_in(text))


@given(st.binary(max_size=60))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(raw)
    with contextlib.suppress(ScenarioError):
        read_document(path)


# Scalars are those of YAML 1.2's core schema


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8192", 8192), ("-3", -3), ("+3", 3), ("131_072", 131072), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0),
        ("1e9", 1e9), ("1E-3", 1e-3), ("no", "no"), ("on", "on"), ("yes", "yes"), ("0x10", "0x10"),
        ("1:30", "1:30"), ("2024-01-01", "2024-01-01"), ("8k", "8k"), ("", None), ("~", None), ("null", None),
        ("true", True), ("FALSE", False), (".inf", math.inf), ("-.inf", -math.inf), ("inf", "inf"), ("_1", "_1"),
        ("9" * 40, int("9" * 40)), ("1" * 41, float("1" * 41)), ("1" * 401, "1" * 401), ("1e999", math.inf),
        ("0.1000000000000000055511151231257827021181583404541015625", 0.1),
    ],
)  # fmt: skip
def test_plain_scalars(text: str, value: object) -> None:
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(parse_scalar(".nan"))


def test_quoted_scalars_are_text() -> None:
    assert parse_document("a: '8'\nb: \"true\"\nc: |\n  5\n", "x").value == {
        "a": "8",
        "b": "true",
        "c": "5\n",
    }


# What YAML allows and a scenario may use


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &n 3\nb: *n\n", {"a": 3, "b": 3}),
        ("a: &m {x: 1}\nb: *m\n", {"a": {"x": 1}, "b": {"x": 1}}),
        ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
        ("a: 1 # why\n# more\n", {"a": 1}),
        ("\ufeffa: 1\n", {"a": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("1: x\nnull: y\n", {"1": "x", "null": "y"}),
        ("'<<': 1\n", {"<<": 1}),
        ("- 1\n- b\n", [1, "b"]),
        ("null\n", None),
    ],
)
def test_allowed(text: str, value: object) -> None:
    assert parse_document(text, "x.yaml").value == value


def test_lines_of_paths() -> None:
    document = parse_document("a:\n  b: 1\n  c:\n  - 5\n  - 6\n", "x.yaml")
    assert document.where(("a", "b")) == "x.yaml:2"
    assert document.where(("a", "c", 1)) == "x.yaml:5"
    assert document.where(("a", "nothing", "here")) == "x.yaml:1"
    assert document.where(("nothing",)) == "x.yaml:1"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("engine", "block_size"), "engine.block_size"),
        (("partition", 0), "partition.0"),
        (("engine.block_size",), "'engine.block_size'"),
        (("",), "''"),
        (("a\nb", "c d"), r"'a\nb'.'c d'"),
        (("\u202emodel",), r"'\u202emodel'"),
        ((), ""),
    ],
)
def test_dotted_paths_cannot_be_misread(path: tuple[str | int, ...], text: str) -> None:
    assert dotted(path) == text


# Every refusal, word by word

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "x.yaml: the file is empty"),
        ("\n  \n", "x.yaml: the file is empty"),
        ("# only a comment\n", "x.yaml: the file is empty"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3: a: duplicate key, first on line 1; remove one"),
        ("p: {t: 2, t: 4}\n", "x.yaml:1: p.t: duplicate key, first on line 1; remove one"),
        ("a: 1\n'a': 2\n", "x.yaml:2: a: duplicate key, first on line 1; remove one"),
        ("a: 1\n? [b, c]\n: 3\n", "x.yaml:2: wanted a name as key, got a collection"),
        ("a:\n  {b: c}: 3\n", "x.yaml:2: a: wanted a name as key, got a collection"),
        ("x: &x {s: 1}\nb:\n  <<: *x\n", "x.yaml:3: b.<<: merge keys are not allowed; write the fields out"),
        ("s: !foo 0\n", "x.yaml:1: s: tags are not allowed, got !foo"),
        ("a: 1\n!foo s: 0\n", "x.yaml:2: s: tags are not allowed, got !foo"),
        ("a: 1\ns: !!set {a}\n", "x.yaml:2: s: tags are not allowed, got !!set"),
        ("s: !!binary YQ==\n", "x.yaml:1: s: tags are not allowed, got !!binary"),
        ("a:\n- !!python/tuple [1]\n", "x.yaml:2: a.0: tags are not allowed, got !!python/tuple"),
        (
            "m: !!python/object/apply:os.system ['true']\n",
            "x.yaml:1: m: tags are not allowed, got !!python/object/apply:os.system",
        ),
        ("!!python/name:os.system a: 1\n", "x.yaml:1: a: tags are not allowed, got !!python/name:os.system"),
        ("a: 1\nm: b\0c\n", "x.yaml:2: wanted text, got the control character '\\x00'"),
        ("a: \ud800\n", "x.yaml:1: wanted text, got the control character '\\ud800'"),
        ("w:\n\ta: 1\n", "x.yaml:2: not YAML: a tab; indent with spaces"),
        ("w:\n  a: 1\n\tb: 2\n", "x.yaml:3: not YAML: a tab; indent with spaces"),
        ("a: `b`\n", "x.yaml:1: not YAML: a value cannot begin with '`'; put it in quotes"),
        ("a: 1\n@b: 1\n", "x.yaml:2: not YAML: a value cannot begin with '@'; put it in quotes"),
        ("a: 1\n---\na: 2\n", "x.yaml:2: not YAML: wanted one document, got another"),
        (LAUGHS, "x.yaml:1: wanted at most 100,000 values, aliases unfolded, got more"),
        (
            "a: [" + "1, " * 100_001 + "]\n",
            "x.yaml:1: wanted at most 100,000 values, aliases unfolded, got more",
        ),
        (
            "a: &a [*a]\n",
            "x.yaml:1: wanted at most 40 levels of nesting, got more (or an alias inside itself)",
        ),
        (
            "a: &a {b: *a}\n",
            "x.yaml:1: wanted at most 40 levels of nesting, got more (or an alias inside itself)",
        ),
        (
            "a: " + "[" * 45 + "]" * 45,
            "x.yaml:1: wanted at most 40 levels of nesting, got more (or an alias inside itself)",
        ),
    ],
)
def test_refused(text: str, fault: str) -> None:
    assert faults_in(text) == (fault,)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: *b\n", 1),
        ("a: 1\nb: {c: 1\n", 3),
        ("a: 'b\n", 2),
        ("a: 1: 2\n", 1),
        ("w:\n  a: 1\nb: 1\n  c: 2\n", 4),
        ("%YAML 3.0\n---\na: 1\n", 1),
        ("a: " + "[" * 100_000 + "]" * 100_000, 1),
        ('a: "\\ud800"\n', 1),
        ("&a a: &a a: 1\n", 1),
    ],
)
def test_what_the_parser_refuses_has_its_line(text: str, line: int) -> None:
    [fault] = faults_in(text)
    assert fault.startswith(f"x.yaml:{line}: not YAML: ")


def test_all_structural_faults_at_once() -> None:
    assert faults_in("a: !x 1\nb: 2\nb: 3\n<<: {}\n") == (
        "x.yaml:1: a: tags are not allowed, got !x",
        "x.yaml:3: b: duplicate key, first on line 2; remove one",
        "x.yaml:4: <<: merge keys are not allowed; write the fields out",
    )


# Files


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "{}: the file is empty"),
        (bytes(range(128, 256)), "{}: wanted text in UTF-8, got byte 0x80 at offset 0"),
        ("model: café\n".encode("latin-1"), "{}: wanted text in UTF-8, got byte 0xe9 at offset 10"),
        ("a: 1\n".encode("utf-16"), "{}: wanted text in UTF-8, got UTF-16 or UTF-32; save the file as UTF-8"),
        (
            b"\xfe\xff" + "a: 1\n".encode("utf-16-be"),
            "{}: wanted text in UTF-8, got UTF-16 or UTF-32; save the file as UTF-8",
        ),
        ("a: 1\n".encode("utf-16-le"), "{}:1: wanted text, got the control character '\\x00'"),
        (b"a: 1\n" * 300_000, "{}: wanted a file of at most 1,048,576 bytes, got more"),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, raw: bytes, fault: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(raw)
    with pytest.raises(ScenarioError) as caught:
        read_document(path)
    assert caught.value.faults == (fault.format(path),)


def test_a_file_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScenarioError, match=r"x\.yaml: no such file$"):
        read_document(tmp_path / "x.yaml")
    with pytest.raises(ScenarioError, match=r": wanted a file, got a folder$"):
        read_document(tmp_path)
    with pytest.raises(ScenarioError, match=r": cannot be read: File name too long$"):
        read_document(tmp_path / ("x" * 5000))
    with pytest.raises(ScenarioError, match=r"a\\x00b': cannot be read: embedded null byte$"):
        read_document(Path("a\0b"))

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ScenarioError, match=r"x\.yaml: cannot be read: Permission denied$"):
        read_document(tmp_path / "x.yaml")
