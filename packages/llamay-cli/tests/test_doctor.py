"""`doctor` sees what is wrong, says what to do, and ends with 1 only where something cannot work."""

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamay_cli.store import File, Manifest, Store
from llamay_cli.verbs import doctor

Llamay = Callable[..., Any]


def look(llamay: Llamay) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    result = llamay("doctor", "--fast", "--json")
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(result.stdout)["findings"]:
        found.setdefault(finding["about"], []).append(finding)
    return result.exit_code, found


def test_cl01_on_a_machine_where_all_is_well_every_look_finds_something_and_nothing_fails(
    llamay: Llamay,
) -> None:
    result = llamay("doctor")

    assert result.exit_code == 0, result.output
    assert {line.split()[1] for line in result.stdout.splitlines() if line[:1] != " "} == {
        "packages", "processor", "memory", "store", "settings", "server", "limits",
    }  # fmt: skip
    assert "fail" not in result.stdout


def test_packages_that_do_not_belong_together_are_named(
    llamay: Llamay, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = importlib.metadata.version

    def mixed(name: str) -> str:
        if name == "llamay-kv":
            raise importlib.metadata.PackageNotFoundError(name)
        return "9.9" if name == "llamay-models" else version(name)

    monkeypatch.setattr(importlib.metadata, "version", mixed)
    code, found = look(llamay)

    assert code == 1
    assert [each["state"] for each in found["packages"]] == ["fail", "fail"]
    assert "llamay-kv not installed" in found["packages"][0]["text"]
    assert "llamay-models 9.9" in found["packages"][1]["text"]


def test_a_slower_kernel_set_than_the_machine_has_is_a_warning(
    llamay: Llamay, monkeypatch: pytest.MonkeyPatch
) -> None:
    import llamay_kernels

    monkeypatch.setattr(llamay_kernels, "runnable_isas", lambda: ["fast", llamay_kernels.isa()])
    code, found = look(llamay)

    assert code == 0
    assert found["processor"][0]["state"] == "warn"
    assert "fast" in found["processor"][0]["hint"]


def test_a_damaged_manifest_and_a_missing_file_are_named(llamay: Llamay, store: Store) -> None:
    store.manifests.mkdir(parents=True)
    (store.manifests / "broken.json").write_text("{}")
    digest = "sha256-" + "0" * 64
    lost = Manifest("lost", "made", 0.0, (File("lost.gguf", digest, 5, "model"),))
    (store.manifests / "lost.json").write_text(lost.to_json())
    code, found = look(llamay)

    assert code == 1
    texts = [each["text"] for each in found["store"] if each["state"] == "fail"]
    assert len(texts) == 2
    assert "broken" in texts[0]
    assert "lost.gguf is missing" in texts[1]


def test_misspelt_variables_and_broken_settings_are_found(
    llamay: Llamay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLAMAY_THREDS", "2")
    monkeypatch.setenv("LLAMAY_THREADS", "2")
    monkeypatch.setenv("LLAMAY_MODEL_MEM_BUDGET", "4g")
    folder = tmp_path / "config" / "llamay"
    folder.mkdir(parents=True)
    (folder / "server.toml").write_text("prot = 1\n")
    code, found = look(llamay)

    assert code == 1
    assert [each["text"] for each in found["variables"]] == ["LLAMAY_THREDS is set, and nothing reads it"]
    assert any("prot" in each["text"] for each in found["settings"] if each["state"] == "fail")


def test_a_look_that_fails_hides_no_other(llamay: Llamay, monkeypatch: pytest.MonkeyPatch) -> None:
    def memory() -> Any:
        raise OSError("no /proc here")
        yield

    monkeypatch.setattr(doctor, "LOOKS", (memory, doctor.packages, doctor.limits))
    code, found = look(llamay)

    assert code == 1
    assert found["memory"][0]["text"] == "no /proc here"
    assert found["packages"][0]["state"] == "ok"
