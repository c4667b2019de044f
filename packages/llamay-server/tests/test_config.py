"""Settings: flags over environment over file over defaults, each shown with its origin."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay_server import Config, ConfigError, load_config, main, show_config
from llamay_server.engine.snapshot_key import read_key
from llamay_server.settings import parse_bytes, parse_seconds


def test_flags_beat_environment_beats_file_beats_default(tmp_path):
    file = tmp_path / "server.toml"
    file.write_text('port = 1\nhost = "::1"\nmax-queue = 7\norigins = ["https://a.example"]\n')
    env = {
        "LLAMAY_PORT": "2",
        "LLAMAY_LOG_JSON": "yes",
        "LLAMAY_CONFIG": str(file),
        "OLLAMA_KEEP_ALIVE": "5m",
    }
    config, origin = load_config({"port": "3"}, env=env)
    assert (config.port, config.host, config.max_queue, config.log_json) == (3, "::1", 7, True)
    assert config.keep_alive == 300
    assert config.origins == ("https://a.example",)
    assert origin["port"] == "flag"
    assert origin["log_json"] == "environment LLAMAY_LOG_JSON"
    assert origin["keep_alive"] == "environment OLLAMA_KEEP_ALIVE"
    assert origin["host"] == f"file {file}"
    assert origin["max_n"] == "default"


def test_the_folder_of_packed_weights_is_set_like_all_else_and_shown(tmp_path):
    file = tmp_path / "server.toml"
    file.write_text('packed-cache = "/from/file"\n')
    env = {"LLAMAY_CONFIG": str(file)}
    assert load_config(env=env)[0].packed_cache == "/from/file"
    env["LLAMAY_PACKED_CACHE"] = "/from/environment"
    assert load_config(env=env)[0].packed_cache == "/from/environment"
    config, origin = load_config({"packed_cache": "/from/flag"}, env=env)
    assert config.packed_cache == "/from/flag"
    assert any(
        "packed_cache" in line and "/from/flag" in line for line in show_config(config, origin).splitlines()
    )


@pytest.mark.parametrize(
    ("value", "host", "port"),
    [
        ("0.0.0.0:80", "0.0.0.0", 80),
        (":8080", "127.0.0.1", 8080),
        ("http://box:1/", "box", 1),
        ("[::1]:5", "::1", 5),
        ("box", "box", 11435),
    ],
)
def test_ol25_ollama_host_in_all_its_forms(value, host, port):
    config, _ = load_config(env={"OLLAMA_HOST": value})
    assert (config.host, config.port) == (host, port)


def test_own_variables_win_over_those_of_others():
    config, _ = load_config(env={"OLLAMA_HOST": "a:1", "LLAMAY_HOST": "b"})
    assert (config.host, config.port) == ("b", 1)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"port": "x"}, "port"),
        ({"port": 70000}, "65535"),
        ({"profile": "lax"}, "enterprise"),
        ({"tls_cert": "x"}, "tls_key"),
        ({"max_queue": 0}, "max_queue"),
        ({"nothing": 1}, "nothing"),
        ({"log_level": "loud"}, "log_level"),
        ({"metrics": "perhaps"}, "true or false"),
        ({"max_body": "many"}, "size"),
        ({"keep_alive": "soon"}, "duration"),
    ],
)
def test_a_bad_setting_is_named(flags, words):
    with pytest.raises(ConfigError, match=words):
        load_config(flags, env={})


def test_a_bad_file_is_named(tmp_path):
    file = tmp_path / "s.toml"
    for text, words in (
        ("port = ", "s.toml"),
        ("unknown = 1", "unknown"),
        ("port = true", "whole number"),
        ('origins = "a,b"\nmodels = [1]', "list of text"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            load_config(file=file, env={})
    with pytest.raises(ConfigError, match="No such file"):
        load_config(file=tmp_path / "none", env={})


def test_what_is_shown_is_toml_and_hides_secrets():
    config, origin = load_config({"api_keys": "ann:top-secret", "origins": "a,b", "uds": 'x"\n'}, env={})
    text = show_config(config, origin)
    assert "top-secret" not in text
    value = tomllib.loads(text)
    assert value["port"] == 11435
    assert value["origins"] == ["a", "b"]
    assert value["uds"] == 'x"\n'
    assert "1 set, not shown; flag" in text
    again, _ = load_config({}, env={}, file=None)
    assert again == Config()


def test_sizes_and_durations():
    assert [parse_bytes(t) for t in ("512", "64k", "1.5GiB", "2 MB")] == [512, 65536, 3 << 29, 2 << 20]
    assert [parse_seconds(t) for t in ("30", "500ms", "5m", "1h30m", "-1", "-1m", "24h")] == [
        30,
        0.5,
        300,
        5400,
        -1,
        -60,
        86400,
    ]
    for bad in ("", "m", "5 parsecs", "1h-3m", "--1", "1..2"):
        with pytest.raises(ValueError, match="duration"):
            parse_seconds(bad)
    for bad in ("", "k", "-5", "1e3", "5 q", "9" * 400):
        with pytest.raises(ValueError, match="size"):
            parse_bytes(bad)


@given(st.text(max_size=30))
def test_no_text_breaks_the_readers(text):
    for reader in (parse_bytes, parse_seconds):
        with contextlib.suppress(ValueError):
            reader(text)


def test_show_config_and_errors_on_the_command_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("OLLAMA_HOST", "LLAMAY_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert main(["--show-config", "--port", "99", "--no-web"]) == 0
    out = capsys.readouterr().out
    assert "port = 99  # flag" in out
    assert "web = false  # flag" in out
    assert main(["--port", "x", "m.gguf"]) == 1
    assert "port" in capsys.readouterr().err
    with pytest.raises(SystemExit) as e:
        main(["--unknown"])
    assert e.value.code == 2


def test_the_public_names_are_these():
    import llamay_server

    assert sorted(llamay_server.__all__) == llamay_server.__all__
    assert all(hasattr(llamay_server, name) for name in llamay_server.__all__)


def test_importing_does_not_load_an_engine():
    code = "import sys, llamay_server; heavy = ('llamay_models', 'llamay_kernels', 'numpy'); "
    code += "assert not [m for m in sys.modules if m.startswith(heavy)]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_key_of_snapshots_is_read_once_and_kept_private(tmp_path):
    file = tmp_path / "key"
    file.write_text("ab" * 32 + "\n")
    file.chmod(0o600)
    key = read_key(str(file))
    assert key.secret == b"\xab" * 32
    assert "ab" * 4 not in repr(key)
    assert key.name == read_key(str(file)).name
    file.write_bytes(b"short")
    with pytest.raises(ConfigError, match="holds 5 bytes"):
        read_key(str(file))
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="open to other users"):
        read_key(str(file))
    with pytest.raises(ConfigError, match="No such file"):
        read_key(str(tmp_path / "none"))


def test_settings_are_read_without_waiting_for_the_web_framework():
    code = (
        "import sys, llamay_server; llamay_server.load_config();"
        " assert set(llamay_server.__all__) <= set(dir(llamay_server));"
        " print(sorted({'litestar', 'uvicorn', 'llamay_models'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
